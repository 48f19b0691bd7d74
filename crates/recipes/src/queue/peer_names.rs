//! Names and data of items in other libraries' queues. No I/O.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::queue::lanes::{DIGITS, PLAIN, Segment};
use crate::queue::layout::Entry;
use crate::queue::options::PutOptions;
use crate::queue::peer_layouts::QueueLayout;

/// The prefixes of names.
const CURATOR: &str = "queue-";
const SIMPLE: &str = "qn-";
const KAZOO: &str = "entry-";

/// The separator around the id and the due time in Curator's names.
const SEPARATOR: char = '|';

/// The markers at the beginning of Curator's item files, before an item, and at the end.
const ITEM_FILE: i32 = 0x0001_0001;
const ITEM: u8 = 1;
const END: u8 = 2;

/// kazoo's default priority, and its largest one.
const KAZOO_PRIORITY: i32 = 100;
const LAST_KAZOO_PRIORITY: i32 = 999;

/// Values for the name of a new item if the caller does not set them.
pub(super) struct NameDefaults<'a> {
    /// The current time, in milliseconds since 1970.
    pub(super) now_unix_ms: u64,
    pub(super) id: &'a str,
}

/// A listed item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedItem {
    pub(super) entry: Entry,
    /// When it is due, in milliseconds since 1970.
    pub(super) due_unix_ms: u64,
}

impl QueueLayout {
    fn prefix(self) -> &'static str {
        match self {
            Self::CuratorSimple => SIMPLE,
            Self::KazooQueue | Self::KazooLocking => KAZOO,
            _ => CURATOR,
        }
    }

    /// The name of a new item, without its number; or why these options are invalid, although the layout supports
    /// them.
    pub(super) fn new_name(
        self,
        options: &PutOptions,
        default: &NameDefaults<'_>,
    ) -> Result<String, String> {
        let prefix = self.prefix();
        Ok(match self {
            Self::CuratorPriority => {
                let priority = options.priority.unwrap_or_default();
                // So that the text sorts like the numbers.
                format!("{prefix}{}{priority:08X}", u8::from(priority >= 0))
            }
            Self::KazooQueue | Self::KazooLocking => {
                let priority = options.priority.unwrap_or(KAZOO_PRIORITY);
                if !(0..=LAST_KAZOO_PRIORITY).contains(&priority) {
                    let last = LAST_KAZOO_PRIORITY;
                    return Err(format!("priority {priority} is not between 0 and {last}"));
                }
                format!("{prefix}{priority:03}-")
            }
            Self::CuratorDelay => {
                let due = options.due_from(default.now_unix_ms);
                // Curator's programs read no others.
                if due == 0 || i64::try_from(due).is_err() {
                    return Err(format!("{due} ms is outside of Curator's range of times"));
                }
                format!("{prefix}{SEPARATOR}{due:08X}{SEPARATOR}")
            }
            Self::CuratorId => {
                let id = options.id.as_deref().unwrap_or(default.id);
                // Curator would write another one, under which its own programs do not find the item.
                if id.is_empty() || id.contains(['/', SEPARATOR]) {
                    return Err(format!("the id {id:?} is empty, or has a / or |"));
                }
                format!("{prefix}{SEPARATOR}{id}{SEPARATOR}")
            }
            _ => prefix.to_owned(),
        })
    }

    /// The items among these names, in the order in which they are taken. Other names are ignored.
    pub(super) fn items_of(self, names: &[String]) -> Vec<NamedItem> {
        let mut items: Vec<_> = names.iter().filter_map(|name| self.read(name)).collect();
        items.sort_by(|a, b| self.order(a).cmp(&self.order(b)));
        items
    }

    fn read(self, name: &str) -> Option<NamedItem> {
        name.strip_prefix(self.prefix())?;
        let (_, digits) = without_number(name)?;
        let number = digits.parse().ok()?;
        let due_unix_ms = if self == Self::CuratorDelay { due_of(name) } else { 0 };
        // The name is not used again, because it has a number.
        let entry = Entry::plain(Segment::first_of(PLAIN), number, name.to_owned());
        Some(NamedItem { entry, due_unix_ms })
    }

    /// The sort key of items.
    fn order(self, item: &NamedItem) -> (u64, &str, &str) {
        let name = item.entry.id.as_str();
        match self {
            Self::CuratorDelay => {
                (item.due_unix_ms, without_number(name).map_or(name, |(_, number)| number), "")
            }
            Self::CuratorId => match parts(name) {
                Some((before, _, after)) => (0, before, after),
                None => (0, name, ""),
            },
            _ => (0, name, ""),
        }
    }

    /// The data of the node of an item with this value.
    pub(super) fn to_data(self, value: &Bytes) -> Bytes {
        if !self.has_files() {
            return value.clone();
        }
        let mut file = BytesMut::with_capacity(value.len() + 10);
        file.put_i32(ITEM_FILE);
        file.put_u8(ITEM);
        file.put_i32(i32::try_from(value.len()).unwrap_or(i32::MAX));
        file.put_slice(value);
        file.put_u8(END);
        file.freeze()
    }

    /// The values in a node: one, unless it is a file in which a Curator program has put several together.
    pub(super) fn values(self, data: &Bytes) -> Result<Vec<Bytes>, String> {
        if !self.has_files() {
            return Ok(vec![data.clone()]);
        }
        let cut = |_| "Curator's item file is truncated".to_owned();
        let mut rest = data.clone();
        let version = rest.try_get_i32().map_err(cut)?;
        if version != ITEM_FILE {
            return Err(format!("{version:#010x} is not the version of Curator's item files"));
        }

        let mut values = Vec::new();
        loop {
            match rest.try_get_u8().map_err(cut)? {
                END => return Ok(values),
                ITEM => {}
                other => {
                    return Err(format!("{other} is not a valid marker in Curator's item files"));
                }
            }
            let length = rest.try_get_i32().map_err(cut)?;
            match usize::try_from(length) {
                Ok(length) if length <= rest.len() => values.push(rest.split_to(length)),
                _ => return Err(format!("an item of Curator's file has {length} bytes")),
            }
        }
    }
}

/// The name for an item that is put back: the name under which it was put, without its number.
pub(super) fn same_slot(name: &str) -> &str {
    without_number(name).map_or(name, |(before, _)| before)
}

fn without_number(name: &str) -> Option<(&str, &str)> {
    let (before, digits) = name.split_at_checked(name.len().checked_sub(DIGITS)?)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then_some((before, digits))
}

/// The texts before, between and after the first two separators.
fn parts(name: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = name.split_once(SEPARATOR)?;
    let (between, after) = rest.split_once(SEPARATOR)?;
    Some((before, between, after))
}

/// When the item of this name is due. As in Curator, an item without a time is due at once.
fn due_of(name: &str) -> u64 {
    let due = name.rsplit(SEPARATOR).nth(1).filter(|_| parts(name).is_some());
    due.and_then(|due| i64::from_str_radix(due, 16).ok())
        .and_then(|due| u64::try_from(due).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const DEFAULTS: NameDefaults<'_> = NameDefaults { now_unix_ms: 0x0123_4567, id: "7f" };

    fn name(layout: QueueLayout, options: &PutOptions) -> Result<String, String> {
        layout.new_name(options, &DEFAULTS)
    }

    fn order(layout: QueueLayout, names: &[&str]) -> Vec<String> {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        layout.items_of(&names).into_iter().map(|item| item.entry.id).collect()
    }

    #[test]
    fn names_are_those_of_the_other_libraries() {
        use QueueLayout::{
            CuratorDelay, CuratorId, CuratorPriority, CuratorQueue, CuratorSimple, KazooLocking,
            KazooQueue,
        };
        let none = PutOptions::new;
        let priority = |number| none().priority(number);
        for (layout, options, named) in [
            (CuratorQueue, none(), "queue-"),
            (CuratorSimple, none(), "qn-"),
            (CuratorPriority, none(), "queue-100000000"),
            (CuratorPriority, priority(255), "queue-1000000FF"),
            (CuratorPriority, priority(-1), "queue-0FFFFFFFF"),
            (CuratorPriority, priority(i32::MIN), "queue-080000000"),
            (CuratorDelay, none(), "queue-|01234567|"),
            (CuratorDelay, none().delay(Duration::from_millis(9)), "queue-|01234570|"),
            (CuratorDelay, none().due_unix_ms(0x19_8A5B_6C7D), "queue-|198A5B6C7D|"),
            (CuratorId, none(), "queue-|7f|"),
            (CuratorId, none().id("a.b-1"), "queue-|a.b-1|"),
            (KazooQueue, none(), "entry-100-"),
            (KazooLocking, priority(7), "entry-007-"),
        ] {
            assert_eq!(name(layout, &options), Ok(named.to_owned()));
        }

        for (layout, options) in [
            (KazooQueue, priority(1_000)),
            (KazooLocking, priority(-1)),
            (CuratorDelay, none().due_unix_ms(0)),
            (CuratorDelay, none().due_unix_ms(u64::MAX)),
            (CuratorId, none().id("a/b")),
            (CuratorId, none().id("a|b")),
            (CuratorId, none().id("")),
        ] {
            assert!(name(layout, &options).is_err());
        }
    }

    #[test]
    fn items_come_in_the_order_of_the_other_libraries() {
        let by_number = ["queue-0000000002", "queue-0000000010"];
        assert_eq!(order(QueueLayout::CuratorQueue, &[by_number[1], by_number[0]]), by_number);

        // An item that Curator puts back has lost its priority, and so comes before those without a sign.
        let by_priority = [
            "queue-0000000012",
            "queue-0FFFFFFFF0000000003",
            "queue-1000000000000000002",
            "queue-1000000050000000001",
        ];
        let listed = [by_priority[3], by_priority[0], by_priority[2], by_priority[1]];
        assert_eq!(order(QueueLayout::CuratorPriority, &listed), by_priority);

        let by_due =
            ["queue-0000000009", "queue-|00000001|0000000008", "queue-|00000001|0000000010"];
        let due = |name: &str| QueueLayout::CuratorDelay.read(name).map(|item| item.due_unix_ms);
        assert_eq!(order(QueueLayout::CuratorDelay, &[by_due[2], by_due[1], by_due[0]]), by_due);
        assert_eq!((due(by_due[0]), due(by_due[1])), (Some(0), Some(1)));
        assert_eq!(due("queue-|xyz|0000000001"), Some(0));
        assert_eq!(due("queue-|198A5B6C7D|0000000001"), Some(0x19_8A5B_6C7D));

        let by_id = ["queue-|z|0000000001", "queue-|a|0000000002"];
        assert_eq!(order(QueueLayout::CuratorId, &[by_id[1], by_id[0]]), by_id);

        let by_kazoo = ["entry-007-0000000009", "entry-100-0000000001"];
        assert_eq!(order(QueueLayout::KazooQueue, &[by_kazoo[1], by_kazoo[0]]), by_kazoo);
    }

    #[test]
    fn foreign_names_are_no_items() {
        for foreign in ["lock-0000000001", "queue-1", "queue-", "queue-00000000é1", "x", ""] {
            assert_eq!(order(QueueLayout::CuratorQueue, &[foreign]), [""; 0], "{foreign}");
        }
        assert_eq!(order(QueueLayout::KazooQueue, &["queue-0000000001"]), [""; 0]);
    }

    #[test]
    fn what_is_put_back_keeps_its_slot() {
        assert_eq!(same_slot("queue-1000000FF0000000003"), "queue-1000000FF");
        assert_eq!(same_slot("entry-007-0000000009"), "entry-007-");
    }

    #[test]
    fn item_files_are_curators() {
        let layout = QueueLayout::CuratorQueue;
        let file = layout.to_data(&Bytes::from_static(b"hi"));
        assert_eq!(&file[..], b"\0\x01\0\x01\x01\0\0\0\x02hi\x02");
        assert_eq!(layout.values(&file), Ok(vec![Bytes::from_static(b"hi")]));
        assert_eq!(QueueLayout::KazooQueue.to_data(&file), file);

        let several = Bytes::from_static(b"\0\x01\0\x01\x01\0\0\0\x01a\x01\0\0\0\0\x02");
        assert_eq!(layout.values(&several).unwrap(), [&b"a"[..], b""]);
        assert_eq!(layout.values(&Bytes::from_static(b"\0\x01\0\x01\x02")), Ok(Vec::new()));
        for end in 0..file.len() {
            assert!(layout.values(&file.slice(..end)).is_err(), "{end}");
        }
        for bad in
            [&b"\0\x01\0\x02\x02"[..], b"\0\x01\0\x01\x03", b"\0\x01\0\x01\x01\xff\xff\xff\xff\x02"]
        {
            assert!(layout.values(&Bytes::from_static(bad)).is_err(), "{bad:?}");
        }
    }
}

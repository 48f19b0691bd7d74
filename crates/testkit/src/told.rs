//! What programs that share data say, in a form that is read again when it comes from another process.

use std::fmt;

/// An instance of a service, as a directory lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The name of its node.
    pub id: String,
    /// The transaction that made its node.
    pub czxid: i64,
    /// Its weight, which grows with each change.
    pub weight: u32,
}

/// Something that a program did to shared data, or was told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It wrote a version of the tree.
    Wrote {
        /// The transaction.
        zxid: i64,
        /// The version of the node at the top.
        version: i32,
    },
    /// A cache showed it the tree.
    Saw {
        /// The transaction whose tree it is, as the cache says.
        zxid: i64,
        /// The version of the node at the top.
        version: i32,
        /// The transaction that wrote that version.
        mzxid: i64,
    },
    /// It begins to add 1 to the counter.
    Adds {
        /// Its own number for it.
        id: u64,
    },
    /// The add was confirmed.
    Added {
        /// As when it began.
        id: u64,
        /// The sum after it.
        after: i64,
    },
    /// The add was refused. Without this and the one above, nobody knows.
    NotAdded {
        /// As when it began.
        id: u64,
    },
    /// It begins to append an item to the list.
    Appends {
        /// The item, which nobody else has.
        item: u64,
    },
    /// That was confirmed.
    Appended {
        /// The item.
        item: u64,
    },
    /// That was refused.
    NotAppended {
        /// The item.
        item: u64,
    },
    /// The list, as a follower was told of it last.
    Followed {
        /// Its items.
        items: Vec<u64>,
    },
    /// A directory showed it the instances of a service.
    Lists {
        /// The transaction after which they were just these, as the directory says.
        zxid: i64,
        /// The instances.
        listings: Vec<Listing>,
    },
    /// It begins to publish an edition, or one again that was there.
    Publishes {
        /// Its own number for it.
        attempt: u64,
        /// What is in it.
        id: u64,
    },
    /// That was confirmed.
    Published {
        /// As when it began.
        attempt: u64,
        /// The number of the edition.
        number: u64,
    },
    /// It was refused. Without this and the one above, nobody knows.
    NotPublished {
        /// As when it began.
        attempt: u64,
    },
    /// A follower was told of an edition.
    Edition {
        /// Its number.
        number: u64,
        /// What is in it.
        id: u64,
    },
    /// The editions that there were in the end.
    Kept {
        /// What is in the last one, if there is one.
        last: Option<u64>,
        /// The numbers of those that are kept.
        numbers: Vec<u64>,
    },
    /// What there was in the end.
    Remains {
        /// The sum.
        sum: i64,
        /// The list.
        items: Vec<u64>,
    },
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, items: &[u64]| {
            items.iter().try_for_each(|item| write!(f, " {item}"))
        };
        match self {
            Self::Wrote { zxid, version } => write!(f, "wrote {zxid} {version}"),
            Self::Saw { zxid, version, mzxid } => write!(f, "saw {zxid} {version} {mzxid}"),
            Self::Adds { id } => write!(f, "adds {id}"),
            Self::Added { id, after } => write!(f, "added {id} {after}"),
            Self::NotAdded { id } => write!(f, "not-added {id}"),
            Self::Appends { item } => write!(f, "appends {item}"),
            Self::Appended { item } => write!(f, "appended {item}"),
            Self::NotAppended { item } => write!(f, "not-appended {item}"),
            Self::Followed { items } => {
                write!(f, "followed")?;
                list(f, items)
            }
            Self::Lists { zxid, listings } => {
                write!(f, "lists {zxid}")?;
                listings.iter().try_for_each(|Listing { id, czxid, weight }| {
                    write!(f, " {id}:{czxid}:{weight}")
                })
            }
            Self::Publishes { attempt, id } => write!(f, "publishes {attempt} {id}"),
            Self::Published { attempt, number } => write!(f, "published {attempt} {number}"),
            Self::NotPublished { attempt } => write!(f, "not-published {attempt}"),
            Self::Edition { number, id } => write!(f, "edition {number} {id}"),
            Self::Kept { last: Some(last), numbers } => {
                write!(f, "kept {last}")?;
                list(f, numbers)
            }
            Self::Kept { last: None, numbers } => {
                write!(f, "kept none")?;
                list(f, numbers)
            }
            Self::Remains { sum, items } => {
                write!(f, "remains {sum}")?;
                list(f, items)
            }
        }
    }
}

impl Told {
    /// Reads the words of what [`Told`] prints; `None` if they are something else.
    pub fn read(words: &[&str]) -> Option<Self> {
        let id = |word: &str| word.parse().ok();
        let zxid = |word: &str| word.parse().ok();
        let version = |word: &str| word.parse().ok();
        let items = |words: &[&str]| -> Option<Vec<u64>> {
            words.iter().map(|word| word.parse().ok()).collect()
        };
        Some(match words {
            ["wrote", by, at] => Self::Wrote { zxid: zxid(by)?, version: version(at)? },
            ["saw", then, at, by] => {
                Self::Saw { zxid: zxid(then)?, version: version(at)?, mzxid: zxid(by)? }
            }
            ["adds", number] => Self::Adds { id: id(number)? },
            ["added", number, after] => Self::Added { id: id(number)?, after: after.parse().ok()? },
            ["not-added", number] => Self::NotAdded { id: id(number)? },
            ["appends", item] => Self::Appends { item: id(item)? },
            ["appended", item] => Self::Appended { item: id(item)? },
            ["not-appended", item] => Self::NotAppended { item: id(item)? },
            ["followed", list @ ..] => Self::Followed { items: items(list)? },
            ["lists", then, list @ ..] => {
                let listings = list.iter().map(|word| Listing::read(word));
                Self::Lists { zxid: zxid(then)?, listings: listings.collect::<Option<_>>()? }
            }
            ["publishes", attempt, it] => Self::Publishes { attempt: id(attempt)?, id: id(it)? },
            ["published", attempt, number] => {
                Self::Published { attempt: id(attempt)?, number: id(number)? }
            }
            ["not-published", attempt] => Self::NotPublished { attempt: id(attempt)? },
            ["edition", number, it] => Self::Edition { number: id(number)?, id: id(it)? },
            ["kept", "none", list @ ..] => Self::Kept { last: None, numbers: items(list)? },
            ["kept", last, list @ ..] => {
                Self::Kept { last: Some(id(last)?), numbers: items(list)? }
            }
            ["remains", sum, list @ ..] => {
                Self::Remains { sum: sum.parse().ok()?, items: items(list)? }
            }
            _ => return None,
        })
    }
}

impl Listing {
    fn read(word: &str) -> Option<Self> {
        let (rest, weight) = word.rsplit_once(':')?;
        let (id, czxid) = rest.rsplit_once(':')?;
        Some(Self { id: id.to_owned(), czxid: czxid.parse().ok()?, weight: weight.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_again() {
        let all = [
            Told::Wrote { zxid: 7, version: 3 },
            Told::Saw { zxid: 9, version: -2, mzxid: 7 },
            Told::Adds { id: u64::MAX },
            Told::Added { id: 4, after: -1 },
            Told::NotAdded { id: 4 },
            Told::Appends { item: 5 },
            Told::Appended { item: 5 },
            Told::NotAppended { item: 5 },
            Told::Followed { items: vec![] },
            Told::Lists { zxid: 9, listings: vec![] },
            Told::Lists {
                zxid: 9,
                listings: vec![Listing { id: "a:b".into(), czxid: 7, weight: u32::MAX }],
            },
            Told::Publishes { attempt: 1, id: u64::MAX },
            Told::Published { attempt: 1, number: 2 },
            Told::NotPublished { attempt: 1 },
            Told::Edition { number: 2, id: 3 },
            Told::Kept { last: None, numbers: vec![] },
            Told::Kept { last: Some(7), numbers: vec![1, 2] },
            Told::Remains { sum: -3, items: vec![1, 2] },
        ];
        for told in all {
            let text = told.to_string();
            assert_eq!(Told::read(&text.split(' ').collect::<Vec<_>>()), Some(told), "{text}");
        }
        assert_eq!(Told::read(&["saw", "x", "1", "2"]), None);
        assert_eq!(Told::read(&["lists", "9", "a:1"]), None);
        assert_eq!(Told::read(&[]), None);
    }
}

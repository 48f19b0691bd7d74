//! How holders and waiters are written, for people and for programs.

use std::time::{Duration, SystemTime};

use lockkeeper::inspect::{DueDelay, Entry, Queue};
use lockkeeper::{Kind, OwnerInfo, SessionId};
use serde::Serialize;

/// Who a contender is: `web1 pid 123 (backup.sh)`.
pub(crate) fn who(entry: &Entry) -> String {
    match &entry.owner {
        Some(owner) => program(owner),
        None if !entry.is_readable => {
            format!("{}, which cannot be read", printable(entry.node.as_str()))
        }
        None if entry.session == SessionId::NONE => {
            "a node that is not ephemeral, so no session's end frees the lock".to_owned()
        }
        None if entry.is_revoked() => format!("session {}, asked to give way", entry.session),
        None => match std::str::from_utf8(&entry.data) {
            Ok(text) if !text.trim().is_empty() => shorten(&printable(text.trim())),
            _ => format!("session {}", entry.session),
        },
    }
}

pub(crate) fn program(owner: &OwnerInfo) -> String {
    let name = owner.label.as_ref().unwrap_or(&owner.program);
    let asked = if owner.revoked { "; asked to give way" } else { "" };
    printable(&format!("{} pid {} ({name}{asked})", owner.host, owner.pid))
}

/// Whether a program that asks for the lock now has it at once.
pub(crate) fn is_free(queue: &Queue) -> bool {
    queue.entries.is_empty() && queue.delay.is_none()
}

/// ", held by web1 pid 123 (backup.sh), in line since 12:03:07 (4s ago), and 2 more", or the lock delay
/// that is due; nothing if there is neither.
pub(crate) fn held_by(queue: &Queue) -> String {
    let mut holders = queue.holders();
    let Some(first) = holders.next() else {
        let due =
            |delay| format!(": {}, and its {} is not over", vanished(delay), lock_delay(delay));
        return queue.delay.as_ref().map(due).unwrap_or_default();
    };
    let others = match holders.count() {
        0 => String::new(),
        others => format!(", and {others} more"),
    };
    format!(", held by {}, in line since {}{others}", who(first), when(first))
}

/// "its last holder, web1 pid 123 (backup.sh), ended without releasing it".
pub(crate) fn vanished(delay: &DueDelay) -> String {
    let who = match (&delay.owner, &delay.left_by) {
        (Some(owner), _) => format!(", {},", program(owner)),
        (None, Some(node)) => format!(" ({})", printable(node.as_str())),
        (None, None) => String::new(),
    };
    format!("its last holder{who} ended without releasing it")
}

/// `lock delay of 30s`.
pub(crate) fn lock_delay(delay: &DueDelay) -> String {
    match delay.length {
        Some(length) => format!("lock delay of {}", duration(length)),
        None => "lock delay, of unknown length,".to_owned(),
    }
}

/// Since when it is in line: `12:03:07 (4s ago)`, by the local clock.
pub(crate) fn when(entry: &Entry) -> String {
    let since = jiff::Timestamp::try_from(entry.since).map_or_else(
        |_| "?".to_owned(),
        |since| since.to_zoned(jiff::tz::TimeZone::system()).strftime("%H:%M:%S").to_string(),
    );
    format!("{since} ({} ago)", duration(entry.age()))
}

/// A duration in at most two units: `250ms`, `4s`, `3m 20s`, `2d 5h`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let two = |large: u64, small: u64, names: (&str, &str)| match small {
        0 => format!("{large}{}", names.0),
        _ => format!("{large}{} {small}{}", names.0, names.1),
    };
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3_600 => two(seconds / 60, seconds % 60, ("m", "s")),
        3_600..86_400 => two(seconds / 3_600, seconds / 60 % 60, ("h", "m")),
        _ => two(seconds / 86_400, seconds / 3_600 % 24, ("d", "h")),
    }
}

/// What others wrote is data: it must not move the cursor, turn the direction of what follows, or
/// begin a line.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if steers_the_terminal(c) { '\u{fffd}' } else { c }).collect()
}

/// All of some names: `/a`, or `/a, /b and /c`.
pub(crate) fn all_of<T: ToString>(names: impl IntoIterator<Item = T>) -> String {
    let mut names: Vec<_> = names.into_iter().map(|name| name.to_string()).collect();
    match (names.pop(), names.is_empty()) {
        (Some(last), false) => format!("{} and {last}", names.join(", ")),
        (last, _) => last.unwrap_or_default(),
    }
}

/// The first of some names: there may be thousands.
pub(crate) fn listed(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown: Vec<_> = names.iter().take(SHOWN).map(|name| printable(name)).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn steers_the_terminal(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}')
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// What a contender asks for, in a word.
fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Exclusive => "exclusive",
        Kind::Read => "read",
        Kind::Upgradeable => "upgradeable",
        Kind::Write => "write",
        Kind::Permits(_) | Kind::Lease => "permits",
        _ => "other",
    }
}

/// `1 permit`, `2 permits`.
pub(crate) fn permits(number: u32) -> String {
    match number {
        1 => "1 permit".to_owned(),
        number => format!("{number} permits"),
    }
}

/// What a contender asks for: `write`, `2 permits`.
pub(crate) fn wish(entry: &Entry) -> String {
    match entry.kind.permits() {
        Some(number) => permits(number),
        None => kind(entry.kind).to_owned(),
    }
}

/// How a lock stands: `held, 2 waiting`, `2 of 3 permits held, nobody waits`.
pub(crate) fn summary(queue: &Queue) -> String {
    let (holders, waiting) = (queue.holders().count(), queue.waiters().count());
    let held = match (permits_held(queue), queue.permits) {
        _ if holders + waiting == 0 && queue.delay.is_some() => return "not free".to_owned(),
        _ if holders + waiting == 0 => return "free".to_owned(),
        _ if holders == 0 && queue.delay.is_some() => "not held".to_owned(),
        (Some(held), Some(permits)) => format!("{held} of {permits} permits held"),
        (Some(held), None) => format!("{held} permits held"),
        (None, _) if holders == 1 => "held".to_owned(),
        (None, _) => format!("{holders} holders"),
    };
    match waiting {
        0 => format!("{held}, nobody waits"),
        waiting => format!("{held}, {waiting} waiting"),
    }
}

/// How many permits are taken, if it is a semaphore.
fn permits_held(queue: &Queue) -> Option<u64> {
    let is_semaphore = queue.entries.iter().any(|entry| entry.kind.permits().is_some());
    let taken = queue.holders().filter_map(|entry| entry.kind.permits()).map(u64::from);
    is_semaphore.then(|| taken.sum())
}

/// Rows in aligned columns, two blanks apart; the first row is the heading.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        format!("{}\n", line.trim_end())
    };
    rows.iter().map(line).collect()
}

/// A contender as JSON. The names are stable.
#[derive(Debug, Serialize)]
pub(crate) struct Contender<'a> {
    /// 1 for the first in line.
    position: usize,
    state: &'static str,
    kind: &'static str,
    /// How many it holds or asks for, of a semaphore.
    permits: Option<u32>,
    node: &'a str,
    /// As text: it may be more than a number, and is larger than what some readers keep exactly.
    token: String,
    session: String,
    since_unix_ms: u128,
    age_ms: u128,
    /// Whether it was asked to give way.
    revoked: bool,
    owner: Option<&'a lockkeeper::OwnerInfo>,
    /// The node's data, where another library wrote it.
    data: Option<std::borrow::Cow<'a, str>>,
}

/// A lock delay that is due, as JSON. The names are stable. How much is left is known only to the contender
/// that waits it out.
#[derive(Debug, Serialize)]
pub(crate) struct Delay<'a> {
    /// How long it is; `null` if that cannot be read.
    delay_ms: Option<u128>,
    /// Whether a contender waits it out, so that no more than all of it is left. Otherwise it begins with
    /// the next contender.
    waited_out: bool,
    /// The node of the holder that vanished.
    left_by: Option<&'a str>,
    owner: Option<&'a OwnerInfo>,
    /// The node that records the delay.
    mark: &'a str,
}

/// The lock delay of a queue, if one is due.
pub(crate) fn delay(queue: &Queue) -> Option<Delay<'_>> {
    let DueDelay { mark, length, left_by, owner, .. } = queue.delay.as_ref()?;
    Some(Delay {
        delay_ms: length.map(|length| length.as_millis()),
        waited_out: !queue.entries.is_empty(),
        left_by: left_by.as_ref().map(AsRef::as_ref),
        owner: owner.as_ref(),
        mark: mark.as_str(),
    })
}

/// The contenders of a queue, first to last.
pub(crate) fn contenders(queue: &Queue) -> Vec<Contender<'_>> {
    let numbered = queue.entries.iter().enumerate();
    numbered.map(|(index, entry)| Contender::new(index + 1, entry)).collect()
}

impl<'a> Contender<'a> {
    fn new(position: usize, entry: &'a Entry) -> Self {
        let since = entry.since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            position,
            state: if entry.holds { "holds" } else { "waits" },
            kind: kind(entry.kind),
            permits: entry.kind.permits(),
            node: entry.node.as_str(),
            token: entry.token.to_string(),
            session: entry.session.to_string(),
            since_unix_ms: since.as_millis(),
            age_ms: entry.age().as_millis(),
            revoked: entry.is_revoked(),
            owner: entry.owner.as_ref(),
            data: match entry.owner {
                Some(_) => None,
                None => Some(String::from_utf8_lossy(&entry.data)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        for (ms, text) in [
            (250, "250ms"),
            (4_900, "4s"),
            (60_000, "1m"),
            (200_000, "3m 20s"),
            (7_260_000, "2h 1m"),
            (190_800_000, "2d 5h"),
        ] {
            assert_eq!(duration(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["A".into(), "B".into()], vec!["long".into(), "x".into()]];
        assert_eq!(table(&rows), "A     B\nlong  x\n");
    }

    #[test]
    fn what_others_wrote_does_not_reach_the_terminal_as_it_is() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
        for c in ['\u{202e}', '\u{2066}', '\u{2069}', '\u{200f}', '\u{2028}', '\u{2029}'] {
            assert_eq!(printable(&format!("a{c}b")), "a\u{fffd}b");
        }
        assert_eq!(printable("ä 漢 🔒"), "ä 漢 🔒");
    }

    #[test]
    fn many_names_are_cut_short() {
        let names: Vec<_> = (0..12).map(|n| format!("n{n}\n")).collect();
        assert_eq!(listed(&names[..1]), "n0\u{fffd}");
        assert!(listed(&names).ends_with("n9\u{fffd} and 2 more"), "{}", listed(&names));
    }
}

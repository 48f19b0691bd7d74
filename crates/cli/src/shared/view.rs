//! Formats locks, holders and waiters, as text and as JSON.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use lockkeeper::inspect::{DueDelay, Entry, LockQueue};
use lockkeeper::{Kind, OwnerInfo, RevokeRequest, SessionId, ZnodePath};
use serde::Serialize;

/// Describes a contender: `web1 pid 123 (backup.sh)`.
pub(crate) fn who(entry: &Entry) -> String {
    match &entry.owner {
        Some(owner) => program(owner),
        None if !entry.is_readable => {
            format!("{} (unreadable)", printable(entry.node.as_str()))
        }
        None if entry.session == SessionId::NONE => {
            "a persistent node, which no session's end deletes".to_owned()
        }
        None if entry.is_revoked() => {
            let by = by_whom(entry.revoke_request().as_ref());
            format!("session {}, asked to release{by}", entry.session)
        }
        None => match std::str::from_utf8(&entry.data) {
            Ok(text) if !text.trim().is_empty() => shorten(&printable(text.trim()), SHORT),
            _ => format!("session {}", entry.session),
        },
    }
}

pub(crate) fn program(owner: &OwnerInfo) -> String {
    let name = owner.label.as_ref().unwrap_or(&owner.program);
    let person = owner.user.as_ref().map(|user| format!("{user} on ")).unwrap_or_default();
    let asked = match owner.revoked {
        true => format!("; asked to release{}", by_whom(owner.request.as_ref())),
        false => String::new(),
    };
    let why = owner.why.as_ref().map(|why| format!(": {}", shorten(why, LONG)));
    let why = why.unwrap_or_default();
    printable(&format!("{person}{} pid {} ({name}{asked}){why}", owner.host, owner.pid))
}

/// Who asks for a lock, and why: ` by ann on db1: maintenance`; empty if the request does not contain it.
pub(crate) fn by_whom(request: Option<&RevokeRequest>) -> String {
    let Some(request) = request else { return String::new() };
    let by = request.by.as_ref().map(|by| format!(" by {}", shorten(by, LONG)));
    let reason = request.reason.as_ref().map(|reason| format!(": {}", shorten(reason, LONG)));
    printable(&(by.unwrap_or_default() + &reason.unwrap_or_default()))
}

/// Whether a new contender would get the lock immediately.
pub(crate) fn is_free(queue: &LockQueue) -> bool {
    queue.entries.is_empty() && queue.delay.is_none()
}

/// ", held by web1 pid 123 (backup.sh), in line since 12:03:07 (4s ago), and 2 more", or the pending lock delay; empty
/// if there is neither. Includes the time of the grant if it is known.
pub(crate) fn held_by(queue: &LockQueue) -> String {
    let mut holders = queue.holders();
    let Some(first) = holders.next() else {
        let due = |delay| {
            format!(": {}, and its {} has not passed yet", vanished(delay), lock_delay(delay))
        };
        return queue.delay.as_ref().map(due).unwrap_or_default();
    };
    let others = match holders.count() {
        0 => String::new(),
        others => format!(", and {others} more"),
    };
    let since = match noted(first) {
        Some(held) => format!("held since {}", when(held)),
        None => format!("in line since {}", when(first.since)),
    };
    format!(", held by {}, {since}{others}", who(first))
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

/// When a contender got the lock, as far as that is known. The servers record only when it joined the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldSince {
    /// Recorded by the holder, according to its clock.
    Noted(SystemTime),
    /// Observed by this command, according to its clock.
    Observed(SystemTime),
}

/// The grants that this command observed: when each of these nodes got the lock.
pub(crate) type Observed = HashMap<ZnodePath, SystemTime>;

/// When a contender got the lock; `None` if it waits, or if the time is unknown.
pub(crate) fn held_since(entry: &Entry, observed: &Observed) -> Option<HeldSince> {
    let seen = || observed.get(&entry.node).copied().map(HeldSince::Observed);
    noted(entry).map(HeldSince::Noted).or_else(seen).filter(|_| entry.holds)
}

/// The time of the grant that the holder recorded.
fn noted(entry: &Entry) -> Option<SystemTime> {
    let ms = entry.owner.as_ref()?.held_since_unix_ms?;
    // The value comes from another program and may be out of range.
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms))
}

/// How long a contender holds or waits: `held 4s`, `observed 4s` if this command observed the grant, or `in line 4s` if
/// only the time in the queue is known.
pub(crate) fn how_long(entry: &Entry, observed: &Observed) -> String {
    let (what, since) = match held_since(entry, observed) {
        Some(HeldSince::Noted(since)) => ("held", since),
        Some(HeldSince::Observed(since)) => ("observed", since),
        None => ("in line", entry.since),
    };
    format!("{what} {}", duration(since.elapsed().unwrap_or_default()))
}

/// What a contender waits for: `1-2`, `1-2: 2 wanted, 1 free` for permits, `the lock delay`.
pub(crate) fn waits_for(queue: &LockQueue, index: usize) -> String {
    if queue.waits_for_delay(index) {
        return "the lock delay".to_owned();
    }
    let positions: Vec<_> = queue.blockers(index).map(|ahead| ahead + 1).collect();
    let wanted = queue.entries.get(index).and_then(|entry| entry.kind.permits());
    match (wanted, queue.free_permits()) {
        (Some(wanted), Some(free)) if !positions.is_empty() => {
            format!("{}: {wanted} wanted, {free} free", ranges(&positions))
        }
        _ => ranges(&positions),
    }
}

/// Formats ascending numbers as ranges: `1-3, 7`.
fn ranges(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let text = runs.map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        run => run.iter().map(ToString::to_string).collect(),
    });
    text.collect::<Vec<_>>().join(", ")
}

/// Formats a point in time by the local clock: `12:03:07 (4s ago)`.
pub(crate) fn when(time: SystemTime) -> String {
    let ago = duration(time.elapsed().unwrap_or_default());
    format!("{} ({ago} ago)", local(time, "%H:%M:%S"))
}

/// How long ago a recorded time is: `4s`.
pub(crate) fn ago(unix_ms: u64) -> String {
    let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms));
    // The value comes from another program and may be out of range.
    let since = since.map(|since| since.elapsed().unwrap_or_default());
    since.map(duration).unwrap_or_default()
}

/// Formats another program's data for one line.
pub(crate) fn value(data: &[u8]) -> String {
    match std::str::from_utf8(data) {
        Ok(text) => short(text),
        Err(_) => format!("{} bytes", data.len()),
    }
}

/// The current time, as the heading of one of several outputs.
pub(crate) fn now() -> String {
    local(SystemTime::now(), "%Y-%m-%d %H:%M:%S")
}

/// Formats a recorded time by the local clock: `2026-01-31 12:03:07`.
pub(crate) fn date(unix_ms: u64) -> String {
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms));
    time.map(|time| local(time, "%Y-%m-%d %H:%M:%S")).unwrap_or_default()
}

/// Formats a time by the local clock; `format` is a format of strftime(3).
pub(crate) fn local(time: SystemTime, format: &str) -> String {
    let zoned = jiff::Timestamp::try_from(time).map(|at| at.to_zoned(jiff::tz::TimeZone::system()));
    zoned.map_or_else(|_| "?".to_owned(), |at| at.strftime(format).to_string())
}

/// Formats a duration in at most two units: `250ms`, `4s`, `3m 20s`, `2d 5h`.
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

/// Replaces control characters in text from other programs: it must not move the cursor, change the text direction
/// or start a new line.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if steers_the_terminal(c) { '\u{fffd}' } else { c }).collect()
}

/// Joins names: `/a`, or `/a, /b and /c`.
pub(crate) fn all_of<T: ToString>(names: impl IntoIterator<Item = T>) -> String {
    let mut names: Vec<_> = names.into_iter().map(|name| name.to_string()).collect();
    match (names.pop(), names.is_empty()) {
        (Some(last), false) => format!("{} and {last}", names.join(", ")),
        (last, _) => last.unwrap_or_default(),
    }
}

/// Joins the first names: there may be thousands.
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

/// How many characters of another library's data, and of a user's text, are shown. JSON contains all of them.
const SHORT: usize = 40;
const LONG: usize = 80;

/// Shortens a user's text for one line.
pub(crate) fn short(text: &str) -> String {
    shorten(&printable(text), LONG)
}

fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// What a contender asks for, as one word.
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

/// The state of a lock: `held, 2 waiting`, `2 of 3 permits held, no waiters`.
pub(crate) fn summary(queue: &LockQueue) -> String {
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
        0 => format!("{held}, no waiters"),
        waiting => format!("{held}, {waiting} waiting"),
    }
}

/// How many permits of a semaphore are held; `None` for other locks.
fn permits_held(queue: &LockQueue) -> Option<u64> {
    let is_semaphore = queue.entries.iter().any(|entry| entry.kind.permits().is_some());
    let taken = queue.holders().filter_map(|entry| entry.kind.permits()).map(u64::from);
    is_semaphore.then(|| taken.sum())
}

/// Formats rows as aligned columns, separated by two spaces; the first row is the heading.
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

/// A contender as JSON. The field names are stable.
#[derive(Debug, Serialize)]
pub(crate) struct Contender<'a> {
    /// 1 for the first in the queue.
    position: usize,
    state: &'static str,
    kind: &'static str,
    /// The number of permits that it holds or waits for, if the lock is a semaphore.
    permits: Option<u32>,
    node: &'a str,
    /// A string: a token may contain more than a number, and may exceed the integers that JSON readers keep exactly.
    token: String,
    session: String,
    since_unix_ms: u128,
    age_ms: u128,
    /// When it got the lock; `null` if it waits, or if the time is unknown.
    held_since_unix_ms: Option<u128>,
    /// The source of that time: the holder (`noted`), or this command (`observed`).
    held_since_kind: Option<&'static str>,
    /// The positions of the contenders that it waits for.
    blocked_by: Vec<usize>,
    /// Whether only the lock delay keeps it waiting.
    waits_for_delay: bool,
    /// Whether it was asked to release the lock.
    revoked: bool,
    /// Who asked, and why, if the request contains it.
    revoke_request: Option<RevokeRequest>,
    owner: Option<&'a lockkeeper::OwnerInfo>,
    /// The node's data, if another library wrote it.
    data: Option<std::borrow::Cow<'a, str>>,
}

/// A pending lock delay as JSON. The field names are stable. Only the contender that waits for it knows how much of it
/// is left.
#[derive(Debug, Serialize)]
pub(crate) struct Delay<'a> {
    /// The length of the delay; `null` if it cannot be read.
    delay_ms: Option<u128>,
    /// Whether a contender is waiting for it to pass. Otherwise, the delay starts with the next contender.
    waited_out: bool,
    /// The node of the holder that ended without releasing the lock.
    left_by: Option<&'a str>,
    owner: Option<&'a OwnerInfo>,
    /// The node that records the delay.
    mark: &'a str,
}

/// The pending lock delay of a queue.
pub(crate) fn delay(queue: &LockQueue) -> Option<Delay<'_>> {
    let DueDelay { mark, length, left_by, owner, .. } = queue.delay.as_ref()?;
    Some(Delay {
        delay_ms: length.map(|length| length.as_millis()),
        waited_out: !queue.entries.is_empty(),
        left_by: left_by.as_ref().map(AsRef::as_ref),
        owner: owner.as_ref(),
        mark: mark.as_str(),
    })
}

/// The contenders of a queue, in order.
pub(crate) fn contenders<'a>(queue: &'a LockQueue, observed: &Observed) -> Vec<Contender<'a>> {
    (0..queue.entries.len()).map(|index| Contender::new(queue, index, observed)).collect()
}

/// Milliseconds since 1970.
pub(crate) fn unix_ms(time: SystemTime) -> u128 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis()
}

impl<'a> Contender<'a> {
    fn new(queue: &'a LockQueue, index: usize, observed: &Observed) -> Self {
        let (position, entry) = (index + 1, &queue.entries[index]);
        let (held_since, held_since_kind) = match held_since(entry, observed) {
            Some(HeldSince::Noted(since)) => (Some(since), Some("noted")),
            Some(HeldSince::Observed(since)) => (Some(since), Some("observed")),
            None => (None, None),
        };

        Self {
            position,
            state: if entry.holds { "holds" } else { "waits" },
            kind: kind(entry.kind),
            permits: entry.kind.permits(),
            node: entry.node.as_str(),
            token: entry.token.to_string(),
            session: entry.session.to_string(),
            since_unix_ms: unix_ms(entry.since),
            age_ms: entry.age().as_millis(),
            held_since_unix_ms: held_since.map(unix_ms),
            held_since_kind,
            blocked_by: queue.blockers(index).map(|ahead| ahead + 1).collect(),
            waits_for_delay: queue.waits_for_delay(index),
            revoked: entry.is_revoked(),
            revoke_request: entry.revoke_request(),
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
    fn numbers_in_a_row_are_a_range() {
        for (numbers, text) in
            [(&[][..], ""), (&[1], "1"), (&[1, 2], "1-2"), (&[1, 2, 3, 5, 7, 8], "1-3, 5, 7-8")]
        {
            assert_eq!(ranges(numbers), text);
        }
    }

    #[test]
    fn what_people_wrote_is_shown_short_and_without_control_characters() {
        let mut owner = OwnerInfo::current(Some("hold".to_owned()));
        (owner.user, owner.why) =
            (Some("ann".to_owned()), Some(format!("a\u{1b}[2J{}", "b".repeat(99))));
        let text = program(&owner);
        assert!(text.starts_with("ann on ") && text.contains(" (hold): a\u{fffd}[2Jb"), "{text}");
        assert!(text.ends_with("b...") && text.chars().count() < 200, "{text}");
        let mut request = RevokeRequest::default();
        assert_eq!(by_whom(Some(&request)), "");
        (request.by, request.reason) = (Some("bob".to_owned()), Some("an\nupgrade".to_owned()));
        assert_eq!(by_whom(Some(&request)), " by bob: an\u{fffd}upgrade");
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

//! What a run shows: who had how many turns, and who believed for too long.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use lockkeeper_testkit::beliefs::{Overlap, overlaps};
use lockkeeper_testkit::history::{Entry, History, What};

use crate::ensemble::programs::{Language, PARTICIPANTS};

#[derive(Default)]
struct Row {
    turns: usize,
    interrupted: usize,
    admitted: usize,
    refused: usize,
    overlaps: usize,
    longest: Duration,
}

/// A table with a row for each library and each of its locks, in Markdown.
pub(crate) fn table(history: &History) -> String {
    let mut rows: BTreeMap<(String, String), Row> = BTreeMap::new();
    for Entry { who, what, .. } in history.entries() {
        let is_of_lock = !matches!(
            what,
            What::Told(_)
                | What::InexactValue(_)
                | What::InexactSnapshot(_)
                | What::MissingInstance(_)
                | What::WrongView(_)
        );
        let Some(key) = key(who).filter(|_| is_of_lock) else { continue };
        let row = rows.entry(key).or_default();
        match what {
            What::Granted { .. } | What::Believes { .. } => row.turns += 1,
            What::Lost { .. } | What::Warned => row.interrupted += 1,
            What::Admitted { .. } => row.admitted += 1,
            What::Refused { .. } => row.refused += 1,
            _ => {}
        }
    }
    for Overlap { who, lasted, .. } in overlaps(history) {
        if let Some(row) = key(&who).and_then(|key| rows.get_mut(&key)) {
            row.overlaps += 1;
            row.longest = row.longest.max(lasted);
        }
    }
    let mut text = String::from(
        "| library | lock | turns | losses and warnings | writes: admitted | refused | believed for \
         too long | longest |\n|---|---|--:|--:|--:|--:|--:|--:|\n",
    );
    for ((library, lock), row) in rows {
        let Row { turns, interrupted, admitted, refused, overlaps, longest } = row;
        let longest = longest.as_secs_f64();
        let _ = writeln!(
            text,
            "| {library} | {lock} | {turns} | {interrupted} | {admitted} | {refused} | {overlaps} \
             | {longest:.2} s |"
        );
    }
    text
}

/// The library and the lock of a worker.
fn key(who: &str) -> Option<(String, String)> {
    let (name, lock) = who.split_once('/')?;
    let participant = PARTICIPANTS.iter().find(|participant| participant.name == name)?;
    let library = match participant.language {
        Language::Rust => "Lockkeeper",
        Language::Java => "Curator",
        Language::Python => "kazoo",
    };
    Some((library.to_owned(), lock.to_owned()))
}

//! `lockkeeper why`: shows the history of a lock from a recording.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use lockkeeper::ZnodePath;
use lockkeeper_engine::files::read_regular_file;
use serde::Serialize;

use super::history::{HistoryEvent, HistoryLine};
use super::{now, older};
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::{names, output, view};

const NOTES: &str = "\
The input is the file of lockkeeper record --file; no server is asked. For the current state, use lockkeeper show \
LOCK. Events outside of recordings are unknown; the lines `recording began` and `recording ended` mark their limits. \
Between `servers away` and `servers back` only the outcome is known, and its times are when it was seen.

Examples:
  lockkeeper why backups/nightly --file locks.history
  lockkeeper why backups/nightly --file locks.history --since 12h --json

Exit codes: 0; 1, the recording does not contain the lock; 65, the file cannot be read, or is not a history.";

/// The maximum size of a file, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// Show the history of a lock from a recording: its holders and waiters
#[derive(Debug, Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct WhyOptions {
    /// The lock
    #[arg(value_parser = names::lock)]
    lock: ZnodePath,

    /// The file that lockkeeper record has written
    #[arg(long, env = "LOCKKEEPER_HISTORY")]
    file: PathBuf,

    /// Show only events within this time
    #[arg(long, value_name = "DURATION", value_parser = names::nonzero_duration)]
    since: Option<Duration>,

    /// Show only the newest N events
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = names::nonzero)]
    last: usize,
}

/// The events as JSON, the oldest first. The field names are stable.
#[derive(Debug, Serialize)]
struct ShownHistory<'a> {
    lock: &'a str,
    events: &'a [HistoryLine],
}

/// Shows the events of a lock.
pub(crate) fn why(global: &Global, options: &WhyOptions) -> Result<u8, Failure> {
    let begin = options.since.map_or(0, |since| {
        now().saturating_sub(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    });
    let mut events = Vec::new();
    for file in [older(&options.file), options.file.clone()] {
        read(&file, file == options.file, |line| {
            if line.at_unix_ms >= begin && concerns(&line, &options.lock) {
                events.push(line);
            }
        })?;
    }

    let found = events.iter().any(|line| line.who.is_some());
    let events = &events[events.len().saturating_sub(options.last)..];
    let shown = ShownHistory { lock: options.lock.as_str(), events };
    output::show(global, &shown, || match found {
        true => text(events),
        false => format!("no recorded events of {}\n", options.lock),
    })?;
    Ok(if found { Exit::Ok } else { Exit::No }.code())
}

/// Reads the lines of a file, which may be missing unless `must`. Incomplete lines, and lines of a later version, are
/// skipped.
pub(super) fn read(
    file: &Path,
    must: bool,
    mut each: impl FnMut(HistoryLine),
) -> Result<(), Failure> {
    let text = match read_regular_file(file, MAX_BYTES) {
        Ok(text) => text,
        // The file is missing for a moment while the recorder makes it the older half.
        Err(error) if error.kind() == ErrorKind::NotFound && (!must || older(file).is_file()) => {
            return Ok(());
        }
        Err(error) => {
            return Err(Failure::new(Exit::Data, format!("{}: {error}", file.display())));
        }
    };
    let lines = text.split(|byte| *byte == b'\n');
    let mut understood = lines.filter_map(|line| serde_json::from_slice(line).ok()).peekable();
    if understood.peek().is_none() && !text.is_empty() {
        let message = format!("{} is not a file of lockkeeper record", file.display());
        return Err(Failure::new(Exit::Data, message));
    }
    understood.for_each(&mut each);
    Ok(())
}

/// Whether a line is about this lock, or about a recording that includes it.
fn concerns(line: &HistoryLine, lock: &ZnodePath) -> bool {
    match line.event {
        HistoryEvent::RecordingBegan
        | HistoryEvent::RecordingEnded
        | HistoryEvent::ServersAway
        | HistoryEvent::ServersBack => {
            let top = line.lock.trim_end_matches('/');
            lock.as_str()
                .strip_prefix(top)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        _ => line.lock == lock.as_str(),
    }
}

fn text(events: &[HistoryLine]) -> String {
    let mut rows = vec![["TIME", "EVENT", "WHO", ""].map(str::to_owned).to_vec()];
    rows.extend(events.iter().map(row));
    view::table(&rows)
}

fn row(line: &HistoryLine) -> Vec<String> {
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(line.at_unix_ms));
    let lasted = line.lasted_ms.map(|ms| view::duration(Duration::from_millis(ms)));
    let after = |what: &str| lasted.as_ref().map(|time| format!("{what} {time}"));
    let (event, detail) = match line.event {
        HistoryEvent::RecordingBegan => ("recording began", None),
        HistoryEvent::RecordingEnded => ("recording ended", None),
        HistoryEvent::ServersAway => ("servers away", None),
        HistoryEvent::ServersBack => ("servers back", None),
        HistoryEvent::Held => ("held", Some("when the recording began".to_owned())),
        HistoryEvent::Waits => ("waits", None),
        HistoryEvent::Granted if line.lasted_ms == Some(0) => {
            ("granted", Some("immediately".to_owned()))
        }
        HistoryEvent::Granted => ("granted", after("waited")),
        HistoryEvent::Asked => ("asked to release", line.request.clone()),
        HistoryEvent::Ended => ("ended", after("held")),
        HistoryEvent::Left => ("left the queue", after("waited")),
    };
    let time = at.map(|at| view::local(at, "%F %T")).unwrap_or_default();
    let who = line.who.as_deref().map(view::printable).unwrap_or_default();
    vec![time, event.to_owned(), who, view::printable(&detail.unwrap_or_default())]
}

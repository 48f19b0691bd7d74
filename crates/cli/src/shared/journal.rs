//! Lines for the journal of systemd, which takes their level from a prefix: see `sd-daemon(3)`.

use std::fmt;
use std::io;

use rustix::fs::fstat;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The prefix of a line that reports an error.
pub(crate) const ERROR: &str = "<3>";

/// Whether standard error is the journal, and not a file or pipe to which a program below the service has redirected
/// it.
pub(crate) fn is_stderr() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    fstat(io::stderr()).is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Formats log lines for the journal: with their level, and without the time, which the journal adds.
pub(crate) struct JournalFormat(Format<Full, ()>);

impl JournalFormat {
    pub(crate) fn new() -> Self {
        Self(Format::default().without_time().with_target(false).with_ansi(false))
    }
}

impl<S, N> FormatEvent<S, N> for JournalFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        writer.write_str(match *event.metadata().level() {
            Level::ERROR => ERROR,
            Level::WARN => "<4>",
            Level::INFO => "<6>",
            Level::DEBUG | Level::TRACE => "<7>",
        })?;
        self.0.format_event(context, writer, event)
    }
}

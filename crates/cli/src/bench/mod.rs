//! `lockkeeper bench`: how fast locks are on these servers.
//!
//! First what a request costs at all, then acquiring and releasing a lock that nobody else wants,
//! then the way of a lock from one session to the next. Every latency is kept, so the percentiles
//! are exact. What compares Lockkeeper with others is `cargo xtask bench`.

mod measure;
mod sample;

use std::fmt;
use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use clap::Args;
use lockkeeper::{BuildError, Client, Error, ErrorCode, ZnodePath};
use rustix::process::getpid;
use serde::Serialize;

use crate::connect::{self, Connection};
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::output::{print, print_json};
use crate::{names, view};

use measure::{cycles, hand_overs, round_trips};
use sample::Figures;

/// Measure how fast locks are on the servers
///
/// The load is that of a busy program: take care on servers that others use. Without
/// --connect it measures this machine's engine. All that it makes is deleted again.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How long each row of the table is measured
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = names::some_time)]
    time: Duration,
}

/// What one row measures, and how many at the same time.
type Row = (What, u32);

/// What is measured. The names are stable.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum What {
    RoundTrip,
    Cycle,
    HandOver,
}

const ROWS: [Row; 6] = [
    (What::RoundTrip, 1),
    (What::Cycle, 1),
    (What::Cycle, 16),
    (What::Cycle, 64),
    (What::HandOver, 2),
    (What::HandOver, 8),
];

/// The figures as JSON. The names are stable.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    servers: &'a str,
    time_ms: u128,
    rows: Vec<ShownRow>,
}

#[derive(Debug, Serialize)]
struct ShownRow {
    row: What,
    /// How many at the same time.
    parallel: u32,
    #[serde(flatten)]
    figures: Figures,
}

/// Where it is measured.
#[derive(Debug)]
struct Range<'a> {
    global: &'a Global,
    connection: &'a Connection,
    /// All locks are below this one.
    root: ZnodePath,
    time: Duration,
}

/// Measures all rows.
pub(crate) async fn bench(global: &Global, options: Options) -> Result<u8, Failure> {
    let connection = Connection::open(global).await?;
    let name = format!("lockkeeper-bench-{}", getpid().as_raw_nonzero());
    let root = ZnodePath::root().child(&name).map_err(BuildError::from)?;
    let range = Range { global, connection: &connection, root, time: options.time };
    let rows = range.measure().await;
    let cleared = range.clear().await;
    connection.close().await;
    let (rows, ()) = (rows?, cleared?);
    if global.json {
        let (servers, time_ms) = (connection.servers.as_str(), options.time.as_millis());
        print_json(&Shown { servers, time_ms, rows })?;
    }
    Ok(Exit::Ok.code())
}

impl Range<'_> {
    async fn measure(&self) -> Result<Vec<ShownRow>, Failure> {
        let time = view::duration(self.time);
        self.say(&format!("{}, {time} for each row\n", self.connection.servers))?;
        self.say(&line(["", "AT ONCE", "PER SECOND", "P50", "P99", "P99.9", "MAX"]))?;
        let mut rows = Vec::with_capacity(ROWS.len());
        for (row, parallel) in ROWS {
            self.progress(&format!("measuring: {row} ({parallel})"));
            let figures = self.figures((row, parallel)).await;
            self.progress("");
            let figures = figures?;
            self.say(&describe((row, parallel), &figures))?;
            rows.push(ShownRow { row, parallel, figures });
        }
        Ok(rows)
    }

    async fn figures(&self, (what, parallel): Row) -> Result<Figures, Failure> {
        let client = &self.connection.client;
        match what {
            What::RoundTrip => round_trips(client, self.time).await,
            What::Cycle => {
                let locks = (0..parallel).map(|task| self.lock(task)).collect::<Result<_, _>>()?;
                cycles(client, locks, self.time).await
            }
            What::HandOver => {
                let mut own = Vec::new();
                for _ in 0..parallel {
                    own.push(self.client().await?);
                }
                let figures = hand_overs(&own, &self.lock(0)?, self.time).await;
                for client in own {
                    client.close().await;
                }
                figures
            }
        }
    }

    /// A session of its own.
    async fn client(&self) -> Result<Client, Failure> {
        Ok(connect::builder(self.global)?.connect(&self.connection.servers).await?)
    }

    fn lock(&self, number: u32) -> Result<ZnodePath, BuildError> {
        Ok(self.root.child(&number.to_string())?)
    }

    /// Deletes what was made, which the servers would do in a minute or two.
    async fn clear(&self) -> Result<(), Failure> {
        let client = &self.connection.client;
        let locks = match client.children(&self.root).await {
            Err(error) if error.code() == Some(ErrorCode::NoNode) => return Ok(()),
            listed => listed?.0,
        };
        let locks: Vec<_> = locks.iter().filter_map(|lock| self.root.child(lock).ok()).collect();
        let deleted: Vec<_> = locks.iter().map(|lock| client.delete(lock, None)).collect();
        for reply in deleted {
            unless_reaped(reply.await)?;
        }
        unless_reaped(client.delete(&self.root, None).await)?;
        Ok(())
    }

    fn say(&self, text: &str) -> Result<(), Failure> {
        if self.global.json { Ok(()) } else { print(&format!("{text}\n")) }
    }

    /// Replaces the last line of a terminal, which the next row of the table replaces.
    fn progress(&self, text: &str) {
        if stderr().is_terminal() {
            let _ = write!(stderr(), "\r\u{1b}[K{text}");
        }
    }
}

/// The server deletes empty containers, too.
fn unless_reaped(deleted: Result<(), Error>) -> Result<(), Error> {
    match deleted {
        Err(error) if error.code() == Some(ErrorCode::NoNode) => Ok(()),
        deleted => deleted,
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RoundTrip => "a read (the round trip)",
            Self::Cycle => "acquire and release",
            Self::HandOver => "one lock, to the next",
        })
    }
}

fn describe((what, parallel): Row, figures: &Figures) -> String {
    let us = |us: f64| match us {
        0.0..999.5 => format!("{us:.0} us"),
        999.5..99_995.0 => format!("{:.2} ms", us / 1_000.0),
        us => format!("{:.0} ms", us / 1_000.0),
    };
    let (what, parallel) = (what.to_string(), parallel.to_string());
    let rate = format!("{:.0}", figures.per_second);
    let [p50, p99, p999, max] =
        [figures.p50_us, figures.p99_us, figures.p999_us, figures.max_us].map(us);
    line([&what, &parallel, &rate, &p50, &p99, &p999, &max])
}

/// Written as soon as it is measured, so the widths are given.
fn line(cells: [&str; 7]) -> String {
    let [what, parallel, rate, p50, p99, p999, max] = cells;
    format!("{what:<23}{parallel:>7} {rate:>10} {p50:>8} {p99:>9} {p999:>9} {max:>9}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What people read is what programs get, in a unit that fits.
    #[test]
    fn a_row_shows_its_figures() {
        let figures = Figures {
            count: 12_345,
            per_second: 6_172.6,
            p50_us: 999.4,
            p99_us: 999.6,
            p999_us: 23_456.0,
            max_us: 1_234_567.0,
        };
        let row = describe((What::Cycle, 16), &figures);
        let words: Vec<_> = row.split_whitespace().collect();
        let expected = "acquire and release 16 6173 999 us 1.00 ms 23.46 ms 1235 ms";
        assert_eq!(words, expected.split(' ').collect::<Vec<_>>());
    }
}

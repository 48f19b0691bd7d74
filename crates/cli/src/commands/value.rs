//! `lockkeeper value`: a value that programs share, with its history.

use std::ffi::OsString;

use bytes::Bytes;
use clap::{Args, Subcommand};
use lockkeeper::overview::PathUse;
use lockkeeper::{Client, Publication, Raw, ValueChange, ZnodePath};
use serde::Serialize;

use crate::session::connect::Connection;
use crate::session::limited::{unless_reader_closed, with_limit};
use crate::session::path_use;
use crate::shared::content::{self, content};
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::output::{print, print_line_to_reader, print_to_reader, print_value, tell};
use crate::shared::{names, output, view};

const NOTES: &str = "\
A value consists of any number of bytes. Programs on the library read it as a Publication; by default they expect \
JSON. The last 5 editions are kept, or as many as the program that set it last has requested.

Examples:
  lockkeeper value set app/limits '{\"rate\": 100}'
  lockkeeper value set app/limits < limits.json
  lockkeeper value get app/limits > limits.json
  lockkeeper value watch app/limits --json | while read -r line; do ...; done
  lockkeeper value rollback app/limits 3

Exit codes: 1, there is no value, or no edition with that number; others: lockkeeper run --help";

const SET_NOTES: &str = "\
An empty text or input, such as /dev/null, is an empty value, which is different from no value. The number of the new \
edition is printed.";

const HISTORY_NOTES: &str = "\
PUBLISHED is by the clock of the servers. It is empty if a later edition is a rollback to this one: the servers then \
keep only the time of the later one.

Exit codes: 1, there is no value; others: lockkeeper run --help";

const WATCH_NOTES: &str = "\
Without --json, each edition is written unchanged, followed by a line end if it does not have one. Several quick \
editions may be combined. With --json there is one object on each line. Ends with Ctrl-C, or when the reader closes \
the pipe.";

/// A subcommand of `value`.
#[derive(Debug, Subcommand)]
#[command(after_long_help = NOTES)]
pub(crate) enum ValueTask {
    /// Print the value, byte for byte
    Get {
        #[command(flatten)]
        value: ValueName,

        /// An older edition, as listed by history
        #[arg(long, value_name = "N")]
        edition: Option<u64>,
    },
    /// Set it, to the text or to standard input
    #[command(after_long_help = SET_NOTES)]
    Set {
        #[command(flatten)]
        value: ValueName,

        /// The value; without it, standard input
        #[arg(value_name = "TEXT", allow_hyphen_values = true)]
        text: Option<OsString>,

        /// The number of editions to keep
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
        keep: Option<u16>,
    },
    /// Print the value now and after each change, until Ctrl-C
    #[command(after_long_help = WATCH_NOTES)]
    Watch(ValueName),
    /// List the kept editions, and when they were published
    #[command(after_long_help = HISTORY_NOTES)]
    History(ValueName),
    /// Set an older edition again, under a new number
    Rollback {
        #[command(flatten)]
        value: ValueName,

        /// The edition, as listed by history
        #[arg(value_name = "EDITION")]
        edition: u64,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ValueName {
    /// The value
    #[arg(value_name = "NAME", value_parser = names::lock)]
    name: ZnodePath,
}

/// A value as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct ShownValue<'a> {
    value: &'a str,
    /// `null` if the value is not set or not UTF-8.
    text: Option<&'a str>,
    /// Its length; `null` if the value is not set.
    bytes: Option<usize>,
    /// In base64, if it is not UTF-8.
    base64: Option<String>,
}

#[derive(Debug, Serialize)]
struct ShownEdition<'a> {
    value: &'a str,
    edition: u64,
}

#[derive(Debug, Serialize)]
struct ShownHistory<'a> {
    value: &'a str,
    editions: Vec<ShownPublished>,
}

#[derive(Debug, Serialize)]
struct ShownPublished {
    edition: u64,
    bytes: usize,
    /// By the clock of the servers; `null` if they no longer have it, because a later edition is a rollback to this
    /// one.
    published_unix_ms: Option<u64>,
}

/// A value with the number of its edition.
#[derive(Debug, Serialize)]
struct ShownNumbered<'a> {
    /// `null` if the value is not set.
    edition: Option<u64>,
    #[serde(flatten)]
    shown: ShownValue<'a>,
}

/// Reads, sets or follows a value.
pub(crate) async fn value(global: &Global, task: ValueTask) -> Result<u8, Failure> {
    match task {
        ValueTask::Get { value, edition } => get(global, &value.name, edition).await,
        ValueTask::Set { value, text, keep } => {
            let text = content(text)?.into();
            set(global, &value.name, &text, keep).await
        }
        ValueTask::Watch(value) => watch(global, &value.name).await,
        ValueTask::History(value) => history(global, &value.name).await,
        ValueTask::Rollback { value: ValueName { name }, edition } => {
            // Keep at least the existing editions.
            let keep = during(global, &name, None, async |it| it.editions().await).await?.len();
            let keep = u16::try_from(keep).ok().filter(|keep| *keep > 0);
            let number = during(global, &name, keep, async |it| it.rollback(edition).await).await?;
            match number {
                Some(number) => show_edition(global, &name, number),
                None => {
                    tell(&format!(
                        "{name} does not have edition {edition}: see lockkeeper value history"
                    ));
                    Ok(Exit::No.code())
                }
            }
        }
    }
}

fn publication(
    client: &Client,
    name: &ZnodePath,
    keep: Option<u16>,
) -> Result<Publication<Bytes, Raw>, Failure> {
    let mut builder = Publication::<Bytes>::builder(client, name.as_str()).codec(Raw);
    if let Some(keep) = keep {
        builder = builder.keep(keep);
    }
    builder.build().map_err(|error| Failure::new(Exit::Usage, error.to_string()))
}

async fn during<T>(
    global: &Global,
    name: &ZnodePath,
    keep: Option<u16>,
    work: impl AsyncFnOnce(&Publication<Bytes, Raw>) -> Result<T, lockkeeper::ValueError>,
) -> Result<T, Failure> {
    Connection::during(global, async |connection| {
        let publication = publication(&connection.client, name, keep)?;
        explained(&connection.client, name, work(&publication).await).await
    })
    .await
}

/// The result, or a failure that names the recipe that uses the path.
async fn explained<T>(
    client: &Client,
    name: &ZnodePath,
    result: Result<T, lockkeeper::ValueError>,
) -> Result<T, Failure> {
    let result = result.map_err(|error| Failure::of_recipe(&error));
    path_use::explained(client, name, PathUse::Value, result).await
}

async fn set(
    global: &Global,
    name: &ZnodePath,
    text: &Bytes,
    keep: Option<u16>,
) -> Result<u8, Failure> {
    let number = Connection::during(global, async |connection| {
        path_use::check(&connection.client, name, PathUse::Value).await?;
        let publication = publication(&connection.client, name, keep)?;
        explained(&connection.client, name, publication.publish(text).await).await
    });
    show_edition(global, name, number.await?)
}

async fn history(global: &Global, name: &ZnodePath) -> Result<u8, Failure> {
    let found = during(global, name, None, async |it| it.history().await).await?;
    let editions = found.iter().map(|edition| ShownPublished {
        edition: edition.number,
        bytes: edition.bytes,
        published_unix_ms: edition.published_unix_ms,
    });
    let shown = ShownHistory { value: name.as_str(), editions: editions.collect() };
    if found.is_empty() && !global.json {
        tell(&format!("{name} is not set"));
    } else {
        output::show(global, &shown, || shown.text())?;
    }
    Ok(if found.is_empty() { Exit::No } else { Exit::Ok }.code())
}

/// The last edition and its number, read by that number. It may be dropped in between, because newer ones exist.
async fn last(
    publication: &Publication<Bytes, Raw>,
) -> Result<Option<(u64, Bytes)>, lockkeeper::ValueError> {
    loop {
        let Some(number) = publication.editions().await?.pop() else { return Ok(None) };
        if let Some(value) = publication.edition(number).await? {
            return Ok(Some((number, value)));
        }
    }
}

async fn get(global: &Global, name: &ZnodePath, edition: Option<u64>) -> Result<u8, Failure> {
    let found = during(global, name, None, async |it| match edition {
        Some(number) => Ok(it.edition(number).await?.map(|value| (number, value))),
        None => last(it).await,
    });
    let (number, found) = found.await?.unzip();
    if global.json {
        let shown = ShownValue::new(name, found.as_ref());
        output::print_json(&ShownNumbered { edition: number, shown })?;
    } else if let Some(value) = &found {
        print_value(value)?;
    } else {
        tell(&match edition {
            Some(number) => {
                format!("{name} does not have edition {number}: see lockkeeper value history")
            }
            None => format!("{name} is not set"),
        });
    }
    Ok(if found.is_some() { Exit::Ok } else { Exit::No }.code())
}

async fn watch(global: &Global, name: &ZnodePath) -> Result<u8, Failure> {
    let ended = with_limit(global, None, async |connection| {
        let mut editions = publication(&connection.client, name, None)?.follow();
        loop {
            let Some(change) = unless_reader_closed(editions.next()).await else { return Ok(()) };
            let change = change.map_err(|error| Failure::of_recipe(&error))?;
            let value = match change {
                ValueChange::Set(now) => Some(now.value),
                ValueChange::Absent => None,
                ValueChange::Invalid { reason, .. } => {
                    tell(&format!("{name} cannot be read: {reason}"));
                    continue;
                }
                _ => continue,
            };
            let is_read = match (global.json, value) {
                (true, value) => {
                    let shown = output::json(&ShownValue::new(name, value.as_ref()))?;
                    print_to_reader(&format!("{shown}\n"))?
                }
                (false, Some(value)) => print_line_to_reader(&value)?,
                (false, None) => {
                    tell(&format!("{name} is not set"));
                    true
                }
            };
            if !is_read {
                return Ok(());
            }
        }
    });
    ended.await?.code(|()| Ok(Exit::Ok.code()))
}

fn show_edition(global: &Global, name: &ZnodePath, edition: u64) -> Result<u8, Failure> {
    match global.json {
        true => output::print_json(&ShownEdition { value: name.as_str(), edition })?,
        false => print(&format!("{edition}\n"))?,
    }
    Ok(Exit::Ok.code())
}

impl ShownHistory<'_> {
    fn text(&self) -> String {
        let mut rows = vec![["EDITION", "BYTES", "PUBLISHED"].map(str::to_owned).to_vec()];
        rows.extend(self.editions.iter().map(|it| {
            let published = it.published_unix_ms.map(view::date).unwrap_or_default();
            vec![it.edition.to_string(), it.bytes.to_string(), published]
        }));
        view::table(&rows)
    }
}

impl<'a> ShownValue<'a> {
    fn new(name: &'a ZnodePath, value: Option<&'a Bytes>) -> Self {
        let text = value.and_then(|value| content::text(value));
        Self {
            value: name.as_str(),
            text,
            bytes: value.map(Bytes::len),
            base64: value.filter(|_| text.is_none()).map(content::base64),
        }
    }
}

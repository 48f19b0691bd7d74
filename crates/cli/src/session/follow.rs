//! Shows the output of `show` and `ls` again after each change (`--watch`).

use std::collections::HashSet;
use std::io::{IsTerminal, stdout};
use std::time::{Duration, SystemTime};

use lockkeeper::inspect::{LockQueue, QueueWatch};
use lockkeeper::{Client, Contact, Error, ErrorCode, ZnodePath};
use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::session::connect::Connection;
use crate::session::waiting;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::output::{has_lost_its_reader, print_to_reader, tell};
use crate::shared::view::{Observed, unix_ms};

/// The pause between two updates: a busy queue is shown at most five times a second.
const PAUSE: Duration = Duration::from_millis(200);

/// How often to update durations on a terminal, and to check whether the reader has closed the pipe.
const TICK: Duration = Duration::from_secs(1);

/// The state of locks at one point in time.
pub(crate) trait Picture {
    /// Its queues.
    fn queues(&self) -> &[LockQueue];

    /// The output for `--json`.
    fn json(&self, observed: &Observed) -> Result<Value, Failure>;

    /// The output for people.
    fn text(&self, observed: &Observed) -> String;
}

/// Shows the state at a path, and again after each change, until the reader closes the pipe. Lost connections and
/// expired sessions do not end it.
pub(crate) async fn follow<P: Picture>(
    global: &Global,
    path: &ZnodePath,
    look: impl AsyncFn(&Client) -> Result<P, Error>,
) -> Result<u8, Failure> {
    let connection = Connection::open(global).await?;
    let mut screen = Screen::new(global.json);
    let result = tokio::select! {
        result = pictures(&connection.client, path, look, &mut screen) => result,
        failure = connection.keep_engine() => Err(failure),
    };
    connection.close().await;
    result.map(|()| Exit::Ok.code())
}

async fn pictures<P: Picture>(
    client: &Client,
    path: &ZnodePath,
    look: impl AsyncFn(&Client) -> Result<P, Error>,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let mut changes = Changes::default();
    let mut watch: Option<QueueWatch> = None;
    loop {
        // The watch is registered before the read, so that no change in between is missed.
        let look_again = async {
            if watch.is_none() {
                watch = Some(QueueWatch::new(client, path).await?);
            }
            look(client).await
        };
        let picture = match look_again.await {
            Ok(picture) => picture,
            Err(error) => {
                // Changes of holders between the two reads may be missed.
                changes = Changes::default();
                outlast(client, error).await?;
                continue;
            }
        };

        changes.note(picture.queues());
        if !screen.show(&picture, &changes.observed)? {
            return Ok(());
        }
        let Some(watching) = &mut watch else { continue };
        loop {
            tokio::select! {
                changed = watching.changed() => {
                    if changed.is_err() {
                        // The watch ended with its session.
                        (watch, changes) = (None, Changes::default());
                    }
                    break;
                }
                () = sleep(TICK) => if !screen.tick(client, &picture, &changes.observed)? {
                    return Ok(());
                },
            }
        }
        sleep(PAUSE).await;
    }
}

/// Waits until the request can be repeated. Fails if the error is permanent.
async fn outlast(client: &Client, error: Error) -> Result<(), Failure> {
    if error.code() == Some(ErrorCode::Unimplemented) {
        let message = "--watch needs servers with persistent watches: ZooKeeper 3.6 or newer";
        return Err(Failure::new(Exit::Data, message));
    }
    // Wait for unreachable servers without a time limit.
    Ok(waiting::outlast(client, error, Some(Duration::MAX)).await?)
}

/// The grants that this command has observed.
#[derive(Default)]
struct Changes {
    /// The holders at the previous read; `None` before the first read.
    before: Option<HashSet<ZnodePath>>,
    observed: Observed,
}

impl Changes {
    fn note(&mut self, queues: &[LockQueue]) {
        let now = SystemTime::now();
        let holders = queues.iter().flat_map(LockQueue::holders).map(|entry| entry.node.clone());
        let holders: HashSet<_> = holders.collect();
        self.observed.retain(|node, _| holders.contains(node));
        if let Some(before) = &self.before {
            let new = holders.difference(before).map(|node| (node.clone(), now));
            self.observed.extend(new);
        }
        self.before = Some(holders);
    }
}

/// Where the output goes.
struct Screen {
    json: bool,
    /// Whether each output replaces the previous one, as on a terminal.
    is_redrawn: bool,
    /// The last output, without values that change with time alone.
    shown: Option<Value>,
    is_connected: bool,
}

impl Screen {
    fn new(json: bool) -> Self {
        Self { json, is_redrawn: !json && stdout().is_terminal(), shown: None, is_connected: true }
    }

    /// Shows the state if it has changed. Returns `false` if the reader has closed the pipe.
    fn show(&mut self, picture: &impl Picture, observed: &Observed) -> Result<bool, Failure> {
        let mut value = picture.json(observed)?;
        forget_ages(&mut value);
        if self.shown.as_ref() == Some(&value) {
            return Ok(true);
        }
        self.shown = Some(value);
        self.draw(picture, observed)
    }

    /// Updates a terminal, reports lost and restored connections, and checks for a closed pipe.
    fn tick(
        &mut self,
        client: &Client,
        picture: &impl Picture,
        observed: &Observed,
    ) -> Result<bool, Failure> {
        let is_connected = client.contact() == Contact::Connected;
        if is_connected != std::mem::replace(&mut self.is_connected, is_connected)
            && !self.is_redrawn
        {
            tell(if is_connected { "reconnected" } else { OUTDATED });
        }
        match self.is_redrawn {
            true => self.draw(picture, observed),
            false => Ok(!has_lost_its_reader()),
        }
    }

    fn draw(&self, picture: &impl Picture, observed: &Observed) -> Result<bool, Failure> {
        if self.json {
            let mut value = picture.json(observed)?;
            value["at_unix_ms"] = json!(u64::try_from(unix_ms(SystemTime::now())).ok());
            return print_to_reader(&format!("{value}\n"));
        }

        let now = jiff::Zoned::now().strftime("%Y-%m-%d %H:%M:%S");
        let text = picture.text(observed);
        if !self.is_redrawn {
            return print_to_reader(&format!("{now}\n{text}\n"));
        }
        let state = if self.is_connected { "" } else { OUTDATED };
        // 0 means that the size is unknown.
        let rows = match tcgetwinsize(stdout()) {
            Ok(size) if size.ws_row > 0 => size.ws_row.max(3),
            _ => u16::MAX,
        };
        let text = fitting(&format!("{now}  {state}\n{text}"), rows.into());
        // Move the cursor home and clear the screen.
        print_to_reader(&format!("\u{1b}[H\u{1b}[2J{text}"))
    }
}

/// The notice while the servers cannot be reached.
const OUTDATED: &str = "no connection to the servers: the output is outdated until they answer";

/// The first lines of a text, as many as fit on the terminal. The last row is left for the cursor.
fn fitting(text: &str, rows: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    let most = rows - 1;
    if lines.len() <= most {
        return text.to_owned();
    }
    let more = lines.len() - (most - 1);
    format!("{}\n... and {more} more lines\n", lines[..most - 1].join("\n"))
}

/// Removes values that change with time alone.
fn forget_ages(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("age_ms");
            fields.values_mut().for_each(forget_ages);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_ages),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_fits_into_its_terminal() {
        assert_eq!(fitting("a\nb\n", 3), "a\nb\n");
        assert_eq!(fitting("a\nb\nc\nd\n", 4), "a\nb\n... and 2 more lines\n");
    }

    #[test]
    fn time_alone_is_no_change() {
        let mut old = json!({"contenders": [{"node": "/l/n", "age_ms": 7}]});
        forget_ages(&mut old);
        assert_eq!(old, json!({"contenders": [{"node": "/l/n"}]}));
    }
}

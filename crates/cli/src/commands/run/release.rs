//! Releases the lock of a command.

use std::time::Duration;

use lockkeeper::{Clock, HolderState, Instant};

use super::events::{Event, Events};
use super::lock::Held;
use crate::session::connect::Connection;
use crate::shared::output::{report, tell};

/// How long a release may take. After that, the session expires by itself.
pub(super) const RELEASE_LIMIT: Duration = Duration::from_secs(5);

/// The limit if no server has answered for a while.
pub(super) const HOPELESS_LIMIT: Duration = Duration::from_millis(500);

/// Restarts this machine's engine whenever it dies. If that fails, prints a notice; the command continues as long as
/// the lease does.
pub(super) async fn keep_engine(connection: &Connection) -> std::convert::Infallible {
    report(&connection.keep_engine().await);
    std::future::pending().await
}

/// Releases the lock. A release that is not confirmed in time is not an error: the command has done its work.
pub(super) async fn release(
    connection: &Connection,
    held: Held,
    limit: Duration,
    granted: Instant,
    events: &Events,
) {
    if let HolderState::Lost(reason) = held.state() {
        let reason = format!("{} is lost: {reason}", held.lost_name());
        return events.write(Event::Lost { reason: &reason });
    }

    let lock = held.name();
    let told = |confirmed| {
        let held_ms = Clock.now().since(granted).as_millis();
        events.write(Event::Released { held_ms, confirmed });
    };
    let why = tokio::select! {
        released = held.release() => match released {
            Ok(()) => return told(true),
            Err(error) => error.to_string(),
        },
        failure = connection.keep_engine() => failure.to_string(),
        () = tokio::time::sleep(limit) => match limit {
            Duration::ZERO => "no server can be reached".to_owned(),
            limit => format!("no server confirmed it within {limit:?}"),
        },
    };

    told(false);
    let rest = connection.client.session_timeout();
    tell(&format!("{lock} may stay held until its session expires, within {rest:?}: {why}"));
}

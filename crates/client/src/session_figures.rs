//! The metrics of sessions: the connection state of each client of this program.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use lockkeeper_session::{Contact, Session};

use crate::metrics::{Label, SESSIONS, SILENCE, STATES, TIMEOUT, describe, set};
use crate::shared::Shared;

/// The clients of this program.
static CLIENTS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Registers a new client, and all metrics.
pub(crate) fn begin(shared: &Arc<Shared>) {
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    clients.retain(|client| client.strong_count() > 0);
    clients.push(Arc::downgrade(shared));
    drop(clients);
    describe();
}

/// Sets the gauges of sessions. Returns the shortest session timeout, or zero without clients.
pub fn update_sessions() -> Duration {
    let clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (mut counts, mut silence, mut timeout) = ([0_u32; STATES.len()], Duration::ZERO, None);
    for client in clients.iter().filter_map(Weak::upgrade) {
        let now = client.now();
        let (contact, heard, granted) =
            client.read(|it| (Session::contact(it), it.last_received(), it.timeout()));
        let state = match contact {
            Contact::Connected => 0,
            Contact::Disconnected => 1,
            Contact::Unreachable => 2,
            Contact::Closed => continue,
        };
        counts[state] += 1;
        silence = silence.max(now.since(heard));
        timeout = timeout.into_iter().chain([granted]).min();
    }

    for (state, count) in STATES.iter().zip(counts) {
        set(SESSIONS, vec![Label::from_static_parts("state", state)], count.into());
    }
    let timeout = timeout.unwrap_or_default();
    set(SILENCE, Vec::new(), silence.as_secs_f64());
    set(TIMEOUT, Vec::new(), timeout.as_secs_f64());
    timeout
}

//! [`App`]: what all requests share.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use lockkeeper::{Client, ClientBuilder, Host, ZnodePath};
use tokio::sync::Semaphore;

use crate::commands::console::guard::Gate;
use crate::commands::console::model::Model;
use crate::commands::console::watch::LiveView;

/// The number of actions that are kept for the history page.
const MOST_ACTS: usize = 200;

/// What all requests share.
#[derive(Debug)]
pub(super) struct App {
    pub(super) watched: LiveView,
    pub(super) gate: Gate,
    pub(super) client: Client,
    /// For questions to single servers.
    pub(super) builder: ClientBuilder,
    pub(super) hosts: Vec<Host>,
    /// The servers, as they were given.
    pub(super) servers: String,
    /// The path that is looked below.
    pub(super) path: ZnodePath,
    pub(super) allows_actions: bool,
    /// One for each stream of events that there may be.
    pub(super) streams: Arc<Semaphore>,
    pub(super) acts: Mutex<VecDeque<Act>>,
}

/// Something that was done from a page.
#[derive(Clone, Debug)]
pub(super) struct Act {
    pub(super) at: SystemTime,
    /// The name that was typed in, and where the request came from.
    pub(super) by: String,
    pub(super) what: String,
    pub(super) outcome: String,
}

impl App {
    /// The newest model.
    pub(super) fn model(&self) -> Arc<Model> {
        Arc::clone(&self.watched.model.borrow())
    }

    pub(super) fn keep_act(&self, act: Act) {
        let mut acts = self.acts.lock().unwrap_or_else(PoisonError::into_inner);
        acts.push_front(act);
        acts.truncate(MOST_ACTS);
    }

    /// What was done, the newest first.
    pub(super) fn acts(&self) -> Vec<Act> {
        self.acts.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

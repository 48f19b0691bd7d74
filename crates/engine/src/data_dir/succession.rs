//! How an engine begins after another one: above which transaction number, and after which quiet time.
//!
//! | state kept | found | transactions continue above | quiet time |
//! |---|---|---|---|
//! | on disk | its own directory as it left it | the last one, and the floor if there is one | none |
//! | on disk | nothing | the clock | none |
//! | on disk | a directory that was restored | the last one, which `restore` has raised | the one that is recorded
//! there |
//! | on disk | a directory that is older than its floor | the floor's epoch, and the clock | the longest timeout |
//! | in memory | a floor | the floor, and the clock | the longest timeout in the floor |
//! | in memory | a database, and no floor | its last one, and the clock | the longest timeout of its sessions |
//! | in memory | nothing, or no directory is used | the clock | none |
//!
//! A quiet time set in the builder replaces the one in the table, except for a directory that is as its engine left it.

use std::path::Path;
use std::time::Duration;

use lockkeeper_tree::{Config, Server};
use lockkeeper_wire::Zxid;
use tokio::time::sleep;

use crate::clock;
use crate::data_dir::check::restore;
use crate::data_dir::floor::{Floor, FloorRecord};
use crate::error::StartError;
use crate::files::Directory;
use crate::settings::plan::Plan;
use crate::storage::{
    Durability, FORMAT, QuietTime, Storage, StorageError, mark_restored, open_directory,
    remove_mark, restored_mark,
};

/// How often a wait checks the clock: timers stop while the machine is suspended.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What an engine knows of earlier ones, and records for later ones.
#[derive(Debug, Default)]
pub(crate) struct Succession {
    floor: Option<Floor>,
    /// How long sessions of earlier engines may last, until `quiet_until`.
    before: Duration,
    quiet_until: Option<Duration>,
    /// The directory with a mark that is to be removed after the quiet time.
    marked: Option<Directory>,
    /// The longest timeout that a session can get.
    max_timeout: Duration,
}

impl Succession {
    /// Prepares a server that was just read from its storage.
    pub(crate) fn begin(plan: &Plan, server: &mut Server) -> Result<Self, StartError> {
        let begun = match (&plan.data_dir, plan.durability) {
            (Some(dir), Durability::Memory) => Self::in_memory(plan, dir, server)?,
            (Some(dir), _) => Self::on_disk(plan, dir, server)?,
            (None, _) => {
                server.begin_after(clock::zxid());
                let quiet = plan.quiet_time.unwrap_or_default();
                Self::default().quiet_for(quiet, server)
            }
        };
        Ok(Self { max_timeout: plan.config.max_session_timeout, ..begun })
    }

    fn in_memory(plan: &Plan, dir: &Path, server: &mut Server) -> Result<Self, StartError> {
        let floor = Floor::claim(dir)?;
        let record = match floor.record() {
            Some(record) => record,
            None => kept_in(dir, plan.config.max_session_timeout)?,
        };
        server.begin_after(record.zxid.max(clock::zxid()));
        let quiet = plan.quiet_time.unwrap_or(record.longest_timeout);
        let succession = Self { floor: Some(floor), before: quiet, ..Self::default() };
        Ok(succession.quiet_for(quiet, server))
    }

    fn on_disk(plan: &Plan, dir: &Path, server: &mut Server) -> Result<Self, StartError> {
        let (files, floor) = (open_directory(dir)?, Floor::claim_existing(dir)?);
        let record = floor.as_ref().and_then(Floor::record).unwrap_or_default();
        let is_new = server.stats().last_zxid == Zxid(0);
        if is_new {
            // Either no data was ever kept here, or it is lost.
            server.begin_after(clock::zxid());
        }
        let epoch = server.stats().last_zxid.epoch();
        if record.zxid.epoch() > epoch {
            let floor = record.zxid.epoch();
            match is_new {
                true => tracing::warn!(
                    data_dir = %dir.display(), epoch, floor,
                    "the data directory is new and continues above the floor next to it"
                ),
                false => tracing::warn!(
                    data_dir = %dir.display(), epoch, floor,
                    "the data directory is older than the state last served here: its sessions end, as \
                     after a restore"
                ),
            }
            // First: after a crash in between, the next start must not be taken for an ordinary one.
            mark_restored(&files, QuietTime::AtLeast(record.longest_timeout))?;
            server.begin_after(start_above(record.zxid.epoch()));
            server.end_sessions(clock::now());
        }
        // An engine in memory ran here since then, or the last one did not use all numbers that it had reserved.
        server.begin_after(record.zxid);

        let floor = match floor {
            // The clock alone would not lead the next one above this.
            None if server.stats().last_zxid > clock::zxid() => make_floor(dir),
            floor => floor,
        };
        let succession = Self { floor, ..Self::default() };
        let Some(marked) = restored_mark(&files)? else {
            return Ok(succession);
        };
        let quiet = marked.of(plan.config.max_session_timeout);
        let quiet = plan.quiet_time.unwrap_or(quiet);
        let succession = Self { marked: Some(files), before: quiet, ..succession };
        Ok(succession.quiet_for(quiet, server))
    }

    fn quiet_for(mut self, time: Duration, server: &mut Server) -> Self {
        let until = clock::now().monotonic.saturating_add(time);
        server.keep_quiet(until);
        if !time.is_zero() {
            tracing::info!(
                seconds = time.as_secs_f64(),
                "quiet time: no session begins until it is over, because clients of an earlier engine \
                 may still hold locks"
            );
            self.quiet_until = Some(until);
        }
        self
    }

    /// The end of the quiet time, on the clock of [`clock::now`].
    pub(crate) fn quiet_until(&self) -> Option<Duration> {
        self.quiet_until
    }

    /// Waits for the end of the quiet time, and removes its cause.
    pub(crate) fn end_of_quiet(&mut self) -> impl Future<Output = ()> + use<> {
        let (until, marked) = (self.quiet_until, self.marked.take());
        async move {
            while let Some(left) = until.and_then(clock::left_until) {
                sleep(left.min(LOOK_AGAIN)).await;
            }
            if let Some(Err(e)) = marked.as_ref().map(remove_mark) {
                tracing::warn!("the next start will begin with a quiet time again: {e}");
            }
            if until.is_some() {
                tracing::info!("the quiet time is over");
            }
        }
    }

    /// To be called before anything leaves the engine. Returns how long it waited for the disk.
    pub(crate) fn cover(&mut self, server: &Server) -> Result<Duration, StorageError> {
        let Some(floor) = &mut self.floor else {
            return Ok(Duration::ZERO);
        };
        // Promises to sessions of earlier engines apply until the quiet time is over.
        floor.cover(server.stats().last_zxid, server.longest_timeout(), self.max_timeout)
    }

    /// After an orderly end: the next engine need not wait for sessions that have ended.
    pub(crate) fn end(&mut self, server: &Server) -> Result<(), StorageError> {
        let Some(floor) = &mut self.floor else {
            return Ok(());
        };
        let goes_on = self.quiet_until.and_then(clock::left_until).map(|_| self.before);
        let longest_timeout = server.longest_live_timeout().max(goes_on.unwrap_or_default());
        floor.rest(FloorRecord { zxid: server.stats().last_zxid, longest_timeout })
    }
}

/// The first number above all of an epoch, and above the clock as restores read it.
pub(crate) fn start_above(epoch: u32) -> Zxid {
    Zxid::start_of(epoch.saturating_add(1)).max(clock::zxid_of_restore())
}

/// An engine whose data is on disk does not need a floor while the directory exists.
fn make_floor(dir: &Path) -> Option<Floor> {
    let claimed = Floor::claim(dir);
    claimed
        .inspect_err(|e| {
            tracing::warn!(
                "if the data directory is lost, the epoch of a restore depends on the clock: {e}"
            );
        })
        .ok()
}

/// The record of engines that kept their data in the directory.
fn kept_in(dir: &Path, longest: Duration) -> Result<FloorRecord, StartError> {
    if !dir.join(FORMAT).exists() {
        return Ok(FloorRecord::default());
    }
    let look = || match Storage::inspect(dir)? {
        Some((storage, _)) => restore(Config::default(), Some(dir), &storage).map(Some),
        None => Ok(None),
    };
    match look() {
        Ok(found) => Ok(found.map_or(FloorRecord::default(), |server| record_of(&server))),
        Err(StartError::Storage(StorageError::Damaged { .. })) => {
            Ok(FloorRecord { zxid: Zxid(0), longest_timeout: longest })
        }
        Err(e) => Err(e),
    }
}

fn record_of(server: &Server) -> FloorRecord {
    FloorRecord { zxid: server.stats().last_zxid, longest_timeout: server.longest_live_timeout() }
}

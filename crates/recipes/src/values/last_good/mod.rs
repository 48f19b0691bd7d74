//! The last known good value in a file, so that a program can start without servers.
//!
//! ```text
//!   error  why a value was not used, or not kept
//!   file   the format of the file; reading and replacing it
//! ```
//!
//! Guarantees  The file is replaced atomically: after a power failure too, a program finds the old value or
//!             the new one, also when several programs share the file. Only its user can read and write it.
//!             A file is reported and not used if it is damaged, belongs to another user or node, can be
//!             written by others, or is a link.
//! Not         The file need not have the newest value: it is written in the background, and a program that
//!             ends at once may leave the previous one. If several programs share it, it may have the value
//!             of the one that lags. The value is not encrypted.

mod error;
mod file;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;

use crate::values::codec::Codec;
use crate::values::place::Place;
use crate::values::revision::{Revision, Versioned};

pub use error::LastGoodError;
use file::StoredValue;

/// The file in which a follower keeps values, if any, and the restored value.
#[derive(Debug, Default)]
pub(super) struct LastGood {
    keeper: Option<FileWriter>,
    /// The restored revision and bytes, until the servers have confirmed or replaced them.
    pub(super) restored: Option<(Revision, Bytes)>,
}

/// Passes values to the task that writes them.
#[derive(Debug)]
struct FileWriter {
    path: String,
    values: mpsc::UnboundedSender<StoredValue>,
    /// The number of values so far.
    asked: u64,
    written: watch::Receiver<WriteOutcome>,
}

/// The number of values that were written, or skipped for a newer one, and the result of the last write.
type WriteOutcome = (u64, Result<(), LastGoodError>);

impl LastGood {
    /// Keeps good values in a file from now on, unless the file must not be changed. Returns the value in the file,
    /// if `restores`.
    pub(super) async fn keep_in<T>(
        &mut self,
        file: &Path,
        place: &Place,
        codec: &impl Codec<T>,
        restores: bool,
    ) -> Result<Option<Versioned<T>>, LastGoodError> {
        let (file, path, runtime) =
            (file.to_owned(), place.full_path(), place.client.tokio_runtime());
        let read = {
            let (file, path) = (file.clone(), path.clone());
            runtime.spawn_blocking(move || {
                file::tidy(&file);
                file::read(&file, &path)
            })
        };
        let found = read.await.unwrap_or(Err(LastGoodError::Abandoned)).and_then(|found| {
            let Some(StoredValue { revision, data, .. }) = found else { return Ok(None) };
            match codec.decode(&data) {
                Ok(value) => Ok(Some((Versioned { value, revision }, data))),
                Err(error) => {
                    let (file, reason) = (file.clone(), error.to_string());
                    Err(LastGoodError::Undecodable { file, reason })
                }
            }
        });

        let is_ours = found.as_ref().err().is_none_or(LastGoodError::may_be_replaced);
        self.keeper = is_ours.then(|| {
            let (values, asked) = mpsc::unbounded_channel();
            let (done, written) = watch::channel((0, Ok(())));
            // On the client's runtime, because the current one may end before everything is written.
            runtime.spawn(write_all(file, asked, done));
            FileWriter { path, values, asked: 0, written }
        });
        let Some((now, data)) = found?.filter(|_| restores) else { return Ok(None) };
        self.restored = Some((now.revision, data));
        Ok(Some(now))
    }

    /// Compares the servers' value with the restored one: servers that were wiped may have given the same revision
    /// to another value.
    pub(super) fn is_restored(&mut self, found: Option<(Revision, &Bytes)>) -> bool {
        self.restored.take().is_some_and(|(revision, data)| found == Some((revision, &data)))
    }

    /// Keeps a value in the background; the newest one if there are several.
    pub(super) fn keep(&mut self, revision: Revision, data: &Bytes) {
        if let Some(keeper) = &mut self.keeper {
            keeper.asked += 1;
            // This fails only when the task has ended, which `kept` reports.
            let (path, data) = (keeper.path.clone(), data.clone());
            let _ = keeper.values.send(StoredValue { path, revision, data });
        }
    }

    /// Waits until all values so far are kept.
    pub(super) async fn kept(&self) -> Result<(), LastGoodError> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        let mut written = keeper.written.clone();
        match written.wait_for(|(number, _)| *number >= keeper.asked).await {
            Ok(written) => written.1.clone(),
            Err(_) => Err(LastGoodError::Abandoned),
        }
    }
}

/// Writes the newest value in a loop, until no more can come.
async fn write_all(
    file: PathBuf,
    mut asked: mpsc::UnboundedReceiver<StoredValue>,
    done: watch::Sender<WriteOutcome>,
) {
    let mut number = 0;
    while let Some(mut newest) = asked.recv().await {
        number += 1;
        while let Ok(newer) = asked.try_recv() {
            (newest, number) = (newer, number + 1);
        }
        let file = file.clone();
        let written = spawn_blocking(move || file::replace(&file, &newest)).await;
        let written = written.unwrap_or(Err(LastGoodError::Abandoned));
        if let Err(error) = &written {
            tracing::warn!(%error, "the last known good value is not kept");
        }
        drop(done.send_replace((number, written)));
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_client::Client;

    use super::*;
    use crate::Raw;

    /// Like a client whose runtime was shut down before everything was written.
    #[test]
    fn a_writer_that_ends_early_leaves_no_caller_waiting() {
        let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (folder, home) = (tempfile::tempdir().unwrap(), runtime());
        let (file, mut last_good) = (folder.path().join("limits"), LastGood::default());
        home.block_on(async {
            let client = Client::builder().connect_later("127.0.0.1:1").unwrap();
            let place = Place::new(&client, "/limits").unwrap();
            assert_eq!(last_good.keep_in(&file, &place, &Raw, true).await, Ok(None));
            last_good.keep(Revision::NONE, &Bytes::from_static(b"1"));
            assert_eq!(last_good.kept().await, Ok(()));
        });

        home.shutdown_background();
        runtime().block_on(async {
            assert_eq!(last_good.kept().await, Ok(()));
            last_good.keep(Revision::NONE, &Bytes::from_static(b"2"));
            assert_eq!(last_good.kept().await, Err(LastGoodError::Abandoned));
        });
        let kept = file::read(&file, "/limits").unwrap().expect("it was written");
        assert_eq!(&kept.data[..], b"1");
    }
}

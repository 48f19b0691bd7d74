//! Checks a data directory: its content, and whether an engine would start with it.

use std::fmt;
use std::path::{Path, PathBuf};

use lockkeeper_tree::{Config, RestoreError, Server};
use lockkeeper_wire::Zxid;

use crate::clock::{self, SystemEntropy};
use crate::error::StartError;
use crate::storage::{DATABASE, Storage, StorageError};

/// The contents of a data directory with which an engine would start, as found by [`check`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The directory.
    pub path: PathBuf,
    /// The length of the database file, in bytes.
    pub file_bytes: u64,
    /// Whether the last engine ended without an orderly stop. The next start drops an incomplete commit; every
    /// acknowledged write is there.
    pub after_crash: bool,
    /// Whether the list of free pages is wrong; the next start rebuilds it. No data is affected.
    pub free_pages_wrong: bool,
    /// The number of nodes, including `/` and those below `/zookeeper`.
    pub nodes: usize,
    /// How many of them belong to a session.
    pub ephemerals: usize,
    /// The number of sessions.
    pub sessions: usize,
    /// The last transaction.
    pub last_zxid: Zxid,
    /// The total length of all paths and data, in bytes.
    pub data_bytes: usize,
}

/// Checks a data directory: every page of the file, every record, and their consistency. Writes nothing, so the
/// directory may be on a read-only medium. No engine may be using it.
///
/// Reads all of the data and uses as much memory as an engine with it would.
///
/// # Errors
/// Every error with which an engine would refuse to start: it names the file and the options. Also
/// [`StorageError::NoData`] if the directory contains no data of an engine; an engine would start empty there.
pub fn check(dir: impl AsRef<Path>) -> Result<Report, StartError> {
    let path = dir.as_ref();
    let (storage, repairs) =
        Storage::inspect(path)?.ok_or_else(|| StorageError::NoData { path: path.to_path_buf() })?;
    let server = restore(Config::default(), Some(path), &storage)?;

    let stats = server.stats();
    Ok(Report {
        path: path.to_path_buf(),
        file_bytes: path.join(DATABASE).metadata().map_or(0, |meta| meta.len()),
        after_crash: repairs.after_crash,
        free_pages_wrong: repairs.free_pages,
        nodes: stats.nodes,
        ephemerals: stats.ephemerals,
        sessions: stats.sessions,
        last_zxid: stats.last_zxid,
        data_bytes: stats.data_bytes,
    })
}

/// The server whose state a storage holds.
pub(crate) fn restore(
    config: Config,
    dir: Option<&Path>,
    storage: &Storage,
) -> Result<Server, StartError> {
    let entropy = SystemEntropy::open().map_err(std::io::Error::from);
    let entropy = entropy.map_err(StartError::refused("randomness"))?;
    let explain = |e: RestoreError| match (&e, dir) {
        (RestoreError::Newer { .. }, Some(path)) => {
            StartError::NewerRecord { path: path.to_path_buf(), source: e }
        }
        _ => storage.damaged(e).into(),
    };

    let mut server = Server::new(config, Box::new(entropy));
    storage.load(|table, key, value| {
        let value = bytes::Bytes::copy_from_slice(value);
        server.restore(table, key, value).map_err(explain)
    })?;
    server.finish_restore(clock::now()).map_err(explain)?;
    Ok(server)
}

/// Formats several lines for people.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        writeln!(f, "{path}: intact, {} bytes on disk", self.file_bytes)?;
        writeln!(f, "  {} nodes, {} of them ephemeral", self.nodes, self.ephemerals)?;
        writeln!(f, "  {} bytes of paths and data", self.data_bytes)?;
        writeln!(f, "  {} sessions", self.sessions)?;
        write!(f, "  last transaction {}", self.last_zxid)?;

        if self.after_crash {
            write!(
                f,
                "\n  the last engine did not stop in order: the next start drops the incomplete \
                 commit, if any, and keeps every acknowledged write"
            )?;
        }
        if self.free_pages_wrong {
            write!(f, "\n  the list of free pages is wrong: the next start rebuilds it")?;
        }
        Ok(())
    }
}

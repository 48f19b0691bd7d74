//! Checks a data directory: what is in it, and whether an engine would start with it.

use std::fmt;
use std::path::{Path, PathBuf};

use lockkeeper_tree::{Config, RestoreError, Server};
use lockkeeper_wire::Zxid;

use crate::clock::{self, SystemEntropy};
use crate::error::StartError;
use crate::storage::{DATABASE, Storage, StorageError};

/// What [`check`] has found in a data directory that an engine would start with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The directory.
    pub path: PathBuf,
    /// The length of the database file, in bytes.
    pub file_bytes: u64,
    /// Whether the last engine ended without an orderly end. The next start drops a commit that
    /// was under way; what was acknowledged is there.
    pub after_crash: bool,
    /// Whether the list of free pages is wrong; the next start makes it anew. No data is concerned.
    pub free_pages_wrong: bool,
    /// How many nodes, `/` and the nodes below `/zookeeper` included.
    pub nodes: usize,
    /// How many of them belong to a session.
    pub ephemerals: usize,
    /// How many sessions.
    pub sessions: usize,
    /// The last transaction.
    pub last_zxid: Zxid,
    /// Lengths of all paths and data, in bytes.
    pub data_bytes: usize,
}

/// Checks a data directory: every page of the file, every record, and whether they fit together.
/// Writes nothing, so the directory may be on a medium that cannot be written. No engine may be using
/// it.
///
/// Reads all of it and takes as much memory as an engine with it would.
///
/// # Errors
/// What an engine would refuse to start with: the error names the file and the choices. And
/// [`StorageError::NoData`] if there is no data of an engine, which one would start empty on.
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

/// Several lines, for people.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        writeln!(f, "{path}: whole, {} bytes on disk", self.file_bytes)?;
        writeln!(f, "  {} nodes, {} of them ephemeral", self.nodes, self.ephemerals)?;
        writeln!(f, "  {} bytes of paths and data", self.data_bytes)?;
        writeln!(f, "  {} sessions", self.sessions)?;
        write!(f, "  last transaction {}", self.last_zxid)?;

        if self.after_crash {
            write!(
                f,
                "\n  the last engine had no orderly end: the next start drops what it was writing \
                 when it ended, and keeps all that it had acknowledged"
            )?;
        }
        if self.free_pages_wrong {
            write!(f, "\n  the list of free pages is wrong: the next start makes it anew")?;
        }
        Ok(())
    }
}

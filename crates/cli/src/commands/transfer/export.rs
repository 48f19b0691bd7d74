//! `lockkeeper export`: writes persistent znodes to a file.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use lockkeeper::inspect::LockQueue;
use lockkeeper::{Client, ErrorCode, ZnodePath, Zxid};

use super::drain;
use super::format::{Footer, Header};
use super::walk::{Found, Walk};
use crate::session::connect::Connection;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::output::tell;
use crate::shared::{names, view};

const NOTES: &str = "\
The output is one line of JSON for each znode, between a header and a footer line. It contains data and \
access control lists: keep it as secret as they are. Ephemeral znodes, including all held locks, are \
omitted, and so is /zookeeper with its quotas. Servers do not distinguish containers and znodes with a \
time to live from other znodes: all are persistent after an import.

If programs write during the export, the output is not a snapshot: each znode is in the state of some time \
during the export. Standard error reports whether there were writes.

Exit codes: 0, done; 1, sessions still had znodes at the end of --drained; 73 or 74, the output cannot be \
written; 75, no server; 77, a znode or its access control list may not be read.";

/// How many held locks are named.
const NAMED: usize = 10;

/// Write the persistent znodes below a path to a file
///
/// For a move to other servers: see docs/growing.md.
#[derive(Debug, Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct ExportOptions {
    /// The path to export; this znode is included
    #[arg(default_value = "/", value_parser = names::folder)]
    path: ZnodePath,

    /// Write to a file instead of standard output; the file is created only if it is complete
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// First wait, for at most this time, until no session has a znode there, and so no lock is held
    #[arg(long, value_name = "DURATION", value_parser = names::duration)]
    drained: Option<Duration>,
}

/// Writes the znodes.
pub(crate) async fn export(global: &Global, options: ExportOptions) -> Result<u8, Failure> {
    // First, so that a wrong file name is not reported only after minutes.
    let mut sink = ExportSink::open(options.output.as_deref())?;

    let written = Connection::during(global, async |connection| {
        if let Some(limit) = options.drained {
            drain::wait(&connection.client, &options.path, limit).await?;
        }
        let summary = write_all(&connection.client, &options.path, &mut sink).await?;
        if options.drained.is_some() && summary.ephemerals > 0 {
            let message =
                "sessions were started during the export: programs still use these servers";
            return Err(Failure::new(Exit::No, message));
        }
        summary.tell(&connection.client).await;
        Ok(())
    });
    written.await?;
    sink.finish()?;
    Ok(Exit::Ok.code())
}

async fn write_all(
    client: &Client,
    root: &ZnodePath,
    sink: &mut ExportSink,
) -> Result<Summary, Failure> {
    let first = newest(client, root).await?;
    sink.write(&Header::new(root, first).to_line())?;

    let mut summary = Summary::new(first);
    let mut walk = Walk::new(client, root);
    while let Some(found) = walk.next().await? {
        for found in found {
            match found {
                Found::Persistent(node) => {
                    summary.nodes += 1;
                    sink.write(&node.to_line())?;
                }
                Found::Ephemeral(path) => summary.leave_out(&path),
            }
        }
    }
    if summary.nodes + summary.ephemerals == 0 {
        let message = format!("{root} does not exist");
        return Err(Failure::new(Exit::Usage, message).advise("see lockkeeper ls"));
    }

    summary.last = newest(client, root).await?;
    sink.write(&Footer::new(summary.nodes, summary.last).to_line())?;
    Ok(summary)
}

/// The last transaction that any server has committed by now.
async fn newest(client: &Client, path: &ZnodePath) -> Result<Zxid, Failure> {
    client.sync(path).await?;
    Ok(client.last_zxid())
}

/// The summary at the end.
struct Summary {
    nodes: u64,
    ephemerals: u64,
    /// The parents of omitted znodes.
    parents: BTreeSet<ZnodePath>,
    more_parents: bool,
    first: Zxid,
    last: Zxid,
}

impl Summary {
    fn new(first: Zxid) -> Self {
        let parents = BTreeSet::new();
        Self { nodes: 0, ephemerals: 0, parents, more_parents: false, first, last: first }
    }

    fn leave_out(&mut self, ephemeral: &ZnodePath) {
        self.ephemerals += 1;
        let Some(parent) = ephemeral.parent() else { return };
        if self.parents.len() < NAMED {
            self.parents.insert(parent);
        } else if !self.parents.contains(&parent) {
            self.more_parents = true;
        }
    }

    async fn tell(&self, client: &Client) {
        let (nodes, last) = (self.nodes, self.last);
        tell(&format!(
            "{nodes} znodes; tokens up to now are at most {} (zxid {last}, epoch {})",
            last.0,
            last.epoch()
        ));

        if self.first != last {
            tell(&format!(
                "there were writes during the export (from {} to {last}): this is not a snapshot",
                self.first
            ));
        }

        if self.ephemerals > 0 {
            tell(&format!(
                "{} ephemeral znodes were omitted, because they belong to sessions",
                self.ephemerals
            ));
            self.tell_locks(client).await;
        }

        if has_quotas(client).await {
            tell("quotas were omitted: set them again on the other servers");
        }
    }

    /// Names the locks among the omitted znodes.
    async fn tell_locks(&self, client: &Client) {
        for parent in &self.parents {
            // Contenders that have left since are not named.
            let Ok(Some(queue)) = LockQueue::inspect(client, parent).await else { continue };
            if queue.holders().next().is_some() {
                let path = view::printable(parent.as_str());
                let (how, who) = (view::summary(&queue), view::held_by(&queue));
                tell(&format!("the lock {path} is in use and is not exported: {how}{who}"));
            }
        }
        if self.more_parents {
            tell("there are more; lockkeeper ls shows all locks");
        }
    }
}

async fn has_quotas(client: &Client) -> bool {
    let quota = ZnodePath::new("/zookeeper/quota").expect("a path");
    if !client.chroot().is_root() {
        return false;
    }
    match client.children(&quota).await {
        Ok((names, _)) => !names.is_empty(),
        Err(error) => error.code() == Some(ErrorCode::NoAuth),
    }
}

/// The destination of the lines.
enum ExportSink {
    Stdout(BufWriter<io::Stdout>),
    File {
        draft: Draft,
        out: BufWriter<File>,
        name: PathBuf,
    },
    /// The reader of standard output has closed the pipe (`| head`).
    Gone,
}

impl ExportSink {
    #[expect(clippy::disallowed_methods, reason = "the user names the file")]
    fn open(name: Option<&Path>) -> Result<Self, Failure> {
        let Some(name) = name else { return Ok(Self::Stdout(BufWriter::new(io::stdout()))) };
        let failed = |error: io::Error| {
            let message = format!("cannot write {}: {error}", name.display());
            Failure::new(Exit::CannotCreate, message)
        };
        if name.is_dir() {
            return Err(failed(ErrorKind::IsADirectory.into()));
        }

        let mut draft = name.as_os_str().to_owned();
        draft.push(format!(".partial-{}", std::process::id()));
        let draft = Draft(PathBuf::from(draft));

        let mut options = OpenOptions::new();
        // The file contains data and lists that the znodes hide from others.
        let file = options.write(true).create_new(true).mode(0o600).open(&draft.0);
        let out = BufWriter::new(file.map_err(failed)?);
        Ok(Self::File { draft, out, name: name.to_owned() })
    }

    fn write(&mut self, line: &str) -> Result<(), Failure> {
        let written = match self {
            Self::Stdout(out) => out.write_all(line.as_bytes()),
            Self::File { out, .. } => out.write_all(line.as_bytes()),
            Self::Gone => Ok(()),
        };
        self.checked(written)
    }

    fn checked(&mut self, written: io::Result<()>) -> Result<(), Failure> {
        match (written, &self) {
            (Ok(()), _) => Ok(()),
            (Err(error), Self::Stdout(_)) if error.kind() == ErrorKind::BrokenPipe => {
                *self = Self::Gone;
                Ok(())
            }
            (Err(error), _) => {
                Err(Failure::new(Exit::Disk, format!("cannot write the export: {error}")))
            }
        }
    }

    /// Makes sure that the whole file is on disk, and gives it its name.
    fn finish(mut self) -> Result<(), Failure> {
        let finished = match &mut self {
            Self::Stdout(out) => out.flush(),
            Self::File { draft, out, name } => out
                .flush()
                .and_then(|()| out.get_ref().sync_all())
                .and_then(|()| fs::rename(&draft.0, name)),
            Self::Gone => Ok(()),
        };
        self.checked(finished)
    }
}

/// A file without its final name. It is removed unless it gets the name.
struct Draft(PathBuf);

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

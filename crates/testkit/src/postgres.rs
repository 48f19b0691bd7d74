//! A PostgreSQL server in a directory of its own.
//!
//! PostgreSQL refuses to run as root, so root starts it as the user that Debian's package creates.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::process::Process;

/// Where Debian's packages install it, each version in a directory of its own.
const VERSIONS: &str = "/usr/lib/postgresql";

const START_LIMIT: Duration = Duration::from_secs(30);

/// A PostgreSQL server, killed on drop. Its user `postgres` needs no password.
#[derive(Debug)]
pub struct PostgresServer {
    /// The server's own process.
    // Before the folder, so that the server has ended when its data is removed.
    pub process: Process,
    /// The port on which it listens, on the loopback address.
    pub port: u16,
    /// The directory of its data.
    pub folder: TempDir,
}

impl PostgresServer {
    /// Creates a data directory and starts a server on it; returns when the server is ready.
    ///
    /// # Errors
    /// PostgreSQL is not installed or does not start.
    pub async fn start() -> Result<Self> {
        let programs = programs()?;
        // Not in the test's directory, which only this user may be able to enter.
        let folder = tempfile::Builder::new().prefix("lockkeeper-postgres-").tempdir()?;
        let user = User::for_server(folder.path())?;
        let data = folder.path().join("data");
        initialize(&programs, &user, &data)?;

        // A port that was free a moment ago.
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut command = user.command(&programs.join("postgres"));
        command
            .arg("-D")
            .arg(&data)
            .args(["-c", "listen_addresses=127.0.0.1", "-c", &format!("port={port}")])
            .args(["-c", "unix_socket_directories=", "-c", "max_connections=200"]);
        let process = Process::spawn("postgres", &command, folder.path())?;
        let mut server = Self { process, port, folder };
        server.serves(&programs).await?;
        Ok(server)
    }

    /// Waits until it serves; it listens earlier.
    async fn serves(&mut self, programs: &Path) -> Result<()> {
        let start = Instant::now();
        let port = self.port.to_string();
        loop {
            let mut ask = Command::new(programs.join("pg_isready"));
            let answer = ask.args(["-h", "127.0.0.1", "-p", &port]).output()?;
            if answer.status.success() {
                return Ok(());
            }
            if self.process.status()?.is_some() || start.elapsed() > START_LIMIT {
                bail!("PostgreSQL does not become ready\n{}", self.process.tail());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The newest version's directory of programs.
///
/// # Errors
/// PostgreSQL is not installed.
pub fn programs() -> Result<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(VERSIONS)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, programs)| programs.join("postgres").is_file())
        .collect();
    found.sort();
    let newest = found.pop().map(|(_, programs)| programs);
    newest.context("the programs of PostgreSQL in /usr/lib/postgresql")
}

fn initialize(programs: &Path, user: &User, data: &Path) -> Result<()> {
    let mut command = user.command(&programs.join("initdb"));
    command.args(["--username=postgres", "--auth=trust", "--no-sync", "--locale=C", "-D"]);
    let output = command.arg(data).stdin(Stdio::null()).output().context("cannot start initdb")?;
    if !output.status.success() {
        bail!("initdb failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// The user of the server: the one of this process, or the user and group of the package.
struct User(Option<(u32, u32)>);

impl User {
    /// Gives the directory to the user of the server.
    fn for_server(folder: &Path) -> Result<Self> {
        if fs::metadata(folder)?.uid() != 0 {
            return Ok(Self(None));
        }
        let users = fs::read_to_string("/etc/passwd")?;
        let line = users.lines().find_map(|line| line.strip_prefix("postgres:"));
        let line =
            line.context("PostgreSQL does not run as root, and the user postgres does not exist")?;
        let mut numbers = line.split(':').skip(1).map(str::parse::<u32>);
        let (Some(Ok(user)), Some(Ok(group))) = (numbers.next(), numbers.next()) else {
            bail!("the user postgres has no valid ids");
        };
        std::os::unix::fs::chown(folder, Some(user), Some(group))?;
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
        Ok(Self(Some((user, group))))
    }

    fn command(&self, program: &Path) -> Command {
        let Some((user, group)) = self.0 else { return Command::new(program) };
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={user}"), format!("--regid={group}")]);
        // Only its own directory is certain to be accessible to it.
        command.args(["--clear-groups", "--"]).arg(program).current_dir("/");
        command
    }
}

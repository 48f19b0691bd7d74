//! A PostgreSQL of our own, in a folder of its own.
//!
//! It refuses to run as root, so root starts it as the user that Debian's package made.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::process::Process;

/// Where Debian's packages put it, each version in a folder of its own.
const VERSIONS: &str = "/usr/lib/postgresql";

const START_LIMIT: Duration = Duration::from_secs(30);

/// A server, killed on drop. Its user `postgres` needs no password.
#[derive(Debug)]
pub struct PostgresServer {
    /// The server's own process.
    // Before the folder, so that the server is dead when its data goes.
    pub process: Process,
    /// Where it listens, on the loopback address.
    pub port: u16,
    /// What has its data.
    pub folder: TempDir,
}

impl PostgresServer {
    /// Makes a data directory, and starts a server on it; returns when that serves.
    ///
    /// # Errors
    /// If it is not installed, or does not start.
    pub async fn start() -> Result<Self> {
        let programs = programs()?;
        // Not with the other data: that may be where only this user may go.
        let folder = tempfile::Builder::new().prefix("lockkeeper-postgres-").tempdir()?;
        let user = User::for_server(folder.path())?;
        let data = folder.path().join("data");
        initialize(&programs, &user, &data)?;

        // One that was free a moment ago.
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

    /// It listens before it serves.
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
                bail!("PostgreSQL does not serve\n{}", self.process.tail());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The newest version's folder of programs.
///
/// # Errors
/// If it is not installed.
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
    newest.context("its programs in /usr/lib/postgresql")
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

/// Who runs the server: whoever runs this program, or the user and group of the package.
struct User(Option<(u32, u32)>);

impl User {
    /// Gives the folder to whom the server will run as.
    fn for_server(folder: &Path) -> Result<Self> {
        if fs::metadata(folder)?.uid() != 0 {
            return Ok(Self(None));
        }
        let users = fs::read_to_string("/etc/passwd")?;
        let line = users.lines().find_map(|line| line.strip_prefix("postgres:"));
        let line = line.context("it does not run as root, and there is no user postgres")?;
        let mut numbers = line.split(':').skip(1).map(str::parse::<u32>);
        let (Some(Ok(user)), Some(Ok(group))) = (numbers.next(), numbers.next()) else {
            bail!("the user postgres has no numbers");
        };
        std::os::unix::fs::chown(folder, Some(user), Some(group))?;
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
        Ok(Self(Some((user, group))))
    }

    fn command(&self, program: &Path) -> Command {
        let Some((user, group)) = self.0 else { return Command::new(program) };
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={user}"), format!("--regid={group}")]);
        // Its own folder is the only one that it surely may be in.
        command.args(["--clear-groups", "--"]).arg(program).current_dir("/");
        command
    }
}

//! A server, a console on it, and programs that use locks there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::inspect::LockQueue;
use lockkeeper::{Client, ZnodePath};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::zookeeper::free_ports;
use lockkeeper_testkit::{command, scratch};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::LIMIT;

/// What a request is answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// A server with a console.
pub(crate) struct Site {
    folder: TempDir,
    program: PathBuf,
    server: Mutex<Option<Process>>,
    console: Process,
    port: u16,
    /// The start address.
    pub(crate) url: String,
    /// `127.0.0.1:PORT`.
    pub(crate) host: String,
}

impl Site {
    pub(crate) async fn start(options: &[&str]) -> Result<Self> {
        let folder = scratch::folder()?;
        let program = command::lockkeeper()?;
        let [port] = free_ports::<1>()?;
        let server = serve(&program, folder.path(), port).await?;

        let mut command = Command::new(&program);
        command.args(["--connect", &format!("127.0.0.1:{port}"), "console"]).args(options);
        let mut console = Process::spawn("console", &alone(command, folder.path()), folder.path())?;
        console.prints("token=", LIMIT).await?;
        let url = console.stdout().trim().to_owned();
        let (base, _) = url.split_once("/?").context("a start address")?;
        let host = base.strip_prefix("http://").context("an address")?.to_owned();
        let server = Mutex::new(Some(server));
        Ok(Self { folder, program, server, console, port, url, host })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn page(&self, path: &str) -> String {
        format!("http://{}{path}", self.host)
    }

    /// A program with locks.
    pub(crate) async fn client(&self) -> Result<Client> {
        let builder = Client::builder().session_timeout(Duration::from_secs(60));
        Ok(builder.connect(&format!("127.0.0.1:{}", self.port)).await?)
    }

    /// A shell script under a lock.
    pub(crate) fn runs(&self, name: &str, lock: &str, script: &str) -> Result<Process> {
        let mut command = Command::new(&self.program);
        command.args(["run", "-q", lock, "--", "sh", "-c", script]);
        command.env("LOCKKEEPER_CONNECT", format!("127.0.0.1:{}", self.port));
        command.env("LOCKKEEPER", &self.program);
        Process::spawn(name, &alone(command, self.folder()), self.folder())
    }

    /// Runs the command to its end.
    pub(crate) fn ends(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.args(["--connect", &format!("127.0.0.1:{}", self.port)]).args(arguments);
        let ended = alone(command, self.folder()).output()?;
        anyhow::ensure!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        Ok(String::from_utf8(ended.stdout)?.trim().to_owned())
    }

    pub(crate) fn stop_server(&self) {
        drop(self.server.lock().expect("no panic before").take());
    }

    pub(crate) async fn start_server(&self) -> Result<()> {
        let server = serve(&self.program, self.folder(), self.port).await?;
        *self.server.lock().expect("no panic before") = Some(server);
        Ok(())
    }

    pub(crate) async fn stop_console(&mut self) -> Result<()> {
        self.console.signal(Signal::TERM)?;
        self.console.end(LIMIT).await.map(drop)
    }

    /// What the console has said.
    pub(crate) fn log(&self) -> String {
        self.console.stderr()
    }

    pub(crate) fn tail(&self) -> String {
        self.console.tail()
    }

    /// A cookie of a browser that came through the start address.
    pub(crate) async fn cookie(&self) -> Result<String> {
        let path = self.start_path()?;
        let answer =
            self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host)).await?;
        cookie_of(&answer)
    }

    /// Sends a request as it is.
    pub(crate) async fn ask(&self, request: &str) -> Result<Answer> {
        exchange(TcpStream::connect(&self.host).await?, request).await
    }

    /// The start address, without the host.
    pub(crate) fn start_path(&self) -> Result<&str> {
        Ok(self.url.split_once(&self.host).context("its host")?.1)
    }
}

/// Sends a request as it is over a new connection.
pub(crate) async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &str,
) -> Result<Answer> {
    let request = request.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    timeout(LIMIT, stream.read_to_end(&mut answer)).await.context("no answer")??;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer")?;
    let status = head.split(' ').nth(1).context("a status")?.parse()?;
    Ok(Answer { status, head: head.to_owned(), body: body.to_owned() })
}

/// The cookie that an answer sets.
pub(crate) fn cookie_of(answer: &Answer) -> Result<String> {
    let cookie = answer.head.lines().find_map(|line| line.strip_prefix("set-cookie: "));
    let (pair, _) = cookie.and_then(|cookie| cookie.split_once(';')).context("a cookie")?;
    Ok(pair.to_owned())
}

/// The command, apart from engines and settings of this machine's users.
fn alone(mut command: Command, folder: &Path) -> Command {
    command.env("LOCKKEEPER_HOME", folder.join("home")).env("LOCKKEEPER_SYSTEM_HOME", "none");
    command.env("LOCKKEEPER_SYSTEM_CONFIG", "none").env("XDG_CONFIG_HOME", folder);
    command.env_remove("LOCKKEEPER_CONFIG").env_remove("LOCKKEEPER_LOG").current_dir(folder);
    command
}

async fn serve(program: &Path, folder: &Path, port: u16) -> Result<Process> {
    let mut command = Command::new(program);
    command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--data-dir"]);
    command.arg(folder.join("data"));
    let command = alone(command, folder);
    let mut server = Process::spawn("server", &command, folder)?;
    let address = format!("127.0.0.1:{port}");
    crate::eventually("the server listens", async || {
        anyhow::ensure!(server.status()?.is_none(), "{}", server.tail());
        Ok(TcpStream::connect(&address).await.is_ok())
    })
    .await?;
    Ok(server)
}

/// Whether a holder of a lock was asked to release it, as its node says.
pub(crate) async fn is_asked(client: &Client, lock: &str) -> Result<bool> {
    let queue = LockQueue::inspect(client, &ZnodePath::new(lock)?).await?;
    Ok(queue.is_some_and(|queue| queue.holders().any(|holder| holder.is_revoked())))
}

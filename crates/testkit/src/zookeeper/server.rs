//! A server: its process, its directory, its address.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::chroot;
use super::config::{Config, Member};
use crate::network::Host;
use crate::process::Process;
use crate::{java, peers, scratch};

const START_LIMIT: Duration = Duration::from_secs(30);
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(25);

/// How often a start is repeated because another program took a port.
pub(super) const TRIES: usize = 5;

/// The mode that a server reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A standalone server.
    Standalone,
    /// The leader of an ensemble.
    Leader,
    /// A follower in an ensemble.
    Follower,
}

/// A real ZooKeeper server: standalone, or a member of a [`super::ZooKeeperEnsemble`]. Killed on drop.
#[derive(Debug)]
pub struct ZooKeeper {
    // Before the folder, so that the server has ended when its data is removed.
    process: Option<Process>,
    address: SocketAddrV4,
    /// The host on which it runs, if that is not the machine itself.
    pub(super) host: Option<Host>,
    folder: PathBuf,
    jvm_arguments: Vec<String>,
    starts: usize,
    _owned_folder: Option<TempDir>,
}

impl Config {
    /// Starts a standalone server and waits until it serves.
    ///
    /// # Errors
    ///
    /// The server is not ready within half a minute. The error shows the end of its log.
    pub async fn standalone(self) -> Result<ZooKeeper> {
        let mut tries = 0;
        loop {
            tries += 1;
            let folder = scratch::folder()?;
            let [port] = free_ports()?;
            let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
            let mut server = ZooKeeper::prepare(&self, folder.path().to_owned(), address, &[])?;
            server._owned_folder = Some(folder);
            server.launch()?;

            // Another program may have taken the port before the server did.
            match server.serves().await {
                Err(error) if server.lost_its_port() && tries < TRIES => drop(error),
                result => return result.map(|_| server),
            }
        }
    }
}

impl ZooKeeper {
    /// Writes the files that the server needs, without starting it.
    pub(super) fn prepare(
        config: &Config,
        folder: PathBuf,
        address: SocketAddrV4,
        members: &[Member],
    ) -> Result<Self> {
        let zoo_cfg = config.zoo_cfg(&folder.join("data"), address, members);
        fs::create_dir_all(folder.join("data"))?;
        fs::write(folder.join("zoo.cfg"), zoo_cfg)?;
        let jvm_arguments = config.jvm_arguments().to_vec();
        Ok(Self {
            process: None,
            address,
            host: None,
            folder,
            jvm_arguments,
            starts: 0,
            _owned_folder: None,
        })
    }

    /// Reads the port for clients from its configuration, which a test may have edited.
    pub(super) fn read_client_port(&mut self) -> Result<()> {
        let text = fs::read_to_string(self.folder.join("zoo.cfg"))?;
        let port = text.lines().find_map(|line| line.strip_prefix("clientPort="));
        let port = port.context("zoo.cfg does not set clientPort")?.parse()?;
        self.address.set_port(port);
        Ok(())
    }

    /// Starts the process without waiting for it.
    pub(super) fn launch(&mut self) -> Result<()> {
        let mut command = Command::new("java");
        command
            .args(java::SHORT_LIVED)
            .args(&self.jvm_arguments)
            .args(["-cp", &peers::zookeeper_class_path()])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(self.folder.join("zoo.cfg"))
            .current_dir(&self.folder);

        if let Some(host) = &self.host {
            command = host.command(&command);
        }

        self.starts += 1;
        let name = format!("server-{}", self.starts);
        self.process = Some(Process::spawn(&name, &command, &self.folder)?);
        Ok(())
    }

    /// Waits until the server answers requests, and returns its mode.
    ///
    /// # Errors
    ///
    /// It was killed, it ended by itself, or it does not answer within half a minute. The error shows the end of its
    /// log.
    pub async fn serves(&mut self) -> Result<Mode> {
        let start = Instant::now();
        loop {
            if let Ok(mode) = self.mode().await {
                return Ok(mode);
            }

            let taken = self.lost_its_port();
            let process = self.process.as_mut().context("this server was killed")?;
            let ended = process.status()?;
            if taken || ended.is_some() || start.elapsed() > START_LIMIT {
                let after = start.elapsed().as_secs_f64();
                return Err(anyhow!(
                    "the ZooKeeper server at {} is not ready after {after:.1} s\n{}",
                    self.address,
                    process.tail()
                ));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    pub(super) fn lost_its_port(&self) -> bool {
        self.log().contains("java.net.BindException")
    }

    /// The address for clients, `host:port`.
    pub fn connect_string(&self) -> String {
        self.address.to_string()
    }

    /// Creates the node `/<name>` unless it exists, and returns the connection string with it as the chroot.
    ///
    /// # Errors
    ///
    /// The server does not answer, or does not accept the name.
    pub async fn chroot(&self, name: &str) -> Result<String> {
        chroot::create(self.connect().await?, &format!("/{name}")).await?;
        Ok(format!("{}/{name}", self.connect_string()))
    }

    /// The directory of its configuration, logs and data.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The log since the last start.
    pub fn log(&self) -> String {
        self.process.as_ref().map(Process::stderr).unwrap_or_default()
    }

    /// The server's present mode.
    ///
    /// # Errors
    ///
    /// It is not running or not serving, for example because it is electing a leader.
    pub async fn mode(&self) -> Result<Mode> {
        let answer = self.four_letter("srvr").await?;
        let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "));
        match mode {
            Some("standalone") => Ok(Mode::Standalone),
            Some("leader") => Ok(Mode::Leader),
            Some("follower") => Ok(Mode::Follower),
            _ => Err(anyhow!("{} is not serving: {}", self.address, answer.trim())),
        }
    }

    /// Sends a four-letter word, such as `dump`, and reads the answer.
    ///
    /// # Errors
    ///
    /// The server does not answer within 2 s.
    pub async fn four_letter(&self, word: &str) -> Result<String> {
        let talk = async {
            let mut stream = self.connect().await?;
            stream.write_all(word.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            io::Result::Ok(answer)
        };
        let answer = tokio::time::timeout(ANSWER_LIMIT, talk).await;
        let answer = answer.map_err(io::Error::from).flatten();
        answer.with_context(|| format!("no answer to {word} from {}", self.address))
    }

    pub(super) async fn connect(&self) -> io::Result<TcpStream> {
        let Some(host) = self.host.clone() else {
            return TcpStream::connect(self.address).await;
        };
        let address = self.address;
        let dial = tokio::task::spawn_blocking(move || host.connect(address));
        let stream = dial.await.map_err(io::Error::other)??;
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream)
    }

    /// Ends it with SIGKILL. Its data remains.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Restarts it on the same data and port, after killing it if it still runs, and waits until it serves.
    ///
    /// # Errors
    ///
    /// It is not ready within half a minute. The error shows the end of its log.
    pub async fn restart(&mut self) -> Result<()> {
        let mut tries = 0;
        loop {
            tries += 1;
            self.kill();
            self.launch()?;

            match self.serves().await {
                Err(error) if self.lost_its_port() && tries < TRIES => {
                    drop(error);
                    // An outgoing connection of another program may occupy the port for a moment.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                result => return result.map(|_| ()),
            }
        }
    }

    /// Restarts it without its data, as after the replacement of its machine.
    ///
    /// # Errors
    ///
    /// See [`ZooKeeper::restart`]; or its data cannot be removed.
    pub async fn wipe(&mut self) -> Result<()> {
        self.kill();
        fs::remove_dir_all(self.folder.join("data/version-2"))?;
        self.restart().await
    }

    /// Restarts it as [`ZooKeeper::restart`] does, without waiting for it.
    ///
    /// # Errors
    ///
    /// Java is not installed.
    pub fn begin_restart(&mut self) -> Result<()> {
        self.kill();
        self.launch()
    }

    /// Whether its process has ended, killed or by itself.
    ///
    /// # Errors
    ///
    /// The operating system reports an error.
    pub fn has_ended(&mut self) -> Result<bool> {
        match &mut self.process {
            Some(process) => Ok(process.status()?.is_some()),
            None => Ok(true),
        }
    }

    /// Stops it immediately (SIGSTOP); its connections stay open. When this returns, all its threads have stopped.
    ///
    /// # Errors
    ///
    /// It was killed.
    pub fn pause(&self) -> Result<()> {
        self.running()?.pause()
    }

    /// Resumes it after [`ZooKeeper::pause`].
    ///
    /// # Errors
    ///
    /// It was killed.
    pub fn resume(&self) -> Result<()> {
        self.running()?.resume()
    }

    /// The id of its process.
    ///
    /// # Errors
    ///
    /// It was killed.
    pub fn process_id(&self) -> Result<u32> {
        Ok(self.running()?.id())
    }

    fn running(&self) -> Result<&Process> {
        self.process.as_ref().context("this server was killed")
    }
}

/// Ports of the loopback address that were free a moment ago. All are bound before any is released, so that they
/// differ.
///
/// # Errors
///
/// No port is free.
pub fn free_ports<const N: usize>() -> io::Result<[u16; N]> {
    let mut listeners = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

//! Ensembles of servers.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::config::{Config, Member};
use super::server::{Mode, TRIES, ZooKeeper, free_ports};
use crate::network::Host;
use crate::scratch;

const POLL: Duration = Duration::from_millis(100);

/// An ensemble of real ZooKeeper servers. All are killed on drop.
#[derive(Debug)]
pub struct ZooKeeperEnsemble {
    // Before the folder, so that the servers have ended when their data is removed.
    servers: Vec<ZooKeeper>,
    _folder: TempDir,
}

impl Config {
    /// Starts `size` servers and waits until all of them serve.
    ///
    /// # Errors
    ///
    /// A server is not ready within half a minute. The error shows the end of a log.
    pub async fn ensemble(self, size: usize) -> Result<ZooKeeperEnsemble> {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut ensemble = ZooKeeperEnsemble::prepare(&self, size)?;
            ensemble.launch()?;
            match ensemble.serves().await {
                Err(error) if ensemble.lost_a_port() && tries < TRIES => drop(error),
                result => return result.map(|()| ensemble),
            }
        }
    }

    /// Writes the files of `size` servers without starting them: [`ZooKeeperEnsemble::restart_all`] starts them.
    ///
    /// # Errors
    ///
    /// The files cannot be written.
    pub fn unstarted_ensemble(self, size: usize) -> Result<ZooKeeperEnsemble> {
        ZooKeeperEnsemble::prepare(&self, size)
    }

    /// Starts one server on each of these hosts and waits until all of them serve.
    ///
    /// # Errors
    ///
    /// A server is not ready within half a minute. The error shows the end of a log.
    pub async fn ensemble_on(self, hosts: &[Host]) -> Result<ZooKeeperEnsemble> {
        // On hosts of their own no other program takes a port, so they use ZooKeeper's usual ports.
        let seats = hosts.iter().map(|host| Seat {
            client: SocketAddrV4::new(host.address(), 2181),
            member: Member { address: host.address(), quorum: 2888, election: 3888 },
            host: Some(host.clone()),
        });
        let mut ensemble = ZooKeeperEnsemble::seat(&self, seats.collect())?;
        ensemble.launch()?;
        ensemble.serves().await?;
        Ok(ensemble)
    }
}

impl ZooKeeperEnsemble {
    /// Starts `size` servers, with [`Config::new`], and waits until all of them serve.
    ///
    /// # Errors
    ///
    /// A server is not ready within half a minute. The error shows the end of a log.
    pub async fn start(size: usize) -> Result<Self> {
        Config::new().ensemble(size).await
    }

    fn prepare(config: &Config, size: usize) -> Result<Self> {
        let address = Ipv4Addr::LOCALHOST;
        let triples = free_port_triples(size)?;
        let seats = triples.into_iter().map(|[client, quorum, election]| Seat {
            client: SocketAddrV4::new(address, client),
            member: Member { address, quorum, election },
            host: None,
        });
        Self::seat(config, seats.collect())
    }

    fn seat(config: &Config, seats: Vec<Seat>) -> Result<Self> {
        let folder = scratch::folder()?;
        let members: Vec<Member> = seats.iter().map(|seat| seat.member).collect();
        let mut servers = Vec::with_capacity(seats.len());
        for (id, seat) in (1..).zip(seats) {
            let folder = folder.path().join(format!("server-{id}"));
            let mut server = ZooKeeper::prepare(config, folder, seat.client, &members)?;
            server.host = seat.host;
            fs::write(server.folder().join("data/myid"), format!("{id}\n"))?;
            servers.push(server);
        }
        Ok(Self { servers, _folder: folder })
    }

    fn launch(&mut self) -> Result<()> {
        self.servers.iter_mut().try_for_each(ZooKeeper::launch)
    }

    /// Starts all servers with the configuration in their directories, after killing those that still run, and waits
    /// until all of them serve.
    ///
    /// # Errors
    ///
    /// A server is not ready within half a minute. The error shows the end of a log.
    pub async fn restart_all(&mut self) -> Result<()> {
        for server in &mut self.servers {
            server.read_client_port()?;
            server.begin_restart()?;
        }
        for server in &mut self.servers {
            if server.serves().await.is_err() && server.lost_its_port() {
                server.restart().await?;
            }
        }
        self.serves().await
    }

    /// Ends all servers with SIGKILL. Their data remains.
    pub fn kill_all(&mut self) {
        self.servers.iter_mut().for_each(ZooKeeper::kill);
    }

    /// Waits until every server serves.
    ///
    /// # Errors
    ///
    /// A server is not ready within half a minute. The error shows the end of its log.
    pub async fn serves(&mut self) -> Result<()> {
        for server in &mut self.servers {
            server.serves().await?;
        }
        Ok(())
    }

    /// Waits until one server leads and all others follow.
    ///
    /// # Errors
    ///
    /// This state is not reached within `limit`.
    pub async fn settles(&self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            let mut modes = Vec::new();
            for server in &self.servers {
                modes.push(server.mode().await.ok());
            }

            let count = |mode| modes.iter().filter(|known| **known == Some(mode)).count();
            if count(Mode::Leader) == 1 && count(Mode::Follower) == self.size() - 1 {
                return Ok(());
            }
            if start.elapsed() > limit {
                bail!("after {limit:?} the servers are {modes:?}");
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn lost_a_port(&self) -> bool {
        self.servers.iter().any(ZooKeeper::lost_its_port)
    }

    /// The addresses of all servers, `host:port,host:port,...`.
    pub fn connect_string(&self) -> String {
        let addresses: Vec<String> = self.servers.iter().map(ZooKeeper::connect_string).collect();
        addresses.join(",")
    }

    /// Creates the node `/<name>` unless it exists, and returns the connection string with it as the chroot.
    ///
    /// # Errors
    ///
    /// The first server does not answer, or does not accept the name.
    pub async fn chroot(&self, name: &str) -> Result<String> {
        let first = self.servers.first().context("an ensemble without servers")?;
        first.chroot(name).await?;
        Ok(format!("{}/{name}", self.connect_string()))
    }

    /// The number of servers, dead ones included.
    pub fn size(&self) -> usize {
        self.servers.len()
    }

    /// A server, counted from 0.
    ///
    /// # Panics
    ///
    /// The index is out of range.
    pub fn server(&self, index: usize) -> &ZooKeeper {
        &self.servers[index]
    }

    /// A server, counted from 0, to kill or restart it.
    ///
    /// # Panics
    ///
    /// The index is out of range.
    pub fn server_mut(&mut self, index: usize) -> &mut ZooKeeper {
        &mut self.servers[index]
    }

    /// Ends a server with SIGKILL. Its data remains.
    ///
    /// # Panics
    ///
    /// The index is out of range.
    pub fn kill(&mut self, index: usize) {
        self.server_mut(index).kill();
    }

    /// Restarts a server on its data, and waits until it serves.
    ///
    /// # Errors
    ///
    /// It is not ready within half a minute, for example because there is no majority for it to join.
    ///
    /// # Panics
    ///
    /// The index is out of range.
    pub async fn restart(&mut self, index: usize) -> Result<()> {
        self.server_mut(index).restart().await
    }

    /// Stops a server immediately.
    ///
    /// # Errors
    ///
    /// It was killed.
    ///
    /// # Panics
    ///
    /// The index is out of range.
    pub fn pause(&self, index: usize) -> Result<()> {
        self.server(index).pause()
    }

    /// Resumes a server after [`ZooKeeperEnsemble::pause`].
    ///
    /// # Errors
    ///
    /// It was killed.
    ///
    /// # Panics
    ///
    /// The index is out of range.
    pub fn resume(&self, index: usize) -> Result<()> {
        self.server(index).resume()
    }

    /// The server that reports itself as the leader. Just after a cut or a pause, two servers may do so; the first one
    /// is returned.
    ///
    /// # Errors
    ///
    /// No server reports itself as the leader: they are electing one, or too few are alive.
    pub async fn leader(&self) -> Result<usize> {
        self.find(Mode::Leader).await.context("no server of the ensemble leads")
    }

    /// A server that follows.
    ///
    /// # Errors
    ///
    /// No server reports itself as a follower.
    pub async fn follower(&self) -> Result<usize> {
        self.find(Mode::Follower).await.context("no server of the ensemble follows")
    }

    async fn find(&self, wanted: Mode) -> Option<usize> {
        for (index, server) in self.servers.iter().enumerate() {
            if server.mode().await.is_ok_and(|mode| mode == wanted) {
                return Some(index);
            }
        }
        None
    }
}

/// The place of one server of an ensemble.
struct Seat {
    client: SocketAddrV4,
    member: Member,
    host: Option<Host>,
}

/// The ports of each server: for clients, for followers, and for elections.
fn free_port_triples(size: usize) -> Result<Vec<[u16; 3]>> {
    const MOST: usize = 7;
    anyhow::ensure!((1..=MOST).contains(&size), "an ensemble has 1 to {MOST} servers, not {size}");
    let ports = free_ports::<{ 3 * MOST }>()?;
    let (triples, _) = ports.as_chunks::<3>();
    Ok(triples[..size].to_vec())
}

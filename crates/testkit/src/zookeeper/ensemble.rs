//! Several servers that agree.

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
    // Before the folder, so that the servers are dead when their data goes.
    servers: Vec<ZooKeeper>,
    _folder: TempDir,
}

impl Config {
    /// Starts `size` servers and waits until all of them serve.
    ///
    /// # Errors
    ///
    /// They do not serve within half a minute. The error shows the end of a log.
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

    /// Writes down what `size` servers need, and starts none:
    /// [`ZooKeeperEnsemble::restart_all`] does.
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
    /// They do not serve within half a minute. The error shows the end of a log.
    pub async fn ensemble_on(self, hosts: &[Host]) -> Result<ZooKeeperEnsemble> {
        // On hosts of their own nobody else takes a port, so they are ZooKeeper's usual ones.
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
    /// They do not serve within half a minute. The error shows the end of a log.
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

    /// Starts all servers with the configuration that they have in their folders now, after a kill
    /// if they still run, and waits until all of them serve.
    ///
    /// # Errors
    ///
    /// They do not serve within half a minute. The error shows the end of a log.
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

    /// Ends all servers with SIGKILL. Their data stays.
    pub fn kill_all(&mut self) {
        self.servers.iter_mut().for_each(ZooKeeper::kill);
    }

    /// Waits until every server serves.
    ///
    /// # Errors
    ///
    /// One does not within half a minute. The error shows the end of its log.
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
    /// That is not so after `limit`.
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

    /// Creates the node `/<name>` unless it is there, and returns the connection string with it
    /// as the chroot.
    ///
    /// # Errors
    ///
    /// The first server does not answer, or does not accept the name.
    pub async fn chroot(&self, name: &str) -> Result<String> {
        let first = self.servers.first().context("an ensemble without servers")?;
        first.chroot(name).await?;
        Ok(format!("{}/{name}", self.connect_string()))
    }

    /// How many servers there are, dead ones included.
    pub fn size(&self) -> usize {
        self.servers.len()
    }

    /// One of the servers, counted from 0.
    ///
    /// # Panics
    ///
    /// There are not so many.
    pub fn server(&self, index: usize) -> &ZooKeeper {
        &self.servers[index]
    }

    /// One of the servers, counted from 0, to kill or restart it.
    ///
    /// # Panics
    ///
    /// There are not so many.
    pub fn server_mut(&mut self, index: usize) -> &mut ZooKeeper {
        &mut self.servers[index]
    }

    /// Ends one server with SIGKILL. Its data stays.
    ///
    /// # Panics
    ///
    /// There are not so many.
    pub fn kill(&mut self, index: usize) {
        self.server_mut(index).kill();
    }

    /// Starts one server again on its data, and waits until it serves.
    ///
    /// # Errors
    ///
    /// It does not serve within half a minute: for example, there is no majority for it to join.
    ///
    /// # Panics
    ///
    /// There are not so many.
    pub async fn restart(&mut self, index: usize) -> Result<()> {
        self.server_mut(index).restart().await
    }

    /// Stops one server in the middle of whatever it does.
    ///
    /// # Errors
    ///
    /// It was killed.
    ///
    /// # Panics
    ///
    /// There are not so many.
    pub fn pause(&self, index: usize) -> Result<()> {
        self.server(index).pause()
    }

    /// Lets one server go on after [`ZooKeeperEnsemble::pause`].
    ///
    /// # Errors
    ///
    /// It was killed.
    ///
    /// # Panics
    ///
    /// There are not so many.
    pub fn resume(&self, index: usize) -> Result<()> {
        self.server(index).resume()
    }

    /// The server that says it leads. Just after a cut or a pause, two may say so; the first one
    /// is told.
    ///
    /// # Errors
    ///
    /// None says so: they are looking for a leader, or too few are alive.
    pub async fn leader(&self) -> Result<usize> {
        self.find(Mode::Leader).await.context("no server of the ensemble leads")
    }

    /// A server that follows.
    ///
    /// # Errors
    ///
    /// None says so.
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

/// Where one server of an ensemble is.
struct Seat {
    client: SocketAddrV4,
    member: Member,
    host: Option<Host>,
}

/// For each server: the port for clients, the one for followers, the one for elections.
fn free_port_triples(size: usize) -> Result<Vec<[u16; 3]>> {
    const MOST: usize = 7;
    anyhow::ensure!((1..=MOST).contains(&size), "an ensemble has 1 to {MOST} servers, not {size}");
    let ports = free_ports::<{ 3 * MOST }>()?;
    let (triples, _) = ports.as_chunks::<3>();
    Ok(triples[..size].to_vec())
}

//! Separate hosts on one machine: Linux network namespaces that are connected by a switch, and cuts between them.
//!
//! A cut drops packets silently, as a broken network does: the sender gets an Ethernet address that belongs to no host.
//! So a cut can affect one direction only, and a host that is cut off notices it by a timeout, not by an error.
//!
//! Nothing outside is named or changed: a namespace lives as long as its processes, and these end with this process.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tempfile::TempDir;

use crate::process::{Process, run_tool, started_by};
use crate::scratch;
use crate::wall_clock::WallClock;

const START_LIMIT: Duration = Duration::from_secs(5);
const CONNECT_LIMIT: Duration = Duration::from_secs(1);

/// The Ethernet address to which packets are sent that are to be lost.
const NOWHERE: &str = "02:00:00:00:00:ff";

/// The program that keeps a namespace alive while nothing else runs in it.
const KEEPER: &[&str] = &["--net", "--", "sleep", "infinity"];

/// Returns what is missing to create a network, or `None`.
pub fn missing() -> Option<String> {
    let attempt = Command::new("unshare")
        .args([
            "--net", "--", "ip", "link", "add", "probe", "type", "veth", "peer", "name", "other",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output();
    match attempt {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(format!("the program unshare: {error}")),
    }
}

/// A network of hosts, all connected to each other until [`Network::cut`].
#[derive(Debug)]
pub struct Network {
    hosts: Vec<Host>,
    _switch: Host,
    // After the processes, which write into it.
    folder: TempDir,
}

/// A host of a [`Network`]. Cheap to clone; it lives as long as any clone.
#[derive(Clone, Debug)]
pub struct Host {
    address: Ipv4Addr,
    keeper: Arc<Process>,
    /// Its own wall clock, if it has one.
    wall_clock: Option<Arc<WallClock>>,
}

impl Network {
    /// A network of `size` hosts, 250 at most.
    ///
    /// # Errors
    ///
    /// This user may not create namespaces, or a program is missing: see [`missing`].
    pub fn start(size: u8) -> Result<Self> {
        ensure!(size <= 250, "a network has at most 250 hosts, not {size}");
        let folder = scratch::folder()?;
        let switch = Host::start("switch", Ipv4Addr::UNSPECIFIED, folder.path())?;
        switch.run("ip link add switch type bridge && ip link set switch up")?;

        let mut hosts = Vec::new();
        for number in 1..=size {
            let address = Ipv4Addr::new(10, 77, 0, number);
            let host = Host::start(&format!("host-{number}"), address, folder.path())?;
            switch.run(&format!(
                "ip link add port{number} type veth peer name eth0 netns {} && \
                 ip link set port{number} master switch up",
                host.keeper.id()
            ))?;
            host.run(&format!(
                "ip link set lo up && ip addr add {address}/24 dev eth0 && ip link set eth0 up"
            ))?;
            hosts.push(host);
        }
        Ok(Self { hosts, _switch: switch, folder })
    }

    /// Gives each host of the network a wall clock of its own: [`Host::jump_to`].
    ///
    /// # Errors
    ///
    /// No C compiler is installed.
    pub fn with_wall_clocks(mut self) -> Result<Self> {
        for host in &mut self.hosts {
            let clock = WallClock::new(&host.address.to_string(), self.folder.path())?;
            host.wall_clock = Some(Arc::new(clock));
        }
        Ok(self)
    }

    /// A host, counted from 0.
    ///
    /// # Panics
    ///
    /// The index is out of range.
    pub fn host(&self, index: usize) -> &Host {
        &self.hosts[index]
    }

    /// Drops all that `from` sends to `to` from now on. The other direction still works.
    ///
    /// # Errors
    ///
    /// The system refuses it.
    ///
    /// # Panics
    ///
    /// An index is out of range.
    pub fn cut_one_way(&self, from: usize, to: usize) -> Result<()> {
        let to = self.hosts[to].address;
        self.hosts[from].run(&lose(to))
    }

    /// Drops all that the two hosts send to each other from now on.
    ///
    /// # Errors
    ///
    /// See [`Network::cut_one_way`].
    ///
    /// # Panics
    ///
    /// See [`Network::cut_one_way`].
    pub fn cut(&self, a: usize, b: usize) -> Result<()> {
        self.cut_one_way(a, b)?;
        self.cut_one_way(b, a)
    }

    /// Drops all that `host` and the others send to each other from now on. Unlike as many calls of [`Network::cut`],
    /// this runs one program on `host`, so that its requests to all of them are cut at about the same moment.
    ///
    /// # Errors
    ///
    /// See [`Network::cut_one_way`].
    ///
    /// # Panics
    ///
    /// See [`Network::cut_one_way`].
    pub fn isolate(&self, host: usize, others: &[usize]) -> Result<()> {
        self.on_both_sides(host, others, lose)
    }

    /// Ends [`Network::isolate`]; cuts between other hosts remain.
    ///
    /// # Errors
    ///
    /// See [`Network::heal`].
    ///
    /// # Panics
    ///
    /// See [`Network::cut_one_way`].
    pub fn rejoin(&self, host: usize, others: &[usize]) -> Result<()> {
        self.on_both_sides(host, others, |to| format!("ip neigh del {to} dev eth0"))
    }

    /// Runs on `host` what `command` returns for all of the others, and on each of them what it returns for `host`.
    fn on_both_sides(
        &self,
        host: usize,
        others: &[usize],
        command: impl Fn(Ipv4Addr) -> String,
    ) -> Result<()> {
        let one = &self.hosts[host];
        let commands: Vec<_> = others.iter().map(|to| command(self.hosts[*to].address)).collect();
        one.run(&commands.join(" && "))?;
        others.iter().try_for_each(|other| self.hosts[*other].run(&command(one.address)))
    }

    /// Ends the connections from `from` to `to`, on the side of `from` only: it sees them closed, as by a firewall's
    /// reset.
    ///
    /// # Errors
    ///
    /// The system does not support it.
    ///
    /// # Panics
    ///
    /// An index is out of range.
    pub fn reset(&self, from: usize, to: usize) -> Result<()> {
        let to = self.hosts[to].address;
        // It also reports sockets that were already closed; what matters is that none remains.
        self.hosts[from].run(&format!(
            "ss -K dst {to} >/dev/null 2>&1; test -z \"$(ss -H -t state established dst {to})\""
        ))
    }

    /// Ends all cuts.
    ///
    /// # Errors
    ///
    /// The system refuses it.
    pub fn heal(&self) -> Result<()> {
        self.hosts.iter().try_for_each(|host| host.run("ip neigh flush dev eth0 nud permanent"))
    }
}

/// A command by which a host drops all that it sends to `to`.
fn lose(to: Ipv4Addr) -> String {
    format!("ip neigh replace {to} lladdr {NOWHERE} dev eth0 nud permanent")
}

impl Host {
    fn start(name: &str, address: Ipv4Addr, folder: &Path) -> Result<Self> {
        let mut command = Command::new("unshare");
        command.args(KEEPER);
        let mut keeper = Process::spawn(name, &command, folder)?;
        let ours = std::fs::read_link("/proc/self/ns/net")?;
        let start = Instant::now();
        let theirs = format!("/proc/{}/ns/net", keeper.id());
        while std::fs::read_link(&theirs).is_ok_and(|theirs| theirs == ours) {
            if keeper.status()?.is_some() || start.elapsed() > START_LIMIT {
                bail!("no network namespace for {name}\n{}", keeper.tail());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(Self { address, keeper: Arc::new(keeper), wall_clock: None })
    }

    /// Its address, which only the hosts of its network can reach.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The same command, to run on this host.
    pub fn command(&self, command: &Command) -> Command {
        let mut nsenter = Command::new("nsenter");
        nsenter.arg(format!("--net={}", self.namespace())).arg("--");
        let mut there = started_by(nsenter, command);
        if let Some(clock) = &self.wall_clock {
            clock.show_to(&mut there);
        }
        there
    }

    /// Sets its wall clock this many seconds ahead of the machine's; behind, if negative.
    ///
    /// # Errors
    ///
    /// The host has no wall clock of its own.
    pub fn jump_to(&self, seconds: i64) -> Result<()> {
        let clock = self.wall_clock.as_ref().context("this host has the machine's wall clock")?;
        clock.jump_to(seconds)
    }

    /// Connects from this host. The connection belongs to the host, wherever it is used.
    ///
    /// # Errors
    ///
    /// No answer arrives within a second.
    pub fn connect(&self, to: SocketAddrV4) -> io::Result<TcpStream> {
        let namespace = self.namespace();
        // A thread of its own, which stays in that namespace.
        let dial = thread::spawn(move || {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let namespace = rustix::fs::open(namespace, flags, Mode::empty())?;
            use std::os::fd::AsFd as _;
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            TcpStream::connect_timeout(&SocketAddr::V4(to), CONNECT_LIMIT)
        });
        dial.join().map_err(|_| io::Error::other("the dialling thread panicked"))?
    }

    fn namespace(&self) -> String {
        format!("/proc/{}/ns/net", self.keeper.id())
    }

    fn run(&self, script: &str) -> Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run_tool(&mut self.command(&command), &format!("{}: {script}", self.address))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;
    use crate::peers::{self, Peer};

    const SERVER: &str = "import socket\n\
        listener = socket.create_server(('', 7000), reuse_port=True)\n\
        print('ready', flush=True)\n\
        while True:\n  connection, _ = listener.accept(); connection.sendall(b'hello')\n";

    #[tokio::test]
    async fn a_cut_loses_packets_in_the_cut_direction_only() -> Result<()> {
        if !peers::ready("testkit: network", &[Peer::Network]) {
            return Ok(());
        }
        let network = Network::start(3)?;
        let folder = scratch::folder()?;
        let mut python = Command::new(peers::SYSTEM_PYTHON);
        python.args(["-c", SERVER]);
        let server = network.host(0).command(&python);
        let mut server = Process::spawn("echo", &server, folder.path())?;
        server.prints("ready", Duration::from_secs(10)).await?;

        let to = SocketAddrV4::new(network.host(0).address(), 7000);
        let hello = |host: usize| -> io::Result<String> {
            let mut stream = network.host(host).connect(to)?;
            stream.set_read_timeout(Some(Duration::from_millis(300)))?;
            let mut text = [0; 5];
            stream.read_exact(&mut text)?;
            stream.write_all(b"x")?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        };
        assert_eq!(hello(1)?, "hello");
        network.cut_one_way(0, 1)?;
        assert!(hello(1).is_err(), "no reply arrives");
        assert_eq!(hello(2)?, "hello", "other hosts are not affected");
        network.heal()?;
        assert_eq!(hello(1)?, "hello");

        network.isolate(1, &[0])?;
        assert!(hello(1).is_err(), "isolated");
        assert_eq!(hello(2)?, "hello", "only one host is isolated");
        network.rejoin(1, &[0])?;
        assert_eq!(hello(1)?, "hello");

        let stream = network.host(1).connect(to)?;
        network.reset(1, 0)?;
        assert!((&stream).read_exact(&mut [0; 6]).is_err(), "closed at once");
        Ok(())
    }
}

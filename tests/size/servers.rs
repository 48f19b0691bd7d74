//! The two servers, each as its users start it, and what they take.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// Where Debian's package and the upstream archive, unpacked at the second place, have it.
const SCRIPTS: [&str; 2] =
    ["/usr/share/zookeeper/bin/zkServer.sh", "/opt/zookeeper/bin/zkServer.sh"];
const START_LIMIT: Duration = Duration::from_secs(60);
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// A running server; killed on drop.
pub(crate) struct Server {
    process: Child,
    pub(crate) connect: String,
    /// From the start of the process to the first answer.
    pub(crate) took: Duration,
    /// Closing it would end a server that logs.
    _log: Option<BufReader<ChildStderr>>,
}

impl Server {
    /// `lockkeeper serve`, as it is released.
    pub(crate) fn engine(dir: &Path) -> Result<Self> {
        let program = std::env::var_os("LOCKKEEPER_SIZE_PROGRAM");
        let program = program.context("run this with `cargo xtask engine-size`")?;
        let start = Instant::now();
        let mut process = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--durability", "os", "--data-dir"])
            .arg(dir)
            .stderr(Stdio::piped())
            .spawn()?;
        let mut log = BufReader::new(process.stderr.take().context("it is piped")?);
        let mut server =
            Self { process, connect: String::new(), took: start.elapsed(), _log: None };
        let mut line = String::new();
        while server.connect.is_empty() {
            line.clear();
            ensure!(log.read_line(&mut line)? > 0, "the engine did not start");
            let address =
                line.split_once("listening=\"").and_then(|(_, rest)| rest.split_once('"'));
            server.connect = address.map(|(address, _)| address.to_owned()).unwrap_or_default();
        }
        ruok(&server.connect)?;
        server.took = start.elapsed();
        server._log = Some(log);
        Ok(server)
    }

    /// Apache ZooKeeper by its own start script, with these arguments for the JVM besides.
    pub(crate) fn zookeeper(dir: &Path, jvm: &str) -> Result<Self> {
        let script = SCRIPTS.iter().map(Path::new).find(|script| script.exists());
        let script = script.context("no zkServer.sh is installed")?;
        let (port, admin) = (free_port()?, free_port()?);
        let config = dir.join("zoo.cfg");
        let data = dir.join("data");
        let text = format!(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\nclientPort={port}\n\
             clientPortAddress=127.0.0.1\nadmin.serverPort={admin}\n4lw.commands.whitelist=*\n",
            data.display()
        );
        fs::write(&config, text)?;
        let start = Instant::now();
        // The script ends by becoming the JVM.
        let process = Command::new("bash")
            .arg(script)
            .arg("start-foreground")
            .arg(&config)
            .env("JVMFLAGS", jvm)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let connect = format!("127.0.0.1:{port}");
        let mut server = Self { process, connect, took: Duration::ZERO, _log: None };
        while ruok(&server.connect).is_err() {
            ensure!(server.process.try_wait()?.is_none(), "zkServer.sh has ended");
            ensure!(start.elapsed() < START_LIMIT, "ZooKeeper does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        server.took = start.elapsed();
        Ok(server)
    }

    pub(crate) fn memory(&self) -> Result<Memory> {
        let (resident, own) = (self.status("VmRSS:")?, self.status("RssAnon:")?);
        Ok(Memory { resident, own })
    }

    fn status(&self, what: &str) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(what));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        number.map(|kib| kib * 1024).context("this system does not tell the memory of a process")
    }

    /// Bytes of live objects of a JVM, after collecting the others; `None` without the JDK's tools.
    pub(crate) fn live_heap(&self) -> Option<u64> {
        let pid = self.process.id().to_string();
        let run = |what: &str| Command::new("jcmd").args([&pid, what]).output().ok();
        run("GC.run")?;
        let info = String::from_utf8(run("GC.heap_info")?.stdout).ok()?;
        let used = info.lines().filter_map(|line| line.split("used ").nth(1));
        let kib: Vec<u64> = used.filter_map(|rest| rest.split('K').next()?.parse().ok()).collect();
        // The first lines are the generations, the last two the metaspace.
        Some(kib.iter().take(kib.len().saturating_sub(2)).sum::<u64>() * 1024)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a process takes, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    /// All of it that is in memory.
    pub(crate) resident: u64,
    /// Of that, what is no mapped file. Those, mostly the programs themselves, are shared between
    /// processes, and the system takes them back when it needs the room.
    pub(crate) own: u64,
}

fn ruok(connect: &str) -> Result<()> {
    let mut stream = TcpStream::connect(connect)?;
    // While nobody listens at a port, a connection to it may begin there too, and reach itself.
    ensure!(stream.local_addr()? != stream.peer_addr()?, "nobody listens yet");
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.write_all(b"ruok")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer == "imok", "{answer:?}");
    Ok(())
}

/// One that was free a moment ago: the script cannot be told to take any.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// A directory for one server, removed with the value.
pub(crate) fn directory() -> Result<(tempfile::TempDir, PathBuf)> {
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    fs::create_dir(&data)?;
    Ok((dir, data))
}

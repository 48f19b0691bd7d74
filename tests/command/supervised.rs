//! `serve` under a service manager, in a terminal that goes away, and with a limit of file sizes.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use lockkeeper::{Client, CreateMode, ZnodePath};
use lockkeeper_testkit::process::Process;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use crate::serve::served;
use crate::support::{Home, LIMIT, eventually, is_alive};
use crate::tls;

const SERVE: &str = "serve --listen 127.0.0.1:0 --durability memory";

/// A service manager.
struct Manager {
    socket: UnixDatagram,
    /// What `NOTIFY_SOCKET` is.
    name: String,
}

impl Manager {
    fn at_path(home: &Home) -> Result<Self> {
        let path = home.folder().join("notify");
        let name = path.to_str().context("no UTF-8")?.to_owned();
        Self::new(UnixDatagram::bind(&path)?, name)
    }

    fn abstract_name() -> Result<Self> {
        let name = format!("lockkeeper-test-{}-{}", std::process::id(), fastrand::u64(..));
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        Self::new(socket, format!("@{name}"))
    }

    fn new(socket: UnixDatagram, name: String) -> Result<Self> {
        socket.set_read_timeout(Some(LIMIT))?;
        Ok(Self { socket, name })
    }

    fn starts(&self, home: &Home, options: &str) -> Result<Process> {
        let mut command = home.command(options);
        command.env("NOTIFY_SOCKET", &self.name);
        Process::spawn("server", &command, home.folder())
    }

    /// The next message.
    fn hears(&self) -> Result<String> {
        let mut message = [0; 4096];
        let length = self.socket.recv(&mut message).context("nothing was told")?;
        Ok(String::from_utf8_lossy(&message[..length]).into_owned())
    }
}

async fn a_manager_is_told(home: &Home, manager: &Manager) -> Result<()> {
    let mut server = manager.starts(home, SERVE)?;
    let ready = manager.hears()?;
    assert!(ready.starts_with("READY=1\nSTATUS=serving 127.0.0.1:"), "{ready}");
    // It is true at that moment.
    let (_, address) = ready.trim_end().rsplit_once(' ').context("no address")?;
    Client::connect(address).await?.close().await;

    server.signal(Signal::HUP)?;
    let reloading = manager.hears()?;
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(manager.hears()?, ready);
    server.signal(Signal::TERM)?;
    assert!(manager.hears()?.starts_with("STOPPING=1\n"));
    assert_eq!(server.end(LIMIT).await?.code(), Some(0), "{}", server.tail());
    Ok(())
}

#[tokio::test]
async fn a_service_manager_is_told() -> Result<()> {
    let home = Home::new()?;
    a_manager_is_told(&home, &Manager::at_path(&home)?).await?;
    a_manager_is_told(&home, &Manager::abstract_name()?).await
}

#[tokio::test]
async fn a_service_manager_is_told_of_the_quiet_time_and_its_end() -> Result<()> {
    let home = Home::new()?;
    let manager = Manager::at_path(&home)?;
    let _server = manager.starts(&home, &format!("{SERVE} --quiet-time 1s"))?;
    let ready = manager.hears()?;
    assert!(ready.contains("; no session starts for another 1 s"), "{ready}");
    let mut after = manager.hears()?;
    while after.contains("; no session starts for another") {
        after = manager.hears()?;
    }
    assert!(after.starts_with("STATUS=serving 127.0.0.1:") && !after.contains(';'), "{after}");
    Ok(())
}

/// Failed when the status was the same after a reload that had failed.
#[tokio::test]
async fn a_service_manager_is_told_of_certificates_that_cannot_be_reloaded() -> Result<()> {
    let home = Home::new()?;
    tls::certificates(&home, "")?;
    let manager = Manager::at_path(&home)?;
    let server = manager.starts(&home, tls::SERVE)?;
    let ready = manager.hears()?;
    let key = home.folder().join("server.key");
    let good = fs::read(&key)?;
    for (content, status) in [(&b"junk"[..], "could not be reloaded"), (&good, "serving tls://")] {
        fs::write(&key, content)?;
        server.signal(Signal::HUP)?;
        assert!(manager.hears()?.starts_with("RELOADING=1"));
        let told = manager.hears()?;
        assert!(told.starts_with("READY=1") && told.contains(status), "{told}");
        assert_eq!(told == ready, content == good, "{told}");
    }
    Ok(())
}

/// Failed when all lines had the same priority in the journal.
#[tokio::test]
async fn lines_for_the_journal_have_their_level() -> Result<()> {
    let home = Home::new()?;
    let log = home.folder().join("server.err");
    fs::write(&log, "")?;
    let found = fs::metadata(&log)?;
    let stream = format!("{}:{}", found.dev(), found.ino());
    let start = |options: &str, stream: &str| {
        let mut command = home.command(options);
        command.env("NOTIFY_SOCKET", "/none/such").env("JOURNAL_STREAM", stream);
        Process::spawn("server", &command, home.folder())
    };
    let has = |log: &str, level: &str, text: &str| {
        log.lines().any(|line| line.starts_with(level) && line.contains(text))
    };

    let server = start(SERVE, &stream)?;
    eventually("it warns", || Ok(server.stderr().contains("cannot notify")))?;
    let lines = server.stderr();
    assert!(has(&lines, "<6> INFO ready", "try: lockkeeper"), "{lines}");
    assert!(has(&lines, "<4> WARN ", "cannot notify"), "{lines}");
    drop(server);
    let mut refused = start("serve --config none.cfg", &stream)?;
    assert_eq!(refused.end(LIMIT).await?.code(), Some(78));
    assert!(has(&refused.stderr(), "<3>lockkeeper: ", "none.cfg"), "{}", refused.stderr());

    // Its output goes elsewhere.
    let mut apart = start("serve --config none.cfg", "1:1")?;
    assert_eq!(apart.end(LIMIT).await?.code(), Some(78));
    assert!(has(&apart.stderr(), "lockkeeper: ", "none.cfg"), "{}", apart.stderr());
    Ok(())
}

/// It is served all the same, and without a manager at all.
#[tokio::test]
async fn a_manager_that_is_not_there_keeps_nobody_from_serving() -> Result<()> {
    let home = Home::new()?;
    for name in ["/none/such", "@lockkeeper-test-nobody", "vsock:2:1"] {
        let manager = Manager { name: name.to_owned(), ..Manager::at_path(&home)? };
        let mut server = manager.starts(&home, SERVE)?;
        eventually("it warns", || {
            let log = server.stderr();
            ensure!(server.status()?.is_none(), "{}", server.tail());
            Ok(log.contains("cannot notify") || log.contains("NOTIFY_SOCKET has no effect"))
        })?;
        server.signal(Signal::TERM)?;
        assert_eq!(server.end(LIMIT).await?.code(), Some(0), "{}", server.tail());
        fs::remove_file(home.folder().join("notify"))?;
    }
    Ok(())
}

/// The same signal asks for certificates elsewhere.
#[test]
fn a_server_in_a_terminal_ends_with_it() -> Result<()> {
    let home = Home::new()?;
    let program = lockkeeper_testkit::command::lockkeeper()?;
    let line = format!("{} serve --listen 127.0.0.1:0 --data-dir data", program.display());
    let mut command = Command::new("script");
    command.args(["--quiet", "--flush", "--command", &line, "/dev/null"]);
    command.current_dir(home.folder()).env("LOCKKEEPER_SYSTEM_HOME", "none");
    let mut terminal = Process::spawn("terminal", &command, home.folder())?;
    eventually("it serves", || Ok(terminal.stdout().contains("ready; try: ")))?;
    let pid = fs::read_to_string(home.folder().join("data/LOCK"))?.trim().parse()?;
    ensure!(is_alive(pid), "{pid}");
    terminal.kill();
    eventually("the server ends", || Ok(!is_alive(pid)))
}

/// F11: SIGXFSZ killed the engine without a word. The limit is that of a full disk.
#[tokio::test]
async fn f11_a_limit_of_file_sizes_is_a_full_disk() -> Result<()> {
    let home = Home::new()?;
    let (mut server, address) =
        served(&home, "server", "--listen 127.0.0.1:0 --data-dir data").await?;
    limit_file_sizes(i32::try_from(server.id())?)?;
    fill(&address).await?;
    let status = server.end(LIMIT).await?;
    assert_eq!(status.code(), Some(74), "{status}: {}", server.tail());
    assert!(server.stderr().contains("no space is left for"), "{}", server.stderr());
    Ok(())
}

/// The same for the engine that the command starts by itself. HUP does not end that.
#[tokio::test]
async fn f11_the_local_engine_takes_a_limit_of_file_sizes_for_a_full_disk() -> Result<()> {
    let home = Home::new()?;
    home.runs("l", "true")?.is_fine();
    let pid = home.engine_pid()?;
    // It does not have certificates, or a terminal that could go away.
    kill_process(Pid::from_raw(pid).context("no process")?, Signal::HUP)?;
    home.runs("l", "true")?.is_fine();
    assert_eq!(home.engine_pid()?, pid);

    limit_file_sizes(pid)?;
    fill(&home.connect_string()).await?;
    eventually("the engine ends", || Ok(!is_alive(pid)))?;
    let log = fs::read_to_string(home.engine().join("engine.log"))?;
    assert!(log.contains("no space is left for"), "{log}");
    Ok(())
}

/// No file of the process may grow beyond what the log of commits has from the start: neither a log nor the
/// database that the logs go to.
fn limit_file_sizes(pid: i32) -> Result<()> {
    let most = Some(1024 * 1024);
    prlimit(Pid::from_raw(pid), Resource::Fsize, Rlimit { current: most, maximum: most })?;
    Ok(())
}

/// Writes until nothing is taken any more.
async fn fill(address: &str) -> Result<()> {
    let client = Client::connect(address).await?;
    for i in 0..100 {
        let path = ZnodePath::new(&format!("/{i}"))?;
        if client.create(&path, vec![7; 900_000], CreateMode::Persistent).await.is_err() {
            return Ok(());
        }
    }
    anyhow::bail!("90 MB were taken")
}

//! The log of a server whose standard error is not read.

use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Home, LIMIT, eventually};

/// More questions than the queue of the log has places: it has a line for each.
const MANY: usize = 2_000;

/// A server whose standard error is a pipe.
struct Server {
    process: Child,
    /// The same pipe, to be filled.
    writer: PipeWriter,
    reader: PipeReader,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start(command: &mut Command) -> Result<Self> {
        let (reader, writer) = io::pipe()?;
        Self::start_with(command, reader, writer)
    }

    fn start_with(command: &mut Command, reader: PipeReader, writer: PipeWriter) -> Result<Self> {
        // Of this end alone.
        fcntl_setfl(&reader, fcntl_getfl(&reader)? | OFlags::NONBLOCK)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer.try_clone()?);
        Ok(Self { process: command.spawn()?, writer, reader })
    }

    /// Reads until there is this text; all that was read.
    fn read_until(&mut self, text: &str) -> Result<String> {
        let mut all = Vec::new();
        eventually(text, || match self.reader.read_to_end(&mut all) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error.into()),
            _ => Ok(String::from_utf8_lossy(&all).contains(text)),
        })?;
        Ok(String::from_utf8_lossy(&all).into_owned())
    }
}

/// Lets nothing more into the pipe.
fn fill(mut writer: &PipeWriter) -> Result<()> {
    let flags = fcntl_getfl(writer)?;
    fcntl_setfl(writer, flags | OFlags::NONBLOCK)?;
    // Finally byte by byte: a long write is refused while there is room for a short one.
    for length in [4096, 1] {
        while writer.write(&vec![b'.'; length]).is_ok() {}
    }
    Ok(fcntl_setfl(writer, flags)?)
}

/// Symptom: a server under a supervisor that hangs lost all locks, because the serving thread waited
/// for its own log. Fails if the logging thread writes the log.
#[tokio::test]
async fn a_log_that_nobody_reads_keeps_nobody_waiting() -> Result<()> {
    let home = Home::new()?;
    let mut command = home.command("serve --listen 127.0.0.1:0 --data-dir data --durability os");
    let mut server = Server::start(command.env("LOCKKEEPER_LOG", "debug"))?;
    let log = server.read_until(" run demo/hello")?;
    let (_, rest) = log.split_once("--connect ").context("no address")?;
    let (address, _) = rest.split_once(' ').context("no address")?;

    fill(&server.writer)?;
    for _ in 0..MANY {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.write_all(b"ruok")?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer)?;
        ensure!(answer == *b"imok", "{answer:?}");
    }
    for _ in 0..3 {
        home.runs(&format!("--connect {address} --connect-timeout 5s orders"), "true")?.is_fine();
    }

    // When the log is read again, the number of lost lines is reported.
    let told = server.read_until("lines of the log are missing")?;
    ensure!(told.contains("lockkeeper: "), "{told}");
    fill(&server.writer)?;
    let pid = Pid::from_child(&server.process);
    kill_process(pid, Signal::TERM)?;
    eventually("it ends", || Ok(server.process.try_wait()?.is_some()))?;
    ensure!(server.process.wait()?.success());
    Ok(())
}

/// Symptom: its last message waited for a reader, and so did programs that waited for its end.
#[test]
fn a_server_that_fails_ends_though_nobody_reads_why() -> Result<()> {
    let home = Home::new()?;
    let (reader, writer) = io::pipe()?;
    fill(&writer)?;
    let mut command = home.command("serve --config missing.cfg");
    let mut server = Server::start_with(&mut command, reader, writer)?;
    eventually("it ends", || Ok(server.process.try_wait()?.is_some()))?;
    ensure!(server.process.wait()?.code() == Some(78));
    Ok(())
}

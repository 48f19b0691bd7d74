//! System calls of the server.

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use lockkeeper::{Client, ZnodePath};
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::process::Process;
use rustix::process::{Pid, Signal, kill_process};

use crate::serve::address_of;
use crate::support::{Home, LIMIT};

/// How many requests are made, one after the other.
const REQUESTS: usize = 500;

/// Symptom: each request of a client that does one thing after the other cost one call more, as the tree
/// thread looked at its sockets once again before it saw what had arrived.
///
/// Fails with the tree loop as the future that the runtime blocks on.
#[tokio::test]
async fn a_request_costs_the_tree_thread_three_system_calls() -> Result<()> {
    if !peers::ready("system calls of a request", &[Peer::Strace]) {
        return Ok(());
    }
    let home = Home::new()?;
    let options = "--listen 127.0.0.1:0 --data-dir data --durability os --spin off";
    // A file for each thread.
    let strace = ["-ff", "-qq", "-o", "calls"];
    let command = home.traced(&strace, &format!("serve {options}"));
    let mut server = Process::spawn("traced", &command, home.folder())?;
    let client = Client::connect(&address_of(&mut server)?).await?;
    // The server: its tracer would leave it alone.
    let pid: i32 = fs::read_to_string(home.folder().join("data/LOCK"))?.trim().parse()?;
    let thread = thread_named(pid, "lockkeeper-tree")?;

    let path = ZnodePath::new("/node")?;
    for _ in 0..REQUESTS {
        client.exists(&path).await?;
    }
    kill_process(Pid::from_raw(pid).context("no process")?, Signal::KILL)?;
    server.end(LIMIT).await?;

    let calls = fs::read_to_string(home.folder().join(format!("calls.{thread}")))?;
    let calls: Vec<&str> = calls.lines().collect();
    let replies = calls.iter().enumerate().filter(|(_, call)| call.starts_with("sendto("));
    let replies: Vec<usize> = replies.map(|(at, _)| at).collect();
    ensure!(replies.len() > REQUESTS, "a reply to each, and to the handshake: {calls:#?}");
    let counted = &replies[replies.len() - REQUESTS..];
    let (first, last) = (counted[0], counted[REQUESTS - 1]);
    let each = (last - first) as f64 / (REQUESTS - 1) as f64;
    // Three, and now and then one for something else.
    assert!(each < 3.5, "{each} for each request: {:#?}", &calls[first..first + 20]);
    Ok(())
}

/// The id of the thread of this name.
fn thread_named(process: i32, name: &str) -> Result<String> {
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let thread = thread?;
        if fs::read_to_string(thread.path().join("comm"))?.trim() == name {
            return Ok(thread.file_name().to_string_lossy().into_owned());
        }
    }
    bail!("no {name}")
}

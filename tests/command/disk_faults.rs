//! Calls of the operating system that fail, or lie, in a server that is a process of its own.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use lockkeeper::{Client, CreateMode, ZnodePath};
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::process::Process;
use rustix::process::{Pid, Signal, kill_process};

use crate::serve::{address_of, served};
use crate::support::{Home, LIMIT};

/// How many nodes are made at most, one after the other.
const NODES: usize = 60;

/// What strace makes of the n-th call that a thread makes.
struct CallFault {
    call: &'static str,
    /// As strace has it.
    outcome: &'static str,
    /// Whether the call says that it has done what it has not: the next start may find damage.
    lies: bool,
}

const FAULTS: [CallFault; 5] = [
    CallFault { call: "fdatasync", outcome: "error=EIO", lies: false },
    CallFault { call: "fdatasync", outcome: "error=ENOSPC", lies: false },
    CallFault { call: "pwrite64", outcome: "error=EIO", lies: false },
    CallFault { call: "pwrite64", outcome: "error=ENOSPC", lies: false },
    // A byte was written, it says, and none was.
    CallFault { call: "pwrite64", outcome: "retval=1", lies: true },
];

/// Which call of each thread fails: the first ones are those of the start.
fn places() -> Vec<usize> {
    match std::env::var_os("LOCKKEEPER_LONG") {
        Some(_) => (1..=150).collect(),
        None => vec![3, 12, 29, 71],
    }
}

/// S4, on the real program: a write or a sync that fails ends the server, and whatever it had acknowledged
/// is there at the next start.
///
/// Fails with commits whose syncs may fail.
#[tokio::test]
async fn s4_no_call_that_fails_loses_what_was_acknowledged() -> Result<()> {
    if !peers::ready("faults of the disk", &[Peer::Strace]) {
        return Ok(());
    }
    let (mut failed, mut acknowledged) = (0, 0);
    for fault in &FAULTS {
        for place in places() {
            let what = format!("{}:{}:when={place}", fault.call, fault.outcome);
            let (has_failed, count) = run(fault, place).await.context(what)?;
            failed += usize::from(has_failed);
            acknowledged += count;
        }
    }
    println!("{failed} servers ended by a fault; {acknowledged} acknowledged nodes were there");
    assert!(failed >= FAULTS.len(), "the faults were not met: {failed}");
    Ok(())
}

/// Whether the server was ended by the fault, and how many nodes it had acknowledged.
async fn run(fault: &CallFault, place: usize) -> Result<(bool, usize)> {
    let home = Home::new()?;
    let options = "--listen 127.0.0.1:0 --data-dir data --quiet-time 0s";
    let mut server =
        Process::spawn("faulty", &faulty(&home, fault, place, options), home.folder())?;
    let mut nodes = 0;
    // Without an address, the fault has ended it while it started.
    if let Ok(address) = address_of(&mut server) {
        tokio::select! {
            // If it fails, so has the server.
            _ = fill(&address, &mut nodes) => {}
            ended = server.end(LIMIT) => drop(ended?),
        }
    }
    let has_failed = nodes < NODES;
    if !has_failed {
        // The server: its tracer would leave it alone.
        let pid = fs::read_to_string(home.folder().join("data/LOCK"))?.trim().parse()?;
        kill_process(Pid::from_raw(pid).context("no process")?, Signal::KILL)?;
    }
    let status = server.end(LIMIT).await?;
    ensure!(!status.success(), "it did not notice: {}", server.tail());
    ensure!(!has_failed || server.stderr().contains("data/"), "no file: {}", server.tail());
    let is_met = fs::read_to_string(home.folder().join("strace"))?.contains("(INJECTED)");
    ensure!(is_met == has_failed || fault.lies, "it went on: {}", server.tail());

    match served(&home, "next", options).await {
        Ok((_server, address)) => {
            let client = Client::connect(&address).await?;
            for node in 0..nodes {
                let found = client.exists(&path(node)?).await?;
                ensure!(found.is_some(), "{node} of {nodes} is gone");
            }
            client.close().await;
        }
        Err(refused) => {
            let is_damage = format!("{refused:#}").contains(" is damaged ");
            ensure!(fault.lies && is_damage, "{refused:#}");
        }
    }
    Ok((has_failed, nodes))
}

/// A server with a fault in it.
fn faulty(home: &Home, fault: &CallFault, place: usize, options: &str) -> Command {
    let CallFault { call, outcome, .. } = fault;
    let (trace, inject) =
        (format!("trace={call}"), format!("inject={call}:{outcome}:when={place}"));
    let strace = ["-f", "-qq", "-o", "strace", "-e", &trace, "-e", &inject];
    home.traced(&strace, &format!("serve {options}"))
}

fn path(node: usize) -> Result<ZnodePath> {
    Ok(ZnodePath::new(&format!("/node-{node}"))?)
}

/// Makes nodes one after the other, and counts those that were acknowledged.
async fn fill(address: &str, nodes: &mut usize) -> Result<()> {
    let client = Client::connect(address).await?;
    while *nodes < NODES {
        client.create(&path(*nodes)?, "", CreateMode::Persistent).await?;
        *nodes += 1;
    }
    Ok(())
}

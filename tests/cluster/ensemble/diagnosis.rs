//! The diagnosis of a standstill: what each server shows of the locks, and which program holds what.
//!
//! It reads everything without changing the state. Reads that do not need a commit come first: creating the session
//! of the diagnosis is a commit, which may be what the waiters were waiting for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;
use lockkeeper_testkit::zookeeper::{
    Probe, Ticket, View, ZooKeeper, ZooKeeperEnsemble, complaints_in,
};

/// The node that all locks are below.
pub(super) const ROOT: &str = "/locks";

/// What is asked of each server before anything else.
const WORDS: [&str; 4] = ["srvr", "mntr", "cons", "dump"];

/// What shows that the servers have different histories.
#[derive(Default)]
pub(super) struct Disagreements {
    /// All of it: lost nodes, and what the servers say themselves, by the digests of their trees.
    pub(super) found: BTreeSet<String>,
    /// The paths of the nodes that one server has and another one has lost, which is proof.
    pub(super) lost: BTreeSet<String>,
}

/// What a server showed.
#[derive(Default)]
struct Seen {
    /// As it was, and after the server had caught up with its leader.
    views: Vec<View>,
    /// How many transactions have left another tree here than at the leader, as the server counts
    /// them since its start, before and after this look.
    mismatches: Vec<u64>,
    /// What went wrong, or took long.
    remarks: Vec<String>,
}

/// Reads all servers, and describes their state. `sessions`: the known owners of sessions.
pub(super) async fn diagnose(
    servers: &ZooKeeperEnsemble,
    sessions: &BTreeMap<String, BTreeSet<String>>,
) -> (String, Disagreements) {
    let mut words = String::new();
    for index in 0..servers.size() {
        for word in WORDS {
            let answer = servers.server(index).four_letter(word).await;
            let answer = answer.unwrap_or_else(|error| format!("{error:#}\n"));
            let _ = writeln!(words, "\n--- {word} of server {}\n{answer}", index + 1);
        }
    }
    let (seen, disagreements) = look(servers).await;

    let mut text = String::new();
    for (index, seen) in seen.iter().enumerate() {
        for remark in &seen.remarks {
            let _ = writeln!(text, "server {} {remark}", index + 1);
        }
    }
    for disagreement in &disagreements.found {
        let _ = writeln!(text, "THE SERVERS DISAGREE: {disagreement}");
    }
    let nodes = nodes(&seen, sessions);
    let _ = writeln!(text, "\nNodes, with + for each view of a server that has it:\n{nodes}");
    (text + &words, disagreements)
}

/// Only whether the servers have the same history.
pub(super) async fn compare(servers: &ZooKeeperEnsemble) -> Disagreements {
    look(servers).await.1
}

/// All nodes in the order of their paths, with their owners and the servers that show them, before and after a
/// sync.
fn nodes(seen: &[Seen], sessions: &BTreeMap<String, BTreeSet<String>>) -> String {
    let mut nodes = BTreeMap::new();
    for (path, stat) in seen.iter().flat_map(|seen| &seen.views).flat_map(|view| &view.nodes) {
        nodes.insert((path, stat.czxid), stat.ephemeral_owner.to_string());
    }
    let mut text = String::new();
    for ((path, czxid), session) in nodes {
        let has = |view: &View| view.nodes.get(path).is_some_and(|there| there.czxid == czxid);
        let has = |view: &View| if has(view) { '+' } else { '-' };
        let shown = seen.iter().map(|seen| seen.views.iter().map(has).collect::<String>());
        let shown = shown.collect::<Vec<_>>().join(" ");
        let who = sessions.get(&session);
        let _ = writeln!(text, "{shown}  {path}: zxid {czxid}, session {session}, {who:?}");
    }
    text
}

async fn look(servers: &ZooKeeperEnsemble) -> (Vec<Seen>, Disagreements) {
    let mut seen: Vec<Seen> = (0..servers.size()).map(|_| Seen::default()).collect();
    count_mismatches(servers, &mut seen).await;
    look_with_sessions(servers, &mut seen).await;
    count_mismatches(servers, &mut seen).await;
    let disagreements = disagreements(servers, &seen);
    (seen, disagreements)
}

/// ZooKeeper sends a digest of the leader's tree along with each transaction.
async fn count_mismatches(servers: &ZooKeeperEnsemble, seen: &mut [Seen]) {
    for (index, seen) in seen.iter_mut().enumerate() {
        let words = servers.server(index).four_letter("mntr").await.unwrap_or_default();
        let count = words.lines().find_map(|line| line.strip_prefix("zk_digest_mismatches_count"));
        seen.mismatches.extend(count.and_then(|count| count.trim().parse::<u64>().ok()));
    }
}

/// The sessions themselves are transactions, which all servers have applied in the end.
async fn look_with_sessions(servers: &ZooKeeperEnsemble, seen: &mut [Seen]) {
    let mut ticket = None;
    for (index, seen) in seen.iter_mut().enumerate() {
        let start = Instant::now();
        let probe = Probe::connect(servers.server(index), None).await;
        seen.remark("a new session", start, probe.as_ref().err());
        // The first one is enough; the others are there to see whether this server commits.
        match probe {
            Ok(probe) if ticket.is_none() => ticket = Some(probe.ticket().clone()),
            Ok(probe) => drop(probe.close().await),
            Err(_) => {}
        }
    }
    let Some(ticket) = ticket else { return };
    for (index, seen) in seen.iter_mut().enumerate() {
        if let Err(error) = look_into(servers.server(index), &ticket, seen).await {
            seen.remarks.push(format!("cannot be looked into: {error:#}"));
        }
    }
    if let Ok(probe) = Probe::connect(servers.server(0), Some(&ticket)).await {
        // Otherwise it expires.
        let _ = probe.close().await;
    }
}

async fn look_into(server: &ZooKeeper, ticket: &Ticket, seen: &mut Seen) -> Result<()> {
    let mut probe = Probe::connect(server, Some(ticket)).await?;
    seen.views.push(probe.view(ROOT).await?);
    let start = Instant::now();
    let synced = probe.sync().await;
    seen.remark("to catch up with its leader", start, synced.as_ref().err());
    if synced.is_ok() {
        seen.views.push(probe.view(ROOT).await?);
    }
    Ok(())
}

impl Seen {
    fn remark(&mut self, what: &str, start: Instant, error: Option<&anyhow::Error>) {
        let took = start.elapsed();
        match error {
            Some(error) => self.remarks.push(format!("fails {what}: {error:#}")),
            None if took > Duration::from_secs(1) => {
                self.remarks.push(format!("takes {:.1} s for {what}", took.as_secs_f64()));
            }
            None => {}
        }
    }
}

fn disagreements(servers: &ZooKeeperEnsemble, seen: &[Seen]) -> Disagreements {
    let mut disagreements = Disagreements { found: complaints(servers), ..Default::default() };
    let views = || {
        let views = seen.iter().enumerate();
        views.flat_map(|(index, seen)| seen.views.iter().map(move |view| (index + 1, view)))
    };
    for ((one, with), (other, without)) in views().flat_map(|a| views().map(move |b| (a, b))) {
        for (path, stat) in with.lost_by(without).filter(|_| one != other) {
            disagreements.lost.insert(path.to_owned());
            disagreements.found.insert(format!(
                "server {one} at zxid {} has {path} of zxid {}, server {other} at zxid {} does not",
                with.from, stat.czxid, without.to
            ));
        }
    }
    for (index, seen) in seen.iter().enumerate() {
        if let [before, after] = seen.mismatches[..]
            && after > before
        {
            disagreements.found.insert(format!(
                "server {} counts {after} transactions, {} of them just now, after which it says that \
                 it had another tree than its leader",
                index + 1,
                after - before
            ));
        }
    }
    disagreements
}

/// What the servers have said in their logs since the beginning: their trees may be the same again,
/// and lack what was committed.
fn complaints(servers: &ZooKeeperEnsemble) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for index in 0..servers.size() {
        let logs = fs::read_dir(servers.server(index).folder()).into_iter().flatten().flatten();
        for text in logs.filter_map(|entry| fs::read(entry.path()).ok()) {
            found.extend(complaints_in(&String::from_utf8_lossy(&text)).map(|zxid| {
                format!(
                    "server {} says that it had another tree than its leader after {zxid}",
                    index + 1
                )
            }));
        }
    }
    found
}

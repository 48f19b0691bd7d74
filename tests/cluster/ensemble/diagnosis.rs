//! Why nobody gets on: what each server shows of the locks, and which program has what.
//!
//! It looks at everything and helps nobody. All that needs no commit comes first: the session that
//! it looks with is a commit, and so may be what those who wait were waiting for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;
use lockkeeper::SessionId;
use lockkeeper_testkit::zookeeper::{
    Probe, Ticket, View, ZooKeeper, ZooKeeperEnsemble, complaints_in,
};

/// The node that all locks are below.
pub(crate) const ROOT: &str = "/locks";

/// What is asked of each server before anything else.
const WORDS: [&str; 4] = ["srvr", "mntr", "cons", "dump"];

/// How many nodes of a line the summary shows.
const SHOWN: usize = 3;

/// What was found.
pub(crate) struct Diagnosis {
    /// What to know first.
    pub(crate) summary: String,
    /// All of it.
    pub(crate) whole: String,
    pub(crate) disagreements: Disagreements,
}

/// What shows that the servers have different histories.
#[derive(Default)]
pub(crate) struct Disagreements {
    /// All of it: lost nodes, and what the servers say themselves, by the digests of their trees.
    pub(crate) found: BTreeSet<String>,
    /// The paths of the nodes that one server has and another one has lost, which is proof.
    pub(crate) lost: BTreeSet<String>,
}

impl Disagreements {
    pub(crate) fn add(&mut self, other: &Self) {
        self.found.extend(other.found.iter().cloned());
        self.lost.extend(other.lost.iter().cloned());
    }
}

/// What a server showed.
#[derive(Default)]
struct Seen {
    /// The answers to [`WORDS`].
    words: BTreeMap<&'static str, String>,
    /// As it was.
    before: Option<View>,
    /// After the server had caught up with its leader.
    after: Option<View>,
    /// How many transactions have left another tree here than at the leader, as the server counts
    /// them since its start, before and after this look.
    mismatches: [Option<u64>; 2],
    /// What went wrong, or took long.
    remarks: Vec<String>,
}

/// Looks into all servers. `sessions` tells whose they are, as far as is known.
pub(crate) async fn diagnose(
    servers: &ZooKeeperEnsemble,
    sessions: &BTreeMap<String, BTreeSet<String>>,
) -> Diagnosis {
    let mut seen: Vec<Seen> = (0..servers.size()).map(|_| Seen::default()).collect();
    for (index, seen) in seen.iter_mut().enumerate() {
        for word in WORDS {
            let answer = servers.server(index).four_letter(word).await;
            seen.words.insert(word, answer.unwrap_or_else(|error| format!("{error:#}\n")));
        }
    }
    look(servers, &mut seen).await;
    let disagreements = disagreements(servers, &seen);
    let summary = summary(servers, &seen, sessions, &disagreements);
    let whole = whole(servers, &seen, sessions, &summary);
    Diagnosis { summary, whole, disagreements }
}

/// Only whether the servers have the same history.
pub(crate) async fn compare(servers: &ZooKeeperEnsemble) -> Disagreements {
    let mut seen: Vec<Seen> = (0..servers.size()).map(|_| Seen::default()).collect();
    look(servers, &mut seen).await;
    disagreements(servers, &seen)
}

/// What the servers have said in their logs since the beginning: their trees may be the same again,
/// and lack what was committed.
fn complaints(servers: &ZooKeeperEnsemble) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for index in 0..servers.size() {
        let logs = fs::read_dir(servers.server(index).folder()).into_iter().flatten().flatten();
        let texts = logs.filter_map(|entry| fs::read(entry.path()).ok());
        for text in texts {
            for zxid in complaints_in(&String::from_utf8_lossy(&text)) {
                found.insert(format!(
                    "server {} says that it had another tree than its leader after {zxid}",
                    index + 1
                ));
            }
        }
    }
    found
}

async fn look(servers: &ZooKeeperEnsemble, seen: &mut [Seen]) {
    count_mismatches(servers, seen, 0).await;
    look_with_sessions(servers, seen).await;
    count_mismatches(servers, seen, 1).await;
}

/// ZooKeeper sends a digest of the leader's tree along with each transaction.
async fn count_mismatches(servers: &ZooKeeperEnsemble, seen: &mut [Seen], when: usize) {
    for (index, seen) in seen.iter_mut().enumerate() {
        let words = servers.server(index).four_letter("mntr").await.unwrap_or_default();
        let count = words.lines().find_map(|line| line.strip_prefix("zk_digest_mismatches_count"));
        seen.mismatches[when] = count.and_then(|count| count.trim().parse().ok());
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
    seen.before = Some(probe.view(ROOT).await?);
    let start = Instant::now();
    let synced = probe.sync().await;
    seen.remark("to catch up with its leader", start, synced.as_ref().err());
    if synced.is_ok() {
        seen.after = Some(probe.view(ROOT).await?);
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

    fn views(&self) -> impl Iterator<Item = &View> {
        self.before.iter().chain(&self.after)
    }

    /// A line of `srvr`, such as its zxid.
    fn said(&self, name: &str) -> &str {
        let lines = self.words.get("srvr").map_or("", String::as_str).lines();
        lines.filter_map(|line| line.strip_prefix(name)).next().unwrap_or("?").trim()
    }

    fn leads(&self) -> bool {
        self.said("Mode:") == "leader"
    }

    /// The sessions that it knows, which only a leader is sure of.
    fn sessions(&self) -> BTreeSet<&str> {
        let dump = self.words.get("dump").map_or("", String::as_str);
        let sessions = dump.split("ephemeral nodes dump").next().unwrap_or_default();
        sessions.split_whitespace().filter(|word| word.starts_with("0x")).collect()
    }
}

fn disagreements(servers: &ZooKeeperEnsemble, seen: &[Seen]) -> Disagreements {
    let (mut found, mut lost) = (complaints(servers), BTreeSet::new());
    for (one, has) in seen.iter().enumerate() {
        for (other, lacks) in seen.iter().enumerate().filter(|(other, _)| *other != one) {
            for (with, without) in
                has.views().flat_map(|with| lacks.views().map(move |without| (with, without)))
            {
                for (path, stat) in with.lost_by(without) {
                    lost.insert(path.to_string());
                    found.insert(format!(
                        "server {} at zxid {} has {path} of zxid {}, server {} at zxid {} does not",
                        one + 1,
                        with.from,
                        stat.czxid,
                        other + 1,
                        without.to
                    ));
                }
            }
        }
    }
    for (index, seen) in seen.iter().enumerate() {
        if let [Some(before), Some(after)] = seen.mismatches
            && after > before
        {
            found.insert(format!(
                "server {} counts {after} transactions, {} of them just now, after which it says that \
                 it had another tree than its leader",
                index + 1,
                after - before
            ));
        }
    }
    Disagreements { found, lost }
}

fn summary(
    servers: &ZooKeeperEnsemble,
    seen: &[Seen],
    sessions: &BTreeMap<String, BTreeSet<String>>,
    disagreements: &Disagreements,
) -> String {
    let mut text = String::from("Why nobody gets on:\n");
    for (index, seen) in seen.iter().enumerate() {
        let (address, mode) = (servers.server(index).connect_string(), seen.said("Mode:"));
        let (zxid, waiting) = (seen.said("Zxid:"), seen.said("Outstanding:"));
        let _ = writeln!(
            text,
            "  server {} ({address}): {mode}, zxid {zxid}, {waiting} outstanding",
            index + 1
        );
        for remark in &seen.remarks {
            let _ = writeln!(text, "    it {remark}");
        }
        if let Some(count @ 1..) = seen.mismatches[1] {
            let _ =
                writeln!(text, "    it counts {count} transactions with another tree after them");
        }
    }
    for (line, nodes) in lines(seen, sessions) {
        let _ = writeln!(text, "  {line}: {} nodes", nodes.len());
        for node in nodes.iter().take(SHOWN) {
            let _ = writeln!(text, "    {node}");
        }
    }
    text.push_str(match disagreements.found.is_empty() {
        true => "  The servers do not contradict each other.\n",
        false => "  THE SERVERS DISAGREE:\n",
    });
    for disagreement in &disagreements.found {
        let _ = writeln!(text, "    {disagreement}");
    }
    text
}

fn whole(
    servers: &ZooKeeperEnsemble,
    seen: &[Seen],
    sessions: &BTreeMap<String, BTreeSet<String>>,
    summary: &str,
) -> String {
    let mut text = format!("{summary}\nAll nodes:\n");
    for (line, nodes) in lines(seen, sessions) {
        let _ = writeln!(text, "{line}");
        for node in nodes {
            let _ = writeln!(text, "  {node}");
        }
    }
    text.push_str("\nSessions, and who said that they are his:\n");
    for (session, who) in sessions {
        let _ = writeln!(text, "{session} {}", names(who));
    }
    for (index, seen) in seen.iter().enumerate() {
        for (word, answer) in &seen.words {
            let address = servers.server(index).connect_string();
            let _ = writeln!(text, "\n--- {word} of server {} ({address})\n{answer}", index + 1);
        }
    }
    text
}

/// Each parent of nodes, and the nodes in the order of their sequence, with who has them and which
/// servers show them.
fn lines(
    seen: &[Seen],
    sessions: &BTreeMap<String, BTreeSet<String>>,
) -> BTreeMap<String, Vec<String>> {
    let alive: Option<BTreeSet<&str>> = seen.iter().find(|seen| seen.leads()).map(Seen::sessions);
    let mut nodes = BTreeMap::new();
    for view in seen.iter().flat_map(Seen::views) {
        for (path, stat) in &view.nodes {
            nodes.insert((path.as_str(), stat.czxid), stat);
        }
    }
    let mut lines: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for ((path, czxid), stat) in nodes {
        // A parent of others is a line by itself.
        let Some((parent, name)) = path.rsplit_once('/').filter(|_| stat.num_children == 0) else {
            continue;
        };
        let owner = owner(stat.ephemeral_owner, sessions, alive.as_ref());
        let has = |view: &Option<View>| match view {
            None => '?',
            Some(view) if view.nodes.get(path).is_some_and(|there| there.czxid == czxid) => '+',
            Some(_) => '-',
        };
        let shown: Vec<String> =
            seen.iter().map(|seen| format!("{}{}", has(&seen.before), has(&seen.after))).collect();
        let length = stat.data_length;
        let node = format!(
            "{name}: zxid {czxid}, {length} bytes, {owner}; on servers 1 to \
             {}, before and after sync: {}",
            seen.len(),
            shown.join(" ")
        );
        let digits = name.len().saturating_sub(10);
        let order = name.get(digits..).unwrap_or_default().to_owned();
        lines.entry(parent.to_owned()).or_default().push((order, node));
    }
    let sorted = |mut nodes: Vec<(String, String)>| {
        nodes.sort();
        nodes.into_iter().map(|(_, node)| node).collect()
    };
    lines.into_iter().map(|(parent, nodes)| (parent, sorted(nodes))).collect()
}

/// `alive` are the sessions that the leader knows.
fn owner(
    session: SessionId,
    sessions: &BTreeMap<String, BTreeSet<String>>,
    alive: Option<&BTreeSet<&str>>,
) -> String {
    if session == SessionId::NONE {
        return "no session's".to_owned();
    }
    let session = session.to_string();
    let who = sessions.get(&session).map_or_else(|| "nobody knows whose".to_owned(), names);
    let over = alive.is_some_and(|alive| !alive.contains(session.as_str()));
    format!("session {session} ({who}){}", if over { ", WHICH IS OVER" } else { "" })
}

fn names(who: &BTreeSet<String>) -> String {
    who.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

//! `lockkeeper graph`: which programs wait for which others, over many locks.

use std::collections::HashSet;
use std::fmt::Write;

use clap::Args;
use lockkeeper::ZnodePath;
use lockkeeper::graph::{Because, ContenderIndex, CycleCheck, RootBlocker, WaitCycle, WaitGraph};
use serde::Serialize;

use crate::session::connect::Connection;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::view::{self, Observed};
use crate::shared::{names, output};

const NOTES: &str = "\
A deadlock is a cycle of programs that wait for each other's locks. It is shown if two successive reads both find it. \
lockkeeper run --detect-deadlocks gives up a wait in a deadlock; lockkeeper revoke asks a holder to release its lock.

The servers record which session waits, but not which task of its program. A cycle through a session is shown as \
possible: it is not a deadlock if one task waits while another one will release. For commands under lockkeeper run a \
deadlock is certain, unless a command runs the inner run in the background. A wait with a limit (-w) ends by itself.

BLOCKER is a holder that others wait for and that does not wait for a lock itself. WAITING counts all waiters behind \
it, including those in the queues of locks that its waiters hold: these locks are listed under ALSO BLOCKS. Only \
locks below PATH count. Waiters for a lock of one znode, for a thing of a pool, or for something other than a lock \
are not known.

Examples:
  lockkeeper graph
  lockkeeper graph --cycles                      for a monitor: 1 if there is a deadlock
  lockkeeper graph --dot | dot -Tsvg > locks.svg as a picture

Exit codes: 0; with --cycles, 1 if there is a deadlock; others: lockkeeper run --help";

/// How many blockers are listed for one waiter.
const MAX_BLOCKERS: usize = 100;

/// Show which programs wait for which others: deadlocks and blockers
#[derive(Debug, Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct GraphOptions {
    /// The path whose locks to read
    #[arg(default_value = "/", value_parser = names::folder)]
    path: ZnodePath,

    /// Show only deadlocks, and exit with 1 if there is one
    #[arg(long)]
    cycles: bool,

    /// Print the graph in the DOT language of Graphviz
    #[arg(long, conflicts_with_all = ["json", "cycles"])]
    dot: bool,
}

/// The graph as JSON. The field names are stable. Contenders are named by their nodes.
#[derive(Debug, Serialize)]
struct ShownGraph<'a> {
    path: &'a str,
    deadlocks: Vec<ShownDeadlock<'a>>,
    /// The holders that others wait for, in descending order of their waiters.
    blockers: Vec<ShownBlocker<'a>>,
    waits: Vec<ShownWait<'a>>,
    /// Nodes without read permission.
    unreadable: Vec<&'a str>,
}

#[derive(Debug, Serialize)]
struct ShownDeadlock<'a> {
    /// Whether it is a deadlock whatever the programs do in other tasks.
    certain: bool,
    steps: Vec<ShownStep<'a>>,
}

#[derive(Debug, Serialize)]
struct ShownStep<'a> {
    lock: &'a str,
    waiter: &'a str,
    who: String,
    blocker: &'a str,
    /// Why the blocker stays until the next waiter is served: `it`, `command` or `session` waits.
    because: &'static str,
}

#[derive(Debug, Serialize)]
struct ShownBlocker<'a> {
    holder: &'a str,
    lock: &'a str,
    who: String,
    session: String,
    waiters: usize,
    /// The waiter that has waited longest.
    oldest: &'a str,
    oldest_since_unix_ms: u128,
    /// The locks whose queues it blocks.
    locks: Vec<&'a str>,
}

#[derive(Debug, Serialize)]
struct ShownWait<'a> {
    lock: &'a str,
    waiter: &'a str,
    who: String,
    session: String,
    since_unix_ms: u128,
    /// The number of contenders that it waits for.
    blockers: usize,
    /// The first hundred of them.
    blocked_by: Vec<&'a str>,
    /// Whether only some of them must leave, because permits are counted.
    waits_for_permits: bool,
    /// Whether it waits in a deadlock, or behind one.
    stuck: bool,
}

/// The state of the locks.
struct Seen<'a> {
    path: &'a ZnodePath,
    graph: WaitGraph<'a>,
    cycles: Vec<WaitCycle>,
    unreadable: &'a [ZnodePath],
}

/// Shows the graph.
pub(crate) async fn graph(global: &Global, options: GraphOptions) -> Result<u8, Failure> {
    let path = &options.path;
    let looks = Connection::during(global, async |connection| {
        Ok(CycleCheck::at(&connection.client, path).await?)
    });
    let looks = looks.await?;
    let graph = WaitGraph::new(&looks.now.queues);
    let cycles = looks.cycles(&graph);
    let seen = Seen { path, graph, cycles, unreadable: &looks.now.unreadable };

    if options.dot {
        output::print(&seen.dot())?;
    } else {
        output::show(global, &seen.shown(options.cycles), || seen.text(options.cycles))?;
    }
    let is_no = options.cycles && !seen.cycles.is_empty();
    Ok(if is_no { Exit::No } else { Exit::Ok }.code())
}

impl<'a> Seen<'a> {
    fn lock(&self, at: ContenderIndex) -> &'a ZnodePath {
        &self.graph.queues()[at.lock].path
    }

    fn node(&self, at: ContenderIndex) -> &'a str {
        self.graph.contender(at).node.as_str()
    }

    fn who(&self, at: ContenderIndex) -> String {
        view::who(self.graph.contender(at))
    }

    fn shown(&self, only_cycles: bool) -> ShownGraph<'a> {
        let roots = if only_cycles { Vec::new() } else { self.graph.roots() };
        let waits = self.graph.waiters().filter(|at| !only_cycles || self.graph.is_stuck(*at));
        ShownGraph {
            path: self.path.as_str(),
            deadlocks: self.cycles.iter().map(|cycle| self.shown_cycle(cycle)).collect(),
            blockers: roots.iter().map(|root| self.shown_root(root)).collect(),
            waits: waits.map(|at| self.shown_wait(at)).collect(),
            unreadable: self.unreadable.iter().map(AsRef::as_ref).collect(),
        }
    }

    fn shown_cycle(&self, cycle: &WaitCycle) -> ShownDeadlock<'a> {
        let steps = cycle.steps.iter().map(|step| ShownStep {
            lock: self.lock(step.waiter).as_str(),
            waiter: self.node(step.waiter),
            who: self.who(step.waiter),
            blocker: self.node(step.blocker),
            because: match step.because {
                Because::ItWaits => "it",
                Because::ItsCommandWaits => "command",
                Because::ItsSessionWaits => "session",
            },
        });
        ShownDeadlock { certain: cycle.is_certain(), steps: steps.collect() }
    }

    fn shown_root(&self, root: &RootBlocker) -> ShownBlocker<'a> {
        let locks = root.locks.iter().map(|lock| self.graph.queues()[*lock].path.as_str());
        ShownBlocker {
            holder: self.node(root.holder),
            lock: self.lock(root.holder).as_str(),
            who: self.who(root.holder),
            session: self.graph.contender(root.holder).session.to_string(),
            waiters: root.waiters,
            oldest: self.node(root.oldest),
            oldest_since_unix_ms: view::unix_ms(self.graph.contender(root.oldest).since),
            locks: locks.collect(),
        }
    }

    fn shown_wait(&self, at: ContenderIndex) -> ShownWait<'a> {
        let entry = self.graph.contender(at);
        let blocked_by = self.graph.blockers(at).take(MAX_BLOCKERS);
        ShownWait {
            lock: self.lock(at).as_str(),
            waiter: entry.node.as_str(),
            who: view::who(entry),
            session: entry.session.to_string(),
            since_unix_ms: view::unix_ms(entry.since),
            blockers: self.graph.blockers(at).count(),
            blocked_by: blocked_by.map(|blocker| self.node(blocker)).collect(),
            waits_for_permits: entry.kind.permits().is_some(),
            stuck: self.graph.is_stuck(at),
        }
    }

    fn text(&self, only_cycles: bool) -> String {
        let mut text: String = self.cycles.iter().map(|cycle| self.text_of_cycle(cycle)).collect();
        let roots = if only_cycles { Vec::new() } else { self.graph.roots() };
        if !roots.is_empty() {
            let heading = ["BLOCKER", "LOCK", "SINCE", "WAITING", "LONGEST", "ALSO BLOCKS"];
            let mut rows = vec![heading.map(str::to_owned).to_vec()];
            rows.extend(roots.iter().map(|root| self.row(root)));
            text.push_str(&view::table(&rows));
        }
        if text.is_empty() {
            let path = self.path;
            text = match only_cycles {
                true => format!("no deadlock among the locks below {path}\n"),
                false => format!("no program waits for a lock below {path}\n"),
            };
        }
        for node in self.unreadable {
            let _ = writeln!(text, "{}: permission denied", view::printable(node.as_str()));
        }
        text
    }

    fn text_of_cycle(&self, cycle: &WaitCycle) -> String {
        let mut text = String::from(match cycle.is_certain() {
            true => "deadlock:\n",
            false => "possible deadlock:\n",
        });
        for step in &cycle.steps {
            let since = view::duration(self.graph.contender(step.waiter).age());
            let (who, blocker) = (self.who(step.waiter), self.who(step.blocker));
            let lock = view::printable(self.lock(step.waiter).as_str());
            let waits = match step.because {
                Because::ItWaits => "which waits too",
                Because::ItsCommandWaits => "whose command waits",
                Because::ItsSessionWaits => "whose session waits",
            };
            let _ = writeln!(
                text,
                "  {who} has waited for {lock} for {since}, behind {blocker}, {waits}"
            );
        }
        text
    }

    fn row(&self, root: &RootBlocker) -> Vec<String> {
        let others = root.locks.iter().filter(|lock| **lock != root.holder.lock);
        let others = others.map(|lock| self.graph.queues()[*lock].path.to_string());
        vec![
            self.who(root.holder),
            view::printable(self.lock(root.holder).as_str()),
            view::how_long(self.graph.contender(root.holder), &Observed::new()),
            root.waiters.to_string(),
            view::duration(self.graph.contender(root.oldest).age()),
            view::listed(&others.collect::<Vec<_>>()),
        ]
    }

    /// The contenders of locks with waiters. A solid edge leads from each waiter to the contenders that it waits for,
    /// and a dashed edge from each contender to what its program is waiting for.
    fn dot(&self) -> String {
        let mut text = String::from("digraph locks {\n  rankdir=LR;\n  node [shape=box];\n");
        let steps = self.cycles.iter().flat_map(|cycle| &cycle.steps);
        let steps: HashSet<_> = steps.map(|step| (step.waiter, step.blocker)).collect();

        for (lock, queue) in self.graph.queues().iter().enumerate() {
            if queue.waiters().next().is_none() {
                continue;
            }
            for (entry, found) in queue.entries.iter().enumerate() {
                let at = ContenderIndex { lock, entry };
                let state = if found.holds { "holds" } else { "waits for" };
                let label = format!("{}\n{state} {}", self.who(at), queue.path);
                let node = quoted(self.node(at));
                let _ = writeln!(text, "  {node} [label={}];", quoted(&label));

                for blocker in self.graph.blockers(at).take(MAX_BLOCKERS) {
                    let color = if steps.contains(&(at, blocker)) { " [color=red]" } else { "" };
                    let _ = writeln!(text, "  {node} -> {}{color};", quoted(self.node(blocker)));
                }
                for (wait, _) in self.graph.kept_for(at) {
                    let _ =
                        writeln!(text, "  {node} -> {} [style=dashed];", quoted(self.node(wait)));
                }
            }
        }
        text + "}\n"
    }
}

/// A string in the DOT language.
fn quoted(text: &str) -> String {
    let lines = text.lines().map(view::printable);
    let lines: Vec<_> = lines.map(|line| line.replace('\\', "\\\\").replace('"', "\\\"")).collect();
    format!("\"{}\"", lines.join("\\n"))
}

//! Programs in other languages that measure for us: one process for the whole run, so that its
//! compiler has warmed up, which takes orders on its input and answers on its output.
//!
//! An order is a line such as `cycles 16 100 2000`: what, tasks, warm-up and measuring time in
//! milliseconds. The answer is a line of JSON.
//!
//! | order | what is measured |
//! |---|---|
//! | `cycles` | so many tasks, each with a lock that nobody else wants |
//! | `handoffs`, `latches` | one lock that so many clients want, or one election |
//! | `counter`, `bare` | adds of so many tasks to one counter, or bare requests that do the same |
//! | `queue` | items of one queue that so many consumers work on |
//! | `barrier` | rounds of a double barrier that so many parties enter and leave |
//! | `cache` | how long a cache of so many nodes takes until it is complete |
//! | `changes` | how soon a cache of so many nodes tells of a change |
//! | `partitions` | one of so many members that share so many items leaves |
//! | `told` | how long after the next value was published all subscribers of the program have it |

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::measure::{Measured, Plan};
use crate::orders::Answer;
use anyhow::{Context, Result, bail};
use lockkeeper_testkit::peers::{Peer, SYSTEM_PYTHON};
use lockkeeper_testkit::process::mortal;
use lockkeeper_testkit::{java, python};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::program::Configuration;
use super::server::{child, jar_version, version};
use crate::subscribers::Kind;

/// How long an answer may take beyond the time that it was asked to measure.
const GRACE: Duration = Duration::from_secs(60);

/// A running program.
pub(crate) struct Worker {
    // Kills on drop.
    _child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    pub(crate) async fn curator(servers: &str) -> Result<Self> {
        if let Some(missing) = Peer::Curator.missing() {
            bail!(missing);
        }
        let program = java::Program::compile(&source("CuratorBench.java"))?;
        let mut command = program.command();
        command.arg(servers);
        // The test kit's options are for programs that live for seconds. These come after them,
        // and the last one counts.
        let command = with_options(&command, &["-XX:TieredStopAtLevel=4", "-Xmx1g"]);
        let mut worker = Self::start(&command)?;
        let warm_up = Plan { warm_up: Duration::from_secs(2), measure: Duration::from_secs(1) };
        worker.measure("cycles", 16, warm_up).await?;
        Ok(worker)
    }

    pub(super) async fn kazoo(servers: &str) -> Result<Self> {
        if let Some(missing) = Peer::Kazoo.missing() {
            bail!(missing);
        }
        let mut command = python::command(&source("kazoo_bench.py"));
        command.arg(servers);
        Self::start(&command)
    }

    /// This program as a child of itself that adds to a counter.
    pub(super) fn ours(servers: &str) -> Result<Self> {
        Self::start(&child(&["count", servers])?)
    }

    /// This program as a child of itself that follows a value, so many times.
    pub(crate) fn subscribers(servers: &str, count: usize, kind: Kind) -> Result<Self> {
        let (count, kind) = (count.to_string(), kind.to_string());
        Self::start(&child(&["subscribe", servers, &count, &kind])?)
    }

    fn start(command: &Command) -> Result<Self> {
        let mut mortal = tokio::process::Command::from(mortal(command));
        mortal.kill_on_drop(true);
        mortal.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = mortal.spawn().context("cannot start setpriv")?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take());
        let (orders, answers) = (orders.context("no input")?, answers.context("no output")?);
        Ok(Self { _child: child, orders, answers: BufReader::new(answers).lines() })
    }

    /// Measures what the order is for.
    pub(crate) async fn measure(
        &mut self,
        what: &str,
        tasks: usize,
        plan: Plan,
    ) -> Result<Measured> {
        let (warm_up, measure) = (plan.warm_up.as_millis(), plan.measure.as_millis());
        let order = format!("{what} {tasks} {warm_up} {measure}\n");
        self.send(&order, plan.warm_up + plan.measure + GRACE).await
    }

    /// Joins a group, and waits until it sees so many members; with 0 it leaves.
    pub(crate) async fn group(&mut self, name: usize, members: usize) -> Result<()> {
        let order = format!("group {name} {members} 0\n");
        self.send(&order, GRACE).await.map(drop)
    }

    /// Has members share items, of which one leaves then: how many items have another owner after that, divided by those
    /// that it had, and how long it takes until all have one.
    pub(crate) async fn partitions(
        &mut self,
        members: usize,
        items: usize,
    ) -> Result<(f64, Duration)> {
        let order = format!("partitions {members} {items} 0\n");
        let measured = self.send(&order, 3 * GRACE).await?;
        Ok((measured.per_second, measured.latency.max))
    }

    async fn send(&mut self, order: &str, limit: Duration) -> Result<Measured> {
        self.orders.write_all(order.as_bytes()).await.context("the program has ended")?;
        self.orders.flush().await?;
        let answer = timeout(limit, self.answers.next_line()).await;
        let answer = answer.with_context(|| format!("no answer within {limit:?}"))??;
        let answer: Answer = serde_json::from_str(&answer.context("the program has ended")?)?;
        match answer.error {
            Some(error) => bail!("the program failed: {error}"),
            None => Ok(answer.measured),
        }
    }
}

pub(super) fn describe_curator() -> Configuration {
    Configuration {
        system: "curator".to_owned(),
        version: format!("Apache Curator {}", jar_version("curator-recipes")),
        settings: "a thread for each task, one CuratorFramework (for hand-offs one each, \
                   one for each consumer of a queue, which has a lock path, and one for each party of a \
                   barrier, whose rounds are on two paths in turns, and which is tried again if a party \
                   stands still); full JIT, -Xmx1g, \
                   serial collector; 3 s of warm-up once, then as everyone; a counter tries ten \
                   times, 10 ms apart, as in Curator's own example"
            .to_owned(),
    }
}

pub(super) fn describe_kazoo() -> Configuration {
    let code = "import kazoo.version; print(kazoo.version.__version__)";
    Configuration {
        system: "kazoo".to_owned(),
        version: version("kazoo", SYSTEM_PYTHON, &["-c", code]),
        settings: "a thread for each task, one KazooClient (for hand-offs and partitions one each)"
            .to_owned(),
    }
}

/// The same `java` command with more options before its class path.
fn with_options(command: &Command, options: &[&str]) -> Command {
    let mut with = Command::new(command.get_program());
    let mut more = options.iter();
    for argument in command.get_args() {
        if argument == "-cp" {
            with.args(more.by_ref());
        }
        with.arg(argument);
    }
    with
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

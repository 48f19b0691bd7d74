//! Programs in other languages that measure for us: one process for the whole run, so that its
//! compiler has warmed up, which takes orders on its input and answers on its output.
//!
//! An order is a line such as `cycles 16 100 2000`: what, tasks, warm-up and measuring time in
//! milliseconds. The answer is a line of JSON.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::measure::{Cycles, HandOffs, Latency, Plan, Repeats};
use crate::orders::Answer;
use anyhow::{Context, Result, bail};
use lockkeeper_testkit::peers::{Peer, SYSTEM_PYTHON};
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
        worker.cycles(16, warm_up).await?;
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
        Self::start(&child(&["count", "--servers", servers])?)
    }

    /// This program as a child of itself that follows a value, so many times.
    pub(crate) fn subscribers(servers: &str, count: usize, kind: Kind) -> Result<Self> {
        let (count, kind) = (count.to_string(), kind.to_string());
        let arguments = ["subscribe", "--servers", servers, "--count", &count, "--kind", &kind];
        Self::start(&child(&arguments)?)
    }

    fn start(command: &Command) -> Result<Self> {
        let mut mortal = tokio::process::Command::new("setpriv");
        mortal.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program());
        mortal.args(command.get_args()).kill_on_drop(true);
        for (key, value) in command.get_envs() {
            if let Some(value) = value {
                mortal.env(key, value);
            }
        }
        mortal.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = mortal.spawn().context("cannot start setpriv")?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take());
        let (orders, answers) = (orders.context("no input")?, answers.context("no output")?);
        Ok(Self { _child: child, orders, answers: BufReader::new(answers).lines() })
    }

    /// Measures cycles.
    pub(crate) async fn cycles(&mut self, tasks: usize, plan: Plan) -> Result<Cycles> {
        let answer = self.order("cycles", tasks, plan).await?;
        Ok(Cycles { per_second: answer.per_second, acquire: answer.acquire, cycle: answer.latency })
    }

    /// Measures hand-offs of locks, or of the latches of an election.
    pub(crate) async fn hand_offs(
        &mut self,
        what: &str,
        clients: usize,
        plan: Plan,
    ) -> Result<HandOffs> {
        let answer = self.order(what, clients, plan).await?;
        Ok(HandOffs {
            per_second: answer.per_second,
            grants_per_second: answer.grants_per_second,
            latency: answer.latency,
        })
    }

    /// Measures adds to a counter.
    pub(crate) async fn counter(&mut self, tasks: usize, plan: Plan) -> Result<Repeats> {
        self.repeats("counter", tasks, plan).await
    }

    /// Measures adds by bare requests.
    pub(crate) async fn bare_counter(&mut self, tasks: usize, plan: Plan) -> Result<Repeats> {
        self.repeats("bare", tasks, plan).await
    }

    async fn repeats(&mut self, what: &str, tasks: usize, plan: Plan) -> Result<Repeats> {
        let answer = self.order(what, tasks, plan).await?;
        Ok(Repeats { per_second: answer.per_second, latency: answer.latency })
    }

    /// Measures how long a cache of so many nodes takes until it is complete.
    pub(crate) async fn fill_cache(&mut self, nodes: usize) -> Result<Duration> {
        let answer = self.order("cache", nodes, Plan::ONCE).await?;
        Ok(answer.latency.p50)
    }

    /// Measures how soon a cache of so many nodes tells of a change.
    pub(crate) async fn changes(&mut self, nodes: usize, plan: Plan) -> Result<Latency> {
        Ok(self.order("changes", nodes, plan).await?.latency)
    }

    /// Waits until all its subscribers have the next value; how long after it was published.
    pub(crate) async fn told(&mut self) -> Result<Duration> {
        Ok(self.order("told", 0, Plan::ONCE).await?.latency.max)
    }

    /// Joins a group, and waits until it sees so many members; with 0 it leaves.
    pub(crate) async fn group(&mut self, name: usize, members: usize) -> Result<()> {
        let order = format!("group {name} {members} 0\n");
        self.send(&order, GRACE).await.map(drop)
    }

    async fn order(&mut self, what: &str, tasks: usize, plan: Plan) -> Result<Answer> {
        let (warm_up, measure) = (plan.warm_up.as_millis(), plan.measure.as_millis());
        let order = format!("{what} {tasks} {warm_up} {measure}\n");
        self.send(&order, plan.warm_up + plan.measure + GRACE).await
    }

    async fn send(&mut self, order: &str, limit: Duration) -> Result<Answer> {
        self.orders.write_all(order.as_bytes()).await.context("the program has ended")?;
        self.orders.flush().await?;
        let answer = timeout(limit, self.answers.next_line()).await;
        let answer = answer.with_context(|| format!("no answer within {limit:?}"))??;
        let answer: Answer = serde_json::from_str(&answer.context("the program has ended")?)?;
        match answer.error {
            Some(error) => bail!("the program failed: {error}"),
            None => Ok(answer),
        }
    }
}

pub(super) fn describe_curator() -> Configuration {
    Configuration {
        system: "curator".to_owned(),
        version: format!("Apache Curator {}", jar_version("curator-recipes")),
        settings: "a thread for each task, one CuratorFramework (for hand-offs one each); full \
                   JIT, -Xmx1g, serial collector; 3 s of warm-up once, then as everyone; a counter \
                   tries ten times, 10 ms apart, as in Curator's own example"
            .to_owned(),
    }
}

pub(super) fn describe_kazoo() -> Configuration {
    let code = "import kazoo.version; print(kazoo.version.__version__)";
    Configuration {
        system: "kazoo".to_owned(),
        version: version("kazoo", SYSTEM_PYTHON, &["-c", code]),
        settings: "a thread for each task, one KazooClient (for hand-offs one each)".to_owned(),
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

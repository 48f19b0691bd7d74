//! The program of `docs/services.md`, whose parts are killed one after the other.
//!
//! Callers of the service must not notice, and one instance at a time runs the jobs. Also runs the other example
//! that takes arguments.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::postgres::PostgresServer;
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::{command, scratch};
use tempfile::TempDir;

/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// The parts by name: `server`, `client`, and the instances. Each life of a part has files of its own.
struct Fleet {
    folder: TempDir,
    lockkeeper: PathBuf,
    program: PathBuf,
    servers: String,
    parts: BTreeMap<String, Process>,
    lives: usize,
    /// What instances that were killed had printed.
    past: String,
}

impl Fleet {
    async fn start() -> Result<Self> {
        let mut fleet = Self {
            folder: scratch::folder()?,
            lockkeeper: command::lockkeeper()?,
            program: command::example("fleet")?,
            servers: "127.0.0.1:0".to_owned(),
            parts: BTreeMap::new(),
            lives: 0,
            past: String::new(),
        };
        fleet.start_server().await?;
        for id in ["web-1", "web-2", "web-3"] {
            fleet.start_instance(id)?;
        }
        Ok(fleet)
    }

    /// Starts the server, where it was before if there was one.
    async fn start_server(&mut self) -> Result<()> {
        let mut serve = Command::new(&self.lockkeeper);
        serve.args(["serve", "--listen", &self.servers, "--data-dir"]);
        serve.arg(self.folder.path().join("data")).env("LOCKKEEPER_HOME", self.folder.path());
        self.spawn("server", &serve)?;

        self.servers = eventually("the server is ready", || {
            let log = self.parts["server"].stderr();
            let address = log.split_once("--connect ").and_then(|(_, rest)| rest.split_once(' '));
            Ok(address.map(|(address, _)| address.to_owned()))
        })
        .await?;
        Ok(())
    }

    fn start_instance(&mut self, id: &str) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["instance", id, &self.servers]);
        self.spawn(id, &command)
    }

    fn start_client(&mut self) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["client", &self.servers]);
        self.spawn("client", &command)
    }

    fn spawn(&mut self, part: &str, command: &Command) -> Result<()> {
        self.lives += 1;
        let process =
            Process::spawn(&format!("{part}-{}", self.lives), command, self.folder.path())?;
        self.parts.insert(part.to_owned(), process);
        Ok(())
    }

    fn kill(&mut self, part: &str) {
        let mut process = self.parts.remove(part).expect("it runs");
        process.kill();
        if part.starts_with("web") {
            self.past += &process.stdout();
        }
    }

    /// Waits until the client has so many more answers of these instances each.
    async fn answers(&self, more: usize, ids: &[&str]) -> Result<()> {
        let count = |id: &str| {
            let answer = format!("{id} answers");
            self.parts["client"].stdout().matches(&answer).count()
        };
        let before: Vec<_> = ids.iter().map(|id| count(id)).collect();
        let what = format!("{more} more answers of {ids:?}");
        eventually(&what, || {
            let mut counts = ids.iter().zip(&before);
            Ok(counts.all(|(id, before)| count(id) >= before + more).then_some(()))
        })
        .await
        .with_context(|| self.parts["client"].tail())
    }

    /// Waits for a job that begins after this call. Who runs it, with which token?
    async fn next_job(&self) -> Result<(String, i64)> {
        let count = self.jobs()?.len();
        eventually("a job runs", || Ok(self.jobs()?.into_iter().nth(count)))
            .await
            .with_context(|| self.parts.values().map(Process::tail).collect::<String>())
    }

    /// All jobs, those of instances that were killed first; otherwise in the order of the instances' ids,
    /// with those of the newest token last.
    fn jobs(&self) -> Result<Vec<(String, i64)>> {
        let present = self.parts.iter().filter(|(part, _)| part.starts_with("web"));
        let printed: String = present.map(|(_, process)| process.stdout()).collect();
        let mut jobs = Vec::new();
        for line in self.past.lines().chain(printed.lines()) {
            let job = line.split_once(" runs a job with token ");
            let (id, token) = job.with_context(|| format!("{line:?}"))?;
            jobs.push((id.to_owned(), token.parse()?));
        }
        jobs.sort_by_key(|(_, token)| *token);
        Ok(jobs)
    }

    /// No call has failed, and every token had one instance.
    fn is_well(&self) -> Result<()> {
        let calls = self.parts["client"].stdout();
        ensure!(!calls.contains("failed"), "{calls}");
        let mut leaders = BTreeMap::new();
        for (id, token) in self.jobs()? {
            let leader = leaders.entry(token).or_insert_with(|| id.clone());
            ensure!(*leader == id, "{id} and {leader} have the token {token}");
        }
        for (part, process) in &self.parts {
            let errors = process.stderr();
            ensure!(part == "server" || errors.is_empty(), "{part}: {errors}");
        }
        Ok(())
    }
}

/// Waits until there is an answer.
async fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if start.elapsed() > LIMIT {
            bail!("not within {LIMIT:?}: {what}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn nobody_notices_the_kill_of_any_part() -> Result<()> {
    let all = ["web-1", "web-2", "web-3"];
    let mut fleet = Fleet::start().await?;
    let (leader, token) = fleet.next_job().await?;
    fleet.start_client()?;
    fleet.answers(5, &all).await?;

    // The leader: another one takes over, and the calls go to those that are left, until it is back.
    fleet.kill(&leader);
    let others: Vec<&str> = all.into_iter().filter(|id| *id != leader).collect();
    fleet.answers(20, &others).await?;
    let (second, second_token) = fleet.next_job().await?;
    assert!(second != leader && second_token > token, "{second} with {second_token}, then {token}");
    fleet.start_instance(&leader)?;
    fleet.answers(5, &all).await?;

    // Another instance: the leader continues.
    let other = others.iter().find(|id| **id != second).context("a third")?;
    fleet.kill(other);
    fleet.answers(20, &[&leader, &second]).await?;
    assert_eq!(fleet.next_job().await?, (second.clone(), second_token));
    fleet.start_instance(other)?;
    fleet.answers(5, &all).await?;
    fleet.is_well()?;

    // The client.
    fleet.kill("client");
    fleet.start_client()?;
    fleet.answers(5, &all).await?;
    assert_eq!(fleet.next_job().await?, (second, second_token));

    // The server: calls go on without it, and when it is back, jobs and discovery do.
    fleet.kill("server");
    fleet.answers(50, &all).await?;
    fleet.start_server().await?;
    let (_, last_token) = fleet.next_job().await?;
    assert!(last_token >= second_token);
    fleet.start_instance("web-4")?;
    fleet.answers(5, &["web-1", "web-2", "web-3", "web-4"]).await?;
    fleet.is_well()
}

/// The page shows the program that is tested here.
#[test]
fn the_page_shows_the_program() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no folder above")?;
    let page = fs::read_to_string(root.join("docs/services.md"))?;
    let program = fs::read_to_string(root.join("examples/fleet.rs"))?;
    ensure!(
        page.contains(&format!("```rust\n{program}```\n")),
        "docs/services.md is not up to date"
    );
    ensure!(program.lines().count() < 100, "it is longer than it should be");
    Ok(())
}

/// An example that needs a server of its own.
#[tokio::test]
async fn effects_in_postgresql_are_had_once() -> Result<()> {
    if !peers::ready("fleet: effects in PostgreSQL", &[Peer::PostgreSql]) {
        return Ok(());
    }
    let server = PostgresServer::start().await?;
    let mut command = Command::new(command::example("queue_postgres")?);
    command.arg(format!("host=127.0.0.1 port={} user=postgres dbname=postgres", server.port));
    let folder = scratch::folder()?;
    let mut example = Process::spawn("queue_postgres", &command, folder.path())?;
    let status = example.end(LIMIT).await?;
    ensure!(status.success(), "{status}\n{}", example.tail());
    ensure!(example.stdout().ends_with("42 was charged\n"), "{}", example.stdout());
    Ok(())
}

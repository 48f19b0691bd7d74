//! Two for each lock, through outages of every length: the first one rides it out, the second one waits.
//!
//! Where the session of the first one lived, it goes on with the same token, and the second one still
//! waits. Where not, it is lost because its session is, and never before the second one is granted the
//! lock does it write again. Both write to a file that checks tokens, and that sees no stale write.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use lockkeeper::{Client, Mutex};
use lockkeeper_testkit::clock;
use lockkeeper_testkit::process::Process;
use lockkeeper_tests::{all, name};
use tokio::task::JoinSet;

use super::holders::HolderKind;
use super::promise::promised;
use super::stand::{Stalls, Stand};
use super::{OutageForm, is_ready};
use crate::programs::say;
use crate::servers::{LIMIT, Place};

/// The session timeout of those who ride out an outage.
const SESSION: Duration = Duration::from_secs(6);

/// The lengths of outages, in hundredths of it.
const HUNDREDTHS: [u32; 4] = [25, 50, 80, 200];

/// How often a holder writes.
const PACE: Duration = Duration::from_millis(10);

/// Longer than any outage.
const GRACE: Duration = Duration::from_secs(600);

const POLL: Duration = Duration::from_millis(20);

/// What became of a pair.
#[derive(Clone, Debug)]
pub(super) struct RivalsOutcome {
    place: Place,
    form: OutageForm,
    kind: HolderKind,
    outage: Duration,
    /// Whether the first one went on.
    goes_on: bool,
    /// What is wrong with that.
    problem: Option<String>,
}

/// What `cargo test` starts.
pub(crate) async fn short() -> Result<()> {
    if !is_ready(&[]) {
        return Ok(());
    }
    judge_all(&run(&all::<Place>()).await?)
}

/// Makes all outages of these places, one place beside the other.
pub(super) async fn run(places: &[Place]) -> Result<Vec<RivalsOutcome>> {
    let at = async |place: Place| match places.contains(&place) {
        true => run_at(place).await,
        false => Ok(Vec::new()),
    };
    let (mut outcomes, others) = tokio::try_join!(at(Place::Engine), at(Place::Ensemble))?;
    outcomes.extend(others);
    Ok(outcomes)
}

async fn run_at(place: Place) -> Result<Vec<RivalsOutcome>> {
    // The last host is for all who wait.
    let mut rivals =
        Rivals { stand: Stand::start(place, HUNDREDTHS.len() * 2 + 1).await?, outages: 0 };
    let mut outcomes = Vec::new();
    for &form in OutageForm::of(place).iter().filter(|form| **form != OutageForm::Restarted) {
        // Each pair has a link of its own, and all others see the same outage.
        let outages = match form {
            OutageForm::Link => vec![HUNDREDTHS.to_vec()],
            OutageForm::Stopped => HUNDREDTHS.map(|length| vec![length]).to_vec(),
            _ => vec![vec![0]],
        };
        for hundredths in outages {
            let found = rivals.outage(form, &hundredths).await?;
            found.iter().for_each(|outcome| println!("{}", line(outcome)));
            outcomes.extend(found);
        }
    }
    Ok(outcomes)
}

pub(super) fn judge_all(outcomes: &[RivalsOutcome]) -> Result<()> {
    let broken = outcomes.iter().filter(|outcome| outcome.problem.is_some());
    let broken: Vec<_> = broken.map(|outcome| format!("\n  {}", line(outcome))).collect();
    ensure!(broken.is_empty(), "{} pairs are wrong:{}", broken.len(), broken.concat());
    Ok(())
}

/// What became of one pair, for people.
fn line(outcome: &RivalsOutcome) -> String {
    let RivalsOutcome { place, form, kind, outage, goes_on, problem } = outcome;
    format!(
        "{:8} {:9} {:15}  outage {:5.2} s  {} {}",
        name(*place),
        name(*form),
        kind.title(),
        outage.as_secs_f64(),
        if *goes_on { "goes on, with the same token" } else { "is lost, with its session" },
        problem.as_deref().unwrap_or_default(),
    )
}

/// What became of those who rode out an outage with somebody behind them, in Markdown.
pub(super) fn table(outcomes: &[RivalsOutcome]) -> String {
    let mut text = String::from(
        "| servers | outage | first | length | went on | stale writes, or two at a time |\n\
         |---|---|---|--:|---|--:|\n",
    );
    for RivalsOutcome { place, form, kind, outage, goes_on, problem } in outcomes {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.2} s | {} | {} |",
            name(*place),
            form.title(),
            kind.title(),
            outage.as_secs_f64(),
            if *goes_on { "yes" } else { "no" },
            problem.as_deref().unwrap_or("0"),
        );
    }
    text
}

struct Rivals {
    stand: Stand,
    outages: u32,
}

/// The lock of one pair, and its programs.
struct Pair {
    kind: HolderKind,
    hundredths: u32,
    first: Process,
    second: Process,
    ledger: PathBuf,
}

impl Rivals {
    /// Makes one outage for two pairs of each length: a guard and a command.
    async fn outage(&mut self, form: OutageForm, hundredths: &[u32]) -> Result<Vec<RivalsOutcome>> {
        self.stand.servers.settle().await?;
        self.outages += 1;
        let mut pairs = Vec::new();
        for &hundredths in hundredths {
            for kind in [HolderKind::Jeopardy, HolderKind::Pause] {
                pairs.push(self.begin(kind, hundredths, pairs.len()).await?);
            }
        }

        let stalls = Stalls::watch();
        let lengths: Vec<_> = pairs.iter().map(|pair| SESSION * pair.hundredths / 100).collect();
        let outages = self.stand.strike(form, &lengths).await?;
        let (stall, is_busy, place) = (stalls.longest(), stalls.is_busy(), self.stand.place);
        let end = clock::now();
        let mut looking = JoinSet::new();
        for (index, pair) in pairs.into_iter().enumerate() {
            let outage = outages.get(index).unwrap_or(&outages[0]).length;
            let kind = pair.kind;
            let is_short = outage + stall < promised(place, SESSION, kind);
            let must = match (form, pair.hundredths) {
                _ if is_short && !is_busy => Some(true),
                // The servers were there, and did not hear of it for longer than it lives.
                (OutageForm::Link, 200) => Some(false),
                _ => None,
            };
            looking.spawn(async move {
                let (goes_on, problem) = match pair.end(end, must).await {
                    Ok(goes_on) => (goes_on, None),
                    Err(error) => (false, Some(format!("{error:#}"))),
                };
                (index, RivalsOutcome { place, form, kind, outage, goes_on, problem })
            });
        }
        let mut outcomes = looking.join_all().await;
        outcomes.sort_by_key(|(index, _)| *index);
        Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
    }

    /// Has the first one of a pair hold, and the second one wait.
    async fn begin(&self, kind: HolderKind, hundredths: u32, index: usize) -> Result<Pair> {
        // As `lockkeeper run` names it.
        let lock = format!("rivals/{}-{index}", self.outages);
        let (path, name) = (format!("/{lock}"), lock.replace('/', "-"));
        let ledger = self.stand.folder.path().join(format!("{name}.ledger"));
        let (site, own) = (self.stand.site(index), format!("{name}-first"));
        let at = ledger.to_str().context("a path that is no text")?;
        let mut first = match kind {
            HolderKind::Pause => {
                let mut work = Command::new(std::env::current_exe()?);
                work.args(["run", "write", at]);
                site.run(&own, &lock, Some(SESSION), true, &work)?
            }
            _ => site.ours(&own, "first", &path, &[at])?,
        };
        first.prints(" HELD ", LIMIT).await?;

        let site = self.stand.site(HUNDREDTHS.len() * 2);
        let mut second = site.ours(&format!("{name}-second"), "second", &path, &[at])?;
        second.prints(" WAITS", LIMIT).await?;
        Ok(Pair { kind, hundredths, first, second, ledger })
    }
}

impl Pair {
    /// Waits until it is seen what became of it, and whether that is right. `end`: when the outage was
    /// over. `must`: whether the first one must go on, if that is known.
    async fn end(mut self, end: Duration, must: Option<bool>) -> Result<bool> {
        let token = word_after(&self.first.stdout(), "HELD").context("no token")?;
        let goes_on = loop {
            let why_lost = self.why_lost()?;
            let wrote = Ledger::entries(&self.ledger)?;
            let last = wrote.iter().rev().find(|entry| entry.token == token);
            match (why_lost, last) {
                (Some(why), _) => {
                    ensure!(why.contains("session"), "it is lost for another reason: {why}");
                    break false;
                }
                (None, Some(last)) if last.at > end => break true,
                _ => {}
            }
            let (first, second) = (&self.first, &self.second);
            let tails = || format!("{}\n{}", first.tail(), second.tail());
            ensure!(clock::now() < end + LIMIT, "neither goes on nor is lost: {}", tails());
            tokio::time::sleep(POLL).await;
        };
        if !goes_on {
            self.second.prints(" WROTE", LIMIT).await?;
        }

        let granted = word_after(&self.second.stdout(), "GRANTED");
        judge(&Ledger::entries(&self.ledger)?, &token, granted.as_deref(), goes_on)?;
        match must {
            Some(true) if !goes_on => bail!("BROKEN: it is lost although the session lived"),
            Some(false) if goes_on => bail!("BROKEN: it goes on although the session is over"),
            _ => Ok(goes_on),
        }
    }

    /// Why the first one is lost; `None`: it is not.
    fn why_lost(&mut self) -> Result<Option<String>> {
        let status = self.first.status()?;
        if self.kind == HolderKind::Jeopardy {
            ensure!(status.is_none(), "it has ended: {}", self.first.tail());
            return Ok(word_after(&self.first.stdout(), "GONE").map(|why| why.to_lowercase()));
        }
        let Some(status) = status else { return Ok(None) };
        ensure!(status.code() == Some(79), "{status}: {}", self.first.tail());
        let said = self.first.stderr();
        let line = said.lines().find(|line| line.contains("is lost"));
        Ok(Some(line.context("no reason")?.to_owned()))
    }
}

/// Whether the writes are those of one holder at a time.
fn judge(entries: &[Entry], token: &str, granted: Option<&str>, goes_on: bool) -> Result<()> {
    let stale = entries.iter().filter(|entry| entry.is_stale).count();
    ensure!(stale == 0, "BROKEN: {stale} stale writes");
    match (granted, goes_on) {
        (None, true) => {
            let other = entries.iter().find(|entry| entry.token != token);
            ensure!(other.is_none(), "BROKEN: a write with another token: {other:?}");
        }
        (Some(granted), false) => {
            // It says when it was granted the lock, which is before its first write.
            let (at, next) = granted.split_once(':').context("no time")?;
            let at = Duration::from_nanos(at.parse()?);
            let before = entries.iter().filter(|entry| entry.token == token);
            let last = before.map(|entry| entry.at).max().context("it has written")?;
            ensure!(last < at, "BROKEN: it wrote {:?} after the next one had the lock", last - at);
            let (first, next): (u128, u128) = (token.parse()?, next.parse()?);
            ensure!(next > first, "BROKEN: token {next} after {first}");
        }
        (granted, _) => {
            bail!("BROKEN: two hold: {granted:?}, and the first one goes on: {goes_on}")
        }
    }
    Ok(())
}

fn word_after(said: &str, word: &str) -> Option<String> {
    let mut words = said.split_whitespace();
    words.find(|found| *found == word)?;
    words.next().map(str::to_owned)
}

// ----- the programs ---------------------------------------------------------------------------

/// One of the two, with the library.
#[derive(Args)]
pub(crate) struct Rival {
    connect: String,
    path: String,
    ledger: PathBuf,
}

impl Rival {
    /// The one who holds first.
    pub(crate) async fn hold_first(self) -> Result<()> {
        let client = Client::builder().session_timeout(SESSION).connect(&self.connect).await?;
        let guard = Mutex::new(&client, &self.path)?.acquire().await?;
        let token = guard.token().to_u128().to_string();
        let mut ledger = Ledger::open(&self.ledger)?;
        say(clock::now(), &format!("HELD {token}"));

        let work = async {
            loop {
                if let Err(error) = ledger.write(&token) {
                    return error;
                }
                tokio::time::sleep(PACE).await;
            }
        };
        match guard.run_through(GRACE, work).await {
            Ok(error) => Err(error),
            Err(reason) => {
                say(clock::now(), &format!("GONE {reason:?}"));
                std::future::pending().await
            }
        }
    }

    /// The one who waits.
    pub(crate) async fn wait(self) -> Result<()> {
        let client = Client::builder().connect(&self.connect).await?;
        let lock = Mutex::new(&client, &self.path)?;
        let mut ledger = Ledger::open(&self.ledger)?;
        let guard = loop {
            let mut waiting = std::pin::pin!(lock.acquire());
            tokio::select! {
                biased;
                guard = &mut waiting => if let Ok(guard) = guard { break guard },
                () = in_line(&client, &self.path) => {
                    say(clock::now(), "WAITS");
                    // An outage may end its session too: then it is in line again.
                    if let Ok(guard) = waiting.await { break guard }
                }
            }
        };
        let token = guard.token().to_u128().to_string();
        say(clock::now(), &format!("GRANTED {}:{token}", clock::now().as_nanos()));
        ledger.write(&token)?;
        say(clock::now(), "WROTE");
        std::future::pending().await
    }
}

/// Waits until two are in line.
async fn in_line(client: &Client, path: &str) {
    let Ok(path) = path.parse() else { return };
    while !client.children(&path).await.is_ok_and(|(children, _)| children.len() >= 2) {
        tokio::time::sleep(POLL).await;
    }
}

/// The command under `lockkeeper run`.
pub(crate) fn write(ledger: &Path) -> Result<()> {
    let token = std::env::var("LOCKKEEPER_TOKEN")?;
    let mut ledger = Ledger::open(ledger)?;
    say(clock::now(), &format!("HELD {token}"));
    loop {
        ledger.write(&token)?;
        std::thread::sleep(PACE);
    }
}

// ----- a file that both holders of a lock write to, and that refuses those who were overtaken -

/// The writes of one lock, a line each: whatever the writers believe, and whenever their writes arrive, they
/// are made one after the other under the lock of the file.
struct Ledger {
    file: File,
    /// Of the writes that were read.
    newest: u128,
}

/// A write that was asked for.
#[derive(Debug)]
struct Entry {
    /// When it was made, by `clock::now`.
    at: Duration,
    token: String,
    /// Whether a later holder had written before.
    is_stale: bool,
}

impl Ledger {
    fn open(path: &Path) -> Result<Self> {
        let options = OpenOptions::new().create(true).append(true).read(true).open(path);
        options.map(|file| Self { file, newest: 0 }).with_context(|| format!("{}", path.display()))
    }

    /// Makes one write under a lock. One that comes too late is noted as such.
    fn write(&mut self, token: &str) -> Result<()> {
        self.file.lock()?;
        let written = self.write_alone(token);
        self.file.unlock()?;
        written
    }

    fn write_alone(&mut self, token: &str) -> Result<()> {
        // What the other one has written since.
        for entry in self.read()? {
            self.newest = self.newest.max(entry.token.parse()?);
        }
        let (at, is_stale) = (clock::now().as_nanos(), token.parse::<u128>()? < self.newest);
        let line = format!("{at} {token} {is_stale}\n");
        Ok(std::io::Write::write_all(&mut self.file, line.as_bytes())?)
    }

    /// From where it has read or written before.
    fn read(&mut self) -> Result<Vec<Entry>> {
        let mut text = String::new();
        self.file.read_to_string(&mut text)?;
        let entry = |line: &str| {
            let [at, token, is_stale] = line.split(' ').collect::<Vec<_>>()[..] else {
                bail!("no entry: {line}");
            };
            let at = Duration::from_nanos(at.parse()?);
            Ok(Entry { at, token: token.to_owned(), is_stale: is_stale.parse()? })
        };
        text.lines().map(entry).collect()
    }

    /// All writes, in their order.
    fn entries(path: &Path) -> Result<Vec<Entry>> {
        let mut ledger = Self::open(path)?;
        ledger.file.lock_shared()?;
        ledger.read()
    }
}

//! Two for each lock, through outages of every length: the first one rides it out, the second one waits.
//!
//! If the session of the first one survived, it continues with the same token, and the second one still
//! waits. Otherwise it has lost the lock with its session, and does not write
//! after the second one is granted the lock. Both write to one file, in which no write follows one with a newer token.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use lockkeeper::{Client, Mutex};
use lockkeeper_testkit::backend::children_reach;
use lockkeeper_testkit::clock;
use lockkeeper_testkit::process::Process;
use lockkeeper_tests::{all, name};

use super::holders::HolderKind;
use super::promise::promised;
use super::stand::{Stalls, Stand};
use super::{OutageForm, is_ready, side_by_side};
use crate::programs::{first_said, said, say};
use crate::servers::{LIMIT, Place};

/// The session timeout of the holders that survive an outage.
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

/// Causes all outages of these places, with all places in parallel.
pub(super) async fn run(places: &[Place]) -> Result<Vec<RivalsOutcome>> {
    let wanted = [Place::Engine, Place::Ensemble].into_iter().filter(|one| places.contains(one));
    let found = side_by_side(wanted.map(run_at)).await.into_iter();
    Ok(found.collect::<Result<Vec<_>>>()?.concat())
}

async fn run_at(place: Place) -> Result<Vec<RivalsOutcome>> {
    // The last host is for all waiters.
    let mut stand = Stand::start(place, HUNDREDTHS.len() * 2 + 1).await?;
    let mut outcomes = Vec::new();
    for &form in OutageForm::of(place).iter().filter(|form| **form != OutageForm::Restarted) {
        // Each pair has a link of its own, and all others see the same outage.
        let outages = match form {
            OutageForm::Link => vec![HUNDREDTHS.to_vec()],
            OutageForm::Stopped => HUNDREDTHS.map(|length| vec![length]).to_vec(),
            _ => vec![vec![0]],
        };
        for hundredths in outages {
            let found = outage(&mut stand, form, &hundredths).await?;
            found.iter().for_each(|outcome| println!("{}", line(outcome)));
            outcomes.extend(found);
        }
    }
    Ok(outcomes)
}

/// Makes one outage for two pairs of each length: a guard and a command.
async fn outage(
    stand: &mut Stand,
    form: OutageForm,
    hundredths: &[u32],
) -> Result<Vec<RivalsOutcome>> {
    stand.servers.settle().await?;
    let mut pairs = Vec::new();
    for &hundredths in hundredths {
        for kind in [HolderKind::Jeopardy, HolderKind::Pause] {
            let lock = format!("rivals/{}-{hundredths}-{}", name(form), pairs.len());
            let pair = Pair::begin(stand, kind, &lock, pairs.len()).await?;
            pairs.push((hundredths, pair));
        }
    }

    let stalls = Stalls::watch();
    let lengths: Vec<_> = pairs.iter().map(|(hundredths, _)| SESSION * *hundredths / 100).collect();
    let outages = stand.strike(form, &lengths).await?;
    let (stall, is_busy, place) = (stalls.longest(), stalls.is_busy(), stand.place);
    let end = clock::now();
    let looking = pairs.into_iter().enumerate().map(|(index, (hundredths, pair))| {
        let outage = outages.get(index).unwrap_or(&outages[0]).length;
        let kind = pair.kind;
        let is_short = outage + stall < promised(place, SESSION, kind);
        let must = match (form, hundredths) {
            _ if is_short && !is_busy => Some(true),
            // The servers were there, and did not hear of it for longer than it lives.
            (OutageForm::Link, 200) => Some(false),
            _ => None,
        };
        async move {
            let ended = pair.end(end, must).await;
            let problem = ended.as_ref().err().map(|error| format!("{error:#}"));
            let goes_on = ended.unwrap_or(false);
            RivalsOutcome { place, form, kind, outage, goes_on, problem }
        }
    });
    Ok(side_by_side(looking).await)
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
        name(*kind),
        outage.as_secs_f64(),
        if *goes_on { "continues, with the same token" } else { "is lost, with its session" },
        problem.as_deref().unwrap_or_default(),
    )
}

/// The outcomes of holders in an outage with a waiter behind them, in Markdown.
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
            name(*kind),
            outage.as_secs_f64(),
            if *goes_on { "yes" } else { "no" },
            problem.as_deref().unwrap_or("0"),
        );
    }
    text
}

/// A lock, its two programs, and the file that both write to.
struct Pair {
    kind: HolderKind,
    first: Process,
    second: Process,
    ledger: PathBuf,
}

impl Pair {
    /// Has the first one hold, on a host of its own, and the second one wait.
    async fn begin(stand: &Stand, kind: HolderKind, lock: &str, host: usize) -> Result<Self> {
        let (path, name) = (format!("/{lock}"), lock.replace('/', "-"));
        let ledger = stand.folder.path().join(format!("{name}.ledger"));
        let at = ledger.to_str().context("a path that is not UTF-8")?;
        let (site, own) = (stand.site(host), format!("{name}-first"));
        let mut first = match kind {
            // Which names a lock without the slash.
            HolderKind::Pause => site.run(&own, lock, Some(SESSION), true, &writer(&ledger)?)?,
            _ => {
                let session = SESSION.as_millis().to_string();
                site.ours(&own, "rival", &path, &[at, "--session-ms", &session])?
            }
        };
        first.prints("HELD", LIMIT).await?;

        let site = stand.site(HUNDREDTHS.len() * 2);
        let mut second = site.ours(&format!("{name}-second"), "rival", &path, &[at])?;
        second.prints("WAITS", LIMIT).await?;
        Ok(Self { kind, first, second, ledger })
    }

    /// Waits until it is seen what became of it, and whether that is right. `end`: when the outage was
    /// over. `must`: whether the first one must go on, if that is known.
    async fn end(mut self, end: Duration, must: Option<bool>) -> Result<bool> {
        let goes_on = loop {
            let why_lost = self.why_lost()?;
            let wrote = writes(&self.ledger)?;
            let (_, token) = *wrote.first().context("it has written nothing")?;
            let has_written = wrote.iter().any(|(at, by)| *by == token && *at > end.as_secs_f64());
            match why_lost {
                Some(why) if !why.contains("session") => bail!("lost for another reason: {why}"),
                // Until the second one has written.
                Some(_) if wrote.iter().any(|(_, by)| *by != token) => break false,
                None if has_written => break true,
                _ => {}
            }
            let (first, second) = (&self.first, &self.second);
            let tails = || format!("{}\n{}", first.tail(), second.tail());
            ensure!(clock::now() < end + LIMIT, "neither of the two continues: {}", tails());
            tokio::time::sleep(POLL).await;
        };

        let granted = first_said(&self.second.stdout(), "HELD");
        judge(&writes(&self.ledger)?, granted, goes_on)?;
        match must {
            Some(true) if !goes_on => bail!("BROKEN: it is lost although the session lived"),
            Some(false) if goes_on => bail!("BROKEN: it continues although the session is over"),
            _ => Ok(goes_on),
        }
    }

    /// Why the first one is lost; `None`: it is not.
    fn why_lost(&mut self) -> Result<Option<String>> {
        let (status, first) = (self.first.status()?, &self.first);
        let said = match (self.kind, status) {
            (HolderKind::Jeopardy, None) => first.stdout(),
            (HolderKind::Pause, None) => return Ok(None),
            (HolderKind::Pause, Some(status)) if status.code() == Some(79) => {
                let told = first.stderr();
                let reason = told.lines().find(|line| line.contains("is lost"));
                return Ok(Some(reason.context("no reason")?.to_lowercase()));
            }
            (_, status) => bail!("it has ended ({status:?}): {}", first.tail()),
        };
        Ok(said.lines().find(|line| line.contains("GONE")).map(str::to_lowercase))
    }
}

/// Whether the writes are those of one holder at a time. `granted`: when the second one had the lock.
fn judge(wrote: &[(f64, u128)], granted: Option<f64>, goes_on: bool) -> Result<()> {
    let stale = wrote.windows(2).filter(|two| two[1].1 < two[0].1).count();
    ensure!(stale == 0, "BROKEN: {stale} stale writes");
    let (first, last) = (wrote[0].1, wrote[wrote.len() - 1].1);
    match (granted, goes_on) {
        (None, true) => ensure!(first == last, "BROKEN: a write with another token: {last}"),
        (Some(granted), false) => {
            let of_first = wrote.iter().filter(|(_, token)| *token == first);
            let late = of_first.map(|(at, _)| at - granted).fold(f64::MIN, f64::max);
            ensure!(late < 0.0, "BROKEN: it wrote {late:.3} s after the next one had the lock");
            ensure!(last > first, "BROKEN: token {last} after {first}");
        }
        _ => bail!("BROKEN: two hold: {granted:?}, and the first one continues: {goes_on}"),
    }
    Ok(())
}

// ----- the programs ---------------------------------------------------------------------------

/// One of the two, with the library: takes the lock, and writes for as long as it has it.
#[derive(Args)]
pub(crate) struct Rival {
    connect: String,
    path: String,
    ledger: PathBuf,
    #[arg(long)]
    session_ms: Option<u64>,
}

impl Rival {
    pub(crate) async fn run(self) -> Result<()> {
        let mut builder = Client::builder();
        if let Some(ms) = self.session_ms {
            builder = builder.session_timeout(Duration::from_millis(ms));
        }
        let client = builder.connect(&self.connect).await?;
        let lock = Mutex::new(&client, &self.path)?;
        let path = lock.path().clone();
        tokio::spawn(async move {
            children_reach(&client, &path, 2).await?;
            say(clock::now(), "WAITS");
            anyhow::Ok(())
        });
        let guard = loop {
            // An outage may end its session too: then it is in line again.
            if let Ok(guard) = lock.acquire().await {
                break guard;
            }
        };
        let token = guard.token().to_u128().to_string();
        match guard.run_through(GRACE, write(&self.ledger, &token)).await {
            Ok(ended) => ended,
            Err(reason) => {
                say(clock::now(), &format!("GONE {reason:?}"));
                std::future::pending().await
            }
        }
    }
}

/// The command under `lockkeeper run`.
pub(super) fn writer(ledger: &Path) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run", "write"]).arg(ledger);
    Ok(command)
}

/// Says that it holds, and writes without an end. Each write is a line with its time and its token, which goes
/// behind all others at once: so the lines are in the order of the writes, whatever the writers believe.
pub(crate) async fn write(ledger: &Path, token: &str) -> Result<()> {
    say(clock::now(), &format!("HELD {}", std::process::id()));
    let mut ledger = OpenOptions::new().create(true).append(true).open(ledger)?;
    loop {
        let line = format!("{} {token}\n", clock::now().as_nanos());
        ledger.write_all(line.as_bytes())?;
        tokio::time::sleep(PACE).await;
    }
}

/// The writes to a file so far, in their order: the times, in seconds, and the tokens.
pub(super) fn writes(ledger: &Path) -> Result<Vec<(f64, u128)>> {
    let text = fs::read_to_string(ledger)?;
    // What follows is being written.
    let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
    said(whole).into_iter().map(|(at, token)| Ok((at, token.parse()?))).collect()
}

//! Two for each lock, through outages of every length: the first one rides it out, the second one waits.
//!
//! Where the session of the first one lived, it goes on with the same token, and the second one still
//! waits. Where not, it is lost because its session is, and never before the second one is granted the
//! lock does it write again. Both write to a table that checks tokens, and that sees no stale write.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lockkeeper::{Client, Mutex};
use lockkeeper_testkit::network::Network;
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::{clock, scratch};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::outage::forms::{Form, Place};
use crate::outage::guard::say;
use crate::outage::holders::Kind;
use crate::outage::ledger::{self, Entry, Ledger};
use crate::outage::observer;
use crate::outage::programs::Site;
use crate::outage::promise::promised;
use crate::outage::servers::{LIMIT, Servers};
use crate::outage::stall::Stalls;
use crate::outage::timeout::Timeout;

/// The session timeout of those who ride out an outage.
const TIMEOUT: Timeout = Timeout::Seconds(6);
const SESSION: Duration = Duration::from_secs(6);

/// The lengths of outages, in hundredths of it.
const HUNDREDTHS: [u32; 4] = [25, 50, 80, 200];

/// How often a holder writes.
const PACE: Duration = Duration::from_millis(10);

/// Longer than any outage.
const GRACE: Duration = Duration::from_secs(600);

const POLL: Duration = Duration::from_millis(20);

/// The lock of one pair, and what its programs have said.
struct Pair {
    kind: Kind,
    hundredths: u32,
    first: Process,
    second: Process,
    name: String,
}

/// What became of a pair.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) place: Place,
    pub(crate) form: Form,
    pub(crate) kind: Kind,
    pub(crate) outage: Duration,
    /// Whether the first one went on.
    pub(crate) goes_on: bool,
    /// What is wrong with that.
    pub(crate) problem: Option<String>,
}

/// Makes all outages of these places, one place after the other.
pub(crate) async fn run(places: &[Place]) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for place in places.iter().filter(|place| **place != Place::Local) {
        let mut stand = Stand::start(*place).await?;
        for form in place.forms().iter().filter(|form| **form != Form::Restarted) {
            let found = match form {
                // Each pair has a link of its own.
                Form::Link => stand.outage(*form, &HUNDREDTHS).await?,
                Form::Stopped => {
                    let mut found = Vec::new();
                    for length in HUNDREDTHS {
                        found.extend(stand.outage(*form, &[length]).await?);
                    }
                    found
                }
                _ => stand.outage(*form, &[0]).await?,
            };
            found.iter().for_each(|outcome| println!("{}", line(outcome)));
            outcomes.extend(found);
        }
    }
    Ok(outcomes)
}

/// What became of one pair, for people.
pub(crate) fn line(outcome: &Outcome) -> String {
    let Outcome { place, form, kind, outage, goes_on, problem } = outcome;
    format!(
        "{:8} {:9} {:15}  outage {:5.2} s  {} {}",
        place.name(),
        form.name(),
        kind.name(),
        outage.as_secs_f64(),
        if *goes_on { "goes on, with the same token" } else { "is lost, with its session" },
        problem.as_deref().unwrap_or_default(),
    )
}

/// Servers, and hosts for those who hold first; the last host is for all who wait.
struct Stand {
    // Before the network that they are on.
    servers: Servers,
    network: Network,
    place: Place,
    outages: u32,
    folder: TempDir,
}

impl Stand {
    async fn start(place: Place) -> Result<Self> {
        let firsts = HUNDREDTHS.len() * 2;
        let network = Network::start(u8::try_from(place.servers() + firsts + 1)?)?;
        let servers = Servers::start(place, &network).await?;
        Ok(Self { servers, network, place, outages: 0, folder: scratch::folder()? })
    }

    fn site(&self, host: usize) -> Site {
        Site {
            place: self.place,
            connect: self.servers.connect_string(),
            host: Some(self.network.host(host).clone()),
            folder: self.folder.path().to_owned(),
        }
    }

    fn host_of(&self, pair: usize) -> usize {
        self.place.servers() + pair
    }

    /// Makes one outage for two pairs of each length: a guard and a command.
    async fn outage(&mut self, form: Form, hundredths: &[u32]) -> Result<Vec<Outcome>> {
        self.servers.settle().await?;
        self.outages += 1;
        let mut pairs = Vec::new();
        for hundredths in hundredths {
            for kind in [Kind::Jeopardy, Kind::Pause] {
                let pair = self.begin(form, kind, *hundredths, pairs.len()).await?;
                pairs.push(pair);
            }
        }

        let stalls = Stalls::watch();
        let outages = self.strike(form, &pairs).await?;
        let (stall, is_busy) = (stalls.longest(), stalls.is_busy());
        let end = clock::now();
        let mut looking = JoinSet::new();
        for (index, (pair, outage)) in pairs.into_iter().zip(outages).enumerate() {
            let ledger = ledger::of(self.folder.path(), &pair.name);
            let place = self.place;
            looking.spawn(async move {
                let kind = pair.kind;
                let is_short = outage + stall < promised(place, SESSION, kind);
                let must = match (form, pair.hundredths) {
                    _ if is_short && !is_busy => Some(true),
                    // The servers were there, and did not hear of it for longer than it lives.
                    (Form::Link, 200) => Some(false),
                    _ => None,
                };
                let seen = pair.end(end, must, &ledger).await;
                let (goes_on, problem) = match seen {
                    Ok(goes_on) => (goes_on, None),
                    Err(error) => (false, Some(format!("{error:#}"))),
                };
                (index, Outcome { place, form, kind, outage, goes_on, problem })
            });
        }
        let mut outcomes = looking.join_all().await;
        outcomes.sort_by_key(|(index, _)| *index);
        Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
    }

    /// Has the first one of a pair hold, and the second one wait.
    async fn begin(&self, form: Form, kind: Kind, hundredths: u32, index: usize) -> Result<Pair> {
        let name = format!("rivals-{}-{index}", self.outages);
        let ledger = ledger::of(self.folder.path(), &name);
        Ledger::create(&ledger)?;
        // As `lockkeeper run` names it.
        let lock = format!("rivals/{}-{index}", self.outages);
        let path = format!("/{lock}");
        let (site, own) = (self.site(self.host_of(index)), format!("{name}-first"));
        let mut first = match kind {
            Kind::Pause => {
                let mut work = Command::new(std::env::current_exe()?);
                work.arg("write").arg(&ledger);
                site.run(kind, TIMEOUT, &lock, &own, &work)?
            }
            _ => site.start(&own, &program("first", &site, &path, &ledger)?)?,
        };
        first.prints(" HELD ", LIMIT).await.with_context(|| format!("{form:?}"))?;

        let site = self.site(self.host_of(HUNDREDTHS.len() * 2));
        let mut second =
            site.start(&format!("{name}-second"), &program("second", &site, &path, &ledger)?)?;
        second.prints(" WAITS", LIMIT).await?;
        Ok(Pair { kind, hundredths, first, second, name })
    }

    /// Begins and ends an outage. Returns how long it was for each pair.
    async fn strike(&mut self, form: Form, pairs: &[Pair]) -> Result<Vec<Duration>> {
        let start = clock::now();
        match form {
            Form::Link => return tokio::task::block_in_place(|| self.cut_links(pairs)),
            Form::Leader => {
                let ensemble = self.servers.ensemble()?;
                let leader = ensemble.leader().await?;
                ensemble.kill(leader);
                let end = observer::commits(self.servers.listeners(&self.network)?, LIMIT).await?;
                self.servers.ensemble()?.server_mut(leader).begin_restart()?;
                return Ok(vec![end - start; pairs.len()]);
            }
            _ => self.servers.pause()?,
        }
        let length = pairs.first().map(Pair::length).unwrap_or_default();
        tokio::time::sleep((start + length).saturating_sub(clock::now())).await;
        self.servers.resume()?;
        let end = observer::commits(self.servers.listeners(&self.network)?, LIMIT).await?;
        Ok(vec![end - start; pairs.len()])
    }

    /// Cuts the link of each first one for a time of its own, all at once.
    fn cut_links(&self, pairs: &[Pair]) -> Result<Vec<Duration>> {
        let runtime = tokio::runtime::Handle::current();
        std::thread::scope(|scope| {
            let cut = |(index, pair): (usize, &Pair)| {
                let (length, runtime) = (pair.length(), runtime.clone());
                scope.spawn(move || self.cut_link(self.host_of(index), length, &runtime))
            };
            let cuts: Vec<_> = pairs.iter().enumerate().map(cut).collect();
            cuts.into_iter().map(|cut| cut.join().ok().context("a thread has panicked")?).collect()
        })
    }

    fn cut_link(
        &self,
        host: usize,
        length: Duration,
        runtime: &tokio::runtime::Handle,
    ) -> Result<Duration> {
        let servers: Vec<usize> = (0..self.place.servers()).collect();
        let start = clock::now();
        self.network.isolate(host, &servers)?;
        std::thread::sleep((start + length).saturating_sub(clock::now()));
        self.network.rejoin(host, &servers)?;
        let listeners = self.servers.listeners_from(self.network.host(host))?;
        Ok(runtime.block_on(observer::commits(listeners, LIMIT))? - start)
    }
}

impl Pair {
    fn length(&self) -> Duration {
        SESSION * self.hundredths / 100
    }

    /// Waits until it is seen what became of it, and whether that is right. `end`: when the outage was
    /// over. `must`: whether the first one must go on, if that is known.
    async fn end(mut self, end: Duration, must: Option<bool>, ledger: &Path) -> Result<bool> {
        let token = word_after(&self.first.stdout(), "HELD").context("no token")?;
        let goes_on = loop {
            let why_lost = self.why_lost()?;
            let wrote = Ledger::entries(ledger)?;
            let last = wrote.iter().rev().find(|entry| entry.token == token);
            match (why_lost, last) {
                (Some(why), _) => {
                    ensure!(why.contains("session"), "it is lost for another reason: {why}");
                    break false;
                }
                (None, Some(last)) if last.at > end => break true,
                _ => {}
            }
            ensure!(clock::now() < end + LIMIT, "neither goes on nor is lost: {}", self.tails());
            tokio::time::sleep(POLL).await;
        };
        if !goes_on {
            self.second.prints(" WROTE", LIMIT).await?;
        }

        let granted = word_after(&self.second.stdout(), "GRANTED");
        let entries = Ledger::entries(ledger)?;
        judge(&entries, &token, granted.as_deref(), goes_on)?;
        match must {
            Some(true) if !goes_on => bail!("BROKEN: it is lost although the session lived"),
            Some(false) if goes_on => bail!("BROKEN: it goes on although the session is over"),
            _ => Ok(goes_on),
        }
    }

    /// Why the first one is lost; `None`: it is not.
    fn why_lost(&mut self) -> Result<Option<String>> {
        if self.kind == Kind::Jeopardy {
            let status = self.first.status()?;
            ensure!(status.is_none(), "it has ended: {}", self.first.tail());
            let said = self.first.stdout();
            let gone = said.lines().find_map(|line| line.split_once(" GONE "));
            return Ok(gone.map(|(_, why)| why.to_lowercase()));
        }
        let Some(status) = self.first.status()? else { return Ok(None) };
        ensure!(status.code() == Some(79), "{status}: {}", self.first.tail());
        let said = self.first.stderr();
        let line = said.lines().find(|line| line.contains("is lost"));
        Ok(Some(line.context("no reason")?.to_owned()))
    }

    fn tails(&self) -> String {
        format!("{}\n{}", self.first.tail(), self.second.tail())
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

/// This program as one of the two who use the library.
fn program(role: &str, site: &Site, lock: &str, ledger: &Path) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(role).arg(&site.connect).arg(lock).arg(ledger);
    Ok(command)
}

/// The one who holds first. Arguments: `CONNECT PATH LEDGER`.
pub(crate) async fn first(arguments: &[String]) -> Result<()> {
    let [servers, path, ledger] = arguments else { bail!("arguments: CONNECT PATH LEDGER") };
    let client = Client::builder().session_timeout(SESSION).connect(servers).await?;
    let guard = Mutex::new(&client, path)?.acquire().await?;
    let token = guard.token().to_u128().to_string();
    let mut ledger = Ledger::open(Path::new(ledger))?;
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

/// The one who waits. Arguments: `CONNECT PATH LEDGER`.
pub(crate) async fn second(arguments: &[String]) -> Result<()> {
    let [servers, path, ledger] = arguments else { bail!("arguments: CONNECT PATH LEDGER") };
    let client = Client::builder().connect(servers).await?;
    let lock = Mutex::new(&client, path)?;
    let mut ledger = Ledger::open(Path::new(ledger))?;
    let guard = loop {
        let mut waiting = std::pin::pin!(lock.acquire());
        tokio::select! {
            biased;
            guard = &mut waiting => if let Ok(guard) = guard { break guard },
            () = in_line(&client, path) => {
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

/// Waits until two are in line.
async fn in_line(client: &Client, path: &str) {
    let Ok(path) = path.parse() else { return };
    loop {
        if client.children(&path).await.is_ok_and(|(children, _)| children.len() >= 2) {
            return;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// The command under `lockkeeper run`. Arguments: `LEDGER`.
pub(crate) fn write(arguments: &[String]) -> Result<()> {
    let [ledger] = arguments else { bail!("arguments: LEDGER") };
    let token = std::env::var("LOCKKEEPER_TOKEN")?;
    let mut ledger = Ledger::open(Path::new(ledger))?;
    say(clock::now(), &format!("HELD {token}"));
    loop {
        ledger.write(&token)?;
        std::thread::sleep(PACE);
    }
}

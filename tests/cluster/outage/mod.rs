//! How long a service may be away before a holder loses its lock, measured from outside.
//!
//! The servers are `lockkeeper serve`, the machine-local engine, and three Apache ZooKeeper servers
//! on hosts of their own (network namespaces). They are stopped, killed, or cut off for a while,
//! under guards of the library and commands of `lockkeeper run` that know nothing of it. The suite
//! knows session timeouts and the servers' tick, and none of the arithmetic of leases: what was
//! lost is compared with what `promise.rs` says, and every outage that is shorter than promised
//! must have ended nothing.
//!
//! In another part, two contend for each lock, and the first one rides out outages of every length:
//! only one of them writes at a time, to a table that checks tokens.
//!
//! In a last part, the leader and the followers of an ensemble are killed one after the other,
//! with a waiting contender for each lock: nothing may be lost, and no two may hold. Apache Curator
//! holds a lock beside ours.
//!
//! As a test, timeouts of 4 and 6 s see one outage of each form, just shorter than promised, and
//! three leaders and three followers are killed. `cargo xtask outage` runs all of it and writes
//! `docs/guarantees/outage.md`.

mod forms;
pub(crate) mod guard;
mod holders;
mod kills;
mod ledger;
mod observer;
mod probe;
pub(crate) mod programs;
mod promise;
mod report;
pub(crate) mod rivals;
mod servers;
mod stall;
mod stand;
mod timeout;

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_tests::{choose, read_options};

use crate::outage::forms::{Form, Place};
use crate::outage::holders::Kind;
use crate::outage::kills::{Kills, Program};
use crate::outage::probe::{Depth, Findings, Probe};
use crate::outage::promise::{RUN_AT_DEFAULTS, promised};
use crate::outage::rivals::Outcome;
use crate::outage::timeout::Timeout;

/// What `cargo xtask outage` starts.
pub(crate) async fn run(arguments: &[String]) -> Result<()> {
    Plan::parse(arguments)?.run().await
}

pub(crate) async fn short_probe() -> Result<()> {
    let (places, forms) = (Place::ALL.to_vec(), Form::ALL.to_vec());
    let timeouts = vec![Timeout::Seconds(4), Timeout::Seconds(6)];
    let probe = Probe { places, forms, timeouts, depth: Depth::Short };
    Plan { probe: Some(probe), ..Plan::default() }.run().await
}

pub(crate) async fn short_rivals() -> Result<()> {
    Plan { rivals: Place::ALL.to_vec(), ..Plan::default() }.run().await
}

pub(crate) async fn short_kills() -> Result<()> {
    Plan { kills: Some(3), ..Plan::default() }.run().await
}

/// What the command line asks for.
#[derive(Default)]
struct Plan {
    probe: Option<Probe>,
    /// Where two contend for each lock through outages.
    rivals: Vec<Place>,
    /// How many leaders are killed, and how many followers.
    kills: Option<u32>,
    /// Where the page goes.
    docs: Option<PathBuf>,
}

impl Plan {
    fn parse(arguments: &[String]) -> Result<Self> {
        let (mut rounds, mut kills, mut docs, mut rivals) = (1, 20, None, true);
        let (mut places, mut forms) = (Place::ALL.to_vec(), Form::ALL.to_vec());
        let mut timeouts = [4, 6, 10, 20].map(Timeout::Seconds).to_vec();
        timeouts.push(Timeout::Default);
        read_options(arguments, |option, value| {
            match option {
                "--rounds" => rounds = value.parse()?,
                "--kills" => kills = value.parse()?,
                "--rivals" => rivals = value.parse()?,
                "--docs" => docs = Some(value.into()),
                "--place" => places = choose(value, &Place::ALL, |place| place.name())?,
                "--form" => forms = choose(value, &Form::ALL, |form| form.name())?,
                "--timeout" => timeouts = value.split(',').map(timeout).collect::<Result<_>>()?,
                _ => bail!("there is no such option"),
            }
            Ok(())
        })?;
        let depth = Depth::Long(rounds);
        let rivals = if rivals { places.clone() } else { Vec::new() };
        let probe = (rounds > 0).then_some(Probe { places, forms, timeouts, depth });
        Ok(Self { probe, rivals, kills: (kills > 0).then_some(kills), docs })
    }

    async fn run(&self) -> Result<()> {
        let needed = match self.kills {
            Some(_) => vec![Peer::ZooKeeper, Peer::Network, Peer::Curator],
            None => vec![Peer::ZooKeeper, Peer::Network],
        };
        if !peers::ready("outage", &needed) {
            return Ok(());
        }
        let findings = match &self.probe {
            Some(probe) => probe.run().await?,
            None => Findings::default(),
        };
        let rivals = rivals::run(&self.rivals).await?;
        let kills = match self.kills {
            Some(times) => Some(kills::run(times).await?),
            None => None,
        };

        if self.probe.is_some() {
            println!("\n{}", report::table(&findings.samples));
        }
        if let Some(kills) = &kills {
            println!("\n{}", report::table_of_kills(kills));
        }
        if let Some(docs) = &self.docs {
            report::write(docs, &findings.samples, &rivals, kills.as_ref())?;
        }
        judge(&findings)?;
        judge_rivals(&rivals)?;
        if self.probe.is_some() {
            judge_defaults().await?;
        }
        kills.as_ref().map_or(Ok(()), judge_kills)
    }
}

/// Every outage that is shorter than promised has ended nothing, and there were such outages.
fn judge(findings: &Findings) -> Result<()> {
    let broken = findings.samples.iter().filter(|sample| sample.breaks_the_promise());
    let broken = broken.map(report::line);
    let problems: Vec<_> = broken
        .chain(findings.failures.iter().cloned())
        .chain(report::not_judged(&findings.samples))
        .map(|problem| format!("\n  {problem}"))
        .collect();
    ensure!(problems.is_empty(), "{} problems:{}", problems.len(), problems.concat());
    Ok(())
}

fn judge_rivals(outcomes: &[Outcome]) -> Result<()> {
    let broken = outcomes.iter().filter(|outcome| outcome.problem.is_some());
    let broken: Vec<_> = broken.map(|outcome| format!("\n  {}", rivals::line(outcome))).collect();
    ensure!(broken.is_empty(), "{} pairs are wrong:{}", broken.len(), broken.concat());
    Ok(())
}

/// Whoever chooses nothing gets enough for the usual outage.
async fn judge_defaults() -> Result<()> {
    let session = Timeout::Default.of(Kind::Run).await?;
    for place in Place::ALL {
        for form in place.forms() {
            let promised = promised(place, session, Kind::Run);
            ensure!(
                promised >= RUN_AT_DEFAULTS,
                "by default ({session:?}) `run` is promised to survive {promised:?} of {}, less \
                 than {RUN_AT_DEFAULTS:?}",
                form.title()
            );
        }
    }
    Ok(())
}

/// Curator's figures are what they are; ours must be zero.
fn judge_kills(kills: &Kills) -> Result<()> {
    let ours = kills.records.iter().filter(|record| record.program != Program::Curator);
    let broken: Vec<_> = ours
        .filter(|record| record.is_lost || record.overlap > 0.0)
        .map(|record| format!("\n  {record:?}"))
        .collect();
    ensure!(
        broken.is_empty(),
        "{} holders have lost their locks:{}",
        broken.len(),
        broken.concat()
    );
    Ok(())
}

fn timeout(value: &str) -> Result<Timeout> {
    match value {
        "default" => Ok(Timeout::Default),
        seconds => Ok(Timeout::Seconds(seconds.parse()?)),
    }
}

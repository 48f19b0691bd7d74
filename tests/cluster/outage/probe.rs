//! Outages of many lengths, around what is promised.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use lockkeeper_testkit::clock;
use lockkeeper_tests::{all, name};
use tokio::task::JoinSet;

use super::holders::{Crowd, Group, HolderKind, default_timeout};
use super::promise::{RUN_AT_DEFAULTS, promised};
use super::stand::{Stalls, Stand};
use super::{OutageForm, OutageOptions, is_ready, report, side_by_side};
use crate::servers::Place;

/// How often an outage is tried that becomes longer or shorter than wanted.
const TRIES: u32 = 6;

/// How often holders that lose the lock without an outage, or never get it, are restarted: newly started Java servers
/// reply late.
const STARTS: u32 = 3;

/// A shared outage is not made again for another group if it would be longer by less than such a share.
const ALIKE: f64 = 0.03;

/// How long a write takes that an observer makes as soon as it can, before one was measured.
const USUAL_LAG: Duration = Duration::from_millis(80);

/// The last lease from before an outage has run out, and its holder knows it, this long after
/// a session timeout from the start of the outage.
const AFTERMATH: Duration = Duration::from_secs(1);

/// A length that is made from the promised one and the session timeout.
type Aim = fn(Duration, Duration) -> Duration;

const JUST_UNDER: Aim = |promised, _| promised.mul_f64(0.9);

const AIMS: [Aim; 6] = [
    JUST_UNDER,
    |promised, _| promised.saturating_sub(Duration::from_millis(150)),
    |promised, _| promised / 2,
    |promised, _| promised.mul_f64(1.2),
    |promised, _| promised.mul_f64(1.5),
    // Hardly a lease is as long: so it is seen where holders begin to lose.
    |_, session| session.mul_f64(0.95),
];

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) samples: Vec<Sample>,
    /// What could not be measured, and why.
    failures: Vec<String>,
}

/// What one outage did to a group of holders.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) place: Place,
    pub(super) form: OutageForm,
    pub(super) group: Group,
    /// From before the outage was caused until an observer's write was committed, plus the longest pause of
    /// the machine itself during that time.
    pub(super) outage: Duration,
    /// Whether the machine had too much other work for anyone to be judged.
    pub(super) is_busy: bool,
    /// What each of them has said that has lost what it held.
    pub(super) lost: Vec<String>,
}

impl Sample {
    pub(super) fn promised(&self) -> Duration {
        self.group.promised(self.place)
    }

    /// Whether the promise covers this outage.
    pub(super) fn counts(&self) -> bool {
        !self.is_busy && self.outage < self.promised()
    }

    pub(super) fn breaks_the_promise(&self) -> bool {
        self.counts() && !self.lost.is_empty()
    }
}

/// What `cargo test` starts.
pub(crate) async fn short() -> Result<()> {
    if !is_ready(&[]) {
        return Ok(());
    }
    let timeout = [4, 6].map(|seconds| Some(Duration::from_secs(seconds))).to_vec();
    let (place, form) = (all(), all());
    let options = OutageOptions { timeout, place, form, rounds: 1, kills: 0, rivals: false };
    Probe { options, is_long: false }.run().await?.judge()
}

/// What is measured. In the short form, each holder sees one outage that is a little shorter than promised.
#[derive(Clone)]
pub(super) struct Probe {
    pub(super) options: OutageOptions,
    pub(super) is_long: bool,
}

impl Probe {
    /// Makes all outages.
    pub(super) async fn run(&self) -> Result<Findings> {
        let (ensemble, engines): (Vec<_>, Vec<_>) =
            self.options.place.iter().partition(|place| **place == Place::Ensemble);
        let (engines, ensemble) = (self.at(engines), self.at(ensemble));
        let (mut findings, others) = match self.is_long {
            true => (engines.await?, ensemble.await?),
            // An engine takes next to nothing from the other place.
            false => tokio::try_join!(engines, ensemble)?,
        };
        findings.add(others);
        println!("\n{}", report::table(&findings.samples));
        Ok(findings)
    }

    /// Makes the outages of these places, one place after the other. An engine is small enough for each
    /// group to have its own, so that each sees outages of its own length; an ensemble is not.
    async fn at(&self, places: Vec<Place>) -> Result<Findings> {
        let mut findings = Findings::default();
        for place in places {
            let mut groups = Vec::new();
            for &timeout in &self.options.timeout {
                for kind in all() {
                    let session = timeout.map_or_else(|| default_timeout(kind), Ok)?;
                    groups.push(Group { kind, timeout, session });
                }
            }
            let shares = if place == Place::Ensemble { groups.len() } else { 1 };
            let mut stands = JoinSet::new();
            for groups in groups.chunks(shares) {
                stands.spawn(self.clone().drive(place, groups.to_vec()));
            }
            stands.join_all().await.into_iter().for_each(|found| findings.add(found));
        }
        Ok(findings)
    }

    /// Makes all outages of a stand.
    async fn drive(self, place: Place, groups: Vec<Group>) -> Findings {
        let mut findings = Findings::default();
        let mut crowds = match Crowds::start(place, groups).await {
            Ok(crowds) => crowds,
            Err(error) => {
                findings.failures.push(format!("{}: {error:#}", name(place)));
                return findings;
            }
        };
        for &form in OutageForm::of(place).iter().filter(|form| self.takes(place, **form)) {
            for _ in 0..self.options.rounds {
                for aimed in self.outages(&crowds, form) {
                    findings.note(place, form, crowds.hit(form, &aimed).await);
                }
            }
        }
        findings
    }

    /// Three servers in Java start too slowly for the short form to learn anything from it.
    fn takes(&self, place: Place, form: OutageForm) -> bool {
        let is_slow = (place, form) == (Place::Ensemble, OutageForm::Restarted);
        self.options.form.contains(&form) && (self.is_long || !is_slow)
    }

    /// The outages of a round: how long each is to be, for the promise of which group. One for all groups
    /// where each sees its own, and else those that are not alike.
    fn outages(&self, crowds: &Crowds, form: OutageForm) -> Vec<Vec<(usize, Duration)>> {
        let place = crowds.stand.place;
        if !form.has_chosen_length(place) {
            return vec![Vec::new(); if self.is_long { 5 } else { 1 }];
        }
        let aims = if self.is_long { &AIMS[..] } else { &[JUST_UNDER] };
        let aimed = |aim: &Aim| -> Vec<(usize, Duration)> {
            let promises = crowds.groups.iter().map(|group| (group.promised(place), group.session));
            promises.map(|(promised, session)| aim(promised, session)).enumerate().collect()
        };
        if form == OutageForm::Link || crowds.groups.len() == 1 {
            return aims.iter().map(aimed).collect();
        }

        let mut outages: Vec<Vec<(usize, Duration)>> = Vec::new();
        for (index, length) in aims.iter().flat_map(aimed) {
            // An outage that is too long for the guard of one timeout is right for `run` of the next.
            let alike = length.mul_f64(1.0 - ALIKE)..=length;
            let is_target = self.is_long || crowds.groups[index].kind == HolderKind::Guard;
            if is_target && !outages.iter().any(|made| alike.contains(&made[0].1)) {
                outages.push(vec![(index, length)]);
            }
        }
        outages
    }
}

impl Findings {
    fn add(&mut self, others: Self) {
        self.samples.extend(others.samples);
        self.failures.extend(others.failures);
    }

    /// Takes what outages have shown, or why they have not.
    fn note(&mut self, place: Place, form: OutageForm, found: Result<Vec<Sample>>) {
        match found {
            Ok(samples) => self.samples.extend(samples),
            Err(error) => {
                let failure = format!("{}, {}: {error:#}", name(place), name(form));
                println!("{failure}");
                self.failures.push(failure);
            }
        }
    }

    /// No outage shorter than promised has ended a hold, there were such outages, and the defaults
    /// are enough for the usual outage.
    pub(super) fn judge(&self) -> Result<()> {
        let broken = self.samples.iter().filter(|sample| sample.breaks_the_promise());
        let problems = broken.map(report::line).chain(self.failures.iter().cloned());
        let problems = problems.chain(report::not_judged(&self.samples));
        let problems: Vec<_> = problems.map(|problem| format!("\n  {problem}")).collect();
        ensure!(problems.is_empty(), "{} problems:{}", problems.len(), problems.concat());

        let session = default_timeout(HolderKind::Run)?;
        for place in all::<Place>() {
            let promised = promised(place, session, HolderKind::Run);
            ensure!(
                promised >= RUN_AT_DEFAULTS,
                "by default ({session:?}) `run` is promised to survive {promised:?}, less than \
                 {RUN_AT_DEFAULTS:?}, of an outage of {}",
                name(place)
            );
        }
        Ok(())
    }
}

/// Servers, and groups of holders, each on a host of its own.
struct Crowds {
    stand: Stand,
    groups: Vec<Group>,
    outages: u32,
    /// For each form and group, the last duration from the end of the fault to a committed
    /// write. For forms that concern all groups, it is stored for the first one.
    lags: BTreeMap<(OutageForm, usize), Duration>,
}

impl Crowds {
    async fn start(place: Place, groups: Vec<Group>) -> Result<Self> {
        let begin = clock::now();
        let stand = Stand::start(place, groups.len()).await?;
        let lags = BTreeMap::from([((OutageForm::Restarted, 0), clock::now() - begin)]);
        Ok(Self { stand, groups, outages: 0, lags })
    }

    /// Makes an outage of these lengths for these groups; again if it became much shorter, or so long that
    /// the promise does not cover it although it should, or if the machine was busy.
    async fn hit(&mut self, form: OutageForm, aimed: &[(usize, Duration)]) -> Result<Vec<Sample>> {
        let lengths: Vec<_> = aimed.iter().map(|(_, length)| *length).collect();
        let mut samples = Vec::new();
        for _ in 0..TRIES {
            let found = self.outage(form, &lengths).await?;
            let are_hit = aimed.iter().all(|(index, aimed)| {
                let sample = &found[*index];
                let (outage, promise) = (sample.outage, sample.promised());
                let is_on_the_right_side = *aimed >= promise || outage < promise;
                is_on_the_right_side && outage > aimed.mul_f64(0.8) && !sample.is_busy
            });
            samples.extend(found);
            if are_hit {
                return Ok(samples);
            }
        }
        println!("{}, {}: no outage was as long as wanted", name(self.stand.place), name(form));
        Ok(samples)
    }

    /// Makes one outage of these lengths, one for each group, under holders that are new and spread
    /// over their heartbeats. Where all groups see the same outage, the first length counts. Where
    /// no length can be chosen, none does.
    async fn outage(&mut self, form: OutageForm, lengths: &[Duration]) -> Result<Vec<Sample>> {
        self.stand.servers.settle().await?;
        let longest = self.groups.iter().map(|group| group.session).max().unwrap_or_default();
        let mut crowds = self.all_hold(heartbeat(longest)).await?;

        let stalls = Stalls::watch();
        let start = clock::now();
        // While servers are back but do not commit writes yet, the outage continues. At most half of
        // it is planned for that: one slow start says little about the next one.
        let lengths = lengths.iter().enumerate().map(|(index, length)| {
            let lag = self.lags.get(&(form, index)).copied().unwrap_or(USUAL_LAG);
            *length - lag.min(*length / 2)
        });
        let lengths: Vec<_> = lengths.collect();
        let outages = self.stand.strike(form, &lengths).await?;
        for (index, outage) in outages.iter().enumerate() {
            self.lags.insert((form, index), outage.lag);
        }
        let stall = stalls.longest();
        // A fixed time: holders that remain after it have proven their leases again.
        // A holder in jeopardy knows the result when the servers are back.
        let end = (start + longest).max(clock::now() + longest / 8) + AFTERMATH;
        tokio::time::sleep(end.saturating_sub(clock::now())).await;

        let (place, is_busy) = (self.stand.place, stalls.is_busy());
        let mut samples = Vec::new();
        for (index, crowd) in crowds.iter_mut().enumerate() {
            let outage = outages.get(index).unwrap_or(&outages[0]).length + stall;
            let (group, lost) = (crowd.group, crowd.lost()?);
            let sample = Sample { place, form, group, outage, is_busy, lost };
            println!("{}", report::line(&sample));
            samples.push(sample);
        }
        Ok(samples)
    }

    /// Starts holders, and waits for a random part of a heartbeat.
    async fn all_hold(&mut self, heartbeat: Duration) -> Result<Vec<Crowd>> {
        let mut tries = 1;
        loop {
            match self.gather(heartbeat).await {
                Ok(crowds) => return Ok(crowds),
                Err(error) if tries == STARTS => {
                    return Err(error.context("the servers or this machine are too slow"));
                }
                Err(error) => {
                    println!("{}: holders are started again: {error:#}", name(self.stand.place));
                    tries += 1;
                }
            }
        }
    }

    async fn gather(&mut self, wait: Duration) -> Result<Vec<Crowd>> {
        self.outages += 1;
        let (place, outage) = (self.stand.place, self.outages);
        let crowds = self.groups.iter().enumerate().map(|(index, &group)| {
            let lock = format!("outage/{outage}-{index}");
            Crowd::gather(self.stand.site(index), place, group, lock, heartbeat(group.session))
        });
        let crowds = side_by_side(crowds).await.into_iter();
        let mut crowds = crowds.collect::<Result<Vec<Crowd>>>()?;

        tokio::time::sleep(wait.mul_f64(fastrand::f64())).await;
        for crowd in &mut crowds {
            let lost = crowd.lost()?.len();
            ensure!(lost == 0, "{lost} lost what they held although nothing was wrong");
        }
        Ok(crowds)
    }
}

/// The longest time between two heartbeats of a holder: the phases that outages should begin in.
fn heartbeat(session: Duration) -> Duration {
    session / 3
}

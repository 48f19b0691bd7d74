//! Outages of many lengths, around what is promised.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use lockkeeper_testkit::clock;
use lockkeeper_tests::{all, name};
use tokio::task::JoinSet;

use super::holders::{Crowd, Group, HolderKind, Timeout};
use super::promise::{RUN_AT_DEFAULTS, promised};
use super::stand::{Stalls, Stand};
use super::{OutageForm, OutageOptions, is_ready, report};
use crate::servers::Place;

/// How often an outage is tried that becomes longer or shorter than wanted.
const TRIES: u32 = 6;

/// How often holders are started who lose without an outage, or never hold: servers in Java that were just started
/// answer late.
const STARTS: u32 = 3;

/// A shared outage is not made again for another group if it would be longer by less than such a share.
const ALIKE: f64 = 0.03;

/// How many holders share an outage: in so many phases of the heartbeat it begins.
const HOLDERS: u32 = 8;

/// How long a write takes that an observer makes as soon as it can, before one was measured.
const USUAL_LAG: Duration = Duration::from_millis(80);

/// The last lease from before an outage has run out, and its holder has been told, so much later
/// than a session timeout after the outage began.
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

/// What is measured.
#[derive(Clone)]
pub(super) struct Probe {
    places: Vec<Place>,
    forms: Vec<OutageForm>,
    timeouts: Vec<Timeout>,
    /// How often there are outages of all lengths; `None`: each holder sees one outage that is a little
    /// shorter than promised.
    rounds: Option<u32>,
}

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
    /// From before it was made until an observer had a write committed, plus the longest time for
    /// which the machine itself stood still meanwhile.
    pub(super) outage: Duration,
    /// Whether the machine had too much other work for anyone to be judged.
    pub(super) is_busy: bool,
    pub(super) lost: u32,
    /// What one that has lost said.
    pub(super) complaint: String,
}

impl Sample {
    pub(super) fn promised(&self) -> Duration {
        promised(self.place, self.group.session, self.group.kind)
    }

    /// Whether the promise covers this outage.
    pub(super) fn counts(&self) -> bool {
        !self.is_busy && self.outage < self.promised()
    }

    pub(super) fn breaks_the_promise(&self) -> bool {
        self.counts() && self.lost > 0
    }
}

/// What `cargo test` starts.
pub(crate) async fn short() -> Result<()> {
    if !is_ready(&[]) {
        return Ok(());
    }
    let timeouts = vec![Timeout::Seconds(4), Timeout::Seconds(6)];
    Probe { places: all(), forms: all(), timeouts, rounds: None }.run().await?.judge().await
}

impl Probe {
    pub(super) fn long(options: &OutageOptions) -> Self {
        let OutageOptions { place, form, timeout, rounds, .. } = options;
        let (places, forms, timeouts) = (place.clone(), form.clone(), timeout.clone());
        Self { places, forms, timeouts, rounds: Some(*rounds) }
    }

    /// Makes all outages.
    pub(super) async fn run(&self) -> Result<Findings> {
        let (ensemble, engines): (Vec<_>, Vec<_>) =
            self.places.iter().partition(|place| **place == Place::Ensemble);
        let mut findings = Findings::default();
        match self.rounds {
            // An engine takes next to nothing from the other place.
            None => {
                let (found, others) = tokio::try_join!(self.at(engines), self.at(ensemble))?;
                findings.add(found);
                findings.add(others);
            }
            Some(_) => findings.add(self.at(self.places.clone()).await?),
        }
        println!("\n{}", report::table(&findings.samples));
        Ok(findings)
    }

    /// Makes the outages of these places, one place after the other. An engine is small enough for each
    /// group to have its own, so that each sees outages of its own length; an ensemble is not.
    async fn at(&self, places: Vec<Place>) -> Result<Findings> {
        let mut findings = Findings::default();
        for place in places {
            let mut groups = Vec::new();
            for &timeout in &self.timeouts {
                for kind in HolderKind::ALL {
                    let session = timeout.of(kind).await?;
                    groups.push(Group { kind, timeout, session, size: HOLDERS });
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
            if !form.has_chosen_length(place) {
                for _ in 0..self.rounds.map_or(1, |rounds| 5 * rounds) {
                    findings.note(place, form, crowds.outage(form, &[]).await);
                }
                continue;
            }
            for _ in 0..self.rounds.unwrap_or(1) {
                for (aim, targets) in self.targets(&crowds, form) {
                    findings.note(place, form, crowds.hit(form, aim, &targets).await);
                }
            }
        }
        findings
    }

    /// Three servers in Java start too slowly for the short form to learn anything from it.
    fn takes(&self, place: Place, form: OutageForm) -> bool {
        let is_slow = (place, form) == (Place::Ensemble, OutageForm::Restarted);
        self.forms.contains(&form) && (self.rounds.is_some() || !is_slow)
    }

    /// The outages of a round: how long each is, and for the promises of which groups. One for all groups
    /// where each sees its own, and else those that are not alike.
    fn targets(&self, crowds: &Crowds, form: OutageForm) -> Vec<(Aim, Vec<usize>)> {
        let aims = if self.rounds.is_some() { &AIMS[..] } else { &[JUST_UNDER] };
        let groups = &crowds.groups;
        if form == OutageForm::Link || groups.len() == 1 {
            return aims.iter().map(|aim| (*aim, (0..groups.len()).collect())).collect();
        }
        let mut lengths: Vec<Duration> = Vec::new();
        let mut targets = Vec::new();
        for &aim in aims {
            for (index, group) in groups.iter().enumerate() {
                // An outage that is too long for the guard of one timeout is right for `run` of the next.
                let length = crowds.aimed(aim, group);
                let alike = length.mul_f64(1.0 - ALIKE)..=length;
                let is_target = self.rounds.is_some() || group.kind == HolderKind::Guard;
                if is_target && !lengths.iter().any(|made| alike.contains(made)) {
                    lengths.push(length);
                    targets.push((aim, vec![index]));
                }
            }
        }
        targets
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

    /// Every outage that is shorter than promised has ended nothing, there were such outages, and whoever
    /// chooses nothing gets enough for the usual outage.
    pub(super) async fn judge(&self) -> Result<()> {
        let broken = self.samples.iter().filter(|sample| sample.breaks_the_promise());
        let problems = broken.map(report::line).chain(self.failures.iter().cloned());
        let problems = problems.chain(report::not_judged(&self.samples));
        let problems: Vec<_> = problems.map(|problem| format!("\n  {problem}")).collect();
        ensure!(problems.is_empty(), "{} problems:{}", problems.len(), problems.concat());

        let session = Timeout::Default.of(HolderKind::Run).await?;
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
    /// For each form and group, how long it took at last from the end of the fault to a committed
    /// write. What concerns all groups is noted for the first one.
    lags: BTreeMap<(OutageForm, usize), Duration>,
}

impl Crowds {
    async fn start(place: Place, groups: Vec<Group>) -> Result<Self> {
        let begin = clock::now();
        let stand = Stand::start(place, groups.len()).await?;
        let lags = BTreeMap::from([((OutageForm::Restarted, 0), clock::now() - begin)]);
        Ok(Self { stand, groups, outages: 0, lags })
    }

    fn aimed(&self, aim: Aim, group: &Group) -> Duration {
        aim(promised(self.stand.place, group.session, group.kind), group.session)
    }

    /// Makes an outage of the wanted length for each of the targets; again if it became much shorter,
    /// or so long that the promise does not cover it although it should, or if the machine was busy.
    async fn hit(&mut self, form: OutageForm, aim: Aim, targets: &[usize]) -> Result<Vec<Sample>> {
        let aimed: Vec<_> = self.groups.iter().map(|group| self.aimed(aim, group)).collect();
        let lengths = match form {
            OutageForm::Link => aimed.clone(),
            _ => targets.iter().map(|target| aimed[*target]).collect(),
        };
        let mut samples = Vec::new();
        for _ in 0..TRIES {
            let found = self.outage(form, &lengths).await?;
            let is_hit = |index: &usize| {
                let (aimed, sample) = (aimed[*index], &found[*index]);
                let (outage, promise) = (sample.outage, sample.promised());
                let is_on_the_right_side = aimed >= promise || outage < promise;
                is_on_the_right_side && outage > aimed.mul_f64(0.8) && !sample.is_busy
            };
            let are_hit = targets.iter().all(is_hit);
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
        let mut crowds = self.gather_and_wait(heartbeat(longest)).await?;

        let stalls = Stalls::watch();
        let start = clock::now();
        // Where servers are back, but do not commit writes yet, the outage goes on. No more than half of
        // it is left to that: a start that was slow once says little of the next one.
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
        // Not a wait for something: whoever is there after this has proven its lease anew.
        // Whoever rides it out knows how it ended when it is back.
        let end = (start + longest).max(clock::now() + longest / 8) + AFTERMATH;
        tokio::time::sleep(end.saturating_sub(clock::now())).await;

        let (place, is_busy) = (self.stand.place, stalls.is_busy());
        let mut samples = Vec::new();
        for (index, crowd) in crowds.iter_mut().enumerate() {
            let outage = outages.get(index).unwrap_or(&outages[0]).length + stall;
            let (group, lost) = (crowd.group, crowd.lost()?);
            let complaint = if lost > 0 { crowd.complaint() } else { String::new() };
            let sample = Sample { place, form, group, outage, is_busy, lost, complaint };
            println!("{}", report::line(&sample));
            samples.push(sample);
        }
        Ok(samples)
    }

    /// Starts holders, and waits for a random part of a heartbeat.
    async fn gather_and_wait(&mut self, heartbeat: Duration) -> Result<Vec<Crowd>> {
        let mut tries = 1;
        loop {
            let attempt = match self.gather().await {
                Ok(mut crowds) => {
                    tokio::time::sleep(heartbeat.mul_f64(fastrand::f64())).await;
                    let lost: Result<Vec<u32>> = crowds.iter_mut().map(Crowd::lost).collect();
                    match lost?.iter().sum() {
                        0 => return Ok(crowds),
                        lost => anyhow!("{lost} lost what they held although nothing was wrong"),
                    }
                }
                Err(error) => error,
            };
            if tries == STARTS {
                return Err(attempt.context("the servers or this machine are too slow"));
            }
            println!("{}: holders are started again: {attempt:#}", name(self.stand.place));
            tries += 1;
        }
    }

    async fn gather(&mut self) -> Result<Vec<Crowd>> {
        self.outages += 1;
        let mut gathering = JoinSet::new();
        for (index, &group) in self.groups.iter().enumerate() {
            let lock = format!("outage/{}-{index}", self.outages);
            let (site, spread) = (self.stand.site(index), heartbeat(group.session));
            let gathered = Crowd::gather(site, self.stand.place, group, lock, spread);
            gathering.spawn(async move { (index, gathered.await) });
        }
        let mut crowds = gathering.join_all().await;
        crowds.sort_by_key(|(index, _)| *index);
        crowds.into_iter().map(|(_, crowd)| crowd).collect()
    }
}

/// The longest time between two heartbeats of a holder: the phases that outages should begin in.
fn heartbeat(session: Duration) -> Duration {
    session / 3
}

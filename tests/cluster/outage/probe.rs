//! Outages of many lengths, around what is promised.

use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;

use crate::outage::forms::{Form, Place};
use crate::outage::holders::{Group, Kind};
use crate::outage::promise::promised;
use crate::outage::report;
use crate::outage::stand::{Sample, Stand};
use crate::outage::timeout::Timeout;

/// How often an outage is tried that becomes longer or shorter than wanted.
const TRIES: u32 = 3;

/// A shared outage is not made again for another group if it would be longer by less than such a share.
const ALIKE: f64 = 0.03;

/// A length that is made from the promised one and the session timeout.
type Aim = fn(Duration, Duration) -> Duration;

/// What is measured.
pub(crate) struct Probe {
    pub(crate) places: Vec<Place>,
    pub(crate) forms: Vec<Form>,
    pub(crate) timeouts: Vec<Timeout>,
    pub(crate) depth: Depth,
}

/// How much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Each holder sees one outage that is a little shorter than promised.
    Short,
    /// Outages of many lengths, so many times each.
    Long(u32),
}

impl Depth {
    fn aims(self) -> &'static [Aim] {
        const JUST_UNDER: Aim = |promised, _| promised.mul_f64(0.9);
        const ROUND: [Aim; 6] = [
            JUST_UNDER,
            |promised, _| promised.saturating_sub(Duration::from_millis(150)),
            |promised, _| promised / 2,
            |promised, _| promised.mul_f64(1.2),
            |promised, _| promised.mul_f64(1.5),
            // Hardly a lease is as long: so it is seen where holders begin to lose.
            |_, session| session.mul_f64(0.95),
        ];
        match self {
            Self::Short => &[JUST_UNDER],
            Self::Long(_) => &ROUND,
        }
    }

    fn rounds(self) -> u32 {
        match self {
            Self::Short => 1,
            Self::Long(rounds) => rounds,
        }
    }

    /// How many outages there are of a form whose length cannot be chosen.
    fn repeats(self) -> u32 {
        match self {
            Self::Short => 1,
            Self::Long(rounds) => 5 * rounds,
        }
    }

    /// How many holders share an outage: in so many phases of the heartbeat it begins.
    fn holders(self) -> u32 {
        8
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) samples: Vec<Sample>,
    /// What could not be measured, and why.
    pub(crate) failures: Vec<String>,
}

impl Probe {
    /// Makes all outages.
    pub(crate) async fn run(&self) -> Result<Findings> {
        let (ensemble, alone): (Vec<_>, Vec<_>) =
            self.places.iter().partition(|place| **place == Place::Ensemble);
        match self.depth {
            // An engine takes next to nothing from the other place.
            Depth::Short => {
                let (mut findings, others) = tokio::try_join!(self.at(alone), self.at(ensemble))?;
                findings.add(others);
                Ok(findings)
            }
            Depth::Long(_) => self.at(self.places.clone()).await,
        }
    }

    /// Makes the outages of these places, one place after the other.
    async fn at(&self, places: Vec<Place>) -> Result<Findings> {
        let mut findings = Findings::default();
        for place in places {
            let forms = place.forms().iter().filter(|form| self.forms.contains(form));
            let forms: Vec<Form> = forms.copied().filter(|form| self.takes(place, *form)).collect();
            let mut stands = JoinSet::new();
            for groups in share(place, self.groups().await?) {
                stands.spawn(drive(place, groups, forms.clone(), self.depth));
            }
            while let Some(found) = stands.join_next().await {
                findings.add(found?);
            }
        }
        Ok(findings)
    }

    /// Three servers in Java start too slowly for the short form to learn anything from it.
    fn takes(&self, place: Place, form: Form) -> bool {
        let is_slow = place == Place::Ensemble && form == Form::Restarted;
        self.depth != Depth::Short || !is_slow
    }

    async fn groups(&self) -> Result<Vec<Group>> {
        let mut groups = Vec::new();
        for timeout in self.timeouts.iter().copied() {
            for kind in Kind::ALL {
                let session = timeout.of(kind).await?;
                groups.push(Group { kind, timeout, session, size: self.depth.holders() });
            }
        }
        Ok(groups)
    }
}

/// Which groups share their servers. An engine is small enough for each group to have its own, so
/// that each sees outages of its own length; an ensemble is not.
fn share(place: Place, groups: Vec<Group>) -> Vec<Vec<Group>> {
    match place {
        Place::Engine | Place::Local => groups.into_iter().map(|group| vec![group]).collect(),
        Place::Ensemble => vec![groups],
    }
}

impl Findings {
    fn add(&mut self, others: Self) {
        self.samples.extend(others.samples);
        self.failures.extend(others.failures);
    }

    /// Takes what outages have shown, or why they have not.
    fn note(&mut self, place: Place, form: Form, found: Result<Vec<Sample>>) {
        match found {
            Ok(samples) => self.samples.extend(samples),
            Err(error) => {
                let failure = format!("{}, {}: {error:#}", place.name(), form.name());
                println!("{failure}");
                self.failures.push(failure);
            }
        }
    }
}

/// Makes all outages of a stand.
async fn drive(place: Place, groups: Vec<Group>, forms: Vec<Form>, depth: Depth) -> Findings {
    let mut findings = Findings::default();
    let mut stand = match Stand::start(place, groups).await {
        Ok(stand) => stand,
        Err(error) => {
            findings.failures.push(format!("{}: {error:#}", place.name()));
            return findings;
        }
    };
    for form in forms {
        if !form.has_chosen_length(place) {
            for _ in 0..depth.repeats() {
                let found = stand.outage(form, &[]).await.map(made);
                findings.note(place, form, found);
            }
            continue;
        }
        for _ in 0..depth.rounds() {
            for (aim, target) in targets(&stand, form, depth) {
                let found = hit(&mut stand, form, aim, &target).await;
                findings.note(place, form, found);
            }
        }
    }
    findings
}

/// The outages of a round: how long each is, and for the promises of which groups. One for all groups
/// where each sees its own, and else those that are not alike.
fn targets(stand: &Stand, form: Form, depth: Depth) -> Vec<(Aim, Vec<usize>)> {
    let aims = depth.aims().iter().copied();
    let all = 0..stand.groups.len();
    if form == Form::Link || all.len() == 1 {
        return aims.map(|aim| (aim, all.clone().collect())).collect();
    }
    // An outage that is too long for the guard of one timeout is right for `run` of the next.
    let is_target =
        |index: &usize| depth != Depth::Short || stand.groups[*index].kind == Kind::Guard;
    let mut lengths: Vec<Duration> = Vec::new();
    let mut targets = Vec::new();
    for aim in aims {
        for index in all.clone().filter(is_target) {
            let Group { kind, session, .. } = stand.groups[index];
            let length = aim(promised(stand.place(), session, kind), session);
            let alike = length.mul_f64(1.0 - ALIKE)..=length;
            if !lengths.iter().any(|made| alike.contains(made)) {
                lengths.push(length);
                targets.push((aim, vec![index]));
            }
        }
    }
    targets
}

/// Makes an outage of the wanted length for each of the targets; again if it became much shorter,
/// or so long that the promise does not cover it although it should, or if the machine was busy.
async fn hit(stand: &mut Stand, form: Form, aim: Aim, targets: &[usize]) -> Result<Vec<Sample>> {
    let promises: Vec<_> = stand
        .groups
        .iter()
        .map(|group| promised(stand.place(), group.session, group.kind))
        .collect();
    let aimed: Vec<_> = stand
        .groups
        .iter()
        .zip(&promises)
        .map(|(group, promised)| aim(*promised, group.session))
        .collect();
    let lengths = match form {
        Form::Link => aimed.clone(),
        _ => targets.iter().map(|target| aimed[*target]).collect(),
    };

    let mut samples = Vec::new();
    for _ in 0..TRIES {
        let found = made(stand.outage(form, &lengths).await?);
        let is_hit = |index: &usize| {
            let (aimed, promise, outage) = (aimed[*index], promises[*index], found[*index].outage);
            let is_on_the_right_side = aimed >= promise || outage < promise;
            is_on_the_right_side && outage > aimed.mul_f64(0.8) && !found[*index].is_busy
        };
        let are_hit = targets.iter().all(is_hit);
        samples.extend(found);
        if are_hit {
            return Ok(samples);
        }
    }
    println!("{}, {}: no outage was as long as wanted", stand.place().name(), form.name());
    Ok(samples)
}

fn made(samples: Vec<Sample>) -> Vec<Sample> {
    for sample in &samples {
        println!("{}", report::line(sample));
    }
    samples
}

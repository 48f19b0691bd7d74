//! A place with servers and holders, where outages are made.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use lockkeeper_testkit::network::Network;
use lockkeeper_testkit::{clock, scratch};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::outage::forms::{Form, Place};
use crate::outage::holders::{Crowd, Group, Kind};
use crate::outage::observer;
use crate::outage::programs::Site;
use crate::outage::promise::promised;
use crate::outage::servers::{LIMIT, Servers};
use crate::outage::stall::Stalls;
use crate::outage::timeout::Timeout;

/// How long a write takes that an observer makes as soon as it can, before one was measured.
const USUAL_LAG: Duration = Duration::from_millis(80);

/// How often holders are started who lose without an outage, or never hold: servers in Java that
/// were just started answer late.
const TRIES: u32 = 3;

/// The last lease from before an outage has run out, and its holder has been told, so much later
/// than a session timeout after the outage began.
const AFTERMATH: Duration = Duration::from_secs(1);

/// What one outage did to a group of holders.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) place: Place,
    pub(crate) form: Form,
    pub(crate) kind: Kind,
    pub(crate) timeout: Timeout,
    pub(crate) session: Duration,
    /// From before it was made until an observer had a write committed, plus the longest time for
    /// which the machine itself stood still meanwhile.
    pub(crate) outage: Duration,
    /// Whether the machine had too much other work for anyone to be judged.
    pub(crate) is_busy: bool,
    pub(crate) held: u32,
    pub(crate) lost: u32,
    /// What one that has lost said.
    pub(crate) complaint: String,
}

impl Sample {
    pub(crate) fn promised(&self) -> Duration {
        promised(self.place, self.session, self.kind)
    }

    /// Whether the promise covers this outage.
    pub(crate) fn counts(&self) -> bool {
        !self.is_busy && self.outage < self.promised()
    }

    pub(crate) fn breaks_the_promise(&self) -> bool {
        self.counts() && self.lost > 0
    }
}

/// Servers, and groups of holders, each on a host of its own.
pub(crate) struct Stand {
    // Before the network that they are on.
    servers: Servers,
    network: Network,
    place: Place,
    pub(crate) groups: Vec<Group>,
    outages: u32,
    /// For each form and group, how long it took at last from the end of the fault to a committed
    /// write. What concerns all groups is noted for the first one.
    lags: BTreeMap<(&'static str, usize), Duration>,
    folder: TempDir,
}

impl Stand {
    pub(crate) async fn start(place: Place, groups: Vec<Group>) -> Result<Self> {
        let network = Network::start(u8::try_from(place.servers() + groups.len())?)?;
        let begin = clock::now();
        let servers = Servers::start(place, &network).await?;
        let lags = BTreeMap::from([((Form::Restarted.name(), 0), clock::now() - begin)]);
        let folder = scratch::folder()?;
        Ok(Self { servers, network, place, groups, outages: 0, lags, folder })
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Makes one outage of these lengths, one for each group, under holders that are new and spread
    /// over their heartbeats. Where all groups see the same outage, the first length counts. Where
    /// no length can be chosen, none does.
    pub(crate) async fn outage(&mut self, form: Form, lengths: &[Duration]) -> Result<Vec<Sample>> {
        self.servers.settle().await?;
        let longest = self.groups.iter().map(|group| group.session).max().unwrap_or_default();
        let mut crowds = self.gather_and_wait(heartbeat(longest)).await?;

        let stalls = Stalls::watch();
        let start = clock::now();
        let outages = self.strike(form, lengths).await?;
        let outages: Vec<_> = outages.iter().map(|outage| *outage + stalls.longest()).collect();
        // Not a wait for something: whoever is there after this has proven its lease anew.
        // Whoever rides it out knows how it ended when it is back.
        let end = (start + longest).max(clock::now() + longest / 8) + AFTERMATH;
        tokio::time::sleep(end.saturating_sub(clock::now())).await;
        self.look(form, &mut crowds, &outages, stalls.is_busy())
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
            if tries == TRIES {
                return Err(attempt.context("the servers or this machine are too slow"));
            }
            println!("{}: holders are started again: {attempt:#}", self.place.name());
            tries += 1;
        }
    }

    async fn gather(&mut self) -> Result<Vec<Crowd>> {
        self.outages += 1;
        let mut gathering = JoinSet::new();
        for (index, group) in self.groups.iter().enumerate() {
            let host = self.place.servers() + index;
            let site = Site {
                place: self.place,
                connect: self.servers.connect_string(),
                host: (self.place != Place::Local).then(|| self.network.host(host).clone()),
                folder: self.folder.path().to_owned(),
            };
            let lock = format!("outage/{}-{index}", self.outages);
            let (group, spread) = (*group, heartbeat(group.session));
            gathering.spawn(async move { (index, Crowd::gather(site, group, lock, spread).await) });
        }
        let mut crowds = gathering.join_all().await;
        crowds.sort_by_key(|(index, _)| *index);
        crowds.into_iter().map(|(_, crowd)| crowd).collect()
    }

    /// Who has lost.
    fn look(
        &self,
        form: Form,
        crowds: &mut [Crowd],
        outages: &[Duration],
        is_busy: bool,
    ) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        for (crowd, outage) in crowds.iter_mut().zip(outages) {
            let lost = crowd.lost()?;
            let Group { kind, timeout, session, size: held } = crowd.group;
            let complaint = if lost > 0 { crowd.complaint() } else { String::new() };
            let (place, outage) = (self.place, *outage);
            samples.push(Sample {
                place,
                form,
                kind,
                timeout,
                session,
                outage,
                is_busy,
                held,
                lost,
                complaint,
            });
        }
        Ok(samples)
    }

    /// Begins and ends an outage. Returns how long it was for each group.
    async fn strike(&mut self, form: Form, lengths: &[Duration]) -> Result<Vec<Duration>> {
        let start = clock::now();
        let length = lengths.first().copied().unwrap_or_default();
        let lag = self.lag(form, 0, length);
        // Where servers are back, but do not commit writes yet, the outage goes on.
        let back = start + length.saturating_sub(lag);
        match form {
            Form::Link => return tokio::task::block_in_place(|| self.cut_links(lengths)),
            Form::Leader => return self.kill_leader().await,
            Form::Stopped => {
                self.servers.pause()?;
                sleep_until(back).await;
                self.servers.resume()?;
            }
            Form::Restarted => {
                self.servers.kill();
                sleep_until(back).await;
                self.servers.begin_restart()?;
            }
        }
        let back = clock::now();
        let end = observer::commits(self.servers.listeners(&self.network)?, LIMIT).await?;
        self.lags.insert((form.name(), 0), end - back);
        Ok(vec![end - start; self.groups.len()])
    }

    /// From the kill until the others commit.
    async fn kill_leader(&mut self) -> Result<Vec<Duration>> {
        let ensemble = self.servers.ensemble()?;
        let leader = ensemble.leader().await?;
        let start = clock::now();
        ensemble.kill(leader);
        let end = observer::commits(self.servers.listeners(&self.network)?, LIMIT).await?;
        self.servers.ensemble()?.server_mut(leader).begin_restart()?;
        Ok(vec![end - start; self.groups.len()])
    }

    /// How much of an outage of this length to leave to the recovery. No more than half of it: a
    /// start that was slow once says little of the next one.
    fn lag(&self, form: Form, group: usize, length: Duration) -> Duration {
        let last = self.lags.get(&(form.name(), group)).copied().unwrap_or(USUAL_LAG);
        last.min(length / 2)
    }

    /// Cuts the link of each group for a time of its own, all at once.
    fn cut_links(&mut self, lengths: &[Duration]) -> Result<Vec<Duration>> {
        let cuts = std::thread::scope(|scope| {
            let stand = &*self;
            let runtime = Handle::current();
            let cut = |(index, length): (usize, &Duration)| {
                let lag = stand.lag(Form::Link, index, *length);
                let (length, runtime) = (*length - lag, runtime.clone());
                scope.spawn(move || stand.cut_link(index, length, &runtime))
            };
            let cuts: Vec<_> = lengths.iter().enumerate().map(cut).collect();
            let join =
                cuts.into_iter().map(|cut| cut.join().ok().context("a thread has panicked")?);
            join.collect::<Result<Vec<_>>>()
        })?;
        for (index, (_, lag)) in cuts.iter().enumerate() {
            self.lags.insert((Form::Link.name(), index), *lag);
        }
        Ok(cuts.into_iter().map(|(outage, _)| outage).collect())
    }

    /// Cuts the link of one group. Returns how long its outage was, and how much of it came after
    /// `length`.
    fn cut_link(
        &self,
        index: usize,
        length: Duration,
        runtime: &Handle,
    ) -> Result<(Duration, Duration)> {
        let servers: Vec<usize> = (0..self.place.servers()).collect();
        let host = servers.len() + index;
        let start = clock::now();
        self.network.isolate(host, &servers)?;
        std::thread::sleep((start + length).saturating_sub(clock::now()));
        let back = clock::now();
        self.network.rejoin(host, &servers)?;
        let listeners = self.servers.listeners_from(self.network.host(host))?;
        let end = runtime.block_on(observer::commits(listeners, LIMIT))?;
        Ok((end - start, end - back))
    }
}

/// The longest time between two heartbeats of a holder: the phases that outages should begin in.
fn heartbeat(session: Duration) -> Duration {
    session / 3
}

async fn sleep_until(time: Duration) {
    tokio::time::sleep(time.saturating_sub(clock::now())).await;
}

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
//! only one of them writes at a time.
//!
//! In a last part, the leader and the followers of an ensemble are killed one after the other,
//! with a waiting contender for each lock: nothing may be lost, and no two may hold. Apache Curator
//! holds a lock beside ours.
//!
//! As tests, timeouts of 4 and 6 s see one outage of each form, just shorter than promised, and
//! three leaders and three followers are killed. The long form writes `docs/guarantees/outage.md`.

mod holders;
pub(crate) mod kills;
pub(crate) mod probe;
mod promise;
mod report;
pub(crate) mod rivals;
mod stand;

use anyhow::Result;
use clap::{Args, ValueEnum};
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_tests::all;
use tokio::task::JoinSet;

use self::holders::{Timeout, USUAL_TIMEOUTS, parse_timeout};
use self::probe::Probe;
use crate::servers::Place;

#[derive(Args, Clone)]
pub(crate) struct OutageOptions {
    /// How often each length is tried, with eight holders each time; about an hour a round. With 0,
    /// only servers are killed.
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// How many leaders of an ensemble are killed, and as many followers; about 12 seconds a pair.
    #[arg(long, default_value_t = 20)]
    kills: u32,
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = all::<Place>())]
    place: Vec<Place>,
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = all::<OutageForm>())]
    form: Vec<OutageForm>,
    /// Session timeouts in seconds.
    #[arg(long, value_delimiter = ',', value_parser = parse_timeout,
        default_value = USUAL_TIMEOUTS)]
    timeout: Vec<Timeout>,
    /// Whether two contend for each lock through outages of every length; a minute and a half.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    rivals: bool,
}

/// One kind of outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum OutageForm {
    /// All servers are stopped (SIGSTOP), and go on later.
    Stopped,
    /// All servers are killed, and started again later.
    Restarted,
    /// Packets between the holders and all servers are lost, both ways.
    Link,
    /// The leader is killed. The others elect another one.
    Leader,
}

impl OutageForm {
    /// As in a table.
    fn title(self) -> &'static str {
        match self {
            Self::Stopped => "server stopped",
            Self::Restarted => "server killed, started again",
            Self::Link => "link cut",
            Self::Leader => "leader killed",
        }
    }

    /// What can happen to a place.
    fn of(place: Place) -> &'static [Self] {
        match place {
            Place::Engine => &[Self::Stopped, Self::Restarted, Self::Link],
            // This place does not have a link, and a holder restarts the engine by itself.
            Place::Local => &[Self::Stopped],
            Place::Ensemble => &[Self::Stopped, Self::Restarted, Self::Link, Self::Leader],
        }
    }

    /// Whether the length of such an outage can be chosen. An election takes as long as it takes,
    /// and so does the start of a Java program.
    fn has_chosen_length(self, place: Place) -> bool {
        match self {
            Self::Stopped | Self::Link => true,
            Self::Restarted => place == Place::Engine,
            Self::Leader => false,
        }
    }
}

/// Whether this machine has what the suite needs.
fn is_ready(peers: &[Peer]) -> bool {
    peers::ready("outage", &[&[Peer::ZooKeeper, Peer::Network], peers].concat())
}

/// Does all of this at once; the results are in the order of the work.
async fn side_by_side<T: Send + 'static>(
    work: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let mut running = JoinSet::new();
    for (index, one) in work.enumerate() {
        running.spawn(async move { (index, one.await) });
    }
    let mut done = running.join_all().await;
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

impl OutageOptions {
    pub(crate) async fn run(&self) -> Result<()> {
        if !is_ready(if self.kills > 0 { &[Peer::Curator] } else { &[] }) {
            return Ok(());
        }
        let probe = Probe { options: self.clone(), is_long: true };
        let findings = if self.rounds > 0 { Some(probe.run().await?) } else { None };
        let rivals = if self.rivals { rivals::run(&self.place).await? } else { Vec::new() };
        let kills = if self.kills > 0 { Some(kills::run(self.kills).await?) } else { None };

        let is_all = (&self.place, &self.form) == (&all(), &all());
        let usual = USUAL_TIMEOUTS.split(',').map(parse_timeout).collect::<Result<Vec<_>, _>>()?;
        let is_all = is_all && self.timeout == usual && self.rivals;
        if let (true, Some(findings), Some(kills)) = (is_all, &findings, &kills) {
            report::write(&findings.samples, &rivals, kills)?;
        }
        findings.map_or(Ok(()), |findings| findings.judge())?;
        rivals::judge_all(&rivals)?;
        kills.map_or(Ok(()), |kills| kills.judge())
    }
}

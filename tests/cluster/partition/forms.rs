//! The forms of the experiment: who A's server is, and what happens to it.
//!
//! A new form is one more variant here; everything else follows.

use std::ops::Range;
use std::time::Duration;

use anyhow::Result;
use lockkeeper_testkit::network::Network;
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::zookeeper::ZooKeeperEnsemble;

/// How many servers there are; they are the first hosts of the network.
pub(crate) const SERVERS: usize = 3;

/// Where A is, of all libraries.
pub(crate) const HOST_OF_A: usize = SERVERS;

/// Where B is.
pub(crate) const HOST_OF_B: usize = SERVERS + 1;

/// Shorter than a client's patience with a silent server, and than what keeps a session alive.
const SHORT_PAUSE_MS: Range<u64> = 500..3_900;

/// One way in which a holder, or its server, leaves the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A's follower is cut off from the other two servers.
    Follower,
    /// A's leader is cut off from its followers, which notice at once and elect another. The old
    /// leader does not know and goes on serving.
    Leader,
    /// A's follower is paused for some seconds, and cut off as it resumes.
    Paused,
    /// A itself is paused for some seconds, and its follower is cut off as it resumes.
    ClientPaused,
    /// A's leader is paused until the others have elected another one, and for as long as it takes
    /// B to get the lock.
    LeaderPaused,
    /// The link between A and its follower is cut: both ways, or only one of them.
    Link,
    /// A is cut off from its follower for some seconds. As it is back, with the same session, its
    /// follower is cut off from the others.
    Returned,
}

impl Form {
    pub(crate) const ALL: [Self; 7] = [
        Self::Follower,
        Self::Leader,
        Self::Paused,
        Self::ClientPaused,
        Self::LeaderPaused,
        Self::Link,
        Self::Returned,
    ];

    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Follower => "follower",
            Self::Leader => "leader",
            Self::Paused => "paused",
            Self::ClientPaused => "client-paused",
            Self::LeaderPaused => "leader-paused",
            Self::Link => "link",
            Self::Returned => "returned",
        }
    }

    /// As in a headline.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Follower => "A follower is cut off from the others, not from its clients",
            Self::Leader => "A leader is deposed and does not know",
            Self::Paused => "A follower is paused, and cut off as it resumes",
            Self::ClientPaused => "A holder is paused, and its follower is cut off as it resumes",
            Self::LeaderPaused => "A leader is paused until the others have another",
            Self::Link => "The link between a holder and its follower is cut, or one way of it",
            Self::Returned => "A holder comes back after an outage, and its follower is cut off",
        }
    }

    /// The server of A, and those of B.
    pub(crate) async fn seats(self, servers: &ZooKeeperEnsemble) -> Result<(usize, Vec<usize>)> {
        let leader = servers.leader().await?;
        match self {
            Self::Leader | Self::LeaderPaused => Ok((leader, others(leader))),
            _ => Ok((servers.follower().await?, vec![leader])),
        }
    }

    /// Does it to `victim`, the server of A, or to A itself; returns when the cut is made.
    pub(crate) async fn strike(
        self,
        servers: &ZooKeeperEnsemble,
        network: &Network,
        victim: usize,
        holders: &[&Process],
        random: &mut fastrand::Rng,
    ) -> Result<()> {
        match self {
            Self::Follower => isolate(network, victim),
            Self::Leader => {
                isolate(network, victim)?;
                others(victim).into_iter().try_for_each(|other| network.reset(other, victim))
            }
            Self::Paused => {
                servers.pause(victim)?;
                pause(random, SHORT_PAUSE_MS).await;
                servers.resume(victim)?;
                pause(random, 0..400).await;
                isolate(network, victim)
            }
            Self::ClientPaused => {
                holders.iter().try_for_each(|holder| holder.pause())?;
                pause(random, SHORT_PAUSE_MS).await;
                holders.iter().try_for_each(|holder| holder.resume())?;
                pause(random, 0..400).await;
                isolate(network, victim)
            }
            Self::LeaderPaused => servers.pause(victim),
            Self::Link => match random.u8(0..3) {
                0 => network.cut(HOST_OF_A, victim),
                1 => network.cut_one_way(HOST_OF_A, victim),
                _ => network.cut_one_way(victim, HOST_OF_A),
            },
            Self::Returned => {
                network.cut(HOST_OF_A, victim)?;
                pause(random, SHORT_PAUSE_MS).await;
                network.heal()?;
                pause(random, 0..1_000).await;
                isolate(network, victim)
            }
        }
    }
}

/// Undoes what a form does.
pub(crate) fn heal(servers: &ZooKeeperEnsemble, network: &Network) -> Result<()> {
    (0..SERVERS).try_for_each(|server| servers.resume(server))?;
    network.heal()
}

async fn pause(random: &mut fastrand::Rng, milliseconds: Range<u64>) {
    tokio::time::sleep(Duration::from_millis(random.u64(milliseconds))).await;
}

fn others(victim: usize) -> Vec<usize> {
    (0..SERVERS).filter(|server| *server != victim).collect()
}

fn isolate(network: &Network, victim: usize) -> Result<()> {
    others(victim).into_iter().try_for_each(|other| network.cut(victim, other))
}

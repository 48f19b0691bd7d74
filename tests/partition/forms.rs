//! The forms of the experiment: who A's server is, and what happens to it.
//!
//! A new form is one more variant here; everything else follows.

use std::time::Duration;

use anyhow::Result;
use lockkeeper_testkit::network::Network;
use lockkeeper_testkit::zookeeper::ZooKeeperEnsemble;

/// How many servers there are; they are the first hosts of the network.
pub(crate) const SERVERS: usize = 3;

/// One way in which the server of a holder leaves the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A's follower is cut off from the other two servers.
    Follower,
    /// A's leader is cut off from its followers, which notice at once and elect another. The old
    /// leader does not know and goes on serving.
    Leader,
    /// A's follower is paused for some seconds, and cut off as it resumes.
    Paused,
}

impl Form {
    pub(crate) const ALL: [Self; 3] = [Self::Follower, Self::Leader, Self::Paused];

    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Follower => "follower",
            Self::Leader => "leader",
            Self::Paused => "paused",
        }
    }

    /// As in a headline.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Follower => "A follower is cut off from the others, not from its clients",
            Self::Leader => "A leader is deposed and does not know",
            Self::Paused => "A follower is paused, and cut off as it resumes",
        }
    }

    /// The server of A, and those of B.
    pub(crate) async fn seats(self, servers: &ZooKeeperEnsemble) -> Result<(usize, Vec<usize>)> {
        let leader = servers.leader().await?;
        match self {
            Self::Leader => Ok((leader, others(leader))),
            Self::Follower | Self::Paused => Ok((servers.follower().await?, vec![leader])),
        }
    }

    /// Does it to `victim`; returns when the cut is made.
    pub(crate) async fn strike(
        self,
        servers: &ZooKeeperEnsemble,
        network: &Network,
        victim: usize,
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
                // Shorter than a client's patience with a silent server, which is 4 s here.
                let pause = Duration::from_millis(random.u64(1_000..3_900));
                tokio::time::sleep(pause).await;
                servers.resume(victim)?;
                tokio::time::sleep(Duration::from_millis(random.u64(0..400))).await;
                isolate(network, victim)
            }
        }
    }
}

fn others(victim: usize) -> Vec<usize> {
    (0..SERVERS).filter(|server| *server != victim).collect()
}

fn isolate(network: &Network, victim: usize) -> Result<()> {
    others(victim).into_iter().try_for_each(|other| network.cut(victim, other))
}

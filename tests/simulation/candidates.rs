//! Elections in a run: candidates that lead, proclaim and resign, and observers that must never see an
//! older leader after a newer one, nor a value that is not the leader's.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::{Client, Election, Leader, Leadership};
use lockkeeper_testkit::history::{Share, What};
use tokio::time::{sleep, timeout};

use crate::machine::Machine;
use crate::participants::still_holds;
use crate::run::{PATIENCE, Run};

/// Where the election is.
pub(crate) const ELECTION: &str = "/election/a";

/// The election, as a client of the run sees it.
pub(crate) fn election(client: &Client, id: &str) -> Election {
    Election::builder(client, ELECTION).id(id).build().expect("a path")
}

/// One task that stands for election.
pub(crate) struct Candidate {
    pub(crate) run: Arc<Run>,
    pub(crate) machine: Arc<Machine>,
    pub(crate) name: String,
    pub(crate) election: Election,
    pub(crate) random: fastrand::Rng,
}

impl Candidate {
    /// Campaigns and leads until `end`.
    pub(crate) async fn work(mut self, end: Duration) {
        while self.run.now() < end {
            let campaigned = match self.random.u8(0..4) {
                0 => self.election.try_campaign().await,
                1 => {
                    let patience = self.upto(self.run.pace.patience);
                    self.election.campaign_timeout(patience).await.map(Some)
                }
                _ => self.election.campaign().await.map(Some),
            };
            if let Ok(Some(leadership)) = campaigned {
                self.lead(leadership).await;
            }
            let pause = self.upto(self.run.pace.pause);
            sleep(pause).await;
        }
    }

    async fn lead(&mut self, leadership: Leadership) {
        let (lock, token) = (ELECTION.to_owned(), leadership.token().to_u128());
        self.note(What::Granted { lock: lock.clone(), token, share: Share::Alone });
        let mut looks = self.random.u8(0..5);
        while self.still_leads(&leadership) && looks > 0 {
            looks -= 1;
            if self.random.bool() {
                // Who does not lead any more must not be heard: the observers look.
                let _ = leadership.proclaim(token.to_string()).await;
            }
            let time = self.upto(self.run.pace.look);
            sleep(time).await;
        }
        self.note(What::GaveBack { lock, token });
        if self.random.bool() {
            let _ = leadership.resign().await;
        }
    }

    fn still_leads(&self, leadership: &Leadership) -> bool {
        still_holds(&self.run, &self.machine, &self.name, ELECTION, leadership)
    }

    fn upto(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.random.f64())
    }

    fn note(&self, what: What) {
        self.run.note(&self.name, what);
    }
}

/// Observes the leader until `end`.
pub(crate) async fn observe(run: Arc<Run>, name: String, election: Election, end: Duration) {
    let mut newest = 0;
    let mut look = |leader: Option<&Leader>| {
        let Some(leader) = leader else { return };
        let token = leader.token.to_u128();
        if token < newest {
            let what = format!("sees the leader {token} after {newest}");
            run.note(&name, What::Stuck(what));
        }
        newest = newest.max(token);
        let is_own = |value: &String| value.starts_with("last") || *value == token.to_string();
        if leader.value.as_ref().is_some_and(|value| !is_own(value)) {
            run.note(&name, What::Stuck(format!("sees the value of another leader: {leader:?}")));
        }
    };
    while run.now() < end {
        let Ok(mut leaders) = election.observe().await else { return };
        look(leaders.current());
        while let Ok(Ok(leader)) = timeout(end.saturating_sub(run.now()), leaders.next()).await {
            look(leader.as_ref());
        }
    }
}

/// After the faults: each candidate can lead and proclaim, and after all have resigned there is no leader.
pub(crate) async fn all_is_well(run: &Run, clients: &[Client]) {
    for (index, client) in clients.iter().enumerate() {
        let election = election(client, "last");
        let heard = async {
            while !leads_and_is_heard(&election, &format!("last {index}")).await {
                // A session that was lost in the last moments shows itself first.
                sleep(Duration::from_millis(200)).await;
            }
            let Ok(mut leaders) = election.observe().await else { return };
            while leaders.current().is_some() && leaders.next().await.is_ok() {}
        };
        if timeout(PATIENCE, heard).await.is_err() {
            let what = format!("cannot lead {ELECTION} and be heard");
            run.note(&format!("client {index}"), What::Stuck(what));
            return;
        }
    }
}

async fn leads_and_is_heard(election: &Election, value: &str) -> bool {
    let led = election.lead(|leadership| async move {
        if leadership.proclaim(value).await.is_err() {
            return false;
        }
        let Ok(leaders) = election.observe().await else { return false };
        leaders.current().is_some_and(|leader| {
            leader.token == leadership.token() && leader.value.as_deref() == Some(value)
        })
    });
    led.await.unwrap_or(false)
}

//! A server of another service in a connection string: programs that name it too must never hold one lock
//! at both services, whatever goes wrong with the right one.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::{AcquireError, Client, Mutex, ServiceError};
use lockkeeper_testkit::history::{Share, What};
use tokio::time::sleep;

use crate::machine::Machine;
use crate::participants::still_holds;
use crate::run::Run;

/// The port of the server that is not of the service.
pub(crate) const STRAY: u16 = 1_000;

/// The lock that both services would grant.
const LOCK: &str = "/strays/a";

/// Whether a run has such a server: one in eight, of both severities, with followers and without.
pub(crate) fn has_stray(seed: u64) -> bool {
    let seed = seed / 2 % 16;
    seed == 5 || seed == 14
}

/// A program whose connection string names the other service too. It grants nothing that it cannot
/// prove: the service may be away, and the stray server never is.
pub(crate) struct Straying {
    pub(crate) run: Arc<Run>,
    pub(crate) machine: Arc<Machine>,
    pub(crate) name: String,
    pub(crate) client: Client,
    pub(crate) random: fastrand::Rng,
}

impl Straying {
    /// Takes the lock until `end`.
    pub(crate) async fn work(mut self, end: Duration) {
        let lock = Mutex::new(&self.client, LOCK).expect("a path");
        while self.run.now() < end {
            let acquired = match self.random.bool() {
                true => lock.try_acquire().await,
                false => lock.acquire_timeout(self.upto(self.run.pace.patience)).await.map(Some),
            };
            match acquired {
                Ok(Some(guard)) => {
                    let token = guard.token().to_u128();
                    let lock = LOCK.to_owned();
                    self.note(What::Granted { lock: lock.clone(), token, share: Share::Alone });
                    let mut looks = self.random.u8(0..4);
                    while still_holds(&self.run, &self.machine, &self.name, LOCK, &guard)
                        && looks > 0
                    {
                        looks -= 1;
                        sleep(self.upto(self.run.pace.look)).await;
                    }
                    self.note(What::GaveBack { lock, token });
                    drop(guard);
                }
                Err(AcquireError::Servers { source, .. }) => self.refused(&source),
                Ok(None) | Err(_) => {}
            }
            let pause = self.upto(self.run.pace.pause);
            sleep(pause).await;
        }
    }

    fn refused(&self, error: &ServiceError) {
        let what = match error {
            ServiceError::NotOne { .. } => "finds two services",
            _ => "cannot tell whether there are two services",
        };
        self.note(What::Note(what.to_owned()));
    }

    fn upto(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.random.f64())
    }

    fn note(&self, what: What) {
        self.run.note(&self.name, what);
    }
}

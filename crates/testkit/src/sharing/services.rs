//! Programs that register an instance of a service, change it and unregister it, and directories that list all
//! instances.
//!
//! Directories record what they list as of which transaction; [`crate::checker`] compares these records. At the end
//! each directory must list all instances in their last state.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::{Client, Instance, Instances, PresenceState, Registration, ServiceDirectory};
use tokio::time::{sleep, timeout};

use super::{Scene, retried};
use crate::data_event::{DataEvent, Listing};
use crate::history::What;

const BASE: &str = "/services";
const SERVICE: &str = "web";

/// The weight of an instance that stays.
const STAYS: u32 = u32::MAX;

/// The interval between two looks, and their number after the faults.
const GLANCE: Duration = Duration::from_millis(200);
const GLANCES: u32 = 600;

/// Registers an instance repeatedly; the last registration stays until it is dropped.
pub async fn serve(
    scene: Arc<dyn Scene + Send + Sync>,
    id: String,
    client: Client,
    mut random: fastrand::Rng,
) -> Option<Registration> {
    let mut weight = 0;
    loop {
        weight += 1;
        let instance = Instance::new(SERVICE, &*id).weight(weight);
        let Ok(registration) = Registration::start(&client, BASE, instance).await else {
            // No server can be reached for a while.
            sleep(GLANCE).await;
            continue;
        };
        match change(&*scene, registration, &mut weight, &mut random).await {
            Ok(None) => {}
            Ok(stays) => return stays,
            Err(why) => {
                scene.note(&id, What::MissingInstance(why));
                return None;
            }
        }
    }
}

/// Changes it a few times and then unregisters it, or returns it if it is to stay.
async fn change(
    scene: &(dyn Scene + Send + Sync),
    registration: Registration,
    weight: &mut u32,
    random: &mut fastrand::Rng,
) -> Result<Option<Registration>, String> {
    loop {
        sleep(scene.pace().mul_f64(random.f64())).await;
        let stays = !scene.goes_on();
        match random.u8(0..8) {
            0 if !stays => return Ok(None),
            1 if !stays => {
                // An error is one of the session or the server, with which the node disappears too.
                let _ = registration.unregister().await;
                return Ok(None);
            }
            _ => *weight = if stays { STAYS } else { *weight + 1 },
        }

        let updated = registration.update(|instance| instance.weight = *weight).await;
        updated.map_err(|error| format!("cannot be changed: {error}"))?;
        if let PresenceState::Ended(error) = registration.state() {
            return Err(format!("has ended: {error}"));
        }
        if stays {
            return Ok(Some(registration));
        }
    }
}

/// Keeps a directory open, replaces it now and then, and finally waits until it lists all of these.
pub async fn watch(
    scene: Arc<dyn Scene + Send + Sync>,
    name: String,
    client: Client,
    mut random: fastrand::Rng,
    ids: Vec<String>,
) {
    let watcher = ServiceWatcher { scene, name };
    loop {
        let directory = opened(&client).await;
        let lasts = watcher.scene.pace().mul_f64(20.0 * random.f64());
        let until = (!random.bool()).then(|| watcher.scene.now() + lasts);
        let followed = match watcher.follow(&directory, until).await {
            Ok(()) if watcher.scene.goes_on() => continue,
            Ok(()) => watcher.lists(&directory, &ids).await,
            Err(why) => Err(why),
        };
        if let Err(why) = followed {
            watcher.scene.note(&watcher.name, What::MissingInstance(why));
        }
        return;
    }
}

async fn opened(client: &Client) -> ServiceDirectory {
    retried(GLANCE, || ServiceDirectory::open(client, BASE, SERVICE)).await
}

/// An observer of a directory.
struct ServiceWatcher {
    scene: Arc<dyn Scene + Send + Sync>,
    name: String,
}

impl ServiceWatcher {
    /// Records every update until that time, or while the programs run.
    async fn follow(
        &self,
        directory: &ServiceDirectory,
        until: Option<Duration>,
    ) -> Result<(), String> {
        let mut changes = directory.changes();
        self.tell(&directory.instances())?;
        while self.scene.goes_on() && until.is_none_or(|until| self.scene.now() < until) {
            match timeout(GLANCE, changes.next()).await {
                Ok(Ok(update)) => self.tell(&update.instances)?,
                Ok(Err(error)) => return Err(format!("the directory ended: {error}")),
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn tell(&self, instances: &Instances) -> Result<(), String> {
        if let [unreadable, ..] = instances.unreadable() {
            return Err(format!("cannot read {unreadable:?}"));
        }
        let listing = instances.iter().map(|listed| Listing {
            id: listed.node().to_owned(),
            czxid: listed.czxid().0,
            weight: listed.weight,
        });
        let told = DataEvent::Lists { zxid: instances.zxid().0, listings: listing.collect() };
        self.scene.note(&self.name, What::Data(told));
        Ok(())
    }

    /// Waits until exactly these instances are listed as those that stay.
    async fn lists(&self, directory: &ServiceDirectory, ids: &[String]) -> Result<(), String> {
        for _ in 0..GLANCES {
            let is_current = directory.is_current();
            let instances = directory.instances();
            let stays =
                |id: &String| instances.by_node(id).is_some_and(|listed| listed.weight == STAYS);
            if is_current && instances.len() == ids.len() && ids.iter().all(stays) {
                return self.tell(&instances);
            }
            sleep(GLANCE).await;
        }
        Err(format!("not just {ids:?} are there: {:?}", directory.instances()))
    }
}

/// Waits until no instance is listed, after all programs have ended.
pub async fn look_at_the_end(scene: &dyn Scene, client: &Client) {
    let directory = opened(client).await;
    for _ in 0..GLANCES {
        if directory.instances().is_empty() && directory.is_current() {
            return;
        }
        sleep(GLANCE).await;
    }
    scene.note("world", What::Left(format!("instances: {:?}", directory.instances())));
}

//! [`Registration`]: an instance that can be found while its program runs.

use std::future::pending;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkeeper_client::{Client, Error, Outcome, PathError, ZnodePath, impl_failure};
use tokio::sync::watch;

use crate::discovery::instance::{Instance, ServiceType};
use crate::wall_clock::unix_ms;
use crate::watch::{PendingUpdate, Presence, PresenceError, PresenceState};

/// Why an instance is not registered, or not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The base, the service and the id do not form a path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The path is `/`, or `/zookeeper` or below it, which the server uses itself.
    #[error("{0} cannot be the base of services; use another path, such as /services")]
    Reserved(ZnodePath),
    /// The service type is not one whose node ends with its program's session.
    #[error(
        "{id} has the service type {service_type:?}, and only Dynamic ones can be registered; create \
         the node of another one with `Instance::to_json`"
    )]
    NotDynamic {
        /// The instance's id.
        id: String,
        /// The service type.
        service_type: ServiceType,
    },
    /// An update changes the service or the id, which are part of the node's path.
    #[error(
        "the update changes the service or the id of {node}; register another instance instead"
    )]
    Renamed {
        /// The instance's node.
        node: ZnodePath,
    },
    /// No server has confirmed an update in time.
    #[error(
        "no server has confirmed within {timeout:?} that {node} is changed; the change is made when one is \
         reachable again"
    )]
    Timeout {
        /// The instance's node.
        node: ZnodePath,
        /// The time limit.
        timeout: Duration,
    },
    /// The node does not exist.
    #[error(transparent)]
    Presence(#[from] PresenceError),
}

impl_failure!(RegisterError {
    Self::Timeout { .. } => (true, Outcome::Unknown),
    Self::Presence(error) => (error.is_retryable(), error.outcome()),
    Self::Path(_) | Self::Reserved(_) | Self::NotDynamic { .. } | Self::Renamed { .. } => {
        (false, Outcome::NotApplied)
    }
});

/// An instance that can be found as long as this value exists, over reconnects and sessions. Dropping it
/// unregisters the instance in the background.
///
/// # Guarantees
///
/// - Those of [`Presence`]: the instance's node belongs to the current session, or [`Registration::state`] says why
///   not, and it comes back with the next session.
/// - The data of the instance is changed in place. The node is never deleted and created again, so that clients
///   never see the instance missing, neither at an update nor when a connection was lost.
/// - An earlier run of the program, known by its id, is replaced in one transaction.
///
/// # Not guaranteed
///
/// - Clients may still call the instance after [`Registration::drain`] or [`Registration::unregister`]: they learn
///   of it a moment later, or when they are connected again.
/// - Two registrations with one id are not both visible: the one that started last has the node, and the other one
///   waits for it. [`Registration::taken`] reports that.
///
/// # Znodes
///
/// `<base>/<service>/<id>`, ephemeral, with the JSON of Curator's x-discovery. Missing parents are created as
/// container nodes.
///
/// # Cost
///
/// - A registration costs 1 round trip with 1 write and 1 read, and so does each new session.
/// - An update costs 1 round trip with 1 write, and 1 event and 1 read after it.
/// - Unregistering costs 2 round trips and 1 write.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::{Instance, Registration};
///
/// let instance = Instance::new("web", "7").address("10.0.0.7").port(8080).zone("b");
/// let registration = Registration::start(&client, "/services", instance).await?;
/// registration.update(|instance| instance.weight = 2).await?;
///
/// // Before it ends: no new calls, and time for those in flight.
/// registration.drain().await?;
/// registration.unregister().await?;
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ServiceDiscovery")]
#[doc(alias = "registerService")]
#[must_use = "the instance is unregistered when this is dropped"]
#[derive(Debug)]
pub struct Registration {
    presence: Presence,
    path: ZnodePath,
    /// Updates are begun under this lock, so that the last one is the one in the node.
    announced: Mutex<Announced>,
    /// Held by the update that is waited for.
    turn: tokio::sync::Mutex<()>,
}

/// The data of an instance.
#[derive(Debug)]
struct Announced {
    confirmed: Instance,
    /// The requested data, whose outcome no caller has received yet.
    asked: Option<Instance>,
}

/// A change in progress.
struct PendingChange {
    instance: Instance,
    posted: PendingUpdate,
}

impl Registration {
    /// Registers an instance below `base`. Returns when its node exists, or when another program's node is found,
    /// for which it then waits: see [`Registration::state`]. Costs as much as
    /// [`PresenceBuilder::start`](crate::PresenceBuilder::start).
    ///
    /// # Errors
    /// If the node is refused permanently, or no server can be reached for a session timeout; or if the instance
    /// cannot be registered, or the base is `/` or the servers' own `/zookeeper`.
    ///
    /// # Cancel safety
    /// When dropped, leaves no node behind.
    ///
    /// # Session loss
    /// Registered in the next session.
    pub async fn start(
        client: &Client,
        base: &str,
        instance: Instance,
    ) -> Result<Self, RegisterError> {
        let base = ZnodePath::new(base)?;
        if !client.is_own_base(&base) {
            return Err(RegisterError::Reserved(base));
        }
        let path = base.child(&instance.service)?.child(&instance.id)?;
        let instance = registered(instance)?;
        let id = instance.id.clone();
        let presence = Presence::builder(client, path.as_str())
            .data(instance.to_json())
            .replaces(move |data| Instance::from_json(data).is_ok_and(|earlier| earlier.id == id));
        let presence = presence.start().await?;
        let announced = Mutex::new(Announced { confirmed: instance, asked: None });
        Ok(Self { presence, path, announced, turn: tokio::sync::Mutex::default() })
    }

    /// The state of its node.
    pub fn state(&self) -> PresenceState {
        self.presence.state()
    }

    /// The state of its node, now and after every change. See [`Presence::changes`].
    pub fn changes(&self) -> watch::Receiver<PresenceState> {
        self.presence.changes()
    }

    /// Waits until another program has the node, and returns its session: see [`Presence::taken`]. This finds two
    /// programs that run with one id; the one that started last is in the directories. Makes no request.
    ///
    /// # Session loss
    /// As [`Presence::taken`].
    ///
    /// # Cancel safety
    /// As [`Presence::taken`].
    pub async fn taken(&self) -> PresenceError {
        self.presence.taken().await
    }

    /// The current data. Waits for an update in progress. Costs nothing, except after a cancelled update, whose
    /// cost it has.
    ///
    /// # Session loss
    /// None: the requested data counts in the next session.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn instance(&self) -> Instance {
        let _turn = self.turn().await;
        self.announced().confirmed.clone()
    }

    /// Changes the data, now and in later sessions. Returns when a server has confirmed it, or at once while the
    /// node is known to be missing; it is then created with the new data. Without a server it waits for one,
    /// however long that takes: see [`Registration::update_timeout`]. Costs one round trip, after those of earlier
    /// updates.
    ///
    /// # Errors
    /// If the change is refused permanently, and the data stays unchanged; if it changes the service or the id; or
    /// if the registration has ended.
    ///
    /// # Cancel safety
    /// When dropped, the data is not changed, or is changed in the background. The next update, or read of the
    /// instance, finds out which, with one more write.
    ///
    /// # Session loss
    /// The instance is registered with the change in the next session.
    pub async fn update(&self, change: impl FnOnce(&mut Instance)) -> Result<(), RegisterError> {
        self.update_until(change, pending()).await.unwrap_or(Ok(()))
    }

    /// [`Registration::update`], with a time limit. Costs the same.
    ///
    /// # Errors
    /// As [`Registration::update`]; and [`RegisterError::Timeout`] if no server has confirmed it in time. It is not
    /// undone: as after a cancelled update, it is made as soon as a server is reachable, in the background. If
    /// earlier updates are not confirmed either, it is made on top of them, and may be refused because of one of
    /// them.
    ///
    /// # Cancel safety
    /// As [`Registration::update`].
    ///
    /// # Session loss
    /// As [`Registration::update`].
    pub async fn update_timeout(
        &self,
        change: impl FnOnce(&mut Instance),
        timeout: Duration,
    ) -> Result<(), RegisterError> {
        let updated = self.update_until(change, tokio::time::sleep(timeout)).await;
        updated.unwrap_or_else(|| Err(RegisterError::Timeout { node: self.path.clone(), timeout }))
    }

    /// `None` if the time is over; the update continues by itself.
    async fn update_until(
        &self,
        change: impl FnOnce(&mut Instance),
        late: impl Future<Output = ()>,
    ) -> Option<Result<(), RegisterError>> {
        let mut late = pin!(late);
        let turn = tokio::select! {
            // A fixed order makes simulations reproducible.
            biased;
            turn = self.turn() => Some(turn),
            () = &mut late => None,
        };

        let posted = match self.ask(change) {
            Ok(posted) => posted,
            Err(error) => return Some(Err(error)),
        };
        // Otherwise waits for the updates that it is based on.
        turn.as_ref()?;
        tokio::select! {
            biased;
            settled = self.settle(posted) => Some(settled.map_err(RegisterError::from)),
            () = late => None,
        }
    }

    /// Waits until the outcome of all requested updates is known.
    async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        let turn = self.turn.lock().await;
        loop {
            // Perhaps once more: a refused update is refused again.
            let posted = {
                let announced = self.announced();
                let Some(asked) = &announced.asked else { return turn };
                let posted = self.presence.begin_update(asked.to_json().into());
                PendingChange { instance: asked.clone(), posted }
            };
            // Its error was returned by the update.
            let _ = self.settle(posted).await;
        }
    }

    /// Begins a change of the data, on top of all requested ones.
    fn ask(&self, change: impl FnOnce(&mut Instance)) -> Result<PendingChange, RegisterError> {
        let mut announced = self.announced();
        let earlier = announced.asked.as_ref().unwrap_or(&announced.confirmed);
        let mut changed = earlier.clone();
        change(&mut changed);
        if (&changed.service, &changed.id) != (&earlier.service, &earlier.id) {
            return Err(RegisterError::Renamed { node: self.path.clone() });
        }

        let instance = registered(changed)?;
        announced.asked = Some(instance.clone());
        let posted = self.presence.begin_update(instance.to_json().into());
        Ok(PendingChange { instance, posted })
    }

    async fn settle(
        &self,
        PendingChange { instance, posted }: PendingChange,
    ) -> Result<(), PresenceError> {
        let settled = self.presence.finish_update(posted).await;
        let mut announced = self.announced();
        // More may have been requested since.
        if announced.asked.as_ref() == Some(&instance) {
            announced.asked = None;
        }
        if settled.is_ok() {
            announced.confirmed = instance;
        }
        settled
    }

    fn announced(&self) -> MutexGuard<'_, Announced> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops new calls: our directories and Curator's providers skip the instance. Calls in flight may continue.
    /// Costs as much as an update.
    ///
    /// # Errors
    /// As [`Registration::update`].
    ///
    /// # Cancel safety
    /// As [`Registration::update`].
    ///
    /// # Session loss
    /// As [`Registration::update`].
    pub async fn drain(&self) -> Result<(), RegisterError> {
        self.update(|instance| instance.is_enabled = false).await
    }

    /// [`Registration::drain`], with a time limit: for a program that is about to end, with servers or without.
    /// Costs as much as an update.
    ///
    /// # Errors
    /// As [`Registration::update_timeout`].
    ///
    /// # Cancel safety
    /// As [`Registration::update`].
    ///
    /// # Session loss
    /// As [`Registration::update`].
    pub async fn drain_timeout(&self, timeout: Duration) -> Result<(), RegisterError> {
        self.update_timeout(|instance| instance.is_enabled = false, timeout).await
    }

    /// Allows calls again. Costs as much as an update.
    ///
    /// # Errors
    /// As [`Registration::update`].
    ///
    /// # Cancel safety
    /// As [`Registration::update`].
    ///
    /// # Session loss
    /// As [`Registration::update`].
    pub async fn undrain(&self) -> Result<(), RegisterError> {
        self.update(|instance| instance.is_enabled = true).await
    }

    /// Unregisters the instance at once, and waits for the confirmation. Costs two round trips.
    ///
    /// # Errors
    /// As [`Presence::end`].
    ///
    /// # Session loss
    /// As [`Presence::end`].
    ///
    /// # Cancel safety
    /// When dropped, the instance is unregistered in the background.
    pub async fn unregister(self) -> Result<(), Error> {
        self.presence.end().await
    }
}

/// The instance in the form in which it is registered.
fn registered(mut instance: Instance) -> Result<Instance, RegisterError> {
    if instance.service_type != ServiceType::Dynamic {
        let Instance { id, service_type, .. } = instance;
        return Err(RegisterError::NotDynamic { id, service_type });
    }
    if instance.registration_time_utc == 0 {
        instance.registration_time_utc = i64::try_from(unix_ms()).unwrap_or(i64::MAX);
    }
    Ok(instance)
}

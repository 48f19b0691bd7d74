//! [`DoubleBarrier`]: entering rounds.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper_client::{Client, ZnodePath, present};
use lockkeeper_locks::OwnerInfo;
use lockkeeper_locks::for_recipes::owner_data;
use tokio::time::Instant;

use crate::barrier::core::{BarrierCore, Deaths};
use crate::barrier::error::{BarrierError, Missing};
use crate::barrier::layout::{BarrierNodes, Parties, PartyName, prefix, wanted};
use crate::barrier::round::Round;
use crate::exact::{DEFAULT_MARKERS, Writers};
use crate::last_time::LastTime;

/// A barrier for programs that enter a piece of work together, and leave it together, round after round. Cheap to clone.
///
/// # Guarantees
///
/// - A round opens when as many parties wait as it needs, or all that are declared. All of them were alive at the
///   transaction that opened it, which names them: all of these have entered, and nobody else.
/// - A party that comes too late, or too many, waits for the next round. Nothing of a round that has failed reaches the
///   next one.
/// - A party that gave up waiting in time has not entered, and one that has entered is told so: there is nothing in
///   between.
/// - Who dies inside is named to all others, and told from who has left. [`Deaths`] says what comes of it.
/// - A round is over when all have left or died. Whoever has left returns then, and not before.
///
/// # Not guaranteed
///
/// - A party may die after the opening, before it has heard of it: the others have entered with it.
/// - The death of a party is known when its session has ended, not at once. A [`Round`] is held by a lease, so that the
///   party itself knows before.
/// - Two rounds can be open at once, if there are more parties than one needs.
/// - Programs that name other parties, or another number, do not come into one round. Whoever gives up is told of them.
/// - A round that is complete opens when the last party that came has seen that: if that one stands still, when it goes
///   on, or its session ends, or another party comes.
/// - Parties are not safe from those who delete their nodes. If servers are set back, all parties are gone with their
///   sessions.
/// - Servers before 3.6 cannot be asked for several listings at once.
///
/// # Session loss
///
/// Whoever waits for a round comes anew with the next session. Whoever is inside has died.
///
/// # Znodes
///
/// - `<path>`, `<path>/rounds` and `<path>/left` are persistent; what is missing above them is made as container nodes.
///   The data of `<path>` has the number of the layout.
/// - `<path>/rounds/<round>` is where parties wait, and is empty; its data names who is inside once it has opened.
///   `<party>.<24 digits><number>` in it is ephemeral, and is there as long as the party has not left.
/// - `<path>/left/<round>/…` are marks that parties have left, until the round is over.
/// - `/lockkeeper-outcomes/<uuid>` is the outcome marker of a handle, ephemeral.
///
/// It is no layout of Curator or kazoo: in theirs, a party alone cannot be told from one that has entered with the
/// others. `docs/barriers.md` says how they compare.
///
/// # Cost
///
/// - Entering costs 1 round trip (1 write, and a listing behind it). The last one costs 1 more, the opening (1 write).
///   The others are told by 1 event, and make 1 read; nobody lists then.
/// - Inside, each party has watches on two nodes.
/// - Leaving costs 1 round trip (1 write), and 1 event when all have left; the last one ends the round (1 write).
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::DoubleBarrier;
///
/// let barrier = DoubleBarrier::new(&client, "/steps/reduce", 2)?;
/// let party = |name: &'static str| {
///     let barrier = barrier.clone();
///     async move {
///         let round = barrier.enter(name).await?;
///         // All are here, and work.
///         assert_eq!(round.parties().len(), 2);
///         round.leave().await
///     }
/// };
/// let (a, b) = tokio::join!(party("a"), party("b"));
/// assert!(a?.is_empty() && b?.is_empty(), "nobody has died");
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "DistributedDoubleBarrier")]
#[doc(alias = "CyclicBarrier")]
#[derive(Clone)]
pub struct DoubleBarrier(Arc<BarrierCore>);

lockkeeper_client::impl_debug!(DoubleBarrier, self => path: self.0.places.path, parties: self.0.parties);

/// The options of a [`DoubleBarrier`].
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `build`"]
pub struct DoubleBarrierBuilder {
    client: Client,
    path: String,
    parties: Parties,
    deaths: Deaths,
}

impl DoubleBarrierBuilder {
    lockkeeper_client::setters! {
        /// How many parties a round needs, whoever they are; at least 1.
        pub fn count(self, parties: usize) => self.parties = Parties::Count(parties);

        /// Who takes part, by name: all of these make a round, and nobody else can enter. Then it can be said who is
        /// missing. Each is to be given once.
        pub fn names(self, names: impl IntoIterator<Item = impl Into<String>>) =>
            self.parties = Parties::named(names);

        /// What the death of a party means for the others. Default: [`Deaths::FailTheRound`].
        pub fn deaths(self, deaths: Deaths) => self.deaths = deaths;
    }

    /// Makes the barrier. No I/O.
    ///
    /// # Errors
    /// If the path cannot be that of a barrier, a name cannot be that of a party, or there are no parties.
    pub fn build(self) -> Result<DoubleBarrier, BarrierError> {
        let Self { client, path, parties, deaths } = self;
        if parties.are_none() {
            return Err(BarrierError::Nobody);
        }
        if let Parties::Names(names) = &parties {
            for name in names {
                prefix(name, &parties, client.unique_id())?;
            }
            if let Some(twice) = names.windows(2).find(|two| two[0] == two[1]) {
                let (name, reason) = (twice[0].clone(), "it is given twice".to_owned());
                return Err(BarrierError::Name { name, reason });
            }
        }
        let places = BarrierNodes::new(BarrierError::check_path(&client, &path)?);
        let markers = ZnodePath::new(DEFAULT_MARKERS).expect("a path");
        let writers = Writers::new(&client, markers);
        let owner = owner_data(&OwnerInfo::current(None));
        let (newest, swept) = (Mutex::default(), LastTime::default());
        Ok(DoubleBarrier(Arc::new(BarrierCore {
            client,
            places,
            parties,
            deaths,
            owner,
            newest,
            swept,
            writers,
        })))
    }
}

/// Who waits at a [`DoubleBarrier`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BarrierReport {
    /// The number of the next round, from 0.
    pub round: u32,
    /// Who waits for it, in the order in which they came; more often than once if somebody was there before under
    /// the same name, and its session has not ended.
    pub waiting: Vec<String>,
    /// Who is missing.
    pub missing: Missing,
    /// Who of those waits for other parties than this handle: their programs name others, or another number.
    pub others: Vec<String>,
    /// How many parties each of those who wait needs for a round, in their order: numbers up to 10,000. `None` if its
    /// parties are declared by name.
    pub wanted: Vec<Option<usize>>,
    /// Who is inside a round that has opened, and has not left it.
    pub inside: Vec<String>,
}

/// When that time is over, if anybody will see it.
fn after(timeout: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3_600);
    Instant::now() + timeout.min(FAR)
}

impl DoubleBarrier {
    /// The barrier at a path such as `/steps/reduce`, whose rounds need so many parties, at least 1, whoever they are. All
    /// programs have to say the same number. No I/O.
    ///
    /// # Errors
    /// If the path cannot be that of a barrier, or the number is 0.
    pub fn new(client: &Client, path: &str, parties: usize) -> Result<Self, BarrierError> {
        Self::builder(client, path).count(parties).build()
    }

    /// The options of a barrier, of which [the number of parties](DoubleBarrierBuilder::count) or
    /// [their names](DoubleBarrierBuilder::names) must be given.
    pub fn builder(client: &Client, path: &str) -> DoubleBarrierBuilder {
        let parties = Parties::Count(0);
        let (client, path, deaths) = (client.clone(), path.to_owned(), Deaths::default());
        DoubleBarrierBuilder { client, path, parties, deaths }
    }

    /// The barrier's path.
    pub fn path(&self) -> &ZnodePath {
        &self.0.places.path
    }

    /// Enters as the party of this name, and waits for all others. A name that somebody has who waits is waited for: an
    /// earlier life of the program counts until its session has ended. Costs one round trip (1 write), and one event.
    ///
    /// # Errors
    /// [`BarrierError::NotDeclared`]; if a request is refused, no server can be reached for a session timeout, or the
    /// client is closed. The round may have opened with this party then, and the others see it die.
    ///
    /// # Session loss
    /// Comes anew with the next session.
    ///
    /// # Cancel safety
    /// When dropped, its node is deleted in the background. If the round opens just then, the others see that it has died:
    /// [`DoubleBarrier::enter_timeout`] knows.
    pub async fn enter(&self, name: &str) -> Result<Round, BarrierError> {
        self.0.enter(name, None).await
    }

    /// The same for as long as this. An outage of the servers does not end it. It may take longer while no server can be
    /// reached, as nobody knows before whether the round has opened. Costs what that does, and 1 write more if it gives up.
    ///
    /// # Errors
    /// [`BarrierError::TimedOut`], with who is missing: this party has not entered, and nobody waits for it.
    /// [`BarrierError::Unknown`] if no server could be asked for a session timeout whether the round has opened. As
    /// [`DoubleBarrier::enter`].
    ///
    /// # Session loss
    /// Comes anew with the next session.
    ///
    /// # Cancel safety
    /// As [`DoubleBarrier::enter`].
    pub async fn enter_timeout(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Round, BarrierError> {
        self.0.enter(name, Some(after(timeout))).await
    }

    /// Looks who waits, who is missing, and who is inside. Makes the barrier if there is none. Costs 4 round trips (3 reads,
    /// and 1 for each open round, or failed round that is kept).
    ///
    /// # Errors
    /// If a request is refused, or no server can be reached for a session timeout.
    ///
    /// # Session loss
    /// Goes on with the next session.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn inspect(&self) -> Result<BarrierReport, BarrierError> {
        let core = &self.0;
        loop {
            let round = core.look_for_round().await?;
            let names = match present(core.client.children(&core.places.round(round)).await) {
                Ok(Some((names, _))) => names,
                Ok(None) => continue,
                Err(error) => {
                    core.again(error).await?;
                    continue;
                }
            };
            let mut waiting: Vec<_> =
                names.iter().filter_map(|name| PartyName::read(name)).collect();
            waiting.sort_unstable_by_key(PartyName::number);
            let wanted = wanted(&waiting);
            let waiting = waiting.iter().map(|party| party.name().to_owned()).collect();
            let missing = core.parties.standing(&names).err();
            let missing = missing.unwrap_or_else(|| core.parties.nobody());
            let others = core.parties.others(&names);
            let inside = match core.inside_before(round).await {
                Ok(inside) => inside,
                Err(error) => {
                    core.again(error).await?;
                    continue;
                }
            };
            return Ok(BarrierReport { round, waiting, missing, others, wanted, inside });
        }
    }
}

//! [`DoubleBarrier`]: parties enter and leave rounds together.

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

/// A barrier for programs that start a piece of work together and finish it together, round after round. Cheap to
/// clone.
///
/// # Guarantees
///
/// - A round opens when the required number of parties waits, or all declared parties. All of them were alive at
///   the transaction that opened it. The transaction lists them: exactly these parties have entered.
/// - A party that comes too late, or exceeds the number, waits for the next round. A failed round has no effect
///   on the next one.
/// - A party that times out has not entered, and a party that has entered gets its [`Round`]. No outcome lies
///   between.
/// - A party that dies inside is reported by name to all others, and is never confused with one that has left.
///   [`Deaths`] sets the consequence.
/// - A round is over when all parties have left or died. [`Round::leave`] returns then, and not before.
///
/// # Not guaranteed
///
/// - A party may die after the opening, before it has learned of it: the others have entered with it.
/// - The death of a party is known when its session has ended, not at once. A [`Round`] is held by a lease, so
///   that the party itself knows before the others do.
/// - Two rounds can be open at once if there are more parties than one round needs.
/// - Programs that declare other parties, or another number, do not enter the same round. A party that times out
///   gets their names.
/// - A complete round opens when the last party to come has noticed that. If that party is paused, the round
///   opens when it resumes, when its session ends, or when another party comes.
/// - A program that deletes the nodes of a party removes it. If servers are set back, all parties are gone with
///   their sessions.
/// - Servers before 3.6 cannot answer several listings in one request.
///
/// # Session loss
///
/// A party that waits for a round enters again with the next session. A party that is inside has died.
///
/// # Znodes
///
/// - `<path>`, `<path>/rounds` and `<path>/left` are persistent. Missing parents are created as container nodes.
///   The data of `<path>` has the version of the layout.
/// - `<path>/rounds/<round>` is the directory in which parties wait. Its data is empty until the round has
///   opened, and then lists the parties inside. Its child `<party>.<24 digits><number>` is ephemeral, and exists
///   until the party has left.
/// - `<path>/left/<round>/…` are marks of the parties that have left. They exist until the round is over.
/// - `/lockkeeper-outcomes/<uuid>` is the outcome marker of a handle, ephemeral.
///
/// The layout differs from those of Curator and kazoo: in theirs, a party that waits alone looks the same as one
/// that has entered with the others. `docs/barriers.md` compares them.
///
/// # Cost
///
/// - Entering costs 1 round trip (1 write, and a listing behind it). The last party makes one more, the opening
///   (1 write). The others get 1 event and make 1 read; none of them lists the round.
/// - Inside, each party has watches on two nodes.
/// - Leaving costs 1 round trip (1 write), and 1 event when all have left. The last party ends the round (1 write).
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
///         // All parties are inside.
///         assert_eq!(round.parties().len(), 2);
///         round.leave().await
///     }
/// };
/// let (a, b) = tokio::join!(party("a"), party("b"));
/// assert!(a?.is_empty() && b?.is_empty(), "no party has died");
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "DistributedDoubleBarrier")]
#[doc(alias = "CyclicBarrier")]
#[derive(Clone)]
pub struct DoubleBarrier(Arc<BarrierCore>);

lockkeeper_client::impl_debug!(DoubleBarrier, self => path: self.0.places.path, parties: self.0.parties);

/// Options of a [`DoubleBarrier`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct DoubleBarrierBuilder {
    client: Client,
    path: String,
    parties: Parties,
    deaths: Deaths,
}

impl DoubleBarrierBuilder {
    lockkeeper_client::setters! {
        /// Sets the number of parties that a round needs; at least 1. Any party counts.
        pub fn count(self, parties: usize) => self.parties = Parties::Count(parties);

        /// Declares the parties by name: a round needs all of them, and other parties cannot enter. Missing
        /// parties can then be reported by name. Each name must be given once.
        pub fn names(self, names: impl IntoIterator<Item = impl Into<String>>) =>
            self.parties = Parties::named(names);

        /// Sets what the death of a party means for the others. Default: [`Deaths::FailRound`].
        pub fn deaths(self, deaths: Deaths) => self.deaths = deaths;
    }

    /// Creates the handle. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a barrier, a name is not valid for a party, or no parties are given.
    pub fn build(self) -> Result<DoubleBarrier, BarrierError> {
        let Self { client, path, parties, deaths } = self;
        if parties.is_empty() {
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

/// The parties of a [`DoubleBarrier`] and their state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BarrierReport {
    /// The number of the next round, from 0.
    pub round: u32,
    /// The parties that wait for it, in the order in which they came. A name occurs twice if an earlier party of
    /// that name still has a live session.
    pub waiting: Vec<String>,
    /// The parties that are missing.
    pub missing: Missing,
    /// Those of the waiting parties that wait for other parties than this handle: their programs declare others,
    /// or another number.
    pub others: Vec<String>,
    /// The number of parties that each waiting party needs for a round, in the same order; up to 10,000. `None`
    /// if its parties are declared by name.
    pub wanted: Vec<Option<usize>>,
    /// The parties that are inside an open round and have not left it.
    pub inside: Vec<String>,
}

/// The end of the time limit, capped at thirty years.
fn after(timeout: Duration) -> Instant {
    const LONGEST: Duration = Duration::from_secs(30 * 365 * 24 * 3_600);
    Instant::now() + timeout.min(LONGEST)
}

impl DoubleBarrier {
    /// A barrier at a path such as `/steps/reduce` whose rounds need this number of parties, at least 1. All
    /// programs must use the same number. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a barrier, or the number is 0.
    pub fn new(client: &Client, path: &str, parties: usize) -> Result<Self, BarrierError> {
        Self::builder(client, path).count(parties).build()
    }

    /// The options of a barrier. [The number of parties](DoubleBarrierBuilder::count) or [their
    /// names](DoubleBarrierBuilder::names) must be set.
    pub fn builder(client: &Client, path: &str) -> DoubleBarrierBuilder {
        let parties = Parties::Count(0);
        let (client, path, deaths) = (client.clone(), path.to_owned(), Deaths::default());
        DoubleBarrierBuilder { client, path, parties, deaths }
    }

    /// The barrier's path.
    pub fn path(&self) -> &ZnodePath {
        &self.0.places.path
    }

    /// Enters as the party of this name, and waits for all others. Waits also while another party of the same
    /// name waits: an earlier run of the program counts until its session has ended. Costs one round trip (1
    /// write) and one event.
    ///
    /// # Errors
    /// [`BarrierError::NotDeclared`]; if a request is refused, no server can be reached for a session timeout, or
    /// the client is closed. In the last two cases the round may have opened with this party, and the others see
    /// it die.
    ///
    /// # Session loss
    /// Enters again with the next session.
    ///
    /// # Cancel safety
    /// When dropped, the party's node is deleted in the background. If the round opens at that moment, the others
    /// see the party die. [`DoubleBarrier::enter_timeout`] rules that out.
    pub async fn enter(&self, name: &str) -> Result<Round, BarrierError> {
        self.0.enter(name, None).await
    }

    /// Like [`DoubleBarrier::enter`], with a time limit. An outage of the servers does not end the call. It may
    /// take longer while no server can be reached, because it is unknown until then whether the round has opened.
    /// Costs the same, plus 1 write if the time is over.
    ///
    /// # Errors
    /// [`BarrierError::TimedOut`], with the missing parties: this party has not entered, and no other party
    /// counts it. [`BarrierError::Unknown`] if no server answered for a session timeout whether the round has
    /// opened. As [`DoubleBarrier::enter`].
    ///
    /// # Session loss
    /// Enters again with the next session.
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

    /// Lists the parties that wait, are missing, or are inside. Creates the barrier if it is missing. Costs 4
    /// round trips (3 reads, and 1 for each open round, or failed round that is kept).
    ///
    /// # Errors
    /// If a request is refused, or no server can be reached for a session timeout.
    ///
    /// # Session loss
    /// Continues with the next session.
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
            let missing = missing.unwrap_or_else(|| core.parties.none_missing());
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

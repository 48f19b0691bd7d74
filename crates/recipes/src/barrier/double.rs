//! [`DoubleBarrier`]: entering rounds.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::retry::{pause, reachable, retry_anywhere};
use lockkeeper_client::{
    Client, CreateMode, Created, Error, ErrorCode, NameUse, OpResult, Stat, Transaction,
    TransactionError, Watcher, ZnodePath, present,
};
use lockkeeper_locks::for_recipes::{grant, out_of_reach, owner_data};
use lockkeeper_locks::{AcquireError, OwnerInfo};
use tokio::time::Instant;

use crate::barrier::entry::PartyNode;
use crate::barrier::error::{BarrierError, Missing};
use crate::barrier::layout::{
    Kind, Parties, PartyName, Places, RoundData, RoundState, newest_round, prefix, rounds_before,
};
use crate::barrier::round::Round;
use crate::exact::shared_write::lock;
use crate::exact::{DEFAULT_MARKERS, WriteError, Writers};
use crate::last_time::LastTime;
use crate::values::place::checked;
use crate::wall_clock::millis;

/// How often a handle looks what is left of old rounds.
const SWEEPS_EVERY: Duration = Duration::from_secs(60);

/// How long what a round has told is kept, so that every session that was in it has read it, or has ended.
const KEPT_FOR: Duration = Duration::from_secs(3_600);

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
///   `<party>.<16 digits><number>` in it is ephemeral, and is there as long as the party has not left.
/// - `<path>/left/<round>/…` are marks that parties have left, until the round is over.
/// - `/lockkeeper-outcomes/<uuid>` is the outcome marker of a handle, ephemeral.
///
/// It is no layout of Curator or kazoo: in theirs, a party alone cannot be told from one that has entered with the
/// others. `docs/barriers.md` says how they compare.
///
/// # Cost
///
/// - Entering costs 1 round trip (1 write, and a listing behind it). The last one costs 1 more, the opening (1 write).
///   The others are told by 1 event, and make 1 read.
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
pub struct DoubleBarrier(Arc<Core>);

lockkeeper_client::impl_debug!(DoubleBarrier, self => path: self.0.places.path, parties: self.0.parties);

/// What it means for the others that a party dies inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deaths {
    /// The round has failed: [`Round::failed`] tells, and [`Round::leave`] is an error and waits for nobody.
    #[default]
    FailTheRound,
    /// The others go on: [`Round::leave`] waits for them, and says who has died.
    AreTold,
}

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
            self.parties = Parties::Names(names.into_iter().map(Into::into).collect());

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
                prefix(name, client.unique_id())?;
            }
        }
        let places = Places::new(checked(&client, &path)?);
        let markers = ZnodePath::new(DEFAULT_MARKERS).expect("a path");
        let writers = Writers::new(&client, markers);
        let owner = owner_data(&OwnerInfo::current(None));
        let (newest, swept) = (Mutex::default(), LastTime::default());
        Ok(DoubleBarrier(Arc::new(Core {
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
    /// client is closed.
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
    /// reached, as nobody knows before whether the round has opened.
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
        self.0.enter(name, Some(Instant::now() + timeout)).await
    }

    /// Looks who waits, and who is missing. Costs 2 round trips (2 reads).
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
            let waiting = waiting.iter().map(|party| party.name().to_owned()).collect();
            let missing = core.parties.standing(&names).err();
            let missing = missing.unwrap_or_else(|| core.parties.nobody());
            return Ok(BarrierReport { round, waiting, missing });
        }
    }
}

/// What the clones of a handle share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) client: Client,
    pub(super) places: Places,
    pub(super) parties: Parties,
    pub(super) deaths: Deaths,
    owner: Bytes,
    /// The round that parties enter, as far as it is known.
    newest: Mutex<Option<u32>>,
    /// When it was looked last what is left of old rounds.
    swept: LastTime,
    pub(super) writers: Writers,
}

/// A look at a round: what is in its node, with a watch, and the names in it.
type Look = (Bytes, Stat, Watcher, Vec<String>);

/// What came of waiting.
enum Waited {
    /// The round has opened with this party: its data, the version of that, and a watch on it.
    Opened(RoundData, i32, Watcher),
    /// It has opened without it.
    WithoutUs,
    /// The party's node is gone, with its session or otherwise.
    Gone,
}

impl Core {
    async fn enter(
        self: &Arc<Self>,
        name: &str,
        until: Option<Instant>,
    ) -> Result<Round, BarrierError> {
        if let Parties::Names(names) = &self.parties
            && !names.iter().any(|it| it == name)
        {
            let (path, name) = (self.places.path.clone(), name.to_owned());
            return Err(BarrierError::NotDeclared { path, name, parties: names.clone() });
        }
        loop {
            match self.try_enter(name, until).await {
                Ok(Some(round)) => return Ok(round),
                Ok(None) => {}
                Err(error) if until.is_some() && error.passes() && !self.client.is_closed() => {
                    let outlast = async {
                        reachable(&self.client).await;
                        pause().await;
                    };
                    if self.until(until, outlast).await.is_none() {
                        return Err(self.timed_out(self.parties.all_but(name)));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Comes into a round, and waits; `None` if that has to begin anew.
    async fn try_enter(
        self: &Arc<Self>,
        name: &str,
        until: Option<Instant>,
    ) -> Result<Option<Round>, BarrierError> {
        let number = match self.until(until, self.round()).await {
            Some(number) => number?,
            None => return Err(self.timed_out(self.parties.all_but(name))),
        };
        let directory = self.places.round(number);
        let own = prefix(name, self.client.unique_id())?;
        let mut party = PartyNode::new(&self.client, directory, own);
        let Some(look) = self.come(number, &mut party).await? else { return Ok(None) };

        let mut missing = self.parties.all_but(name);
        let waited = self.wait_in(number, &party, look, &mut missing);
        let waited = match self.until(until, waited).await {
            Some(waited) => waited?,
            None => match self.withdraw(number, &mut party).await? {
                Some(waited) => waited,
                None => return Err(self.timed_out(missing)),
            },
        };
        match waited {
            Waited::Opened(round, version, watcher) => {
                self.note_newest(number + 1);
                self.inside(number, party, (round, version, watcher)).await
            }
            Waited::WithoutUs => {
                self.note_newest(number + 1);
                Ok(None)
            }
            Waited::Gone => Ok(None),
        }
    }

    /// Creates the party's node, and looks at the round; `None` if that has to begin anew.
    async fn come(
        &self,
        number: u32,
        party: &mut PartyNode,
    ) -> Result<Option<Option<Look>>, BarrierError> {
        let directory = self.places.round(number);
        let node = directory.child(party.prefix()).expect("it was looked at before");
        let mut writer = self.writers.take();
        if let Err(error) = writer.prepare().await {
            return self.begin_anew(error).await;
        }

        // Sent in one go, and in this order: whoever comes last sees all the others.
        party.sent();
        let (written, look) = {
            let steps = |steps: Transaction| {
                let steps = steps.check(&directory, Some(0));
                steps.create(&node, self.owner.clone(), CreateMode::EphemeralSequential)
            };
            tokio::join!(biased; writer.commit(steps), self.look(&directory))
        };
        let applied = match written {
            Ok(applied) => applied,
            Err(error) => {
                if matches!(error, WriteError::NotApplied(_)) {
                    party.gone();
                }
                return match error {
                    error if error.refuses_first(&[ErrorCode::BadVersion]) => {
                        self.note_newest(number + 1);
                        Ok(None)
                    }
                    // Others are further, or somebody has deleted the barrier.
                    WriteError::NotApplied(TransactionError::Failed {
                        code: ErrorCode::NoNode,
                        ..
                    }) => {
                        *lock(&self.newest) = None;
                        Ok(None)
                    }
                    error => self.begin_anew(error).await,
                };
            }
        };

        let stat = Stat::of_new(applied.zxid, writer.marked_session());
        let created = applied.results.iter().flatten().find_map(|result| match result {
            OpResult::Create { path } | OpResult::Create2 { path, .. } => {
                path.rsplit_once('/').and_then(|(_, name)| PartyName::read(name))
            }
            _ => None,
        });
        let look = look.unwrap_or_default();
        let listed = || {
            let names = look.iter().flat_map(|(_, _, _, names)| names);
            names.filter_map(|name| PartyName::read(name)).find(|it| it.has_prefix(party.prefix()))
        };
        if let Some(name) = created.or_else(listed) {
            party.made(name, stat);
            return Ok(Some(look));
        }
        // The reply was lost, and with it the name.
        loop {
            match self.look(&directory).await {
                Ok(look) => {
                    let names = look.iter().flat_map(|(_, _, _, names)| names);
                    let mut names = names.filter_map(|name| PartyName::read(name));
                    let Some(name) = names.find(|it| it.has_prefix(party.prefix())) else {
                        return Ok(None);
                    };
                    party.made(name, stat);
                    return Ok(Some(look));
                }
                Err(error) => self.again(error).await?,
            }
        }
    }

    /// Waits until the round has opened, and opens it if it is complete.
    async fn wait_in(
        self: &Arc<Self>,
        number: u32,
        party: &PartyNode,
        mut look: Option<Look>,
        missing: &mut Missing,
    ) -> Result<Waited, BarrierError> {
        let directory = self.places.round(number);
        loop {
            let was_before = look.is_some();
            let looked = match look.take() {
                Some(look) => Ok(Some(look)),
                None => self.look(&directory).await,
            };
            let (data, stat, mut watcher, names) = match looked {
                Ok(Some(look)) => look,
                Ok(None) => {
                    *lock(&self.newest) = None;
                    return Ok(Waited::Gone);
                }
                Err(error) => {
                    self.again(error).await?;
                    continue;
                }
            };
            // Its nodes are gone by then, or will be.
            if self.client.session_id() != party.session() {
                return Ok(Waited::Gone);
            }
            match self.read(&data)? {
                RoundState::Opened(round) if round.has(party.prefix()) => {
                    return Ok(Waited::Opened(round, stat.version, watcher));
                }
                RoundState::Opened(_) => return Ok(Waited::WithoutUs),
                RoundState::Waits => {}
            }
            if !names.iter().any(|name| name.starts_with(party.prefix())) {
                // The first look may have come before the node.
                if was_before {
                    continue;
                }
                return Ok(Waited::Gone);
            }
            match self.parties.standing(&names) {
                Ok(parties) => {
                    self.open(number, parties).await?;
                    continue;
                }
                Err(those) => *missing = those,
            }
            tokio::select! {
                // One order, so that a simulation can be repeated.
                biased;
                _ = watcher.changed() => {}
                error = out_of_reach(&self.client, &self.places.path) => {
                    return Err(BarrierError::enter(&self.places.path, error));
                }
            }
        }
    }

    /// Opens a round with these parties, unless one of them has gone, or it has opened. Returns when it is worth a look.
    async fn open(
        self: &Arc<Self>,
        number: u32,
        parties: Vec<PartyName>,
    ) -> Result<(), BarrierError> {
        let places = &self.places;
        let nodes: Vec<_> = parties.iter().map(|party| places.party(number, party)).collect();
        let data = RoundData::opening(parties).to_data();
        let (directory, next) = (places.round(number), places.round(number + 1));
        let left = places.left(number);
        let mut writer = self.writers.take();
        let opened = writer.commit(|steps| {
            let steps = nodes.iter().fold(steps, |steps, node| steps.check(node, None));
            let steps = steps.set_data(&directory, data.clone(), Some(0));
            let steps = steps.create(&next, "", CreateMode::Persistent);
            steps.create(&left, "", CreateMode::Persistent)
        });
        match opened.await {
            Ok(applied) => {
                self.sweep_now_and_then(number, applied.at_unix_ms);
                Ok(())
            }
            Err(WriteError::NotApplied(TransactionError::Failed {
                code: ErrorCode::NoNode | ErrorCode::BadVersion,
                ..
            })) => Ok(()),
            Err(WriteError::NotApplied(TransactionError::Request(error))) => {
                self.again(error).await
            }
            // The session is over, or the look tells.
            Err(WriteError::Unknown(_)) => Ok(()),
            Err(error) => Err(BarrierError::write(&places.path, error)),
        }
    }

    /// Deletes, in the background, what is left of rounds that were over long ago: of one in which somebody has died, what
    /// it has told the others, and of one in which all have died, everything. `now`: milliseconds since 1970 by the servers'
    /// clock.
    fn sweep_now_and_then(self: &Arc<Self>, opened: u32, now: Option<u64>) {
        let Some(now) = now else { return };
        if !self.swept.is_due(SWEEPS_EVERY, self.client.now()) {
            return;
        }
        let core = Arc::clone(self);
        self.client.tokio_runtime().spawn(async move {
            // Whoever looks next goes on where this fails.
            let Ok((names, _)) = core.client.children(&core.places.rounds).await else { return };
            for number in rounds_before(&names, opened) {
                let directory = core.places.round(number);
                let Ok((_, stat)) = core.client.data(&directory).await else { return };
                let written = u64::try_from(stat.mtime).unwrap_or_default();
                let is_old = written.saturating_add(millis(KEPT_FOR)) < now;
                if !is_old || stat.num_children > 0 {
                    continue;
                }
                let marks = core.places.left(number);
                let left = present(core.client.children(&marks).await).ok().flatten();
                let left = left.map(|(names, _)| names).unwrap_or_default();
                let marked = left.iter().filter_map(|name| marks.child(name).ok());
                for node in marked.chain([marks.clone(), directory]) {
                    drop(core.client.delete(&node, None));
                }
            }
        });
    }

    /// Takes the party out of the round, unless that has opened; `None` if it is out.
    async fn withdraw(
        &self,
        number: u32,
        party: &mut PartyNode,
    ) -> Result<Option<Waited>, BarrierError> {
        let directory = self.places.round(number);
        let Some((name, _)) = party.created() else { return Ok(None) };
        let node = self.places.party(number, name);
        let session = party.session();
        let mut writer = self.writers.take();
        let withdrawn = writer
            .commit_in(Some(session), |steps| steps.check(&directory, Some(0)).delete(&node, None));
        match withdrawn.await {
            Ok(_) => {
                party.gone();
                return Ok(None);
            }
            Err(error) if error.refuses_first(&[ErrorCode::BadVersion]) => {}
            // It is gone.
            Err(WriteError::NotApplied(TransactionError::Failed { .. })) => return Ok(None),
            Err(
                WriteError::NotApplied(TransactionError::Request(error))
                | WriteError::Unknown(TransactionError::Request(error)),
            ) if error.is_session_expired() => return Ok(None),
            Err(WriteError::NotApplied(source)) => {
                return Err(BarrierError::Unknown { path: self.places.path.clone(), source });
            }
            Err(error) => return Err(BarrierError::write(&self.places.path, error)),
        }
        loop {
            match self.look(&directory).await {
                Ok(Some((data, stat, watcher, _))) => match self.read(&data)? {
                    RoundState::Opened(round) if round.has(party.prefix()) => {
                        let opened = Waited::Opened(round, stat.version, watcher);
                        return Ok(Some(opened));
                    }
                    _ => return Ok(None),
                },
                Ok(None) => return Ok(None),
                Err(error) => self.again(error).await?,
            }
        }
    }

    /// A party that is inside; `None` if its session is over already.
    async fn inside(
        self: &Arc<Self>,
        number: u32,
        party: PartyNode,
        opened: (RoundData, i32, Watcher),
    ) -> Result<Option<Round>, BarrierError> {
        let Some((name, stat)) = party.created() else { return Ok(None) };
        let created = Created { path: self.places.party(number, name), stat };
        match grant(&self.client, &self.places.path, created, NameUse::Once).await {
            Ok(guard) => Ok(Some(Round::new(self, number, guard, party, opened))),
            Err(AcquireError::SessionExpired { .. }) => Ok(None),
            Err(error) => Err(BarrierError::enter(&self.places.path, error)),
        }
    }

    /// A look at a round; `None` if there is none. The watch is set before it is listed.
    async fn look(&self, directory: &ZnodePath) -> Result<Option<Look>, Error> {
        let (data, names) = tokio::join!(
            biased;
            self.client.data_watched(directory),
            self.client.children(directory)
        );
        let Some(((data, stat), watcher)) = present(data)? else { return Ok(None) };
        Ok(present(names)?.map(|(names, _)| (data, stat, watcher, names)))
    }

    pub(super) fn read(&self, data: &[u8]) -> Result<RoundState, BarrierError> {
        let path = self.places.rounds.clone();
        let foreign = |found| BarrierError::Foreign { path, kind: "double barrier", found };
        RoundState::read(data).map_err(foreign)
    }

    /// The round that parties enter, as far as it is known here.
    async fn round(&self) -> Result<u32, BarrierError> {
        let known = *lock(&self.newest);
        match known {
            Some(known) => Ok(known),
            None => self.look_for_round().await,
        }
    }

    /// The same by a look. Makes the barrier if there is none.
    async fn look_for_round(&self) -> Result<u32, BarrierError> {
        loop {
            match present(self.client.children(&self.places.rounds).await) {
                Ok(Some((names, _))) => {
                    if let Some(number) = newest_round(&names) {
                        self.note_newest(number);
                        return Ok(number);
                    }
                    let first = self.places.round(0);
                    match self.client.create(&first, "", CreateMode::Persistent).await {
                        Ok(_) => {}
                        Err(error) if error.code().is_some_and(is_of_others) => {}
                        Err(error) => self.again(error).await?,
                    }
                }
                Ok(None) => self.make().await?,
                Err(error) => self.again(error).await?,
            }
        }
    }

    fn note_newest(&self, number: u32) {
        let mut newest = lock(&self.newest);
        *newest = Some(newest.map_or(number, |known| known.max(number)));
    }

    /// Makes the barrier. There may be one by now.
    async fn make(&self) -> Result<(), BarrierError> {
        let Places { path, rounds, left } = &self.places;
        let first = self.places.round(0);
        let steps = self.client.transaction();
        let steps = steps.create(path, Kind::Rounds.mark(), CreateMode::Persistent);
        let steps = [rounds, &first, left]
            .into_iter()
            .fold(steps, |steps, node| steps.create(node, "", CreateMode::Persistent));
        match steps.commit().await {
            Ok(_) => Ok(()),
            Err(TransactionError::Failed { code: ErrorCode::NodeExists, .. }) => {
                match present(self.client.data(path).await) {
                    Ok(None) => Ok(()),
                    Ok(Some((data, _))) => Kind::Rounds.ensure(path, &data),
                    Err(error) => self.again(error).await,
                }
            }
            Err(TransactionError::Failed { code: ErrorCode::NoNode, .. }) => {
                let Some(parent) = path.parent() else { return Ok(()) };
                match self.client.ensure(&parent, CreateMode::Container).await {
                    Ok(()) => Ok(()),
                    Err(error) => self.again(error).await,
                }
            }
            Err(TransactionError::Request(error)) => self.again(error).await,
            Err(source) => Err(BarrierError::Refused { path: path.clone(), source }),
        }
    }

    /// Returns when a request that failed may be made again.
    pub(super) async fn again(&self, error: Error) -> Result<(), BarrierError> {
        retry_anywhere(error).await.map_err(|error| BarrierError::read(&self.places.path, error))
    }

    /// The same for a write of a party that comes: with the next session, if it was of the last.
    async fn begin_anew<T>(&self, error: WriteError) -> Result<Option<T>, BarrierError> {
        match error {
            WriteError::NotApplied(TransactionError::Request(error)) => {
                self.again(error).await.map(|()| None)
            }
            WriteError::Unknown(TransactionError::Request(error)) if error.is_session_expired() => {
                Ok(None)
            }
            error => Err(BarrierError::write(&self.places.path, error)),
        }
    }

    /// What comes of it before this time.
    async fn until<T>(&self, until: Option<Instant>, wait: impl Future<Output = T>) -> Option<T> {
        match until {
            Some(until) => tokio::time::timeout_at(until, wait).await.ok(),
            None => Some(wait.await),
        }
    }

    fn timed_out(&self, missing: Missing) -> BarrierError {
        BarrierError::TimedOut { path: self.places.path.clone(), missing }
    }
}

/// Whether others have made what was to be made, or taken away where.
fn is_of_others(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::NodeExists | ErrorCode::NoNode)
}

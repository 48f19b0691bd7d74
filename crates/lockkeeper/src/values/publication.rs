//! What one publishes as a whole, and many follow: configuration of any size, with its history.
//!
//! Guarantees  whoever follows it sees whole editions only, however large they are, and never an older
//!             one after a newer one. An edition is published once, also when replies are lost; it is
//!             unknown whether it was only if the session ended before an answer came.
//! Not         every edition for those who follow it: several in a row may be one.
//! Znodes      `<path>`, persistent: a line of JSON that says which editions there are, and after it the
//!             last one, if that is no longer than 256 KiB. `<path>/<uuid>`, persistent: an edition, or
//!             its parts of 512 KiB as nodes below it, which never change. `<path>/<uuid>/writing`,
//!             ephemeral: the parts are being written. `/lockkeeper-outcomes/<uuid>`: the outcome
//!             marker of a handle.
//! Cost        publish: 1 round trip (1 write) when the last edition is this handle's, 2 else, and a
//!             write for each part. Following: 1 event and 1 read for a change; for an edition in parts
//!             a read for each, in 1 more round trip.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let engine = lockkeeper_engine::Engine::builder().start().await?;
//! # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
//! use lockkeeper::{Publication, ValueChange};
//!
//! let routes: Publication<Vec<String>> = Publication::new(&client, "/routes")?;
//! let first = routes.publish(&vec!["a".into()]).await?;
//! routes.publish(&vec!["a".into(), "b".into()]).await?;
//!
//! let mut editions = routes.follow();
//! match editions.next().await? {
//!     ValueChange::Set(now) => assert_eq!(now.value, ["a", "b"]),
//!     other => panic!("{other:?}"),
//! }
//! // Back to the first one, under a new number.
//! assert_eq!(routes.rollback(first).await?, Some(3));
//! assert_eq!(routes.editions().await?, [1, 2, 3]);
//! # client.close().await;
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use lockkeeper_client::{
    Client, CreateMode, DefaultAcl, Error, ErrorCode, OpCode, Transaction, TransactionError,
    ZnodePath,
};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::contender::retry::retry_backoff;
use crate::exact::{ExactWriter, WriteError};
use crate::values::codec::{Codec, Json};
use crate::values::editions::{Editions, fetch};
use crate::values::error::{ValueError, ValuePathError};
use crate::values::manifest::{Entry, Manifest, ManifestCodec, part_name};
use crate::values::place::{Place, markers, present};
use crate::values::revision::Versioned;
use crate::values::shared::{Shared, SharedBuilder};

/// The longest edition that comes along with the news of it, in bytes. It is written twice in one
/// request.
const INLINE: usize = 256 * 1024;

/// The length of a part, in bytes.
const PART: usize = 512 * 1024;

/// How many editions are kept, unless a builder says otherwise.
const KEPT: u16 = 5;

/// How often an edition is written whose session ends meanwhile.
const TRIES: u32 = 3;

/// What one publishes as a whole, and many follow.
///
/// Do not use it for what changes many times a second, nor as a store of files: everyone who follows it
/// reads each edition, and servers keep all of it in memory. For one short value that many change,
/// [`Shared`] is simpler. Cheap to clone.
pub struct Publication<T, C = Json> {
    place: Place,
    codec: Arc<C>,
    kept: usize,
    /// The node that says which editions there are.
    pointer: Shared<Manifest, ManifestCodec>,
    state: Arc<Mutex<State>>,
    value: PhantomData<fn(T) -> T>,
}

struct State {
    writer: ExactWriter,
    /// What this handle wrote last, and the version of the node; `None` without a node.
    known: Option<(Manifest, Option<i32>)>,
}

/// The options of a [`Publication`].
#[must_use = "nothing is made before `build`"]
pub struct PublicationBuilder<T, C = Json> {
    client: Client,
    path: String,
    codec: C,
    kept: u16,
    markers: Option<String>,
    value: PhantomData<fn() -> T>,
}

impl<T, C> PublicationBuilder<T, C> {
    /// How editions are written as bytes. Default: [`Json`].
    pub fn codec<D>(self, codec: D) -> PublicationBuilder<T, D> {
        let Self { client, path, kept, markers, value, .. } = self;
        PublicationBuilder { client, path, codec, kept, markers, value }
    }

    /// How many editions are kept, the last one included: 1 to 65,535. Default: 5. Whoever publishes
    /// decides.
    pub fn keep(mut self, editions: u16) -> Self {
        self.kept = editions.max(1);
        self
    }

    /// The access control list of the nodes that are created. Default: that of the client; see
    /// [`DefaultAcl`].
    pub fn acl(mut self, acl: &DefaultAcl) -> Self {
        self.client = self.client.with_default_acl(acl);
        self
    }

    /// The directory of the outcome markers; see
    /// [`CounterBuilder::markers`](crate::CounterBuilder::markers).
    pub fn markers(mut self, directory: &str) -> Self {
        self.markers = Some(directory.to_owned());
        self
    }

    /// Makes the handle. No I/O.
    ///
    /// # Errors
    /// If one of the paths cannot be that of a value.
    pub fn build(self) -> Result<Publication<T, C>, ValuePathError>
    where
        C: Codec<T>,
    {
        let place = Place::new(&self.client, &self.path)?;
        let markers = markers(self.markers.as_deref())?;
        let writer = ExactWriter::new(&self.client, &markers);
        Ok(Publication {
            place,
            codec: Arc::new(self.codec),
            kept: self.kept.into(),
            pointer: SharedBuilder::new(&self.client, &self.path).codec(ManifestCodec).build()?,
            state: Arc::new(Mutex::new(State { writer, known: None })),
            value: PhantomData,
        })
    }
}

impl<T> Publication<T> {
    /// The options of a publication.
    pub fn builder(client: &Client, path: &str) -> PublicationBuilder<T> {
        let (client, path) = (client.clone(), path.to_owned());
        PublicationBuilder {
            client,
            path,
            codec: Json,
            kept: KEPT,
            markers: None,
            value: PhantomData,
        }
    }
}

impl<T> Publication<T>
where
    Json: Codec<T>,
{
    /// The publication at a path such as `/app/routes`, written as JSON. No I/O.
    ///
    /// # Errors
    /// If the path cannot be that of a value.
    pub fn new(client: &Client, path: &str) -> Result<Self, ValuePathError> {
        Self::builder(client, path).build()
    }
}

impl<T, C: Codec<T>> Publication<T, C> {
    /// The publication's path.
    pub fn path(&self) -> &ZnodePath {
        &self.place.path
    }

    /// Publishes an edition, and gives its number, counted from 1.
    ///
    /// # Errors
    /// If it cannot be written as bytes, the node holds something else, the node above it does not
    /// exist, or a request is refused; nothing was published then. [`ValueError::Unknown`], the only
    /// error with an unknown [outcome](ValueError::outcome), if the session ended, or no server could be
    /// reached for a whole session timeout, after it was sent and before an answer came.
    ///
    /// # Session loss
    /// What was not sent yet goes on in the next session; parts are written again.
    ///
    /// # Cancel safety
    /// When dropped, it is published once or not at all. Parts that are left of it are deleted when the
    /// next edition in parts is published.
    pub async fn publish(&self, value: &T) -> Result<u64, ValueError> {
        let body = self.codec.encode(value).map_err(|error| ValueError::Unencodable {
            path: self.place.path.clone(),
            reason: error.to_string(),
        })?;
        let mut state = self.state.lock().await;
        let mut tries = TRIES;
        loop {
            let draft = Draft::new(&self.place, body.clone());
            tries -= 1;
            let written = match draft.write(&self.place).await {
                Ok(()) => self.turn(&mut state, &draft).await,
                Err(error) => Err(error),
            };
            match written {
                Err(Turn::DraftLost) if tries > 0 => {}
                Err(error) => return Err(error.told(&self.place)),
                Ok(number) => {
                    if draft.parts > 0 {
                        self.sweep(&state).await;
                    }
                    return Ok(number);
                }
            }
        }
    }

    /// Publishes an edition once more, under a new number, which it gives; `None` if that edition is
    /// not among those that are kept. Costs as much as publishing, but no parts are written.
    ///
    /// # Errors
    /// As [`Publication::publish`].
    ///
    /// # Session loss
    /// As [`Publication::publish`].
    ///
    /// # Cancel safety
    /// As [`Publication::publish`].
    pub async fn rollback(&self, number: u64) -> Result<Option<u64>, ValueError> {
        let mut state = self.state.lock().await;
        loop {
            state.known = None;
            let (manifest, version) = self.manifest().await?;
            let entry = manifest.editions.iter().find(|entry| entry.number == number).cloned();
            let Some(entry) = entry else { return Ok(None) };
            let draft = Draft {
                inline: match entry.bytes <= INLINE {
                    true => match fetch(&self.place, &entry).await? {
                        Some(body) => Some(body),
                        // Dropped meanwhile, and then it is not in the manifest any more.
                        None if self.manifest().await?.1 != version => continue,
                        None => return Ok(None),
                    },
                    false => None,
                },
                id: entry.id,
                parts: entry.parts,
                bytes: entry.bytes,
                body: None,
            };
            state.known = Some((manifest, version));
            match self.turn(&mut state, &draft).await {
                Ok(number) => return Ok(Some(number)),
                Err(Turn::Conflict) => {}
                Err(error) => return Err(error.told(&self.place)),
            }
        }
    }

    /// Reads the last edition; `None` before the first one. Costs 1 round trip, or 2 for a long one.
    ///
    /// # Errors
    /// [`ValueError::Undecodable`] if it cannot be read as a value; or if no server can be reached for a
    /// whole session timeout.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn current(&self) -> Result<Option<Versioned<T>>, ValueError> {
        let mut editions = self.follow();
        match editions.next_found().await? {
            None => Ok(None),
            Some((revision, Ok(value))) => Ok(Some(Versioned { value, revision })),
            Some((revision, Err(reason))) => {
                let path = self.place.path.clone();
                Err(ValueError::Undecodable { path, revision, reason })
            }
        }
    }

    /// The numbers of the editions that are kept, the last one at the end. Costs one round trip.
    ///
    /// # Errors
    /// As [`Publication::current`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn editions(&self) -> Result<Vec<u64>, ValueError> {
        let (manifest, _) = self.manifest().await?;
        Ok(manifest.editions.iter().map(|entry| entry.number).collect())
    }

    /// Follows the publication, beginning with the last edition. Nothing is sent before the first
    /// [`Editions::next`].
    pub fn follow(&self) -> Editions<T, C> {
        Editions::new(self.place.clone(), Arc::clone(&self.codec), self.pointer.changes())
    }

    async fn manifest(&self) -> Result<(Manifest, Option<i32>), ValueError> {
        let found = self.pointer.get().await?;
        Ok(found.map_or((Manifest::default(), None), |found| {
            let Versioned { value, revision } = found;
            (value, Some(revision.version))
        }))
    }

    /// Makes a draft the last edition: one write, which nobody sees a part of. A rollback tells of a
    /// conflict; a new edition goes behind whatever was published meanwhile.
    async fn turn(&self, state: &mut State, draft: &Draft) -> Result<u64, Turn> {
        let Place { client, path } = &self.place;
        let mut deletes = true;
        loop {
            let (old, version) = match state.known.take() {
                Some(known) => known,
                None => self.manifest().await?,
            };
            if version == Some(-1) {
                return Err(ValueError::VersionWrapped { path: path.clone() }.into());
            }
            let number = old.last().map_or(1, |last| last.number + 1);
            let mut new = old.clone();
            let mut gone = new.push(draft.entry(number), draft.inline.clone(), self.kept);
            // The parts of long ones are for the sweep.
            gone.retain(|entry| deletes && entry.parts == 0);
            let data = ManifestCodec.encode(&new).expect("names and numbers are always JSON");

            let written = state.writer.commit(|steps| {
                let steps = match version {
                    None => steps.create(path, data.clone(), CreateMode::Persistent),
                    version => steps.set_data(path, data.clone(), version),
                };
                let steps = draft.finish(steps, &self.place);
                gone.iter().fold(steps, |steps, entry| steps.delete(&node(path, &entry.id), None))
            });
            let seen = async { present(client.data(path).await) };
            let (written, seen) = tokio::join! { biased; written, seen };

            let error = match written {
                Ok(_) => {
                    let version = version.map_or(0, |version| version.wrapping_add(1));
                    state.known = Some((new, Some(version)));
                    return Ok(number);
                }
                Err(error) => error,
            };
            match Refusal::of(&error, version, draft) {
                Refusal::Conflict if draft.body.is_none() => return Err(Turn::Conflict),
                Refusal::Conflict => {
                    if let Ok(Some((data, stat))) = seen {
                        let manifest = ManifestCodec.decode(&data).map_err(|error| {
                            let (path, reason) = (path.clone(), error.to_string());
                            ValueError::Undecodable { path, revision: stat.into(), reason }
                        })?;
                        state.known = Some((manifest, Some(stat.version)));
                    }
                }
                Refusal::OldEdition if deletes => {
                    deletes = false;
                    state.known = Some((old, version));
                }
                Refusal::DraftLost => return Err(Turn::DraftLost),
                Refusal::OldEdition | Refusal::Other => {
                    return Err(ValueError::write(path, error).into());
                }
            }
        }
    }

    /// Deletes what is no edition and is not being written: what is left of long editions. Only while
    /// the manifest is the known one, so that nothing which has become an edition is deleted.
    async fn sweep(&self, state: &State) {
        let (Place { client, path }, Some((manifest, version))) = (&self.place, &state.known)
        else {
            return;
        };
        let Ok((names, _)) = client.children(path).await else { return };
        for name in names {
            // Other names are somebody else's nodes.
            if Uuid::try_parse(&name).is_err()
                || manifest.editions.iter().any(|entry| entry.id == name)
            {
                continue;
            }
            let node = node(path, &name);
            let Ok((parts, _)) = client.children(&node).await else { continue };
            if parts.iter().any(|part| part == WRITING) {
                continue;
            }
            let steps = client.transaction().check(path, *version);
            let parts = parts.iter().filter_map(|part| node.child(part).ok());
            let steps = parts.fold(steps, |steps, part| steps.delete(&part, None));
            // Whoever publishes next tries again.
            let _ = steps.delete(&node, None).commit().await;
        }
    }
}

impl<T, C> Clone for Publication<T, C> {
    fn clone(&self) -> Self {
        Self {
            place: self.place.clone(),
            codec: Arc::clone(&self.codec),
            kept: self.kept,
            pointer: self.pointer.clone(),
            state: Arc::clone(&self.state),
            value: PhantomData,
        }
    }
}

impl<T, C> fmt::Debug for PublicationBuilder<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicationBuilder").field("path", &self.path).finish_non_exhaustive()
    }
}

impl<T, C> fmt::Debug for Publication<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publication").field("path", &self.place.path).finish_non_exhaustive()
    }
}

/// Why a draft has not become the last edition.
enum Turn {
    /// Its parts are not certain to be there: the session that wrote them has ended.
    DraftLost,
    /// Another edition was published meanwhile.
    Conflict,
    Failed(ValueError),
}

/// Why the write was refused that makes a draft the last edition.
enum Refusal {
    /// The manifest is another one by now.
    Conflict,
    /// The parts are not certain to be there.
    DraftLost,
    /// An old edition cannot be deleted: somebody else did, or put something below it.
    OldEdition,
    Other,
}

impl Refusal {
    fn of(error: &WriteError, version: Option<i32>, draft: &Draft) -> Self {
        use ErrorCode::{BadVersion, NoNode, NodeExists, NotEmpty};
        let WriteError::NotApplied(TransactionError::Failed { index, code, .. }) = error else {
            return Self::Other;
        };
        // The manifest, what belongs to the draft, and the old editions.
        let is_new = draft.body.is_some();
        match (*index, *code) {
            (0, BadVersion | NodeExists) => Self::Conflict,
            (0, NoNode) if version.is_some() => Self::Conflict,
            (1, NoNode) if is_new && draft.parts > 0 => Self::DraftLost,
            (1.., NoNode | NotEmpty) if !is_new || *index > 1 => Self::OldEdition,
            _ => Self::Other,
        }
    }
}

impl From<ValueError> for Turn {
    fn from(error: ValueError) -> Self {
        Self::Failed(error)
    }
}

impl Turn {
    fn told(self, place: &Place) -> ValueError {
        match self {
            Self::Failed(error) => error,
            Self::DraftLost | Self::Conflict => {
                let path = place.path.clone();
                ValueError::SessionsTooShort { path }
            }
        }
    }
}

/// The name of the node that says that parts are being written.
const WRITING: &str = "writing";

/// An edition that is about to be the last one.
struct Draft {
    id: String,
    parts: u32,
    bytes: usize,
    /// What comes along with the news.
    inline: Option<Bytes>,
    /// All of it, unless it is on the servers already.
    body: Option<Bytes>,
}

impl Draft {
    fn new(place: &Place, body: Bytes) -> Self {
        let (id, bytes) = (place.client.unique_id().to_string(), body.len());
        let inline = (bytes <= INLINE).then(|| body.clone());
        let parts = match inline {
            Some(_) => 0,
            None => u32::try_from(bytes.div_ceil(PART)).unwrap_or(u32::MAX),
        };
        Self { id, parts, bytes, inline, body: Some(body) }
    }

    fn entry(&self, number: u64) -> Entry {
        Entry { number, id: self.id.clone(), parts: self.parts, bytes: self.bytes }
    }

    /// What belongs to the write that makes it an edition.
    fn finish(&self, steps: Transaction, place: &Place) -> Transaction {
        let node = node(&place.path, &self.id);
        match &self.body {
            None => steps,
            Some(body) if self.parts == 0 => {
                steps.create(&node, body.clone(), CreateMode::Persistent)
            }
            Some(_) => steps.delete(&self::node(&node, WRITING), None),
        }
    }

    /// Writes the parts, if there are any, as long as the session lasts in which it began.
    async fn write(&self, place: &Place) -> Result<(), Turn> {
        let (Place { client, path }, Some(body)) = (place, &self.body) else { return Ok(()) };
        if self.parts == 0 {
            return Ok(());
        }
        let (directory, empty) = (node(path, &self.id), Bytes::new());
        let writing = node(&directory, WRITING);

        let begin = || {
            let steps = client.transaction();
            let steps = steps.create(&directory, empty.clone(), CreateMode::Persistent);
            steps.create(&writing, empty.clone(), CreateMode::Ephemeral)
        };
        let above = || client.transaction().create(path, empty.clone(), CreateMode::Persistent);
        place.once(above).await?;
        place.once(begin).await?;
        for (number, part) in (0..).zip(body.chunks(PART)) {
            let (name, part) = (node(&directory, &part_name(number)), body.slice_ref(part));
            let write = || {
                let steps = client.transaction().check(&writing, None);
                steps.create(&name, part.clone(), CreateMode::Persistent)
            };
            place.once(write).await?;
        }
        Ok(())
    }
}

impl Place {
    /// Commits what creates nodes of names that nobody else uses: if one exists, it was applied before.
    async fn once(&self, steps: impl Fn() -> Transaction) -> Result<(), Turn> {
        loop {
            let error = match steps().commit().await {
                Ok(_) | Err(TransactionError::Failed { code: ErrorCode::NodeExists, .. }) => {
                    return Ok(());
                }
                Err(TransactionError::Failed {
                    op: OpCode::Check,
                    code: ErrorCode::NoNode,
                    ..
                }) => return Err(Turn::DraftLost),
                Err(TransactionError::Request(error)) => error,
                Err(error) => {
                    return Err(ValueError::write(&self.path, WriteError::NotApplied(error)).into());
                }
            };
            self.passing(error).await?;
        }
    }

    /// Returns when a write may be tried again.
    async fn passing(&self, error: Error) -> Result<(), Turn> {
        if error.is_session_expired() {
            return Ok(());
        }
        retry_backoff(error).await.map_err(|error| {
            let error = WriteError::NotApplied(TransactionError::Request(error));
            ValueError::write(&self.path, error).into()
        })
    }
}

fn node(above: &ZnodePath, name: &str) -> ZnodePath {
    above.child(name).expect("hexadecimal digits, dashes and letters")
}

//! [`Publication`]: what one publishes as a whole, and many follow. `draft.rs` writes an edition, and
//! `manifest.rs` is what the pointer at `<path>` says.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use lockkeeper_client::{
    Client, CreateMode, Error, SessionId, Stat, Transaction, ZnodePath, Zxid, present,
};

use crate::exact::shared_write::lock;
use crate::exact::{ExactWriter, Writers};
use crate::values::changes::Editions;
use crate::values::codec::{Codec, Json};
use crate::values::draft::{Draft, Refusal, Turn, WRITING, inline_limit, node};
use crate::values::editions::{Content, edition, fetch};
use crate::values::error::{ValueError, ValuePathError};
use crate::values::manifest::{Edition, Manifest, ManifestCodec, is_edition_name};
use crate::values::place::{Place, PlaceOptions, place_options};
use crate::values::revision::{Revision, Versioned};

/// How many editions are kept, unless a builder says otherwise.
const KEPT: u16 = 5;

/// The most editions that can be kept: what is said of so many, and the last one twice, is less than a
/// server takes in one request.
const MOST_KEPT: u16 = 1_000;

/// How often an edition is written whose session ends meanwhile.
const TRIES: u32 = 3;

/// What one publishes as a whole, and many follow: configuration of any size, with its history.
///
/// Do not use it for what changes many times a second, nor as a store of files: everyone who follows it
/// reads each edition, and servers keep all of it in memory. For one short value that many change,
/// [`Shared`](crate::Shared) is simpler. Cheap to clone.
///
/// # Guarantees
///
/// - Whoever follows it sees whole editions only, however large they are, and never an older one
///   after a newer one.
/// - An edition is published once, also when replies are lost. It is unknown whether it was
///   published only if, before an answer came, the session ended, no server could be reached for a
///   whole session timeout, or somebody deleted the outcome marker.
///
/// # Not guaranteed
///
/// - Not every edition is seen by those who follow it: several in a row may be one.
/// - Nothing is guaranteed for a pointer that somebody deletes and makes anew: once it has been
///   written as often as the old one, it has the same version.
///
/// # Znodes
///
/// - `<path>`, persistent, is the pointer: a line of JSON that says which editions there are, and
///   after it the last one, if that is no longer than 256 KiB.
/// - `<path>/<uuid>`, persistent, is an edition, or its parts of 512 KiB as nodes below it. What is in
///   them never changes. Each edition writes the node once, so that its `mtime` is the time of the last one.
/// - `<path>/<uuid>/writing`, ephemeral, is there while the parts are being written.
/// - `/lockkeeper-outcomes/<uuid>` is the outcome marker of a handle.
///
/// # Cost
///
/// - Publishing costs 1 round trip (1 write) when the last edition is this handle's in the same
///   session, and 2 otherwise. It costs 1 more for each time that another program was quicker, from
///   the second time in a row with a pause and a read. An edition in parts costs 3 more, and one
///   for each part.
/// - Following costs 1 event and 1 read for a change. An edition in parts costs a read for each
///   part, in 1 more round trip.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::{Publication, ValueChange};
///
/// let routes: Publication<Vec<String>> = Publication::new(&client, "/routes")?;
/// let first = routes.publish(&vec!["a".into()]).await?;
/// routes.publish(&vec!["a".into(), "b".into()]).await?;
///
/// let mut editions = routes.follow();
/// match editions.next().await? {
///     ValueChange::Set(now) => assert_eq!(now.value, ["a", "b"]),
///     other => panic!("{other:?}"),
/// }
/// // Back to the first one, under a new number.
/// assert_eq!(routes.rollback(first).await?, Some(3));
/// assert_eq!(routes.editions().await?, [1, 2, 3]);
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
pub struct Publication<T, C = Json> {
    place: Place,
    codec: Arc<C>,
    kept: usize,
    writers: Arc<Writers>,
    /// What this handle wrote last, and in which session: the servers of another one may have been set
    /// back since.
    known: Arc<Mutex<Option<(SessionId, Pointed)>>>,
    value: PhantomData<fn(T) -> T>,
}

/// What the pointer says, and which state of it that is; `None` without a node.
#[derive(Clone, Default)]
struct Pointed {
    manifest: Manifest,
    revision: Option<Revision>,
}

impl From<Versioned<Manifest>> for Pointed {
    fn from(found: Versioned<Manifest>) -> Self {
        Self { manifest: found.value, revision: Some(found.revision) }
    }
}

impl Pointed {
    /// What a write compares with; `None` without a node.
    fn version(&self, path: &ZnodePath) -> Result<Option<i32>, ValueError> {
        match self.revision {
            Some(Revision { version: -1, .. }) => {
                Err(ValueError::VersionWrapped { path: path.clone() })
            }
            revision => Ok(revision.map(|revision| revision.version)),
        }
    }
}

/// An edition of a [`Publication`], as [`Publication::history`] lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PublishedEdition {
    /// Its number, counted from 1.
    pub number: u64,
    /// How long it is, in bytes.
    pub bytes: usize,
    /// When it was published, in milliseconds since 1970 by the servers' clock; `None` if the servers do not have that any
    /// more: a later edition is a [rollback](Publication::rollback) to this one.
    pub published_unix_ms: Option<u64>,
}

/// The times of these editions, by the nodes that they are in: the write that publishes an edition writes its node. What
/// others have written to one after the manifest of `known` is no time of an edition.
fn dated(editions: &[Edition], stats: &[Option<Stat>], known: Zxid) -> Vec<PublishedEdition> {
    let listed = editions.iter().zip(stats).enumerate().map(|(place, (entry, stat))| {
        let is_shown_later = editions[place + 1..].iter().any(|later| later.id == entry.id);
        let time =
            stat.filter(|stat| !is_shown_later && stat.mzxid <= known).map(|stat| stat.mtime);
        PublishedEdition {
            number: entry.number,
            bytes: entry.bytes,
            published_unix_ms: time.and_then(|time| u64::try_from(time).ok()),
        }
    });
    listed.collect()
}

/// The options of a [`Publication`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct PublicationBuilder<T, C = Json> {
    place: PlaceOptions,
    codec: C,
    kept: u16,
    value: PhantomData<fn() -> T>,
}

place_options!(PublicationBuilder<T, C>);

impl<T, C> PublicationBuilder<T, C> {
    /// How editions are written as bytes. Default: [`Json`].
    pub fn codec<D>(self, codec: D) -> PublicationBuilder<T, D> {
        PublicationBuilder { place: self.place, codec, kept: self.kept, value: self.value }
    }

    /// How many editions are kept, the last one included: 1 to 1,000; a number beyond counts as the
    /// nearest of these. Default: 5. Whoever publishes decides.
    pub fn keep(mut self, editions: u16) -> Self {
        self.kept = editions.clamp(1, MOST_KEPT);
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
        let (place, markers) = self.place.build()?;
        Ok(Publication {
            writers: Arc::new(Writers::new(&place.client, markers)),
            place,
            codec: Arc::new(self.codec),
            kept: self.kept.into(),
            known: Arc::default(),
            value: PhantomData,
        })
    }
}

impl<T> Publication<T> {
    /// The options of a publication.
    pub fn builder(client: &Client, path: &str) -> PublicationBuilder<T> {
        let place = PlaceOptions::new(client, path);
        PublicationBuilder { place, codec: Json, kept: KEPT, value: PhantomData }
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

    /// Publishes an edition, and gives its number, counted from 1. Costs
    /// [one or two round trips](Publication#cost) (1 write), and more for an edition in parts or when other
    /// programs publish, too.
    ///
    /// # Errors
    /// If it cannot be written as bytes, the node holds something else, servers seem to close the connection
    /// at it ([`ValueError::TooLong`]), or a request is refused; nothing was published then.
    /// [`ValueError::Unknown`], the only error with an unknown
    /// [outcome](ValueError::outcome), if the session ended, no server could be reached for a whole
    /// session timeout, or somebody deleted the outcome marker, after it was sent and before an answer
    /// came.
    ///
    /// # Session loss
    /// What was not sent yet goes on in the next session; parts are written again.
    ///
    /// # Cancel safety
    /// When dropped, it is published once or not at all, and its parts are deleted in the background. What
    /// is left of them when the session ends, or a connection is lost just then, is deleted when the next
    /// edition in parts is published, before its first part is written.
    pub async fn publish(&self, value: &T) -> Result<u64, ValueError> {
        let body = self.place.encode(&*self.codec, value)?;

        let (mut writer, mut tries) = (self.writers.take(), TRIES);
        writer.let_others().await;
        loop {
            let draft = Draft::new(&self.place, body.clone());
            tries -= 1;
            let mut known = self.known();
            if draft.parts > 0 {
                known = Some(self.make_room().await?);
            }

            let written = match draft.write(&self.place).await {
                Ok(unfinished) => {
                    let turn = self.turn(&mut writer, known, &draft).await;
                    if let (Ok(_), Some(unfinished)) = (&turn, unfinished) {
                        unfinished.finish();
                    }
                    turn
                }
                Err(error) => Err(error),
            };
            match written {
                Err(Turn::DraftLost) if tries > 0 => {}
                Err(error) => return Err(error.told(&self.place)),
                Ok((number, now)) => {
                    if draft.parts > 0 {
                        self.sweep(&now, self.below().await).await;
                    }
                    return Ok(number);
                }
            }
        }
    }

    /// Publishes an edition once more, under a new number, which it gives; `None` if that edition is
    /// not among those that are kept. Costs two round trips (1 write) for an edition in parts, three for
    /// another one, and one more if this handle has not published yet in this session.
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
        let mut writer = self.writers.take();
        writer.let_others().await;
        loop {
            let now = self.pointed().await?;
            let entry = now.manifest.editions.iter().find(|entry| entry.number == number).cloned();
            let Some(entry) = entry else { return Ok(None) };

            let inline = match entry.bytes <= inline_limit(&self.place.client) {
                true => match fetch(&self.place, &entry).await? {
                    Some(body) => Some(body),
                    // Dropped meanwhile, and then it is not in the manifest any more.
                    None if self.pointed().await?.revision != now.revision => continue,
                    None => return Err(self.damaged(&now, number)),
                },
                false => None,
            };

            let Edition { id, parts, bytes, .. } = entry;
            let draft = Draft { id, parts, bytes, inline, body: None };
            match self.turn(&mut writer, Some(now.clone()), &draft).await {
                Ok((number, _)) => return Ok(Some(number)),
                Err(Turn::Conflict) => drop(writer.lost().await),
                Err(Turn::DraftLost) => return Err(self.damaged(&now, number)),
                Err(error) => return Err(error.told(&self.place)),
            }
        }
    }

    /// A node of an edition is gone, or is not what it was.
    fn damaged(&self, now: &Pointed, number: u64) -> ValueError {
        let reason = format!("edition {number} is listed, but not all of its nodes are there");
        self.place.undecodable(now.revision.unwrap_or(Revision::NONE), reason)
    }

    /// Reads the last edition; `None` before the first one. Costs 1 round trip, or 2 for a long one.
    ///
    /// # Errors
    /// [`ValueError::Undecodable`] if it cannot be read as a value; or if no server can be reached for a
    /// whole session timeout.
    ///
    /// # Session loss
    /// It is read again in the next session.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn current(&self) -> Result<Option<Versioned<T>>, ValueError> {
        loop {
            let Some(found) = self.place.read().await? else { return Ok(None) };
            let revision = found.1.into();
            match edition(&self.place, &*self.codec, &found).await? {
                None => {}
                Some(Content::Absent) => return Ok(None),
                Some(Content::Value(value, _)) => return Ok(Some(Versioned { value, revision })),
                Some(Content::Invalid(reason)) => {
                    return Err(self.place.undecodable(revision, reason));
                }
            }
        }
    }

    /// Reads the edition of this number; `None` if it is not among those that are kept. Costs 2 round trips.
    ///
    /// # Errors
    /// As [`Publication::current`].
    ///
    /// # Session loss
    /// As [`Publication::current`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn edition(&self, number: u64) -> Result<Option<T>, ValueError> {
        loop {
            let now = self.pointed().await?;
            let entry = now.manifest.editions.iter().find(|entry| entry.number == number);
            let Some(entry) = entry else { return Ok(None) };
            match fetch(&self.place, entry).await? {
                Some(body) => {
                    let value = self.codec.decode(&body).map_err(|error| {
                        let revision = now.revision.unwrap_or(Revision::NONE);
                        self.place.undecodable(revision, error.to_string())
                    })?;
                    return Ok(Some(value));
                }
                // Dropped meanwhile, and then it is not in the manifest any more.
                None if self.pointed().await?.revision != now.revision => {}
                None => return Err(self.damaged(&now, number)),
            }
        }
    }

    /// The numbers of the editions that are kept, the last one at the end. Costs one round trip.
    ///
    /// # Errors
    /// As [`Publication::current`].
    ///
    /// # Session loss
    /// As [`Publication::current`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn editions(&self) -> Result<Vec<u64>, ValueError> {
        let manifest = self.pointed().await?.manifest;
        Ok(manifest.editions.iter().map(|entry| entry.number).collect())
    }

    /// Lists the editions that are kept, the last one at the end, with the times at which they were published. Costs 2 round
    /// trips, with a small request for each edition, and 2 more for each rollback that comes meanwhile.
    ///
    /// # Errors
    /// As [`Publication::current`].
    ///
    /// # Session loss
    /// As [`Publication::current`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn history(&self) -> Result<Vec<PublishedEdition>, ValueError> {
        let Place { client, path } = &self.place;
        let mut now = self.pointed().await?;
        'again: loop {
            let entries = &now.manifest.editions;
            let nodes: Vec<_> = entries.iter().map(|entry| node(path, &entry.id)).collect();
            // Sent in one go.
            let asked: Vec<_> = nodes.iter().map(|node| client.exists(node)).collect();
            let mut stats = Vec::with_capacity(nodes.len());
            for answer in asked {
                match answer.await {
                    Ok(stat) => stats.push(stat),
                    Err(error) => {
                        self.place.again(error).await?;
                        continue 'again;
                    }
                }
            }

            // A rollback to one of them may have come meanwhile, with another manifest.
            let known = now.revision.map_or(Zxid(0), |revision| revision.mzxid);
            if stats.iter().flatten().any(|stat| stat.mzxid > known) {
                let again = self.pointed().await?;
                if again.revision != now.revision {
                    now = again;
                    continue;
                }
            }
            return Ok(dated(entries, &stats, known));
        }
    }

    /// Follows the publication, beginning with the last edition. Nothing is sent before the first
    /// [`Editions::next`].
    pub fn follow(&self) -> Editions<T, C> {
        Editions::new(self.place.clone(), Arc::clone(&self.codec))
    }

    async fn pointed(&self) -> Result<Pointed, ValueError> {
        let Some(found) = self.place.read().await? else { return Ok(Pointed::default()) };
        self.place.decode(&ManifestCodec, found).map(Pointed::from)
    }

    /// Makes a draft the last edition: one write, which nobody sees a part of. A rollback tells of a
    /// conflict; a new edition goes behind whatever was published meanwhile. Gives its number, and what
    /// the pointer says then.
    async fn turn(
        &self,
        writer: &mut ExactWriter,
        mut known: Option<Pointed>,
        draft: &Draft,
    ) -> Result<(u64, Pointed), Turn> {
        let Place { client, path } = &self.place;
        let mut deletes = true;
        loop {
            // What is read must be read in order: the pointer before the write, and again behind it.
            let prepared = writer.prepare();
            let (old, prepared) = match known.take() {
                Some(old) => (Ok(old), prepared.await),
                None => tokio::join! { biased; self.pointed(), prepared },
            };
            let old = old?;
            prepared.map_err(|error| ValueError::write(path, error))?;
            let session = client.session_id();
            let next = NextManifest::after(&old, draft, self.kept, deletes);
            let version = old.version(path)?;
            let written = writer.commit(|steps| next.write(steps, &self.place, version, draft));
            let seen = async { present(client.data(path).await) };
            let (written, seen) = tokio::join! { biased; written, seen };

            let error = match written {
                Ok(applied) => {
                    let revision = Some(Revision::following(old.revision, applied.zxid));
                    let now = Pointed { manifest: next.manifest, revision };
                    self.remember(session, &now);
                    return Ok((next.number, now));
                }
                Err(error) => error,
            };
            match Refusal::of(&error, version, draft) {
                Refusal::Conflict if draft.body.is_none() => return Err(Turn::Conflict),
                Refusal::Conflict if writer.lost().await => {}
                Refusal::Conflict => known = self.seen(seen)?,
                Refusal::Orphan => self.place.make_parents().await?,
                Refusal::OldEdition if deletes => (deletes, known) = (false, Some(old)),
                Refusal::DraftLost => return Err(Turn::DraftLost),
                Refusal::OldEdition | Refusal::Other => {
                    return Err(ValueError::write(path, error).into());
                }
            }
        }
    }

    /// What the pointer says after a conflict; `None`: it has to be read.
    fn seen(
        &self,
        seen: Result<Option<(Bytes, Stat)>, Error>,
    ) -> Result<Option<Pointed>, ValueError> {
        let Ok(Some(found)) = seen else { return Ok(None) };
        self.place.decode(&ManifestCodec, found).map(|found| Some(found.into()))
    }

    /// What this handle has written last in the present session.
    fn known(&self) -> Option<Pointed> {
        let known = lock(&self.known);
        let (session, pointed) = known.as_ref()?;
        (*session == self.place.client.session_id()).then(|| pointed.clone())
    }

    /// Keeps the newest state that this handle has written in a session.
    fn remember(&self, session: SessionId, now: &Pointed) {
        let mzxid = |pointed: &Pointed| pointed.revision.map(|revision| revision.mzxid);
        let mut known = lock(&self.known);
        let is_newer = |(of, old): &(_, _)| *of != session || mzxid(old) < mzxid(now);
        if known.as_ref().is_none_or(is_newer) {
            *known = Some((session, now.clone()));
        }
    }

    /// What the pointer says before parts are written, which is not done below something else. What is left
    /// of earlier ones is deleted first: servers may have no room for both.
    async fn make_room(&self) -> Result<Pointed, ValueError> {
        let (old, below) = tokio::join! { biased; self.pointed(), self.below() };
        let old = old?;
        old.version(&self.place.path)?;
        self.sweep(&old, below).await;
        Ok(old)
    }

    /// The names of the nodes below the pointer; none if they cannot be had now.
    async fn below(&self) -> Vec<String> {
        let listed = self.place.client.children(&self.place.path).await;
        listed.map(|(names, _)| names).unwrap_or_default()
    }

    /// Deletes those of these nodes that are no edition and are not being written: what is left of long
    /// editions. Only while the manifest is the known one, so that nothing which has become an edition is
    /// deleted.
    async fn sweep(&self, now: &Pointed, names: Vec<String>) {
        let (Place { client, path }, manifest) = (&self.place, &now.manifest);
        let Ok(Some(version)) = now.version(path) else { return };

        for name in names {
            // Other names are somebody else's nodes.
            if !is_edition_name(&name) || manifest.editions.iter().any(|entry| entry.id == name) {
                continue;
            }

            let node = node(path, &name);
            let Ok((parts, _)) = client.children(&node).await else { continue };
            if parts.iter().any(|part| part == WRITING) {
                continue;
            }

            let steps = client.transaction().check(path, Some(version));
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
            writers: Arc::clone(&self.writers),
            known: Arc::clone(&self.known),
            value: PhantomData,
        }
    }
}

lockkeeper_client::impl_debug!(PublicationBuilder<T, C>, self => path: self.place.path);

lockkeeper_client::impl_debug!(Publication<T, C>, self => path: self.place.path);

/// What the pointer is to say next.
struct NextManifest {
    number: u64,
    manifest: Manifest,
    /// Nodes of editions that are not kept any more.
    gone: Vec<Edition>,
}

impl NextManifest {
    fn after(old: &Pointed, draft: &Draft, kept: usize, deletes: bool) -> Self {
        let number = old.manifest.last().map_or(1, |last| last.number + 1);
        let mut manifest = old.manifest.clone();
        let mut gone = manifest.push(draft.entry(number), draft.inline.clone(), kept);
        // The parts of long ones are for the sweep.
        gone.retain(|entry| deletes && entry.parts == 0);
        Self { number, manifest, gone }
    }

    fn write(
        &self,
        steps: Transaction,
        place: &Place,
        version: Option<i32>,
        draft: &Draft,
    ) -> Transaction {
        let path = &place.path;
        let data = ManifestCodec.encode(&self.manifest).expect("names and numbers are always JSON");
        let steps = match version {
            None => steps.create(path, data, CreateMode::Persistent),
            version => steps.set_data(path, data, version),
        };
        let steps = draft.finish(steps, place);
        self.gone.iter().fold(steps, |steps, entry| steps.delete(&node(path, &entry.id), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of the refused one took the room for good: each later one in parts was refused, too.
    #[tokio::test]
    async fn an_edition_for_which_there_is_no_room_takes_none_from_the_next_one() {
        let engine = lockkeeper_engine::Engine::builder().data_budget(12 << 20);
        let engine = engine.start().await.unwrap();
        let client = Client::connect(&engine.connect_string()).await.unwrap();
        let routes = Publication::<String>::builder(&client, "/routes").keep(1).build().unwrap();
        routes.publish(&"a".repeat(3 << 20)).await.unwrap();

        for _ in 0..3 {
            let refused = routes.publish(&"b".repeat(11 << 20)).await.unwrap_err();
            assert!(matches!(refused, ValueError::Refused { .. }), "{refused}");
        }
        assert_eq!(routes.publish(&"c".repeat(6 << 20)).await.unwrap(), 2);
        client.close().await;
    }
}

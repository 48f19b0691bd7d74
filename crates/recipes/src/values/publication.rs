//! [`Publication`]: values of any size that are published as a whole. `draft.rs` writes an edition, and
//! `manifest.rs` is the data of the pointer at `<path>`.

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
use crate::values::draft::{Draft, PublishFailure, RefusalCause, WRITING, inline_limit, node};
use crate::values::editions::{Content, edition, fetch};
use crate::values::error::{ValueError, ValuePathError};
use crate::values::manifest::{Edition, Manifest, ManifestCodec, is_edition_name};
use crate::values::place::{Place, PlaceOptions, place_options};
use crate::values::revision::{Revision, Versioned};

/// The default number of editions that are kept.
const DEFAULT_KEPT: u16 = 5;

/// The maximum number of editions that are kept: the manifest of so many, with the last one twice, fits into one
/// request.
const MAX_KEPT: u16 = 1_000;

/// How often an edition is written if sessions end during the write.
const MAX_TRIES: u32 = 3;

/// A value that is published as a whole and read by many programs: configuration of any size, with its history.
///
/// Do not use it for values that change many times a second, nor as a store of files: all readers read each
/// edition, and servers keep all of it in memory. For one short value that many programs change,
/// [`Shared`](crate::Shared) is simpler. Cheap to clone.
///
/// # Guarantees
///
/// - Readers see only complete editions, of any size, and never an older one after a newer one.
/// - An edition is published once, even when replies are lost. It is unknown whether it was published only if,
///   before the answer came, the session ended, no server could be reached for a session timeout, or the outcome
///   marker was deleted.
///
/// # Not guaranteed
///
/// - Readers may miss editions: several in a row may be reported as one.
/// - Nothing is guaranteed for a pointer that is deleted and created again: once it has been written as often as
///   the old one, it has the same version.
///
/// # Znodes
///
/// - `<path>`, persistent, is the pointer: a line of JSON that lists the editions, followed by the last one, if
///   that is not longer than 256 KiB.
/// - `<path>/<uuid>`, persistent, is an edition, or has its parts of 512 KiB as child nodes. Their data never
///   changes. Each edition writes its node once, so that the node's `mtime` is the time of the last edition in it.
/// - `<path>/<uuid>/writing`, ephemeral, exists while the parts are written.
/// - `/lockkeeper-outcomes/<uuid>` is the outcome marker of a handle.
///
/// # Cost
///
/// - Publishing costs 1 round trip (1 write) if the last edition was published by this handle in the same session,
///   and 2 otherwise. It costs 1 more for each time that another program was faster, from the second time in a row
///   with a pause and a read. An edition in parts costs 3 more, and one for each part.
/// - A reader costs 1 event and 1 read for a change. An edition in parts costs a read for each part, in 1 more
///   round trip.
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
/// // Back to the first edition, under a new number.
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
    /// The last write of this handle, and its session: the servers of another session may have been set back since.
    known: Arc<Mutex<Option<(SessionId, PointerState)>>>,
    value: PhantomData<fn(T) -> T>,
}

/// The data of the pointer, and its revision; `None` if the node is missing.
#[derive(Clone, Default)]
struct PointerState {
    manifest: Manifest,
    revision: Option<Revision>,
}

impl From<Versioned<Manifest>> for PointerState {
    fn from(found: Versioned<Manifest>) -> Self {
        Self { manifest: found.value, revision: Some(found.revision) }
    }
}

impl PointerState {
    /// The version that a write compares with; `None` if the node is missing.
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
    /// Its size, in bytes.
    pub bytes: usize,
    /// When it was published, in milliseconds since 1970 by the servers' clock; `None` if the servers do not have
    /// the time any more, because a later edition is a [rollback](Publication::rollback) to this one.
    pub published_unix_ms: Option<u64>,
}

/// The times of these editions, from their nodes: the write that publishes an edition writes its node. A write to a
/// node after the manifest of `known` is not the time of an edition.
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

/// Options of a [`Publication`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct PublicationBuilder<T, C = Json> {
    place: PlaceOptions,
    codec: C,
    kept: u16,
    value: PhantomData<fn() -> T>,
}

place_options!(PublicationBuilder<T, C>);

impl<T, C> PublicationBuilder<T, C> {
    /// Sets the encoding of editions. Default: [`Json`].
    pub fn codec<D>(self, codec: D) -> PublicationBuilder<T, D> {
        PublicationBuilder { place: self.place, codec, kept: self.kept, value: self.value }
    }

    /// Sets how many editions are kept, including the last one: 1 to 1,000; values outside are clamped. Default: 5.
    /// The publisher's value counts.
    pub fn keep(mut self, editions: u16) -> Self {
        self.kept = editions.clamp(1, MAX_KEPT);
        self
    }

    /// Creates the handle. No I/O.
    ///
    /// # Errors
    /// If one of the paths is not valid for a value.
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
        PublicationBuilder { place, codec: Json, kept: DEFAULT_KEPT, value: PhantomData }
    }
}

impl<T> Publication<T>
where
    Json: Codec<T>,
{
    /// A publication at a path such as `/app/routes`, encoded as JSON. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a value.
    pub fn new(client: &Client, path: &str) -> Result<Self, ValuePathError> {
        Self::builder(client, path).build()
    }
}

impl<T, C: Codec<T>> Publication<T, C> {
    /// The publication's path.
    pub fn path(&self) -> &ZnodePath {
        &self.place.path
    }

    /// Publishes an edition, and returns its number, counted from 1. Costs [one or two round
    /// trips](Publication#cost) (1 write), and more for an edition in parts or when other programs publish too.
    ///
    /// # Errors
    /// If it cannot be encoded, the node has foreign data, the connection is lost at each attempt
    /// ([`ValueError::TooLong`]), or a request is refused; then nothing was published. [`ValueError::Unknown`], the
    /// only error with an unknown [outcome](ValueError::outcome), if the session ended, no server could be reached
    /// for a session timeout, or the outcome marker was deleted, after the write was sent and before the answer
    /// came.
    ///
    /// # Session loss
    /// A write that was not sent yet continues in the next session; parts are written again.
    ///
    /// # Cancel safety
    /// When dropped, it is published once or not at all, and its parts are deleted in the background. Parts that
    /// remain because the session ends, or the connection is lost just then, are deleted when the next edition in
    /// parts is published, before its first part is written.
    pub async fn publish(&self, value: &T) -> Result<u64, ValueError> {
        let body = self.place.encode(&*self.codec, value)?;

        let (mut writer, mut tries) = (self.writers.take(), MAX_TRIES);
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
                Err(PublishFailure::DraftLost) if tries > 0 => {}
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

    /// Publishes an earlier edition again, and returns its new number; `None` if that edition is not kept any more.
    /// Costs two round trips (1 write) for an edition in parts, three for others, and one more if this handle has
    /// not published yet in this session.
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
                    // Deleted in the meantime, and then it is no longer in the manifest.
                    None if self.pointed().await?.revision != now.revision => continue,
                    None => return Err(self.damaged(&now, number)),
                },
                false => None,
            };

            let Edition { id, parts, bytes, .. } = entry;
            let draft = Draft { id, parts, bytes, inline, body: None };
            match self.turn(&mut writer, Some(now.clone()), &draft).await {
                Ok((number, _)) => return Ok(Some(number)),
                Err(PublishFailure::Conflict) => drop(writer.lost().await),
                Err(PublishFailure::DraftLost) => return Err(self.damaged(&now, number)),
                Err(error) => return Err(error.told(&self.place)),
            }
        }
    }

    /// A node of an edition is missing, or was changed.
    fn damaged(&self, now: &PointerState, number: u64) -> ValueError {
        let reason = format!("edition {number} is listed, but some of its nodes are missing");
        self.place.undecodable(now.revision.unwrap_or(Revision::NONE), reason)
    }

    /// Reads the last edition; `None` before the first one. Costs 1 round trip, or 2 for a long one.
    ///
    /// # Errors
    /// [`ValueError::Undecodable`] if it cannot be read as a value; or if no server can be reached for a
    /// session timeout.
    ///
    /// # Session loss
    /// Reads again in the next session.
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

    /// Reads the edition with this number; `None` if it is not kept any more. Costs 2 round trips.
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
                // Deleted in the meantime, and then it is no longer in the manifest.
                None if self.pointed().await?.revision != now.revision => {}
                None => return Err(self.damaged(&now, number)),
            }
        }
    }

    /// The numbers of the kept editions, the last one at the end. Costs one round trip.
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

    /// Lists the kept editions, the last one at the end, with the times at which they were published. Costs 2 round
    /// trips, with a small request for each edition, and 2 more for each rollback that is published during the
    /// call.
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
            // Pipelined.
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

            // A rollback to one of them may have been published in between, with another manifest.
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

    /// The editions, starting with the last one. Sends no request before the first [`Editions::next`].
    pub fn follow(&self) -> Editions<T, C> {
        Editions::new(self.place.clone(), Arc::clone(&self.codec))
    }

    async fn pointed(&self) -> Result<PointerState, ValueError> {
        let Some(found) = self.place.read().await? else { return Ok(PointerState::default()) };
        self.place.decode(&ManifestCodec, found).map(PointerState::from)
    }

    /// Makes a draft the last edition, in one atomic write. A rollback reports a conflict; a new edition is
    /// appended after others that were published in between. Returns its number, and the new state of the pointer.
    async fn turn(
        &self,
        writer: &mut ExactWriter,
        mut known: Option<PointerState>,
        draft: &Draft,
    ) -> Result<(u64, PointerState), PublishFailure> {
        let Place { client, path } = &self.place;
        let mut deletes = true;
        loop {
            // Reads must be in order: the pointer before the write, and again after it.
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
                    let now = PointerState { manifest: next.manifest, revision };
                    self.remember(session, &now);
                    return Ok((next.number, now));
                }
                Err(error) => error,
            };
            match RefusalCause::of(&error, version, draft) {
                RefusalCause::Conflict if draft.body.is_none() => {
                    return Err(PublishFailure::Conflict);
                }
                RefusalCause::Conflict if writer.lost().await => {}
                RefusalCause::Conflict => known = self.seen(seen)?,
                RefusalCause::Orphan => self.place.make_parents().await?,
                RefusalCause::OldEdition if deletes => (deletes, known) = (false, Some(old)),
                RefusalCause::DraftLost => return Err(PublishFailure::DraftLost),
                RefusalCause::OldEdition | RefusalCause::Other => {
                    return Err(ValueError::write(path, error).into());
                }
            }
        }
    }

    /// The state of the pointer after a conflict; `None` if it must be read.
    fn seen(
        &self,
        seen: Result<Option<(Bytes, Stat)>, Error>,
    ) -> Result<Option<PointerState>, ValueError> {
        let Ok(Some(found)) = seen else { return Ok(None) };
        self.place.decode(&ManifestCodec, found).map(|found| Some(found.into()))
    }

    /// The last write of this handle in the current session.
    fn known(&self) -> Option<PointerState> {
        let known = lock(&self.known);
        let (session, pointed) = known.as_ref()?;
        (*session == self.place.client.session_id()).then(|| pointed.clone())
    }

    /// Records the newest state that this handle has written in a session.
    fn remember(&self, session: SessionId, now: &PointerState) {
        let mzxid = |pointed: &PointerState| pointed.revision.map(|revision| revision.mzxid);
        let mut known = lock(&self.known);
        let is_newer = |(of, old): &(_, _)| *of != session || mzxid(old) < mzxid(now);
        if known.as_ref().is_none_or(is_newer) {
            *known = Some((session, now.clone()));
        }
    }

    /// The state of the pointer before parts are written, which is refused below foreign data. Remains of earlier
    /// editions are deleted first, because servers may not have space for both.
    async fn make_room(&self) -> Result<PointerState, ValueError> {
        let (old, below) = tokio::join! { biased; self.pointed(), self.below() };
        let old = old?;
        old.version(&self.place.path)?;
        self.sweep(&old, below).await;
        Ok(old)
    }

    /// The names of the nodes below the pointer; empty if they cannot be read now.
    async fn below(&self) -> Vec<String> {
        let listed = self.place.client.children(&self.place.path).await;
        listed.map(|(names, _)| names).unwrap_or_default()
    }

    /// Deletes those of these nodes that are neither an edition nor being written: remains of long editions. Only
    /// while the manifest is the known one, so that no new edition is deleted.
    async fn sweep(&self, now: &PointerState, names: Vec<String>) {
        let (Place { client, path }, manifest) = (&self.place, &now.manifest);
        let Ok(Some(version)) = now.version(path) else { return };

        for name in names {
            // Nodes with other names belong to other programs.
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
            // The next publisher tries again.
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

/// The next state of the pointer.
struct NextManifest {
    number: u64,
    manifest: Manifest,
    /// Nodes of editions that are not kept any more.
    gone: Vec<Edition>,
}

impl NextManifest {
    fn after(old: &PointerState, draft: &Draft, kept: usize, deletes: bool) -> Self {
        let number = old.manifest.last().map_or(1, |last| last.number + 1);
        let mut manifest = old.manifest.clone();
        let mut gone = manifest.push(draft.entry(number), draft.inline.clone(), kept);
        // Parts of long editions are left to the sweep.
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

    /// The parts of the refused edition stayed forever: each later edition in parts was refused too.
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

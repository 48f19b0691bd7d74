//! Following a publication, and reading its editions.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use lockkeeper_client::horizon::{BEHIND_PAUSE, Horizon};
use lockkeeper_client::{ErrorCode, Stat, Zxid};

use crate::values::changes::ValueChange;
use crate::values::codec::{Codec, Json};
use crate::values::error::ValueError;
use crate::values::follower::{Content, Form, ValueFollower};
use crate::values::last_good::LastGoodError;
use crate::values::manifest::{Edition, ManifestCodec, part_name};
use crate::values::place::Place;
use crate::values::revision::Versioned;

/// Follows a [`Publication`](crate::Publication), over lost connections and ended sessions.
pub struct Editions<T, C = Json>(ValueFollower<T, C>);

impl<T, C: Codec<T>> Editions<T, C> {
    pub(super) fn new(place: Place, codec: Arc<C>) -> Self {
        Self(ValueFollower::new(place, codec, Form::Manifest))
    }

    /// The last edition that could be read, of those that [`Editions::next`] has told, or the
    /// [restored](Editions::keep_in) one.
    pub fn latest(&self) -> Option<&Versioned<T>> {
        self.0.latest()
    }

    /// Whether nothing is known that was not told, as [`ValueChanges::is_current`].
    pub fn is_current(&self) -> bool {
        self.0.is_current()
    }

    /// Keeps the last good edition in a file, and restores the one that is there, as
    /// [`ValueChanges::keep_in`]: the file is as long as the edition, and a little longer. A long edition
    /// is fetched once more when the servers can be reached, to see whether it is the restored one. Makes
    /// no request.
    ///
    /// # Errors
    /// As [`ValueChanges::keep_in`].
    ///
    /// # Session loss
    /// Has no effect.
    ///
    /// # Cancel safety
    /// Safe; nothing is kept.
    pub async fn keep_in(&mut self, file: impl AsRef<Path>) -> Result<bool, LastGoodError> {
        self.0.keep_in(file.as_ref()).await
    }

    /// Waits until the last good edition is [kept](Editions::keep_in); at once if none is to be. Makes no
    /// request.
    ///
    /// # Errors
    /// Why it is not. The next edition is tried again.
    ///
    /// # Session loss
    /// Has no effect.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn kept(&self) -> Result<(), LastGoodError> {
        self.0.kept().await
    }

    /// Waits until there is another edition than told last; the first time, tells which there is now.
    /// [`ValueChange::Absent`] stands for no edition, and [`ValueChange::Invalid`] also for one with parts
    /// that are longer than this client takes ([`ClientBuilder::max_frame`](lockkeeper_client::ClientBuilder::max_frame)).
    /// Costs what [`ValueChanges::next`] does, and one round trip more for an edition in parts.
    ///
    /// # Errors
    /// If a node may not be read, no server answers for a whole session timeout while an edition is
    /// fetched, or the client is closed. Called again it waits for the servers and misses nothing: an edition
    /// that could not be read is tried again, unless there is a newer one. If the client is closed
    /// ([`Client::is_closed`](lockkeeper_client::Client::is_closed)), it always fails.
    ///
    /// # Session loss
    /// It goes on in the next session, and misses nothing.
    ///
    /// # Cancel safety
    /// Safe: nothing is missed.
    pub async fn next(&mut self) -> Result<ValueChange<T>, ValueError>
    where
        T: Clone,
    {
        self.0.next().await
    }
}

impl<T: fmt::Debug, C> fmt::Debug for Editions<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.debug("Editions", f)
    }
}

/// Reads the last edition that a pointer tells of. `None` if it was dropped meanwhile, as there are newer
/// ones, or as servers have returned without their data.
pub(super) async fn edition<T>(
    place: &Place,
    codec: &impl Codec<T>,
    (data, stat): &(Bytes, Stat),
) -> Result<Option<Content<T>>, ValueError> {
    let manifest = match ManifestCodec.decode(data) {
        Ok(manifest) => manifest,
        Err(error) => return Ok(Some(Content::Invalid(error.to_string()))),
    };
    let Some(last) = manifest.last() else { return Ok(Some(Content::Absent)) };
    let body = match manifest.inline.clone() {
        Some(body) => Body::Whole(body),
        None => parts(place, last, stat.mzxid).await?,
    };
    Ok(match body {
        Body::Whole(body) => Some(Content::decoded(codec, body)),
        Body::Damaged => Some(Content::Invalid("parts of it are missing".into())),
        Body::Dropped => None,
    })
}

/// What there is of an edition in parts.
enum Body {
    Whole(Bytes),
    /// Not all of it, and it is the last edition.
    Damaged,
    /// There is a newer edition, or none.
    Dropped,
}

/// Reads an edition that the manifest of `told` has told of.
async fn parts(place: &Place, edition: &Edition, told: Zxid) -> Result<Body, ValueError> {
    loop {
        if let Some(body) = fetch(place, edition).await? {
            return Ok(Body::Whole(body));
        }

        // The server of the next session may be behind the one that told of it.
        while let Err(error) = place.client.sync(&place.path).await {
            place.again(error).await?;
        }
        let horizon = Horizon::of(&place.client);
        match place.read().await?.map(|(_, stat)| stat.mzxid) {
            Some(now) if now == told => {
                let body = fetch(place, edition).await?;
                return Ok(body.map_or(Body::Damaged, Body::Whole));
            }
            Some(now) if now > told => return Ok(Body::Dropped),
            // This one is still behind, or the session is yet another one.
            _ if horizon.is_behind(&place.client, told) => tokio::time::sleep(BEHIND_PAUSE).await,
            _ => return Ok(Body::Dropped),
        }
    }
}

/// Reads an edition; `None` if it is not there, or not all of it.
pub(super) async fn fetch(place: &Place, entry: &Edition) -> Result<Option<Bytes>, ValueError> {
    let Ok(node) = place.path.child(&entry.id) else { return Ok(None) };
    let nodes: Vec<_> = match entry.parts {
        0 => vec![node],
        parts => (0..parts).filter_map(|part| node.child(&part_name(part)).ok()).collect(),
    };

    'again: loop {
        let mut body = BytesMut::new();
        // Sent in one go.
        let replies: Vec<_> = nodes.iter().map(|node| place.client.data(node)).collect();

        for reply in replies {
            match reply.await {
                Ok((part, _)) => body.extend_from_slice(&part),
                Err(error) if error.code() == Some(ErrorCode::NoNode) => return Ok(None),
                Err(error) => {
                    place.again(error).await?;
                    continue 'again;
                }
            }
        }

        return Ok((body.len() == entry.bytes).then(|| body.freeze()));
    }
}

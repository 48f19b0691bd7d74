//! Reading the editions of a publication.

use bytes::{Bytes, BytesMut};
use lockkeeper_client::horizon::{BEHIND_PAUSE, Horizon};
use lockkeeper_client::{ErrorCode, Stat, Zxid};

use crate::values::codec::Codec;
use crate::values::error::ValueError;
use crate::values::manifest::{Edition, ManifestCodec, part_name};
use crate::values::place::Place;

/// The content of a node's data.
pub(super) enum Content<T> {
    Absent,
    /// The data cannot be read, with the reason.
    Invalid(String),
    /// The value, with its bytes.
    Value(T, Bytes),
}

impl<T> Content<T> {
    pub(super) fn decoded(codec: &impl Codec<T>, body: Bytes) -> Self {
        match codec.decode(&body) {
            Ok(value) => Self::Value(value, body),
            Err(error) => Self::Invalid(error.to_string()),
        }
    }
}

/// Reads the last edition of a manifest. `None` if it was deleted in the meantime, because newer ones exist, or
/// because servers were set back.
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
        Some(body) => EditionBody::Whole(body),
        None => parts(place, last, stat.mzxid).await?,
    };
    Ok(match body {
        EditionBody::Whole(body) => Some(Content::decoded(codec, body)),
        EditionBody::Damaged => Some(Content::Invalid("parts of it are missing".into())),
        EditionBody::Dropped => None,
    })
}

/// The result of reading an edition in parts.
enum EditionBody {
    Whole(Bytes),
    /// Parts are missing, and it is the last edition.
    Damaged,
    /// A newer edition exists, or none.
    Dropped,
}

/// Reads an edition in parts that the manifest of transaction `told` lists.
async fn parts(place: &Place, edition: &Edition, told: Zxid) -> Result<EditionBody, ValueError> {
    loop {
        if let Some(body) = fetch(place, edition).await? {
            return Ok(EditionBody::Whole(body));
        }

        // The server of the next session may lag behind the one that returned the manifest.
        while let Err(error) = place.client.sync(&place.path).await {
            place.again(error).await?;
        }
        let horizon = Horizon::of(&place.client);
        match place.read().await?.map(|(_, stat)| stat.mzxid) {
            Some(now) if now == told => {
                let body = fetch(place, edition).await?;
                return Ok(body.map_or(EditionBody::Damaged, EditionBody::Whole));
            }
            Some(now) if now > told => return Ok(EditionBody::Dropped),
            // This server still lags, or the session has changed again.
            _ if horizon.is_behind(&place.client, told) => tokio::time::sleep(BEHIND_PAUSE).await,
            _ => return Ok(EditionBody::Dropped),
        }
    }
}

/// Reads an edition; `None` if it, or a part of it, is missing.
pub(super) async fn fetch(place: &Place, entry: &Edition) -> Result<Option<Bytes>, ValueError> {
    let Ok(node) = place.path.child(&entry.id) else { return Ok(None) };
    let nodes: Vec<_> = match entry.parts {
        0 => vec![node],
        parts => (0..parts).filter_map(|part| node.child(&part_name(part)).ok()).collect(),
    };

    'again: loop {
        let mut body = BytesMut::new();
        // Pipelined.
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

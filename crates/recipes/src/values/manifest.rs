//! The data of a publication's node: which editions exist, and where they are.

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::values::codec::{Codec, CodecError};

/// The location of an edition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Edition {
    /// The number of the edition, counted from 1. It always has a successor.
    pub(super) number: u64,
    /// The name of its node. Editions with the same content share it.
    pub(super) id: String,
    /// The number of child nodes that hold its parts, in order; 0 if the node itself holds it.
    pub(super) parts: u32,
    /// Its size.
    pub(super) bytes: usize,
}

/// The whole data: a line of JSON, followed by the last edition if that is short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    /// The editions that are kept, the last one at the end.
    pub(super) editions: Vec<Edition>,
    /// The last edition, if it is short.
    pub(super) inline: Option<Bytes>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestHeader {
    /// The version of the format.
    lockkeeper_publication: u32,
    editions: Vec<Edition>,
    inline: bool,
}

const FORMAT: u32 = 1;

/// The maximum number of parts of an edition, so that foreign data cannot request unlimited memory.
pub(super) const MAX_PARTS: u32 = 100_000;

/// Only the version, whatever else the line has.
#[derive(Deserialize)]
struct AnyManifestHeader {
    lockkeeper_publication: u32,
}

impl Manifest {
    pub(super) fn last(&self) -> Option<&Edition> {
        self.editions.last()
    }

    /// Appends an edition, and returns those that exceed the limit and whose nodes no other edition shares.
    pub(super) fn push(
        &mut self,
        entry: Edition,
        inline: Option<Bytes>,
        kept: usize,
    ) -> Vec<Edition> {
        self.editions.push(entry);
        self.inline = inline;
        let dropped = self.editions.len().saturating_sub(kept);
        let dropped: Vec<_> = self.editions.drain(..dropped).collect();
        let mut gone: Vec<Edition> = Vec::new();
        for entry in dropped {
            let shared = |other: &Edition| other.id == entry.id;
            if !self.editions.iter().any(shared) && !gone.iter().any(shared) {
                gone.push(entry);
            }
        }
        gone
    }
}

/// Encodes a [`Manifest`]. Empty data is a manifest without editions.
#[derive(Clone, Copy, Debug)]
pub(super) struct ManifestCodec;

impl Codec<Manifest> for ManifestCodec {
    fn encode(&self, manifest: &Manifest) -> Result<Bytes, CodecError> {
        let header = ManifestHeader {
            lockkeeper_publication: FORMAT,
            editions: manifest.editions.clone(),
            inline: manifest.inline.is_some(),
        };
        let mut data = BytesMut::from(&serde_json::to_vec(&header)?[..]);
        data.put_u8(b'\n');
        data.extend_from_slice(manifest.inline.as_deref().unwrap_or_default());
        Ok(data.freeze())
    }

    fn decode(&self, data: &[u8]) -> Result<Manifest, CodecError> {
        if data.is_empty() {
            return Ok(Manifest::default());
        }
        let end = data.iter().position(|byte| *byte == b'\n').ok_or("it is not a publication")?;
        let form: AnyManifestHeader = serde_json::from_slice(&data[..end])?;
        if form.lockkeeper_publication != FORMAT {
            return Err("it is a publication of a later version of this library".into());
        }
        let header: ManifestHeader = serde_json::from_slice(&data[..end])?;

        let (editions, inline) = (header.editions, Bytes::copy_from_slice(&data[end + 1..]));
        let manifest = Manifest { editions, inline: header.inline.then_some(inline) };
        check(&manifest.editions)?;
        match (&manifest.inline, manifest.last()) {
            (Some(inline), Some(last)) if inline.len() != last.bytes => {
                Err("its length is wrong".into())
            }
            (Some(_), None) => Err("its editions are missing".into()),
            _ => Ok(manifest),
        }
    }
}

/// Refuses editions that no publisher writes, because any program may have written the line.
fn check(editions: &[Edition]) -> Result<(), CodecError> {
    let mut last = 0;
    for entry in editions {
        if !is_edition_name(&entry.id) {
            return Err("an edition has an invalid node name".into());
        }
        if entry.number <= last || entry.number == u64::MAX {
            return Err("the numbers of its editions do not grow, or are too large".into());
        }
        if entry.parts > MAX_PARTS {
            return Err("an edition has too many parts".into());
        }
        last = entry.number;
    }
    Ok(())
}

/// Whether a node below the pointer may be that of an edition.
pub(super) fn is_edition_name(name: &str) -> bool {
    Uuid::try_parse(name).is_ok()
}

/// The name of a part's node.
pub(super) fn part_name(number: u32) -> String {
    format!("{number:05}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An edition whose node's name has this suffix.
    fn entry(number: u64, id: &str) -> Edition {
        let id = format!("0c1f7a4e-95d4-4d1c-9a75-3f0c7d0c2a1{id}");
        Edition { number, id, parts: 0, bytes: 2 }
    }

    #[test]
    fn it_comes_back_as_it_was_written() {
        let mut manifest = Manifest::default();
        assert_eq!(ManifestCodec.decode(b"").unwrap(), manifest);
        manifest.push(entry(1, "a"), Some(Bytes::from_static(b"\n{")), 3);
        let data = ManifestCodec.encode(&manifest).unwrap();
        assert_eq!(ManifestCodec.decode(&data).unwrap(), manifest);
        manifest.push(entry(2, "b"), None, 3);
        let data = ManifestCodec.encode(&manifest).unwrap();
        assert_eq!(ManifestCodec.decode(&data).unwrap(), manifest);

        let cut = ManifestCodec.encode(&Manifest { inline: Some(Bytes::new()), ..manifest });
        assert!(ManifestCodec.decode(&cut.unwrap()).is_err());
        for foreign in [&b"{}"[..], b"{}\n", b"\xff\n", b"12\n"] {
            assert!(ManifestCodec.decode(foreign).is_err(), "{foreign:?}");
        }
    }

    /// The publisher panicked: the name was taken for a valid node name, and the number for one that has a
    /// successor.
    ///
    /// Fails without checks of names and numbers.
    #[test]
    fn invalid_editions_are_refused() {
        let is_refused = |editions: &[Edition]| {
            let manifest = Manifest { editions: editions.to_vec(), inline: None };
            ManifestCodec.decode(&ManifestCodec.encode(&manifest).unwrap()).is_err()
        };
        for id in ["a/b", "", "..", "zookeeper", "\0"] {
            assert!(is_refused(&[Edition { id: id.into(), ..entry(1, "a") }]), "{id:?}");
        }
        for numbers in [[0, 1], [2, 2], [2, 1], [1, u64::MAX]] {
            assert!(is_refused(&numbers.map(|number| entry(number, "a"))), "{numbers:?}");
        }
        assert!(is_refused(&[Edition { parts: MAX_PARTS + 1, ..entry(1, "a") }]));

        assert!(!is_refused(&[entry(1, "a"), entry(u64::MAX - 1, "a")]));
        assert!(!is_refused(&[Edition { parts: MAX_PARTS, bytes: usize::MAX, ..entry(1, "a") }]));
    }

    /// Fails if all fields are read before the version: the error was about one of them then.
    #[test]
    fn a_later_form_is_named_whatever_is_in_it() {
        for later in [
            r#"{"lockkeeper_publication":2,"editions":[],"inline":false}"#,
            r#"{"lockkeeper_publication":2,"zones":{}}"#,
        ] {
            let error = ManifestCodec.decode(format!("{later}\n").as_bytes()).unwrap_err();
            assert!(error.to_string().contains("later version"), "{error}");
        }
    }

    #[test]
    fn what_another_edition_shares_is_kept() {
        let mut manifest = Manifest::default();
        assert_eq!(manifest.push(entry(1, "a"), None, 2), []);
        assert_eq!(manifest.push(entry(2, "b"), None, 2), []);
        // Back to the first one, which stays where it is.
        assert_eq!(manifest.push(entry(3, "a"), None, 2), []);
        assert_eq!(manifest.push(entry(4, "c"), None, 2), [entry(2, "b")]);
        assert_eq!(manifest.push(entry(5, "d"), None, 2), [entry(3, "a")]);
        let numbers: Vec<_> = manifest.editions.iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, [4, 5]);
    }
}

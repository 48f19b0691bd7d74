//! What a file with a last known good value holds.

use bytes::Bytes;
use lockkeeper_client::Zxid;
use serde::{Deserialize, Serialize};

use crate::values::revision::Revision;

/// What every such file begins with.
const MAGIC: &[u8] = b"{\"lockkeeper_last_known_good\":";

/// The form of the file.
const FORM: u32 = 1;

/// A value as bytes, where it was, and which state it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// The node, seen from the servers' root.
    pub(super) path: String,
    pub(super) revision: Revision,
    pub(super) data: Bytes,
}

/// Why the bytes of a file are no kept value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It is something else.
    Foreign,
    /// It is of a later form.
    Later,
    /// It was one.
    Damaged(&'static str),
}

/// The first line. The value comes after it, and then a line with the checksum of all that.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    lockkeeper_last_known_good: u32,
    path: String,
    czxid: i64,
    mzxid: i64,
    version: i32,
    bytes: usize,
}

impl Kept {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Revision { czxid, mzxid, version } = self.revision;
        let header = Header {
            lockkeeper_last_known_good: FORM,
            path: self.path.clone(),
            czxid: czxid.0,
            mzxid: mzxid.0,
            version,
            bytes: self.data.len(),
        };

        let mut bytes = serde_json::to_vec(&header).expect("names and numbers are always JSON");
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.data);

        let sum = crc32c(&bytes);
        bytes.extend_from_slice(format!("\n{sum:08x}\n").as_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, Unfit> {
        // One that was cut off in its first word is damaged, and holds nothing that anybody could miss.
        if !bytes.starts_with(MAGIC) && !MAGIC.starts_with(bytes) {
            return Err(Unfit::Foreign);
        }
        // First, as in a later form all that comes after it may be another.
        if form_of(bytes).is_some_and(|form| form > FORM) {
            return Err(Unfit::Later);
        }
        let (body, end) = bytes.split_at_checked(bytes.len().wrapping_sub(10)).ok_or(CUT_OFF)?;
        if end != format!("\n{:08x}\n", crc32c(body)).as_bytes() {
            return Err(Unfit::Damaged("its checksum is wrong"));
        }

        let line = body.iter().position(|byte| *byte == b'\n').ok_or(CUT_OFF)?;
        let header: Header =
            serde_json::from_slice(&body[..line]).map_err(|_| Unfit::Damaged("its first line"))?;
        if header.lockkeeper_last_known_good != FORM {
            return Err(Unfit::Damaged("its first line"));
        }
        let data = &body[line + 1..];
        if data.len() != header.bytes {
            return Err(CUT_OFF);
        }
        let Header { path, czxid, mzxid, version, .. } = header;
        let revision = Revision { czxid: Zxid(czxid), mzxid: Zxid(mzxid), version };
        Ok(Self { path, revision, data: Bytes::copy_from_slice(data) })
    }
}

/// The form that a file says it has; `None` if it says none.
fn form_of(bytes: &[u8]) -> Option<u32> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let end = rest.iter().position(|byte| matches!(byte, b',' | b'}'))?;
    std::str::from_utf8(&rest[..end]).ok()?.trim().parse().ok()
}

const CUT_OFF: Unfit = Unfit::Damaged("it is cut off");

/// CRC-32C, which finds every change of up to 32 bits in a row, and nearly all others.
fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let (mut value, mut bit) = (byte as u32, 0);
            while bit < 8 {
                value = (value >> 1) ^ if value & 1 == 1 { POLYNOMIAL } else { 0 };
                bit += 1;
            }
            table[byte] = value;
            byte += 1;
        }
        table
    };

    let step = |sum: u32, byte: &u8| (sum >> 8) ^ TABLE[((sum ^ u32::from(*byte)) & 0xff) as usize];
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(data: &'static [u8]) -> Kept {
        let revision = Revision { czxid: Zxid(3), mzxid: Zxid(0x1_0000_0007), version: -2 };
        Kept { path: "/app/limits".into(), revision, data: Bytes::from_static(data) }
    }

    #[test]
    fn the_checksum_is_the_usual_one() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn it_comes_back_as_it_was_written() {
        for data in [&b""[..], b"[1, 2]", b"\n\n", b"\xff\x00"] {
            let kept = kept(data);
            assert_eq!(Kept::from_bytes(&kept.to_bytes()), Ok(kept));
        }
    }

    /// Wherever it is cut off, and whichever bit has changed.
    #[test]
    fn damage_is_found() {
        let good = kept(b"{\"a\":1}").to_bytes();
        for end in 0..good.len() {
            assert!(Kept::from_bytes(&good[..end]).is_err(), "cut off at {end}");
        }
        for bit in 0..good.len() * 8 {
            let mut changed = good.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Kept::from_bytes(&changed).is_err(), "bit {bit}");
        }
        let twice = [&good[..], &good[..]].concat();
        assert!(matches!(Kept::from_bytes(&twice), Err(Unfit::Damaged(_))));
    }

    /// Whatever it looks like behind the number.
    #[test]
    fn a_later_form_is_known() {
        for later in ["2,\"path\":\"/app/limits\",\"zone\":1}\n", "10}", "2, \"x\""] {
            let later = [MAGIC, later.as_bytes()].concat();
            assert_eq!(Kept::from_bytes(&later), Err(Unfit::Later), "{later:?}");
        }
        let earlier = [MAGIC, b"0}\n"].concat();
        assert!(matches!(Kept::from_bytes(&earlier), Err(Unfit::Damaged(_))));
    }

    #[test]
    fn what_is_something_else_is_known() {
        for foreign in [&b"root:x:0:0"[..], b"{}", b"{\"lockkeeper_publication\":1}\n"] {
            assert_eq!(Kept::from_bytes(foreign), Err(Unfit::Foreign), "{foreign:?}");
        }
    }
}

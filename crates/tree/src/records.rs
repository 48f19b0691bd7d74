//! The encoding of nodes, sessions and the server's own state in storage.
//!
//! Each record starts with its format: 1, or 2 for a node with null data. Engines that know only format 1
//! refuse to read format 2. Numbers are encoded in 7-bit groups, lowest first, and signed numbers with the
//! sign in the lowest bit, so that small numbers of either sign are short.

use bytes::{Buf, BufMut, Bytes};
use lockkeeper_wire::{Acl, NodeData, PASSWORD_LEN, Permissions, SessionId, Zxid};
use std::time::Duration;

use crate::acl::AclRef;
use crate::changes::RestoreError;
use crate::nodes::{Node, Owner};
use crate::sessions::Session;

const FORMAT: u8 = 1;
/// The format of a node with null data. The record ends after the access control list.
const WITHOUT_DATA: u8 = 2;

/// The key of the only record in [`Table::Meta`](crate::Table::Meta).
pub(crate) const STATE_KEY: &[u8] = b"state";

/// Why a record is invalid, before the caller adds which record it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Damaged(&'static str),
    Newer(u8),
}

impl Fault {
    pub(crate) fn of(self, record: String) -> RestoreError {
        match self {
            Self::Damaged(problem) => RestoreError::Damaged { record, problem: problem.to_owned() },
            Self::Newer(format) => RestoreError::Newer { record, format },
        }
    }
}

type Result<T> = std::result::Result<T, Fault>;

pub(crate) fn put_node(node: &Node, out: &mut Vec<u8>) {
    out.put_u8(if node.data.is_null() { WITHOUT_DATA } else { FORMAT });
    put_owner(node.owner, out);
    for zxid in [node.czxid, node.mzxid, node.pzxid] {
        put_signed(zxid.0, out);
    }
    for time in [node.ctime, node.mtime] {
        put_signed(time, out);
    }
    for version in [node.version, node.aversion, node.child_creates] {
        put_signed(version.into(), out);
    }
    put_acl(&node.acl, out);
    out.put_slice(&node.data);
}

/// Decodes a node. Its children are not part of its record.
pub(crate) fn take_node(mut input: Bytes) -> Result<Node> {
    let has_data = take_format(&mut input, &[FORMAT, WITHOUT_DATA])? == FORMAT;
    let owner = take_owner(&mut input)?;
    let mut zxid = || take_signed(&mut input).map(Zxid);
    let (czxid, mzxid, pzxid) = (zxid()?, zxid()?, zxid()?);
    let (ctime, mtime) = (take_signed(&mut input)?, take_signed(&mut input)?);
    let mut version = || take_version(&mut input);
    let (version, aversion, child_creates) = (version()?, version()?, version()?);

    let acl = take_acl(&mut input)?;
    let data = match has_data {
        // Copied, because storage may return a slice of a larger buffer.
        true => Bytes::copy_from_slice(&input).into(),
        false => nothing_more(&input).map(|()| NodeData::NULL)?,
    };

    Ok(Node {
        mzxid,
        pzxid,
        mtime,
        version,
        aversion,
        child_creates,
        ..Node::new(data, acl, owner, czxid, ctime)
    })
}

pub(crate) fn put_session(session: &Session, out: &mut Vec<u8>) {
    out.put_u8(FORMAT);
    put_unsigned(session.timeout.as_millis().try_into().unwrap_or(u64::MAX), out);
    out.put_slice(&session.password);
}

pub(crate) fn take_session(mut input: Bytes) -> Result<Session> {
    take_format(&mut input, &[FORMAT])?;
    let timeout = Duration::from_millis(take_unsigned(&mut input)?);
    let mut password = [0; PASSWORD_LEN];
    if input.len() != PASSWORD_LEN {
        return Err(Fault::Damaged("the password has the wrong length"));
    }
    password.copy_from_slice(&input);
    Ok(Session::new(timeout, password))
}

pub(crate) fn put_state(last_zxid: Zxid, out: &mut Vec<u8>) {
    out.put_u8(FORMAT);
    put_signed(last_zxid.0, out);
}

pub(crate) fn take_state(mut input: Bytes) -> Result<Zxid> {
    take_format(&mut input, &[FORMAT])?;
    let zxid = take_signed(&mut input)?;
    nothing_more(&input)?;
    Ok(Zxid(zxid))
}

fn put_owner(owner: Owner, out: &mut Vec<u8>) {
    match owner {
        Owner::None => out.put_u8(0),
        Owner::Session(session) => {
            out.put_u8(1);
            out.put_i64(session.0);
        }
        Owner::Container => out.put_u8(2),
        Owner::Ttl(ttl) => {
            out.put_u8(3);
            put_signed(ttl, out);
        }
    }
}

fn take_owner(input: &mut Bytes) -> Result<Owner> {
    Ok(match take_u8(input)? {
        0 => Owner::None,
        1 => Owner::Session(SessionId(input.try_get_i64().map_err(|_| SHORT)?)),
        2 => Owner::Container,
        3 => Owner::Ttl(take_signed(input)?),
        _ => return Err(Fault::Damaged("it has an unknown kind of owner")),
    })
}

/// The number of entries, followed by the entries. 0 stands for the open list, which nearly all nodes have.
fn put_acl(acl: &AclRef, out: &mut Vec<u8>) {
    if acl.is_open() {
        return put_unsigned(0, out);
    }
    put_unsigned(acl.len() as u64, out);
    for entry in acl.iter() {
        put_signed(entry.permissions.0.into(), out);
        put_text(&entry.scheme, out);
        put_text(&entry.id, out);
    }
}

fn take_acl(input: &mut Bytes) -> Result<AclRef> {
    let count = take_unsigned(input)?;
    if count == 0 {
        return Ok(AclRef::open());
    }
    let mut acl = Vec::new();
    for _ in 0..count {
        acl.push(Acl {
            permissions: Permissions(take_version(input)?),
            scheme: take_text(input)?,
            id: take_text(input)?,
        });
    }
    Ok(acl.into())
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    put_unsigned(text.len() as u64, out);
    out.put_slice(text.as_bytes());
}

fn take_text(input: &mut Bytes) -> Result<String> {
    let len = take_unsigned(input)?;
    let len = usize::try_from(len).ok().filter(|len| *len <= input.len()).ok_or(SHORT)?;
    let bytes = input.split_to(len);
    let text = std::str::from_utf8(&bytes).map_err(|_| Fault::Damaged("a text is not UTF-8"))?;
    Ok(text.to_owned())
}

const SHORT: Fault = Fault::Damaged("it is too short");

/// Takes the format, which must be one that this kind of record may have.
fn take_format(input: &mut Bytes, known: &[u8]) -> Result<u8> {
    match take_u8(input)? {
        0 => Err(Fault::Damaged("it has format 0")),
        format if known.contains(&format) => Ok(format),
        newer => Err(Fault::Newer(newer)),
    }
}

fn nothing_more(input: &Bytes) -> Result<()> {
    if input.is_empty() { Ok(()) } else { Err(Fault::Damaged("it is too long")) }
}

fn take_u8(input: &mut Bytes) -> Result<u8> {
    input.try_get_u8().map_err(|_| SHORT)
}

fn take_version(input: &mut Bytes) -> Result<i32> {
    i32::try_from(take_signed(input)?).map_err(|_| Fault::Damaged("a number is too large"))
}

fn put_signed(value: i64, out: &mut Vec<u8>) {
    put_unsigned(((value << 1) ^ (value >> 63)) as u64, out);
}

fn take_signed(input: &mut Bytes) -> Result<i64> {
    let value = take_unsigned(input)?;
    Ok((value >> 1) as i64 ^ -((value & 1) as i64))
}

fn put_unsigned(mut value: u64, out: &mut Vec<u8>) {
    // Fast path for small numbers.
    if value < 0x80 {
        return out.push(value as u8);
    }
    let (mut bytes, mut len) = ([0; 10], 0);
    while value >= 0x80 {
        bytes[len] = value as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    bytes[len] = value as u8;
    // Copying a known length compiles to two instructions, without a call.
    let end = out.len() + len + 1;
    out.extend_from_slice(&bytes);
    out.truncate(end);
}

fn take_unsigned(input: &mut Bytes) -> Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take_u8(input)?;
        let group = u64::from(byte & 0x7f);
        if shift == 63 && group > 1 {
            break;
        }
        value |= group << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Fault::Damaged("a number is too long"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node_record(node: &Node) -> Vec<u8> {
        let mut out = Vec::new();
        put_node(node, &mut out);
        out
    }

    fn owner() -> impl Strategy<Value = Owner> {
        prop_oneof![
            Just(Owner::None),
            any::<i64>().prop_map(|id| Owner::Session(SessionId(id))),
            Just(Owner::Container),
            any::<i64>().prop_map(Owner::Ttl),
        ]
    }

    fn acl() -> impl Strategy<Value = Vec<Acl>> {
        let entry = (any::<i32>(), ".{0,9}", ".{0,9}")
            .prop_map(|(bits, scheme, id)| Acl::new(Permissions(bits), &scheme, id));
        prop_oneof![Just(Acl::open()), proptest::collection::vec(entry, 1..4)]
    }

    fn data() -> impl Strategy<Value = NodeData> {
        let bytes = proptest::collection::vec(any::<u8>(), 0..40);
        prop_oneof![Just(NodeData::NULL), bytes.prop_map(|bytes| Bytes::from(bytes).into())]
    }

    prop_compose! {
        fn node()(
            owner in owner(),
            acl in acl(),
            data in data(),
            longs in any::<[i64; 5]>(),
            ints in any::<[i32; 3]>(),
        ) -> Node {
            let [czxid, mzxid, pzxid, ctime, mtime] = longs;
            let [version, aversion, child_creates] = ints;
            Node {
                mzxid: Zxid(mzxid),
                pzxid: Zxid(pzxid),
                mtime,
                version,
                aversion,
                child_creates,
                ..Node::new(data, acl.into(), owner, Zxid(czxid), ctime)
            }
        }
    }

    proptest! {
        #[test]
        fn nodes_survive(node in node()) {
            prop_assert_eq!(take_node(node_record(&node).into()), Ok(node));
        }

        #[test]
        fn sessions_survive(timeout in any::<u32>(), password in any::<[u8; 16]>()) {
            let mut out = Vec::new();
            let timeout = Duration::from_millis(timeout.into());
            put_session(&Session::new(timeout, password), &mut out);
            let read = take_session(out.into()).expect("readable");
            prop_assert_eq!((read.timeout, read.password), (timeout, password));
        }

        #[test]
        fn damaged_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = take_node(bytes.clone().into());
            let _ = take_session(bytes.clone().into());
            let _ = take_state(bytes.into());
        }

        #[test]
        fn cut_off_nodes_never_panic(node in node(), keep in any::<prop::sample::Index>()) {
            let mut out = node_record(&node);
            out.truncate(keep.index(out.len()));
            let _ = take_node(out.into());
        }
    }

    #[test]
    fn the_state_survives() {
        for zxid in [0, 1, -1, i64::MAX, i64::MIN, 0xffff_ffff] {
            let mut out = Vec::new();
            put_state(Zxid(zxid), &mut out);
            assert_eq!(take_state(out.into()), Ok(Zxid(zxid)));
        }
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        assert_eq!(take_state(Bytes::from_static(&[9, 1])), Err(Fault::Newer(9)));
        assert_eq!(take_state(Bytes::from_static(&[2, 1])), Err(Fault::Newer(2)));
        assert_eq!(take_state(Bytes::new()), Err(SHORT));
    }

    /// Records of engines without null data are read as before: as bytes, possibly zero of them.
    #[test]
    fn a_record_of_an_earlier_engine_has_data() {
        let written = [1, 0, 2, 2, 2, 20, 20, 0, 0, 0, 0];
        let node = take_node(Bytes::copy_from_slice(&written)).expect("readable");
        assert_eq!(node.data, Bytes::new().into());
        assert_eq!(node_record(&node), written);
        let without = node_record(&Node { data: NodeData::NULL, ..node });
        assert_eq!(without[0], WITHOUT_DATA, "an earlier engine refuses it");
        assert_eq!(without[1..], written[1..]);
    }

    #[test]
    fn a_small_node_is_small() {
        let acl = Acl::open().into();
        let data = Bytes::new().into();
        let node = Node::new(data, acl, Owner::None, Zxid(1000), 1_700_000_000_000);
        let len = node_record(&node).len();
        assert!(len <= 24, "{len}");
    }
}

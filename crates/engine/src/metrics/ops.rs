//! The kinds of requests that are counted separately.

use lockkeeper_wire::OpCode;

/// The kinds: ZooKeeper's names, as in its `op_count_`, its four letters for them in `cons`, and whether they can
/// change data. The last one represents unknown requests.
const KINDS: [(Option<OpCode>, &str, &str, Effect); 27] = [
    (Some(OpCode::Create), "create", "CREA", Effect::Update),
    (Some(OpCode::Delete), "delete", "DELE", Effect::Update),
    (Some(OpCode::Exists), "exists", "EXIS", Effect::Read),
    (Some(OpCode::GetData), "get_data", "GETD", Effect::Read),
    (Some(OpCode::SetData), "set_data", "SETD", Effect::Update),
    (Some(OpCode::GetAcl), "get_acl", "GETA", Effect::Read),
    (Some(OpCode::SetAcl), "set_acl", "SETA", Effect::Update),
    (Some(OpCode::GetChildren), "get_children", "GETC", Effect::Read),
    (Some(OpCode::Sync), "sync", "SYNC", Effect::Read),
    (Some(OpCode::Ping), "ping", "PING", Effect::None),
    (Some(OpCode::GetChildren2), "get_children2", "GETC", Effect::Read),
    (Some(OpCode::Multi), "multi", "MULT", Effect::Update),
    (Some(OpCode::Create2), "create2", "CREA", Effect::Update),
    (Some(OpCode::Reconfig), "reconfig", "NA", Effect::Update),
    (Some(OpCode::CheckWatches), "check_watches", "CHKW", Effect::Read),
    (Some(OpCode::RemoveWatches), "remove_watches", "REMW", Effect::Read),
    (Some(OpCode::CreateContainer), "create_container", "CREA", Effect::Update),
    (Some(OpCode::CreateTtl), "create_ttl", "CREA", Effect::Update),
    (Some(OpCode::MultiRead), "multi_read", "MULR", Effect::Read),
    (Some(OpCode::Auth), "auth", "AUTH", Effect::None),
    (Some(OpCode::SetWatches), "set_watches", "SETW", Effect::Read),
    (Some(OpCode::GetEphemerals), "get_ephemerals", "NA", Effect::Read),
    (Some(OpCode::GetAllChildrenNumber), "get_all_children_number", "NA", Effect::Read),
    (Some(OpCode::AddWatch), "add_watch", "ADDW", Effect::Read),
    (Some(OpCode::WhoAmI), "who_am_i", "NA", Effect::Read),
    (Some(OpCode::CloseSession), "close_session", "CLOS", Effect::Update),
    (None, "other", "NA", Effect::None),
];

/// The possible effect of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Read,
    Update,
    /// Neither: it only concerns the connection.
    None,
}

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Op(u8);

impl Op {
    const OTHER: Self = Self((KINDS.len() - 1) as u8);

    /// The kind of the request in a frame, and the client's number for it.
    pub(crate) fn of_frame(frame: &[u8]) -> (Self, i32) {
        let number = |at: usize| {
            let bytes = frame.get(at..at + 4)?.first_chunk::<4>()?;
            Some(i32::from_be_bytes(*bytes))
        };
        let (Some(xid), Some(code)) = (number(0), number(4)) else {
            return (Self::OTHER, 0);
        };
        (Self::of_code(OpCode::from_code(code)), xid)
    }

    pub(crate) fn of_code(code: Option<OpCode>) -> Self {
        let code = match code {
            None => return Self::OTHER,
            Some(OpCode::SetWatches2) => Some(OpCode::SetWatches),
            known => known,
        };
        let index = KINDS.iter().position(|(kind, ..)| *kind == code);
        index.map_or(Self::OTHER, |index| Self(index as u8))
    }

    /// Its index in [`Op::all`].
    pub(crate) fn number(self) -> u8 {
        self.0
    }

    pub(crate) fn name(self) -> &'static str {
        KINDS[usize::from(self.0)].1
    }

    pub(crate) fn four_letters(self) -> &'static str {
        KINDS[usize::from(self.0)].2
    }

    pub(crate) fn effect(self) -> Effect {
        KINDS[usize::from(self.0)].3
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..KINDS.len()).map(|index| Self(index as u8))
    }
}

/// The number of requests of each kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpCounts([u32; KINDS.len()]);

impl OpCounts {
    pub(crate) fn add(&mut self, op: Op) {
        self.0[usize::from(op.0)] += 1;
    }

    /// The kinds that occur.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Op, u64)> {
        let counted = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(|(index, count)| (Op(index as u8), u64::from(*count)))
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|count| u64::from(*count)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_distinguished_by_their_code() {
        let frame = |xid: i32, code: i32| [xid.to_be_bytes(), code.to_be_bytes()].concat();
        for (code, name) in [(1, "create"), (105, "set_watches"), (11, "ping"), (77, "other")] {
            let (op, xid) = Op::of_frame(&frame(5, code));
            assert_eq!((op.name(), xid), (name, 5));
        }
        assert_eq!(Op::of_frame(b"short"), (Op::OTHER, 0));
        assert_eq!(Op::all().count(), KINDS.len());
    }

    #[test]
    fn counts_add_up() {
        let mut counts = OpCounts::default();
        let (ping, create) = (Op::of_code(Some(OpCode::Ping)), Op::of_code(Some(OpCode::Create)));
        [ping, create, ping].into_iter().for_each(|op| counts.add(op));
        assert_eq!(counts.iter().collect::<Vec<_>>(), [(create, 1), (ping, 2)]);
        assert_eq!(counts.total(), 3);
    }
}

//! What several targets need.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use lockkeeper_tree::{Entropy, Now, Server, Table};
use lockkeeper_wire::{ConnectRequest, Record as _};

/// What a new client says first.
pub fn hello() -> Bytes {
    let mut out = BytesMut::new();
    ConnectRequest::new_session(10_000).encode(&mut out);
    out.freeze()
}

/// The same in every run.
pub struct Zeros;

impl Entropy for Zeros {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

/// What a server has had stored.
#[derive(Default)]
pub struct Stored(BTreeMap<(Table, Bytes), Bytes>);

impl Stored {
    pub fn changes_of(&mut self, server: &mut Server) {
        for change in server.take_changes().iter() {
            let key = (change.table, Bytes::copy_from_slice(change.key));
            assert!(!change.is_new || !self.0.contains_key(&key), "{key:?} is not new");
            match change.value {
                Some(value) => self.0.insert(key, Bytes::copy_from_slice(value)),
                None => self.0.remove(&key),
            };
        }
    }

    /// A new server finds all of it.
    pub fn restart(self, before: &Server, mut again: Server, now: Now) {
        for ((table, key), value) in self.0 {
            again.restore(table, &key, value).expect("our own record");
        }
        again.finish_restore(now).expect("our own state");
        let (before, after) = (before.stats(), again.stats());
        assert_eq!((before.nodes, before.ephemerals), (after.nodes, after.ephemerals));
        assert_eq!((before.sessions, before.data_bytes), (after.sessions, after.data_bytes));
        assert_eq!(before.last_zxid, after.last_zxid);
    }
}

//! Limits on the number of connections, in total and from one origin.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::connection::origin::Origin;
use crate::connection::tls_charge::TlsShare;
use crate::settings::plan::Plan;
use crate::sockets::stream::Peer;
use crate::sockets::unix::PRIVATE;

/// One in this many places is reserved for clients that return with a session: when all others are taken, lock holders
/// must still be able to reconnect.
const RESERVED_FRACTION: usize = 10;

/// The number of additional places for the owner of an engine, if other users may use its socket.
const OWNER_PLACES: usize = 100;

/// The limits, in connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) max: usize,
    pub(crate) max_per_origin: usize,
    /// Beyond `max`, for root and the user of this process on a Unix socket.
    pub(crate) for_owner: usize,
}

impl Places {
    pub(crate) fn of(plan: &Plan) -> Self {
        let max = plan.limits.max_connections;
        let is_shared = plan.unix_socket_mode.unwrap_or(PRIVATE) != PRIVATE;
        let for_owner = if is_shared { OWNER_PLACES.min(1 + max / RESERVED_FRACTION) } else { 0 };
        Self { max, max_per_origin: plan.limits.max_connections_per_address(), for_owner }
    }
}

/// Counts connections against their limits.
pub(crate) struct Admission {
    places: Places,
    /// How many of `places.max` are reserved for returning clients.
    kept: usize,
    /// The bytes that all TLS connections may hold.
    max_tls: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    /// Without the owner's places.
    all: usize,
    by_owner: usize,
    by_origin: HashMap<Origin, OriginUse>,
}

/// The places that an origin uses.
struct OriginUse {
    count: usize,
    /// How many of these are reserved ones.
    kept: usize,
    tls: Arc<TlsShare>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Open,
    /// Only for a client that returns with a session.
    Kept,
    Owners,
}

/// A connection's place; dropping it frees the place.
pub(crate) struct Slot {
    admission: Arc<Admission>,
    origin: Origin,
    kind: Kind,
    /// Shared with the other connections of the origin.
    pub(crate) tls: Arc<TlsShare>,
}

impl Slot {
    /// Whether the place is only for a client that returns with a session.
    pub(crate) fn is_kept(&self) -> bool {
        self.kind == Kind::Kept
    }
}

/// The limit that a connection would exceed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{0} connections are open, which is the limit")]
    All(usize),
    #[error("{count} connections {origin} are open, which is the limit for one {}", .origin.kind())]
    Origin { origin: Origin, count: usize },
}

impl Admission {
    /// `max_tls`: the bytes that all TLS connections may hold.
    pub(crate) fn new(places: Places, max_tls: usize) -> Arc<Self> {
        Arc::new(Self {
            places,
            kept: places.max / RESERVED_FRACTION,
            max_tls,
            taken: Mutex::default(),
        })
    }

    /// Takes a slot for a connection from `peer`.
    ///
    /// The slot is a reserved one if all others are taken, or all that the origin may have. One origin gets at most a
    /// quarter of the reserved ones, because it is not known yet whether it has a session. The owner is limited only by
    /// the total, and gets its additional places first.
    pub(crate) fn admit(self: &Arc<Self>, peer: Peer) -> Result<Slot, Refusal> {
        let origin = Origin::of(peer);
        let mut taken = self.lock();
        let kind = self.kind_of_next(&taken, origin)?;
        let tls = self.count(&mut taken, origin, kind);
        Ok(Slot { admission: self.clone(), origin, kind, tls })
    }

    fn kind_of_next(&self, taken: &Taken, origin: Origin) -> Result<Kind, Refusal> {
        let Places { max, max_per_origin, for_owner } = self.places;
        let is_owner = origin.is_owner();
        let (max_of_origin, kept_of_origin) = match is_owner {
            true => (max, self.kept),
            false => (max_per_origin, self.kept.min(1.max(self.kept / 4))),
        };
        let used = taken.by_origin.get(&origin);
        let (count, kept) = used.map_or((0, 0), |used| (used.count, used.kept));

        if taken.all < max - self.kept && count < max_of_origin {
            return Ok(Kind::Open);
        }
        if is_owner && taken.by_owner < for_owner {
            return Ok(Kind::Owners);
        }
        match () {
            () if taken.all >= max => Err(Refusal::All(taken.all)),
            () if kept >= kept_of_origin => Err(Refusal::Origin { origin, count }),
            () => Ok(Kind::Kept),
        }
    }

    fn count(&self, taken: &mut Taken, origin: Origin, kind: Kind) -> Arc<TlsShare> {
        let tls = || Arc::new(TlsShare::of(self.max_tls));
        if kind == Kind::Owners {
            taken.by_owner += 1;
            return tls();
        }
        taken.all += 1;
        let unused = || OriginUse { count: 0, kept: 0, tls: tls() };
        let used = taken.by_origin.entry(origin).or_insert_with(unused);
        used.count += 1;
        used.kept += usize::from(kind == Kind::Kept);
        used.tls.clone()
    }

    /// The number of open connections, if there is no place for a client that starts a session.
    pub(crate) fn is_full(&self) -> Option<usize> {
        let all = self.lock().all;
        (all >= self.places.max - self.kept).then_some(all)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn give_back(&mut self, origin: Origin, kind: Kind) {
        if kind == Kind::Owners {
            self.by_owner -= 1;
            return;
        }
        self.all -= 1;
        if let Some(used) = self.by_origin.get_mut(&origin) {
            used.count -= 1;
            used.kept -= usize::from(kind == Kind::Kept);
            if used.count == 0 {
                self.by_origin.remove(&origin);
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.admission.lock().give_back(self.origin, self.kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any user except root and the user of this process.
    fn stranger(n: u32) -> Peer {
        Peer::Unix { uid: rustix::process::geteuid().as_raw() + n }
    }

    fn owner() -> Peer {
        Peer::Unix { uid: 0 }
    }

    fn from(address: &str) -> Peer {
        Peer::Tcp(address.parse().unwrap())
    }

    fn admission(max: usize, max_per_origin: usize, for_owner: usize) -> Arc<Admission> {
        Admission::new(Places { max, max_per_origin, for_owner }, 0)
    }

    /// Symptom: one user took all places of a machine's engine, and root's commands failed.
    ///
    /// Seen to fail without a share for each user, and without places for the owner.
    #[test]
    fn n40_a_user_takes_no_places_from_others_and_none_from_the_owner() {
        let admission = admission(20, 12, 2);
        let mut slots = Vec::new();
        let mut all_of = |peer| {
            let before = slots.len();
            slots.extend(std::iter::from_fn(|| admission.admit(peer).ok()));
            slots.len() - before
        };
        assert_eq!(all_of(stranger(1)), 13, "its own places and a reserved one");
        let other = admission.admit(stranger(2)).ok().unwrap();
        assert!(!other.is_kept());
        drop(other);

        assert_eq!(all_of(stranger(2)), 6);
        assert_eq!(all_of(stranger(3)), 1);
        assert_eq!(admission.admit(stranger(4)).err(), Some(Refusal::All(20)));
        for _ in 0..2 {
            let slots: Vec<Slot> = std::iter::from_fn(|| admission.admit(owner()).ok()).collect();
            assert_eq!(slots.len(), 2, "available again once they have ended");
            assert!(slots.iter().all(|slot| !slot.is_kept()));
        }
    }

    /// An engine that only its owner can reach: the origin has no share, and the usual places are reserved.
    #[test]
    fn the_owner_may_have_all() {
        let admission = admission(20, 2, 0);
        let slots: Vec<Slot> = std::iter::from_fn(|| admission.admit(owner()).ok()).collect();
        assert_eq!(slots.iter().filter(|slot| !slot.is_kept()).count(), 18);
        assert_eq!(slots.len(), 20);
    }

    #[test]
    fn limits_hold_and_seats_come_back() {
        let admission = admission(3, 2, 0);
        let first = admission.admit(from("127.0.0.1:1")).ok().unwrap();
        let _second = admission.admit(from("127.0.0.1:2")).ok().unwrap();
        let refusal = admission.admit(from("127.0.0.1:3")).err().unwrap();
        assert!(matches!(refusal, Refusal::Origin { count: 2, .. }));

        let _unix = admission.admit(stranger(1)).ok().unwrap();
        let refusal = admission.admit(from("127.0.0.2:1")).err();
        assert_eq!(refusal, Some(Refusal::All(3)));

        drop(first);
        assert!(admission.admit(from("127.0.0.1:4")).is_ok());
    }

    /// A host that has one IPv6 address of a network has all of them.
    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let admission = admission(100, 2, 0);
        let _first = admission.admit(from("[2001:db8::1]:1")).ok().unwrap();
        let _second = admission.admit(from("[2001:db8::ffff:2]:1")).ok().unwrap();
        let third = admission.admit(from("[2001:db8::3]:1")).ok().unwrap();
        assert!(third.is_kept());
        let other = admission.admit(from("[2001:db8:0:1::1]:1")).ok().unwrap();
        assert!(!other.is_kept());
    }

    #[test]
    fn the_last_places_are_kept_for_those_who_come_back() {
        let admission = admission(20, 12, 0);
        let admit = |address| admission.admit(from(address)).map(|slot| (slot.is_kept(), slot));
        let mut slots = Vec::new();
        let kept: Vec<bool> = (0..13)
            .map(|_| {
                let (is_kept, slot) = admit("10.0.0.1:1").ok().unwrap();
                slots.push(slot);
                is_kept
            })
            .collect();
        assert_eq!(admission.is_full(), None, "there is room for other addresses");
        assert_eq!(
            kept,
            [[false; 12].as_slice(), &[true]].concat(),
            "one reserved place beyond its own"
        );
        let refusal = admit("10.0.0.1:1").err().unwrap();
        assert!(matches!(refusal, Refusal::Origin { count: 13, .. }));
        for n in 13..19 {
            let (is_kept, slot) = admit("10.0.0.2:1").ok().unwrap();
            assert_eq!(is_kept, n == 18, "{n}");
            slots.push(slot);
        }
        assert!(matches!(admit("10.0.0.2:1").err(), Some(Refusal::Origin { count: 6, .. })));
        let last = admit("10.0.0.3:1").ok().unwrap();
        assert!(last.0, "some reserved places were free");
        assert_eq!(admit("10.0.0.4:1").err(), Some(Refusal::All(20)));
        assert_eq!(admission.is_full(), Some(20));
        slots.truncate(16);
        assert!(!admit("10.0.0.3:1").ok().unwrap().0, "there is room for new sessions again");
    }
}

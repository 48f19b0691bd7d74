//! How many connections there may be, in all and from one address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::sockets::stream::Peer;

/// One place in so many is kept for clients that come back with a session: when all others are
/// taken, those who hold locks must still get through.
const KEPT: usize = 10;

/// Counts connections against their limits.
pub(crate) struct Admission {
    max: usize,
    max_per_address: usize,
    /// How many of `max` are for those who come back.
    kept: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    by_address: HashMap<IpAddr, AddressUse>,
}

/// What an address has taken.
#[derive(Default)]
struct AddressUse {
    count: usize,
    /// How many of these are kept ones.
    kept: usize,
}

/// A connection's place; dropping it makes room for the next.
pub(crate) struct Slot {
    admission: Arc<Admission>,
    address: Option<IpAddr>,
    is_kept: bool,
}

impl Slot {
    /// Whether the place is for a client that comes back with a session, and for nobody else.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }
}

/// The limit that a connection would have broken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{0} connections are open, which is the limit")]
    All(usize),
    #[error("{count} connections from {address} are open, which is the limit for one address")]
    Address { address: IpAddr, count: usize },
}

impl Admission {
    pub(crate) fn new(max: usize, max_per_address: usize) -> Arc<Self> {
        Arc::new(Self { max, max_per_address, kept: max / KEPT, taken: Mutex::default() })
    }

    /// Takes a slot for a connection from `peer`. A Unix socket counts in all only.
    ///
    /// A kept slot if all others are taken, or all that the address may have. One address gets a quarter
    /// of these: nobody knows yet whether it has a session.
    pub(crate) fn admit(self: &Arc<Self>, peer: Peer) -> Result<Slot, Refusal> {
        let address = peer.ip().map(one_host);
        let mut taken = self.lock();
        if taken.all >= self.max {
            return Err(Refusal::All(taken.all));
        }

        let mut is_kept = taken.all >= self.max - self.kept;
        if let Some(address) = address {
            let kept_per_address = self.kept.min(1.max(self.kept / 4));
            let used = taken.by_address.entry(address).or_default();
            is_kept |= used.count >= self.max_per_address;
            if is_kept && used.kept >= kept_per_address {
                return Err(Refusal::Address { address, count: used.count });
            }
            used.count += 1;
            used.kept += usize::from(is_kept);
        }

        taken.all += 1;
        Ok(Slot { admission: self.clone(), address, is_kept })
    }

    /// How many connections are open, if there is no place for a client that begins a session.
    pub(crate) fn is_full(&self) -> Option<usize> {
        let all = self.lock().all;
        (all >= self.max - self.kept).then_some(all)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.admission.lock();
        taken.all -= 1;
        let Some(address) = self.address else { return };
        if let Some(used) = taken.by_address.get_mut(&address) {
            used.count -= 1;
            used.kept -= usize::from(self.is_kept);
            if used.count == 0 {
                taken.by_address.remove(&address);
            }
        }
    }
}

/// What counts as one address: with IPv6, whoever has one has all 2⁶⁴ of its network.
fn one_host(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(address: &str) -> Peer {
        Peer::Tcp(address.parse().unwrap())
    }

    #[test]
    fn limits_hold_and_seats_come_back() {
        let admission = Admission::new(3, 2);
        let first = admission.admit(from("127.0.0.1:1")).ok().unwrap();
        let _second = admission.admit(from("127.0.0.1:2")).ok().unwrap();
        let refusal = admission.admit(from("127.0.0.1:3")).err().unwrap();
        assert!(matches!(refusal, Refusal::Address { count: 2, .. }));

        let _unix = admission.admit(Peer::Unix).ok().unwrap();
        let refusal = admission.admit(from("127.0.0.2:1")).err();
        assert_eq!(refusal, Some(Refusal::All(3)));

        drop(first);
        assert!(admission.admit(from("127.0.0.1:4")).is_ok());
    }

    /// Whoever has one address of a network has all of them.
    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let admission = Admission::new(100, 2);
        let _first = admission.admit(from("[2001:db8::1]:1")).ok().unwrap();
        let _second = admission.admit(from("[2001:db8::ffff:2]:1")).ok().unwrap();
        let third = admission.admit(from("[2001:db8::3]:1")).ok().unwrap();
        assert!(third.is_kept());
        let other = admission.admit(from("[2001:db8:0:1::1]:1")).ok().unwrap();
        assert!(!other.is_kept());
    }

    #[test]
    fn the_last_places_are_kept_for_those_who_come_back() {
        let admission = Admission::new(20, 12);
        let admit = |address| admission.admit(from(address)).map(|slot| (slot.is_kept(), slot));
        let mut slots = Vec::new();
        let kept: Vec<bool> = (0..13)
            .map(|_| {
                let (is_kept, slot) = admit("10.0.0.1:1").ok().unwrap();
                slots.push(slot);
                is_kept
            })
            .collect();
        assert_eq!(admission.is_full(), None, "for other addresses");
        assert_eq!(kept, [[false; 12].as_slice(), &[true]].concat(), "one beyond its own");
        let refusal = admit("10.0.0.1:1").err().unwrap();
        assert!(matches!(refusal, Refusal::Address { count: 13, .. }));
        for n in 13..19 {
            let (is_kept, slot) = admit("10.0.0.2:1").ok().unwrap();
            assert_eq!(is_kept, n == 18, "{n}");
            slots.push(slot);
        }
        assert!(matches!(admit("10.0.0.2:1").err(), Some(Refusal::Address { count: 6, .. })));
        let last = admit("10.0.0.3:1").ok().unwrap();
        assert!(last.0, "nobody took all that are kept");
        assert_eq!(admit("10.0.0.4:1").err(), Some(Refusal::All(20)));
        assert_eq!(admission.is_full(), Some(20));
        slots.truncate(16);
        assert!(!admit("10.0.0.3:1").ok().unwrap().0, "there is room for anyone again");
    }
}

//! How many connections there may be, in all and from one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::socket::Peer;

/// Counts connections against their limits.
pub(crate) struct Admission {
    max: usize,
    max_per_address: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A connection's place; dropping it makes room for the next.
pub(crate) struct Seat {
    admission: Arc<Admission>,
    address: Option<IpAddr>,
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
        Arc::new(Self { max, max_per_address, taken: Mutex::default() })
    }

    /// Takes a seat for a connection from `peer`. A Unix socket counts in all only.
    pub(crate) fn admit(self: &Arc<Self>, peer: Peer) -> Result<Seat, Refusal> {
        let address = peer.ip();
        let mut taken = self.lock();
        if taken.all >= self.max {
            return Err(Refusal::All(taken.all));
        }
        if let Some(address) = address {
            let count = taken.by_address.entry(address).or_default();
            if *count >= self.max_per_address {
                let count = *count;
                return Err(Refusal::Address { address, count });
            }
            *count += 1;
        }
        taken.all += 1;
        Ok(Seat { admission: self.clone(), address })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.admission.lock();
        taken.all -= 1;
        let Some(address) = self.address else { return };
        if let Some(count) = taken.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                taken.by_address.remove(&address);
            }
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
}

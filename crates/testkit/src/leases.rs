//! Leases: grants of locks and the deadlines that their holders learned.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::history::{Entry, Share, What};

/// A grant, with all that its holder learned.
pub(crate) struct Lease<'a> {
    pub(crate) who: &'a str,
    pub(crate) token: u128,
    pub(crate) share: Share,
    pub(crate) granted: Duration,
    /// The deadline, as reported to the holder, before which the lock is granted to no other contender.
    pub(crate) claimed: Duration,
    /// When the holder released the lock.
    pub(crate) gave_back: Option<Duration>,
}

impl Lease<'_> {
    pub(crate) fn end(&self) -> Duration {
        self.gave_back.map_or(self.claimed, |gave_back| gave_back.min(self.claimed))
    }

    pub(crate) fn excludes(&self, other: &Self) -> bool {
        !Share::fit(&[self.share, other.share])
    }
}

/// Formats the holder, its share and token, and the times.
impl fmt::Display for Lease<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, token, share, granted, .. } = self;
        let (from, to) = (granted.as_secs_f64(), self.end().as_secs_f64());
        write!(f, "{who} ({share}, token {token:x}, {from:.3} s to {to:.3} s)")
    }
}

/// The leases of each lock, in the order of the grants.
pub(crate) fn leases(entries: &[Entry]) -> BTreeMap<&str, Vec<Lease<'_>>> {
    let mut leases: BTreeMap<&str, Vec<Lease<'_>>> = BTreeMap::new();
    for Entry { at, who, what } in entries {
        let find = |leases: &mut BTreeMap<_, Vec<_>>, lock: &str, token: u128| -> Option<usize> {
            leases.get(lock)?.iter().rposition(|l: &Lease<'_>| l.token == token && l.who == who)
        };

        match what {
            What::Granted { lock, token, share } => leases.entry(lock).or_default().push(Lease {
                who,
                token: *token,
                share: *share,
                granted: *at,
                claimed: *at,
                gave_back: None,
            }),
            What::Claimed { lock, token, until } => {
                if let Some(index) = find(&mut leases, lock, *token) {
                    let lease = &mut leases.get_mut(lock.as_str()).expect("just found")[index];
                    lease.claimed = lease.claimed.max(*until);
                }
            }
            What::GaveBack { lock, token } => {
                if let Some(index) = find(&mut leases, lock, *token) {
                    leases.get_mut(lock.as_str()).expect("just found")[index].gave_back = Some(*at);
                }
            }
            _ => {}
        }
    }
    leases
}

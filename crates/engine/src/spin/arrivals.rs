//! Which connections send requests in each round, to predict how soon the next one may come.

use std::time::Duration;

use lockkeeper_tree::ConnectionId;

use super::policy::SpinPolicy;

/// The number of requests in a round up to which they count as sequential.
const MAX_SEQUENTIAL: usize = 4;

/// The connections that sent requests lately.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Of the present round.
    requests: usize,
    /// The only connection with requests in the present round and in the previous one.
    only: Option<ConnectionId>,
    only_before: Option<ConnectionId>,
    /// Whether a few requests of the same client as in the previous round have just been answered.
    one_goes_on: bool,
}

impl Arrivals {
    pub(crate) fn asks(&mut self, connection: ConnectionId, requests: usize) {
        self.only = match self.requests {
            0 => Some(connection),
            _ => self.only.filter(|only| *only == connection),
        };
        self.requests += requests;
    }

    /// Ends the round. `answered`: whether its replies were sent.
    pub(crate) fn end_round(&mut self, answered: bool) {
        let (requests, only) = (self.requests, self.only);
        self.one_goes_on = answered
            && (1..=MAX_SEQUENTIAL).contains(&requests)
            && only.is_some()
            && only == self.only_before;
        if requests > 0 {
            self.only_before = only;
        }
        (self.requests, self.only) = (0, None);
    }

    /// How long polling for the next round is worthwhile.
    pub(crate) fn spin_time(&self, policy: &SpinPolicy) -> Duration {
        policy.for_requests(self.one_goes_on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spin::Spin;

    /// Whether the engine polls longer after the last of these rounds, which are given as connections and requests.
    fn is_patient(rounds: &[&[(u64, usize)]], answered: bool) -> bool {
        let mut arrivals = Arrivals::default();
        for round in rounds {
            for &(connection, requests) in *round {
                arrivals.asks(ConnectionId(connection), requests);
            }
            arrivals.end_round(answered);
        }
        let policy = SpinPolicy::new(Spin::Adaptive);
        arrivals.spin_time(&policy) == policy.for_requests(true)
    }

    #[test]
    fn a_client_with_sequential_requests_is_polled_for() {
        assert!(is_patient(&[&[(1, 1)], &[(1, 1)]], true));
        assert!(is_patient(&[&[(1, 2)], &[(1, 1), (1, 2)]], true));
        assert!(is_patient(&[&[(2, 1)], &[(1, 1)], &[(1, MAX_SEQUENTIAL)]], true));
    }

    /// The pings of thousands of sessions must not keep a processor busy.
    #[test]
    fn many_clients_with_occasional_requests_are_not() {
        assert!(!is_patient(&[&[(1, 1)], &[(2, 1)]], true));
        assert!(!is_patient(&[&[(1, 1)], &[(1, 1), (2, 1)]], true));
        assert!(!is_patient(&[&[(1, 1), (2, 1)], &[(1, 1), (2, 1)]], true));
        assert!(!is_patient(&[&[(1, 1), (2, 1), (1, 1)], &[(1, 1)]], true));
    }

    #[test]
    fn neither_are_many_requests_nor_those_that_wait_for_the_disk() {
        assert!(!is_patient(&[&[(1, 1)], &[(1, MAX_SEQUENTIAL + 1)]], true));
        assert!(!is_patient(&[&[(1, 1)], &[(1, 1)]], false));
        assert!(!is_patient(&[&[(1, 1)], &[(1, 1)], &[]], true), "a round of timeouts alone");
        assert!(!is_patient(&[&[(1, 1)]], true), "the first of all");
    }
}

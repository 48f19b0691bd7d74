//! Who asks the tree, round by round, and so how soon the next request may come
//! (`docs/decisions/0007-look-out-before-sleeping.md`).

use std::time::Duration;

use lockkeeper_tree::ConnectionId;

/// How long the next requests are looked for before the tree thread sleeps, if the last ones came
/// so soon, or if replies have just left. Going to sleep and being woken takes a few times as long
/// as handling a request.
const LOOKOUT: Duration = Duration::from_micros(60);
/// The same for a client that asks again whenever it is answered, one thing after the other. Nobody
/// else wants the processor then, and on a slow machine it takes this long to ask again.
const LOOKOUT_FOR_ONE: Duration = Duration::from_micros(250);
/// Up to how many requests of a round count as one thing after the other.
const FEW: usize = 4;

/// Who asked lately.
#[derive(Debug, Default)]
pub(crate) struct Askers {
    /// Of the present round.
    requests: usize,
    /// The only one who asked in the present round, and in the one before.
    only: Option<ConnectionId>,
    only_before: Option<ConnectionId>,
    /// Whether a few requests of the same client as in the round before have just been answered.
    one_goes_on: bool,
}

impl Askers {
    pub(crate) fn asks(&mut self, connection: ConnectionId, requests: usize) {
        self.only = match self.requests {
            0 => Some(connection),
            _ => self.only.filter(|only| *only == connection),
        };
        self.requests += requests;
    }

    /// Goes on to the next round. `answered` tells whether the replies of this one have left.
    pub(crate) fn end_round(&mut self, answered: bool) {
        let (requests, only) = (self.requests, self.only);
        self.one_goes_on =
            answered && (1..=FEW).contains(&requests) && only.is_some() && only == self.only_before;
        if requests > 0 {
            self.only_before = only;
        }
        (self.requests, self.only) = (0, None);
    }

    /// How long the next round is worth looking out for.
    pub(crate) fn patience(&self) -> Duration {
        if self.one_goes_on { LOOKOUT_FOR_ONE } else { LOOKOUT }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the engine is patient after the last of these rounds, of connections and requests.
    fn is_patient(rounds: &[&[(u64, usize)]], answered: bool) -> bool {
        let mut askers = Askers::default();
        for round in rounds {
            for &(connection, requests) in *round {
                askers.asks(ConnectionId(connection), requests);
            }
            askers.end_round(answered);
        }
        askers.patience() == LOOKOUT_FOR_ONE
    }

    #[test]
    fn who_asks_again_and_again_is_looked_out_for() {
        assert!(is_patient(&[&[(1, 1)], &[(1, 1)]], true));
        assert!(is_patient(&[&[(1, 2)], &[(1, 1), (1, 2)]], true));
        assert!(is_patient(&[&[(2, 1)], &[(1, 1)], &[(1, FEW)]], true));
    }

    /// The pings of thousands of sessions must not keep a processor busy.
    #[test]
    fn many_who_ask_now_and_then_are_not() {
        assert!(!is_patient(&[&[(1, 1)], &[(2, 1)]], true));
        assert!(!is_patient(&[&[(1, 1)], &[(1, 1), (2, 1)]], true));
        assert!(!is_patient(&[&[(1, 1), (2, 1)], &[(1, 1), (2, 1)]], true));
        assert!(!is_patient(&[&[(1, 1), (2, 1), (1, 1)], &[(1, 1)]], true));
    }

    #[test]
    fn neither_are_many_requests_nor_those_that_wait_for_the_disk() {
        assert!(!is_patient(&[&[(1, 1)], &[(1, FEW + 1)]], true));
        assert!(!is_patient(&[&[(1, 1)], &[(1, 1)]], false));
        assert!(!is_patient(&[&[(1, 1)], &[(1, 1)], &[]], true), "a round of timeouts alone");
        assert!(!is_patient(&[&[(1, 1)]], true), "the first of all");
    }
}

//! Which number a program takes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use lockkeeper_client::retry::retry_anywhere;
use lockkeeper_client::{Client, Watcher, ZnodePath, present};
use lockkeeper_locks::for_recipes::out_of_reach;
use lockkeeper_locks::{NameClaim, Names};

use crate::worker_ids::error::WorkerIdError;

/// Numbers that must not be taken, with the end of each reservation.
pub(super) type Skipped = BTreeMap<u32, u64>;

/// The numbers, each of which has at most one holder.
#[derive(Clone)]
pub(super) struct Numbers {
    client: Client,
    names: Names,
    range: Range<u32>,
}

impl Numbers {
    /// `range`: not empty.
    pub(super) fn new(client: &Client, names: Names, range: Range<u32>) -> Self {
        Self { client: client.clone(), names, range }
    }

    /// Takes a free number that is not in `skipped`; `None` if all are taken. `waits`: waits for one, unless all
    /// are skipped.
    ///
    /// Programs that start together take random numbers, so that they do not collide at one number after the other.
    pub(super) async fn take(
        &self,
        skipped: &Skipped,
        waits: bool,
    ) -> Result<Option<(u32, NameClaim)>, WorkerIdError> {
        let guess = fastrand::u32(self.range.clone());
        if !skipped.contains_key(&guess)
            && let Some(claim) = self.names.try_claim(&guess.to_string()).await?
        {
            return Ok(Some((guess, claim)));
        }

        loop {
            let (mut blocked, watcher) = self.taken(waits).await?;
            blocked.extend(skipped.keys());
            match any_but(&self.range, &blocked, |free| fastrand::u32(0..free)) {
                Some(number) => {
                    if let Some(claim) = self.names.try_claim(&number.to_string()).await? {
                        return Ok(Some((number, claim)));
                    }
                }
                None if skipped.len() == self.range.len() => return Ok(None),
                None => match watcher {
                    Some(mut watcher) => tokio::select! {
                        // A fixed order makes simulations reproducible.
                        biased;
                        // A watch that ended with its session is set again in the next one.
                        _ = watcher.changed() => {}
                        error = out_of_reach(&self.client, self.names.path()) => return Err(error.into()),
                    },
                    None => return Ok(None),
                },
            }
        }
    }

    /// The taken numbers. `watched`: with a watch that reports changes, which exists if any number is taken.
    async fn taken(
        &self,
        watched: bool,
    ) -> Result<(BTreeSet<u32>, Option<Watcher>), WorkerIdError> {
        let node = self.names.path();
        loop {
            let found = match watched {
                true => self.client.children_watched(node).await.map(|(found, w)| (found, Some(w))),
                false => self.client.children(node).await.map(|found| (found, None)),
            };
            match present(found) {
                Ok(None) => return Ok((BTreeSet::new(), None)),
                Ok(Some(((names, _), watcher))) => {
                    return Ok((
                        names.iter().filter_map(|name| name.parse().ok()).collect(),
                        watcher,
                    ));
                }
                Err(error) => retry_anywhere(error)
                    .await
                    .map_err(|source| WorkerIdError::Client { node: node.clone(), source })?,
            }
        }
    }
}

/// A number of the range that is not excluded; `None` if none is left. `choose`: picks an index below its argument.
fn any_but(
    range: &Range<u32>,
    blocked: &BTreeSet<u32>,
    choose: impl FnOnce(u32) -> u32,
) -> Option<u32> {
    let blocked = || blocked.range(range.clone());
    let free = range.end - range.start - u32::try_from(blocked().count()).ok()?;
    let chosen = (free > 0).then(|| range.start + choose(free))?;
    // Each excluded number below moves it up.
    Some(blocked().fold(chosen, |number, blocked| number + u32::from(*blocked <= number)))
}

/// The node of a number's reservation.
pub(super) fn reservation_of(reserved: &ZnodePath, number: u32) -> ZnodePath {
    reserved.child(&number.to_string()).expect("digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_that_is_free_can_be_chosen() {
        let blocked = BTreeSet::from([2, 3, 5, 9, 70]);
        let chosen = [0, 1, 2, 3].map(|at| any_but(&(3..10), &blocked, |_| at));
        assert_eq!(chosen, [4, 6, 7, 8].map(Some));
        assert_eq!(any_but(&(3..10), &blocked, |free| free - 1), Some(8));
        assert_eq!(any_but(&(2..4), &blocked, |_| 0), None);
    }
}

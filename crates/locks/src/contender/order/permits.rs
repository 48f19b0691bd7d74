//! Which contenders block another one where permits are counted.

use super::{Place, WaitQueue};

impl WaitQueue {
    /// Sets how many permits there are. Default: 1.
    pub fn set_permits(&mut self, permits: u32) {
        self.permits = permits;
    }

    /// How many permits there are.
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// The closest contenders ahead of which one must go before `wanted` permits are left; `None` if
    /// they are left now.
    ///
    /// The contenders returned take more permits than can be spared. So at least one of them has
    /// gone by the time that `wanted` permits are left, and no other node needs a watch.
    pub(super) fn beyond_the_permits(&self, wanted: u32, ahead: &[Place]) -> Option<Vec<String>> {
        if self.are_permits_left(wanted, ahead, None) {
            return None;
        }

        let (wanted, limit) = (u64::from(wanted), u64::from(self.permits));
        let mut taken = wanted;
        let closest = ahead.iter().rev().take_while(|place| {
            let enough = taken > limit;
            taken += permits_of(place);
            !enough
        });
        Some(closest.map(|place| place.name.clone()).collect())
    }

    /// Whether the contenders ahead, without the one named `gone`, leave `wanted` permits.
    pub(super) fn are_permits_left(
        &self,
        wanted: u32,
        ahead: &[Place],
        gone: Option<&String>,
    ) -> bool {
        let remain = ahead.iter().filter(|place| Some(&place.name) != gone);
        u64::from(wanted) + remain.map(permits_of).sum::<u64>() <= u64::from(self.permits)
    }
}

/// How many permits a contender takes.
fn permits_of(place: &Place) -> u64 {
    u64::from(place.kind.permits().unwrap_or(u32::MAX))
}

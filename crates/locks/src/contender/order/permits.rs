//! Finds the contenders that block another one where permits are counted.

use super::{Place, WaitQueue};

impl WaitQueue {
    /// Sets how many permits there are. Default: 1.
    pub fn set_permits(&mut self, permits: u32) {
        self.permits = permits;
    }

    /// The number of permits.
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// The closest contenders ahead of which one must leave before `wanted` permits are free; `None` if
    /// they are free now.
    ///
    /// Together, the returned contenders take so many permits that fewer than `wanted` are free. So at least one
    /// of them has left by the time `wanted` permits are free, and no other node needs a watch.
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

    /// Whether the contenders ahead, without the one named `gone`, leave `wanted` permits free.
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

/// The number of permits that a contender takes.
fn permits_of(place: &Place) -> u64 {
    u64::from(place.kind.permits().unwrap_or(u32::MAX))
}

//! Who is in the way where permits are counted.

use super::{Place, WaitQueue};

impl WaitQueue {
    /// Sets how many permits there are; one, unless it is said.
    pub fn set_permits(&mut self, permits: u32) {
        self.permits = permits;
    }

    /// How many permits there are.
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// The closest ones ahead that take so many permits that one of them must go before `wanted`
    /// are left; `None` if they are.
    ///
    /// When they are, those that remain ahead take less than the ones given here, so one of these
    /// has gone by then: nobody is woken for nothing, except by one that is not the last to go.
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

    /// Whether `wanted` permits are left by those ahead, when the one with the name `gone` has gone.
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

/// How many permits it takes.
fn permits_of(place: &Place) -> u64 {
    u64::from(place.kind.permits().unwrap_or(u32::MAX))
}

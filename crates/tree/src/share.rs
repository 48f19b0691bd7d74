//! Fair shares of one budget of memory: how much of it one client may have.

/// How many bytes a client may have in any case.
pub const LITTLE: usize = 16 * 1024;

/// How many bytes a client may have of a budget of `max`, of which `taken` are taken, while `large`
/// clients have more than [`LITTLE`]. Up to half of the budget there is no limit. Above that, a client
/// may have an equal share of half of the budget among the large ones. Above `max`, it may have
/// [`LITTLE`].
pub fn allowance(taken: usize, max: usize, large: usize) -> usize {
    match () {
        () if taken <= max / 2 => usize::MAX,
        () if taken <= max => LITTLE.max(max / 2 / large.max(1)),
        () => LITTLE,
    }
}

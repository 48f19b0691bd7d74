//! Fair shares of a memory budget.

/// The share that every client may use in any case, in bytes.
pub const SMALL_SHARE_BYTES: usize = 16 * 1024;

/// How many bytes a client may use of a budget of `max` bytes, of which `taken` are in use, while `large`
/// clients use more than [`SMALL_SHARE_BYTES`]. There is no limit up to half of the budget. Above that, the
/// large clients may each use an equal share of half of the budget. Above `max`, a client may use
/// [`SMALL_SHARE_BYTES`].
pub fn allowance(taken: usize, max: usize, large: usize) -> usize {
    match () {
        () if taken <= max / 2 => usize::MAX,
        () if taken <= max => SMALL_SHARE_BYTES.max(max / 2 / large.max(1)),
        () => SMALL_SHARE_BYTES,
    }
}

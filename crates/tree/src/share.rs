//! What is for all, and how much of it one may have.

/// Up to how many bytes one may have in any case.
pub const LITTLE: usize = 16 * 1024;

/// How many bytes one may have of `max` for all, of which `taken` are taken, if `large` have more than
/// [`LITTLE`]: any number while no more than half is taken; then as much as those who have much would
/// have of that half if it were divided among them; and in the end a little.
pub fn allowance(taken: usize, max: usize, large: usize) -> usize {
    match () {
        () if taken <= max / 2 => usize::MAX,
        () if taken <= max => LITTLE.max(max / 2 / large.max(1)),
        () => LITTLE,
    }
}

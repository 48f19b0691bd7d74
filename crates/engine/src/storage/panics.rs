//! Expected panics of the database library: it trusts some of the contents of a damaged file.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread is caught and reported as an error.
    static IS_EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Calls `work`; `None` if it panics. The process's panic hook is not called for such a panic, and is called for all
/// others as before: the first call installs a hook in front of it. The log has the details at the level debug.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |panic| match IS_EXPECTED.get() {
            true => tracing::debug!("the database library: {panic}"),
            false => others(panic),
        }));
    });
    let before = IS_EXPECTED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_EXPECTED.set(before);
    result.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught_and_the_next_is_not_expected() {
        assert_eq!(caught(|| 1), Some(1));
        assert_eq!(caught(|| -> u32 { panic!("as expected") }), None);
        assert!(!IS_EXPECTED.get());
    }
}

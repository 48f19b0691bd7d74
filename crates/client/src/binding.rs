//! Requests that belong to a hold: requests made while a piece of work runs are bound to the holds of that
//! work.

use std::cell::RefCell;

use lockkeeper_session::Binding;

/// A hold and its holder, and the local id of its session.
pub(crate) type Key = (usize, Binding);

thread_local! {
    /// The holds to which the work on this thread is bound, the innermost last.
    static BOUND: RefCell<Vec<Key>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` on this thread, bound to these holds.
pub(crate) fn within<R>(keys: impl Iterator<Item = Key>, work: impl FnOnce() -> R) -> R {
    let _unbind = Unbind(BOUND.with_borrow(Vec::len));
    BOUND.with_borrow_mut(|bound| bound.extend(keys));
    work()
}

/// Ends a binding, also if the work panics.
struct Unbind(usize);

impl Drop for Unbind {
    fn drop(&mut self) {
        BOUND.with_borrow_mut(|bound| bound.truncate(self.0));
    }
}

/// The holds of this session, with their holders, to which the work on this thread is bound.
pub(crate) fn holds_of(session: usize) -> Vec<Binding> {
    BOUND.with_borrow(|bound| {
        let ours = bound.iter().filter(|(of, _)| *of == session);
        ours.map(|(_, id)| *id).collect()
    })
}

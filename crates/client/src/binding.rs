//! Requests that belong to a hold: what is asked while a piece of work runs is bound to what it
//! runs under.

use std::cell::RefCell;

use lockkeeper_session::Binding;

/// A hold and its holder, and the address of the session that has it.
pub(crate) type Key = (usize, Binding);

thread_local! {
    /// What the work that runs on this thread is bound to, the innermost last.
    static BOUND: RefCell<Vec<Key>> = const { RefCell::new(Vec::new()) };
}

/// Runs something on this thread, bound to these.
pub(crate) fn within<R>(keys: impl Iterator<Item = Key>, work: impl FnOnce() -> R) -> R {
    let _unbind = Unbind(BOUND.with_borrow(Vec::len));
    BOUND.with_borrow_mut(|bound| bound.extend(keys));
    work()
}

/// Ends a binding, also when the work panics.
struct Unbind(usize);

impl Drop for Unbind {
    fn drop(&mut self) {
        BOUND.with_borrow_mut(|bound| bound.truncate(self.0));
    }
}

/// The holds of this session that what runs on this thread is bound to, with their holders.
pub(crate) fn holds_of(session: usize) -> Vec<Binding> {
    BOUND.with_borrow(|bound| {
        let ours = bound.iter().filter(|(of, _)| *of == session);
        ours.map(|(_, id)| *id).collect()
    })
}

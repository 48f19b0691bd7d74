//! The allocator of the command (`docs/decisions/0008-allocator.md`).

use std::hint::black_box;
use std::thread;

use mimalloc::MiMalloc;

/// What one of the engine's threads allocates another one frees, which the C library's allocator
/// pays for with locks.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// What makes a thread's heap look for pages that it can do without: so many allocations, of so
/// many bytes.
const ALLOCATIONS: usize = 17_000;
const LARGE: usize = 2 * 1024;

/// Makes the allocator give back what this thread has freed, and what others have.
///
/// It looks for that when more is asked of it, and when a thread ends; a process at rest does
/// neither. With each thousandth allocation of more than a kilobyte it looks at the empty pages of
/// its thread, and gives up those that it has found empty up to sixteen times; what all have given
/// up goes back when any thread ends.
pub(crate) fn give_back() {
    for _ in 0..ALLOCATIONS {
        drop(black_box(Vec::<u8>::with_capacity(LARGE)));
    }
    let thread = thread::Builder::new().name("lockkeeper-rest".to_owned());
    // Where there can be no thread, nothing is lost but memory.
    let _ = thread.spawn(|| drop(black_box(Box::new(0_u64))));
}

//! The memory allocator of the command (`docs/decisions/0008-allocator.md`).

use std::hint::black_box;
use std::thread;

use mimalloc::MiMalloc;

/// Memory that one engine thread allocates is often freed by another thread. The allocator of the C library takes
/// locks for that; mimalloc does not.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// How many allocations, of how many bytes each, make a thread's heap look for pages that it can release.
const ALLOCATIONS: usize = 17_000;
const LARGE: usize = 2 * 1024;

/// Makes the allocator return freed memory to the system.
///
/// mimalloc looks for freed memory when a thread allocates or ends. An idle process does neither, so its memory would
/// stay reserved. On every thousandth allocation of more than a kilobyte, mimalloc checks the empty pages of its
/// thread, and abandons a page after it was empty in up to sixteen checks. The end of any thread returns all
/// abandoned pages to the system.
pub(crate) fn give_back() {
    for _ in 0..ALLOCATIONS {
        drop(black_box(Vec::<u8>::with_capacity(LARGE)));
    }
    let thread = thread::Builder::new().name("lockkeeper-rest".to_owned());
    // If the system cannot create a thread, the only cost is memory.
    let _ = thread.spawn(|| drop(black_box(Box::new(0_u64))));
}

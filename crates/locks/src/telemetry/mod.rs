//! What a program can show of its locks: spans and events of `tracing`, and figures of `metrics`.
//!
//! ```text
//!   acquiring    a call that asks for a lock: its span, how it ends, and its figures
//!   figures      the figures of locks (feature `metrics`)
//!   sort         what a lock is called there
//! ```
//!
//! What is held reports in `guard/holding.rs`.

pub(crate) mod acquiring;
#[cfg(feature = "metrics")]
pub mod figures;
pub(crate) mod sort;

//! Telemetry of locks: spans and events of `tracing`, and metrics of the facade `metrics`.
//!
//! ```text
//!   acquiring     a call that asks for a lock: its span, its outcome and its metrics
//!   lock_metrics  the metrics of locks (feature `metrics`)
//!   metric_kind   the names of lock kinds in spans and metrics
//! ```
//!
//! `guard/hold_report.rs` reports on held locks.

pub(crate) mod acquiring;
#[cfg(feature = "metrics")]
pub mod lock_metrics;
pub(crate) mod metric_kind;

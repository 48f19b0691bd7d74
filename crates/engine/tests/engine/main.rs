//! The engine from outside: raw frames over real sockets.

// Tests create files in directories of their own.
#![allow(clippy::disallowed_methods)]

mod at_rest;
mod attacks;
mod child;
mod client;
mod controls;
mod crash;
mod durable;
mod expiry;
mod figures;
mod frames;
mod health;
mod limits;
mod lineage;
mod log;
mod monitor;
mod protocol;
mod rights;
mod start;
mod succession;
#[cfg(feature = "tls")]
mod tls;
mod upkeep;

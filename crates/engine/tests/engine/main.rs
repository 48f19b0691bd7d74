//! The engine from outside: raw frames over real sockets.

mod client;
mod crash;
mod durable;
mod frames;
mod limits;
mod protocol;
mod start;

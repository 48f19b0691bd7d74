//! Sockets of all kinds, with and without TLS.

pub(crate) mod handshakes;
pub(crate) mod listen;
pub(crate) mod open_files;
pub(crate) mod pace;
pub(crate) mod stream;
#[cfg(feature = "tls")]
pub(crate) mod tls;
pub(crate) mod unix;
#[cfg(feature = "tls")]
mod x509;

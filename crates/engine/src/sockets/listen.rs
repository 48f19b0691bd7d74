//! Listening TCP sockets.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use crate::error::StartError;

/// The default number of connections that may wait to be accepted.
pub(crate) const BACKLOG: u32 = 1024;

/// Listens on a TCP address. Must be called within a runtime.
pub(crate) fn bind_tcp(address: SocketAddr, backlog: u32) -> Result<TcpListener, StartError> {
    let bind = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        // Otherwise closed connections of an earlier engine would block the port for a minute.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(backlog)
    };
    bind().map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::PortTaken { address },
        _ => StartError::Listen { address, source },
    })
}

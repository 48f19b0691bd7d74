//! TCP sockets that listen.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use crate::error::StartError;

/// How many connections may wait to be accepted, unless another number is set.
pub(crate) const BACKLOG: u32 = 1024;

/// Listens on a TCP address. To be called within a runtime.
pub(crate) fn bind_tcp(address: SocketAddr, backlog: u32) -> Result<TcpListener, StartError> {
    let bind = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        // Else the connections of an earlier engine, still in their last minutes, would block us.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(backlog)
    };
    bind().map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::PortTaken { address },
        _ => StartError::Listen { address, source },
    })
}

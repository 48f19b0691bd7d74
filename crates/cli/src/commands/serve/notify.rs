//! Notifies the service manager, as `sd_notify(3)` describes it.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// The environment variable with the manager's socket.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// Reports the server's state to the service manager, if there is one.
#[derive(Debug)]
pub(super) struct Notifier {
    manager: Option<(UnixDatagram, SocketAddr)>,
}

impl Notifier {
    /// Finds the manager. Errors do not prevent the server from running.
    pub(super) fn from_environment() -> Self {
        let name = env::var_os(VARIABLE).filter(|name| !name.is_empty());
        let manager = name.and_then(|name| {
            let found = find(&name);
            found.inspect_err(|error| tracing::warn!("{VARIABLE} has no effect: {error}")).ok()
        });
        Self { manager }
    }

    /// Reports that the server is ready; `status` is a line for people.
    pub(super) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}\n"));
    }

    /// Reports that the server reloads its files; [`Notifier::ready`] follows.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=reading certificates\n"));
    }

    pub(super) fn status(&self, status: &str) {
        self.send(&format!("STATUS={status}\n"));
    }

    pub(super) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=stopping\n");
    }

    fn send(&self, message: &str) {
        let Some((socket, address)) = &self.manager else { return };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            tracing::warn!("cannot notify the service manager: {error}");
        }
    }
}

fn find(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = address(name)?;
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not block the server.
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

/// A path or, after an `@`, a name in Linux's abstract namespace.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_encoded_bytes() {
        #[cfg(target_os = "linux")]
        [b'@', abstract_name @ ..] => {
            use std::os::linux::net::SocketAddrExt;
            SocketAddr::from_abstract_name(abstract_name)
        }
        [b'/', ..] => SocketAddr::from_pathname(name),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is neither an absolute path nor a name after @",
        )),
    }
}

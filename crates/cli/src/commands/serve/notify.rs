//! Word to the service manager, as `sd_notify(3)` describes it.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// Where the manager listens.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// Tells the service manager how far the server is; nobody, if there is none.
#[derive(Debug)]
pub(super) struct Notifier {
    manager: Option<(UnixDatagram, SocketAddr)>,
}

impl Notifier {
    /// Finds the manager. That it cannot be told is no reason not to serve.
    pub(super) fn from_environment() -> Self {
        let name = env::var_os(VARIABLE).filter(|name| !name.is_empty());
        let manager = name.and_then(|name| {
            let found = find(&name);
            found.inspect_err(|error| tracing::warn!("{VARIABLE} has no effect: {error}")).ok()
        });
        Self { manager }
    }

    /// It serves; the status is a line for people.
    pub(super) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}\n"));
    }

    /// It reads its files again, and [`Notifier::ready`] follows.
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
            tracing::warn!("the service manager was not told: {error}");
        }
    }
}

fn find(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = address(name)?;
    let socket = UnixDatagram::unbound()?;
    // A manager that does not listen must not keep the server from serving.
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

/// A path, or after an `@` a name of the abstract namespace, which Linux has.
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
            "it is neither a full path nor a name after @",
        )),
    }
}

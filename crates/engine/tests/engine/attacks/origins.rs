//! Attacks from one user or one address on shared resources.

use std::os::unix::net::UnixStream;
use std::thread;

use rustix::process::{Uid, geteuid};
use rustix::thread::set_thread_uid;

use super::{SOCKET, TIMEOUT, Target};
use crate::client::Client;

/// Symptom: one user took all places of a Unix socket and kept out everyone, including root. Now one user does not even
/// keep out other users, and two do not keep out the owner of the engine.
///
/// Seen to fail without shares for users, and without places for the owner.
pub(super) fn places_of_users(target: &Target) {
    if !geteuid().is_root() {
        return eprintln!("SKIPPED: places of users: only root can play other users");
    }
    let begins = |user| !target.socket(user, 1).remove(0).handshake_fails(TIMEOUT);

    let first = target.socket(Some(1_001), 400);
    target.eventually("one user has all that it may have", |_| !begins(Some(1_001)));
    assert!(begins(Some(1_002)), "one user has kept out another one");
    let second = target.socket(Some(1_002), 400);
    target.eventually("two users have all", |_| !begins(Some(1_003)));
    assert!(begins(None), "two users have kept out the owner");
    for mut client in first.into_iter().chain(second) {
        assert!(client.rest().is_empty(), "without a handshake they end");
    }
}

impl Target {
    /// Connections to the Unix socket, by this user or by the owner.
    fn socket(&self, user: Option<u32>, count: usize) -> Vec<Client> {
        let path = self.folder.join(SOCKET);
        let connect = move || {
            if let Some(user) = user {
                // Changes the user of this thread only, which ends afterwards.
                set_thread_uid(Uid::from_raw(user)).unwrap();
            }
            let streams = (0..count).map(|_| UnixStream::connect(&path).unwrap());
            streams.map(|stream| Client::over(Box::new(stream))).collect()
        };
        thread::spawn(connect).join().unwrap()
    }
}

#[cfg(feature = "tls")]
pub(super) mod tls {
    use std::fs;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::path::Path;
    use std::sync::LazyLock;

    use lockkeeper_engine::{Builder, Engine, Tls};

    use super::*;
    use crate::tls::{Authority, dial_to};

    static AUTHORITY: LazyLock<Authority> = LazyLock::new(Authority::new);

    /// The beginning of a TLS client's hello: a record of 16,384 bytes.
    const BEGUN: [u8; 5] = [0x16, 3, 1, 0x40, 0];

    /// Writes the engine's certificate and key.
    pub(in super::super) fn prepare(folder: &Path) {
        let (certificate, key) = AUTHORITY.issue("engine").pem();
        fs::write(folder.join("cert"), certificate).unwrap();
        fs::write(folder.join("key"), key).unwrap();
    }

    /// The engine's side.
    pub(in super::super) fn listen(builder: Builder, folder: &Path) -> Builder {
        let [certificate, key] = ["cert", "key"].map(|name| fs::read(folder.join(name)).unwrap());
        let tls = Tls::from_pem(&certificate, &key).unwrap();
        builder.listen_tls("127.0.0.1:0".parse().unwrap(), tls)
    }

    pub(in super::super) fn publish(engine: &Engine, folder: &Path) {
        fs::write(folder.join("tls"), engine.tls_addrs()[0].to_string()).unwrap();
    }

    /// Symptom: five bytes were charged as 72 KiB, so that two addresses used all memory for TLS, and others were
    /// disconnected before their handshakes. Seen to fail that way.
    pub(in super::super) fn handshakes_that_stay_open(target: &Target) {
        let address: SocketAddr =
            fs::read_to_string(target.folder.join("tls")).unwrap().parse().unwrap();
        let begun = |source, count| -> Vec<Client> {
            let connections = (0..count).map(|_| {
                let mut client = target.dial_from(source, &address.to_string());
                client.send_bytes(&BEGUN);
                client
            });
            connections.collect()
        };
        let first = begun(Ipv4Addr::new(127, 0, 0, 2), 300);
        let second = begun(Ipv4Addr::new(127, 0, 0, 3), 45);
        target.eventually("all of them have begun", |target| {
            target.number("tls_bytes") > 345 * 8 * 1024
        });
        let mut client = dial_to(address, AUTHORITY.client(None));
        assert!(!client.handshake_fails(TIMEOUT), "they have kept out another client");
        drop((first, second, client));
        target.eventually("they are disconnected", |target| target.number("tls_bytes") == 0);
    }
}

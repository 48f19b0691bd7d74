//! A second port on which a standalone server speaks TLS.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::config::Config;

/// An address that no other client uses: the port must stay free until ZooKeeper opens it.
const HOST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 77);

/// Longer than a server takes to open this port after it serves on the plain one.
const PATIENCE: Duration = Duration::from_secs(20);

/// A free address for [`Config::secure`].
///
/// # Errors
///
/// No port is free.
pub fn secure_address() -> io::Result<SocketAddr> {
    TcpListener::bind((HOST, 0))?.local_addr()
}

/// Waits until a running server also accepts connections at its secure address.
///
/// # Errors
///
/// The port is not open within twenty seconds.
pub fn wait_for_secure(address: SocketAddr) -> Result<()> {
    let since = Instant::now();
    while let Err(error) = TcpStream::connect(address) {
        ensure!(since.elapsed() < PATIENCE, "ZooKeeper's secure port: {error}");
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

impl Config {
    /// Speaks TLS at `address`, with PEM files as stores. Clients are asked for certificates and served without.
    #[must_use]
    pub fn secure(self, address: SocketAddr, key_store: &Path, trust_store: &Path) -> Self {
        let package = "org.apache.zookeeper.server";
        self.setting("secureClientPort", &address.port().to_string())
            .setting("secureClientPortAddress", &address.ip().to_string())
            .setting("ssl.keyStore.location", &key_store.display().to_string())
            .setting("ssl.keyStore.type", "PEM")
            .setting("ssl.trustStore.location", &trust_store.display().to_string())
            .setting("ssl.trustStore.type", "PEM")
            .setting("ssl.clientAuth", "want")
            .setting("serverCnxnFactory", &format!("{package}.NettyServerCnxnFactory"))
            .setting("authProvider.x509", &format!("{package}.auth.X509AuthenticationProvider"))
    }
}

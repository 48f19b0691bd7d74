//! Server: one server of a connection string.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use crate::connect_string::Host;
use crate::runtime::Runtime;

/// One server of a connection string: a host, and its address if the name has several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Server {
    pub(crate) host: Host,
    /// `None` for a Unix socket, an IP address, and a name with one address.
    pub(crate) address: Option<IpAddr>,
}

impl Server {
    /// Whether a connection to this host and address is a connection to this server.
    pub(crate) fn is_at(&self, host: &Host, address: Option<IpAddr>) -> bool {
        self.host == *host && (self.address.is_none() || self.address == address)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{} ({address})", self.host),
            None => self.host.fmt(f),
        }
    }
}

/// All servers of these hosts. Looks up their names.
pub(crate) async fn servers_of(hosts: &[Host], runtime: &dyn Runtime) -> Vec<Server> {
    let mut servers = BTreeSet::new();
    for host in hosts {
        let addresses: BTreeSet<_> = runtime.addresses(host).await.into_iter().collect();
        // A port of this machine is one server, however many addresses it has.
        let is_one = addresses.len() < 2 || addresses.iter().all(IpAddr::is_loopback);
        let all = match is_one {
            true => BTreeSet::from([None]),
            false => addresses.into_iter().map(Some).collect(),
        };
        servers.extend(all.into_iter().map(|address| Server { host: host.clone(), address }));
    }
    servers.into_iter().collect()
}

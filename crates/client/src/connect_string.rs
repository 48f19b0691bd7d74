//! Connection strings: `host:port,host:port/chroot`, with the prefix `tls://` for servers that use TLS, or
//! `unix:/path/to/socket`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use lockkeeper_wire::{PathError, ZnodePath};

/// ZooKeeper's default port.
const DEFAULT_PORT: u16 = 2181;

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Host {
    /// A name or an address, and a TCP port. A name stands for all of its addresses: each connection attempt
    /// starts with a different one.
    Tcp {
        /// A host name, an IPv4 address, or an IPv6 address without brackets.
        name: String,
        /// The port.
        port: u16,
    },
    /// The Unix socket of a server on this machine.
    Unix(PathBuf),
}

/// The servers of one service, and the chroot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectString {
    /// Whether to use only TLS (the prefix `tls://`, once before all servers).
    pub tls: bool,
    /// The servers, at least one.
    pub hosts: Vec<Host>,
    /// All paths of the client are below this one; usually `/`.
    pub chroot: ZnodePath,
}

/// Why a string is not a valid [`ConnectString`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectStringError {
    /// It does not name a server.
    #[error("{0:?} names no server; expected host:port,host:port/chroot or unix:/path/to/socket")]
    NoHost(String),
    /// A host without a name, or with brackets that do not match.
    #[error("{0:?} is not a server; expected host:port, [ipv6]:port or unix:/path/to/socket")]
    BadHost(String),
    /// A port that is not a number from 1 to 65535.
    #[error("{port:?} in {host:?} is not a port; expected a number from 1 to 65535")]
    BadPort {
        /// The server as written.
        host: String,
        /// The port as written.
        port: String,
    },
    /// It contains a URL scheme.
    #[error(
        "unexpected {0}:// in the connection string; expected host:port,host:port/chroot, with \
         tls:// once before all servers if they use TLS"
    )]
    Scheme(String),
    /// The part after the servers is not a valid path.
    #[error("the part after the servers is not a valid chroot: {0}")]
    BadChroot(#[from] PathError),
}

impl FromStr for ConnectString {
    type Err = ConnectStringError;

    fn from_str(text: &str) -> Result<Self, ConnectStringError> {
        if let Some(socket) = text.strip_prefix("unix:") {
            if !socket.starts_with('/') {
                return Err(ConnectStringError::BadHost(text.to_owned()));
            }
            let hosts = vec![Host::Unix(socket.into())];
            return Ok(Self { tls: false, hosts, chroot: ZnodePath::root() });
        }

        let (tls, text) = match text.strip_prefix("tls://") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if let Some(scheme) = scheme(text) {
            return Err(ConnectStringError::Scheme(scheme.to_owned()));
        }

        let (hosts, chroot) = match text.find('/') {
            Some(slash) => (&text[..slash], ZnodePath::new(&text[slash..])?),
            None => (text, ZnodePath::root()),
        };
        if hosts.trim().is_empty() {
            return Err(ConnectStringError::NoHost(text.to_owned()));
        }

        let hosts =
            hosts.split(',').map(|host| parse_host(host.trim())).collect::<Result<_, _>>()?;
        Ok(Self { tls, hosts, chroot })
    }
}

/// The URL scheme before a server, if any.
fn scheme(text: &str) -> Option<&str> {
    let (front, _) = text.split_once("://")?;
    let scheme = front.rsplit(',').next()?.trim();
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    (!scheme.is_empty() && scheme.bytes().all(is_letter)).then_some(scheme)
}

fn parse_host(text: &str) -> Result<Host, ConnectStringError> {
    let (name, port) = split_port(text).ok_or(ConnectStringError::BadHost(text.to_owned()))?;
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or_else(|| {
            ConnectStringError::BadPort { host: text.to_owned(), port: port.to_owned() }
        })?,
    };
    Ok(Host::Tcp { name: name.to_owned(), port })
}

/// Splits `name:port`. An IPv6 address with a port is in brackets.
fn split_port(text: &str) -> Option<(&str, Option<&str>)> {
    let (name, port) = if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']')?;
        (address, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
    } else if text.matches(':').count() > 1 {
        (text, None)
    } else {
        text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port)))
    };
    (!name.is_empty() && !name.contains(char::is_whitespace)).then_some((name, port))
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { name, port } if name.contains(':') => write!(f, "[{name}]:{port}"),
            Self::Tcp { name, port } => write!(f, "{name}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for ConnectString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tls {
            write!(f, "tls://")?;
        }
        for (index, host) in self.hosts.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{host}")?;
        }
        if !self.chroot.is_root() {
            write!(f, "{}", self.chroot)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, ConnectStringError> {
        text.parse::<ConnectString>().map(|parsed| parsed.to_string())
    }

    #[test]
    fn what_is_written_is_understood() {
        for (text, canonical) in [
            ("localhost", "localhost:2181"),
            ("a:1,b:2", "a:1,b:2"),
            ("a, b", "a:2181,b:2181"),
            ("a:1,b:2/app/locks", "a:1,b:2/app/locks"),
            ("a:1/", "a:1"),
            ("tls://a,b:2281/app", "tls://a:2181,b:2281/app"),
            ("[::1]:2182", "[::1]:2182"),
            ("::1", "[::1]:2181"),
            ("[fe80::1]", "[fe80::1]:2181"),
            ("unix:/run/lk/engine.sock", "unix:/run/lk/engine.sock"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(canonical), "{text}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("", "names no server"),
            ("/chroot", "names no server"),
            ("tls://", "names no server"),
            ("a:x", "\"x\" in \"a:x\" is not a port"),
            ("a:0", "is not a port"),
            ("a:70000", "is not a port"),
            ("a,,b", "\"\" is not a server"),
            ("[::1:2181", "is not a server"),
            (":2181", "is not a server"),
            ("two words:1", "is not a server"),
            ("unix:relative", "is not a server"),
            ("a:1/x//y", "empty segment"),
            ("a:1/x://y", "empty segment"),
            ("zk://a:2181/app", "unexpected zk:// in the connection string"),
            ("zookeeper://a", "unexpected zookeeper://"),
            ("a,tls://b", "tls:// once before all servers"),
            ("tls://zk://a", "unexpected zk://"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

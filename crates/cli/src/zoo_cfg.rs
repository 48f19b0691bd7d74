//! ZooKeeper's own configuration file, `zoo.cfg`.

use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use lockkeeper_engine::Builder;

use crate::exit::{Exit, Failure};

/// What a file says, as far as it has an effect here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ZooCfg {
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) tick: Option<Duration>,
    port: Option<u16>,
    host: Option<IpAddr>,
    min_session_timeout: Option<Duration>,
    max_session_timeout: Option<Duration>,
    max_client_connections: Option<usize>,
    max_frame: Option<usize>,
    /// The keys that have none, with their lines.
    ignored: Vec<(usize, String)>,
    name: String,
}

impl ZooCfg {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(|error| {
            let message = format!("cannot read {}: {error}", path.display());
            Failure::new(Exit::Config, message)
        })?;
        Self::parse(&path.display().to_string(), &text)
    }

    fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let mut cfg = Self { name: name.to_owned(), ..Self::default() };
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', '!']) {
                continue;
            }
            let number = index + 1;
            cfg.line(number, line).map_err(|why| {
                Failure::new(Exit::Config, format!("{name}, line {number}: {why}"))
            })?;
        }
        Ok(cfg)
    }

    fn line(&mut self, number: usize, line: &str) -> Result<(), String> {
        let (key, value) = line
            .split_once('=')
            .map(|(key, value)| (key.trim(), value.trim()))
            .filter(|(key, _)| !key.is_empty() && !key.contains(char::is_whitespace))
            .ok_or_else(|| format!("{line:?} is no setting; write it like clientPort=2181"))?;
        match key {
            "dataDir" if value.is_empty() => return Err("dataDir is empty".to_owned()),
            "dataDir" => self.data_dir = Some(value.into()),
            "tickTime" => self.tick = Some(Duration::from_millis(parse(key, value)?)),
            "clientPort" => self.port = Some(parse(key, value)?),
            "clientPortAddress" => self.host = Some(host(value)?),
            "minSessionTimeout" => self.min_session_timeout = milliseconds(key, value)?,
            "maxSessionTimeout" => self.max_session_timeout = milliseconds(key, value)?,
            "maxClientCnxns" => self.max_client_connections = Some(parse(key, value)?),
            "jute.maxbuffer" => self.max_frame = Some(bytes(key, value)?),
            other => self.ignored.push((number, other.to_owned())),
        }
        Ok(())
    }

    /// Where to listen, if the file says so. ZooKeeper listens everywhere if no address is given.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        let host = self.host.unwrap_or(Ipv6Addr::UNSPECIFIED.into());
        self.port.map(|port| SocketAddr::new(host, port))
    }

    /// Names what has no effect in the log.
    pub(crate) fn warn(&self) {
        for (line, key) in &self.ignored {
            tracing::warn!("{}, line {line}: {key} has no effect here", self.name);
        }
        let old = self.data_dir.as_ref().map(|directory| directory.join("version-2"));
        if let Some(old) = old.filter(|old| old.is_dir()) {
            tracing::warn!("the Apache ZooKeeper data in {} is not read", old.display());
        }
    }

    /// Adds what only the file can say.
    pub(crate) fn apply(&self, mut builder: Builder) -> Builder {
        if let Some(timeout) = self.min_session_timeout {
            builder = builder.min_session_timeout(timeout);
        }
        if let Some(timeout) = self.max_session_timeout {
            builder = builder.max_session_timeout(timeout);
        }
        if let Some(count) = self.max_client_connections {
            // ZooKeeper's 0 is no limit.
            let count = if count == 0 { usize::MAX } else { count };
            builder = builder.max_connections_per_address(count);
        }
        if let Some(bytes) = self.max_frame {
            builder = builder.max_frame(bytes);
        }
        builder
    }
}

fn parse<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{key}={value}: this is no number that fits"))
}

/// ZooKeeper's -1 is its default.
fn milliseconds(key: &str, value: &str) -> Result<Option<Duration>, String> {
    match value {
        "-1" => Ok(None),
        _ => Ok(Some(Duration::from_millis(parse(key, value)?))),
    }
}

/// A number of bytes, decimal or like `0xfffff`.
fn bytes(key: &str, value: &str) -> Result<usize, String> {
    match value.strip_prefix("0x") {
        Some(digits) => usize::from_str_radix(digits, 16)
            .map_err(|_| format!("{key}={value}: this is no number that fits")),
        None => parse(key, value),
    }
}

fn host(value: &str) -> Result<IpAddr, String> {
    let explain = |why: String| format!("clientPortAddress={value}: {why}");
    let mut found = (value, 0).to_socket_addrs().map_err(|error| explain(error.to_string()))?;
    let address = found.next().ok_or_else(|| explain("the name has no address".to_owned()))?;
    Ok(address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_file_is_understood() {
        let text = "# the basic time unit\ntickTime=2000\ninitLimit = 10\n\
                    dataDir=/var/lib/zookeeper\nclientPort=2181\n\n\
                    clientPortAddress=127.0.0.1\nmaxClientCnxns=0\nminSessionTimeout=-1\n\
                    maxSessionTimeout=60000\njute.maxbuffer=0xfffff\n";
        let cfg = ZooCfg::parse("zoo.cfg", text).unwrap();
        assert_eq!(cfg.tick, Some(Duration::from_secs(2)));
        assert_eq!(cfg.data_dir, Some("/var/lib/zookeeper".into()));
        assert_eq!(cfg.address(), Some("127.0.0.1:2181".parse().unwrap()));
        assert_eq!(cfg.min_session_timeout, None);
        assert_eq!(cfg.max_session_timeout, Some(Duration::from_secs(60)));
        assert_eq!(cfg.max_frame, Some(0xfffff));
        assert_eq!(cfg.ignored, [(3, "initLimit".to_owned())]);
    }

    #[test]
    fn a_port_alone_listens_everywhere_as_in_zookeeper() {
        let cfg = ZooCfg::parse("zoo.cfg", "clientPort=2181").unwrap();
        assert!(cfg.address().unwrap().ip().is_unspecified());
    }

    #[test]
    fn mistakes_are_found_with_their_line() {
        for (line, part) in [
            ("tickTime", "\"tickTime\" is no setting"),
            ("tickTime=soon", "tickTime=soon"),
            ("clientPort=70000", "clientPort=70000"),
            ("dataDir=", "dataDir is empty"),
            ("=x", "is no setting"),
            ("two words=1", "is no setting"),
            ("jute.maxbuffer=0xzz", "jute.maxbuffer"),
        ] {
            let error = ZooCfg::parse("zoo.cfg", &format!("# one\n{line}\n")).unwrap_err();
            let error = error.to_string();
            assert!(error.contains("zoo.cfg, line 2") && error.contains(part), "{line}: {error}");
        }
    }
}

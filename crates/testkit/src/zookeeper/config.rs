//! The configuration of a server.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::time::Duration;

/// The configuration of servers. Begin with [`Config::new`] and end with [`Config::standalone`] or
/// [`Config::ensemble`].
#[derive(Clone, Debug)]
pub struct Config {
    tick: Duration,
    settings: Vec<(String, String)>,
    jvm_arguments: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

impl Config {
    /// A tick of 500 ms, so that session timeouts can be between 1 s and 60 s. A follower may lag 5 s (ten ticks)
    /// behind its leader, and may take 10 s to join it.
    pub fn new() -> Self {
        let config = Self {
            tick: Duration::from_millis(500),
            settings: Vec::new(),
            jvm_arguments: Vec::new(),
        };
        config
            .setting("initLimit", "20")
            .setting("syncLimit", "10")
            .setting("maxSessionTimeout", "60000")
            .setting("maxClientCnxns", "0")
            .setting("4lw.commands.whitelist", "*")
            .setting("admin.enableServer", "false")
            // By default each transaction log occupies 64 MiB from the start.
            .jvm_argument("-Dzookeeper.preAllocSize=1024")
            .jvm_argument("-Djava.net.preferIPv4Stack=true")
    }

    /// The server's tick, in whole milliseconds. Sessions last at least 2 ticks and expire at a tick.
    #[must_use]
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Allows nodes with a time to live, which are off by default.
    #[must_use]
    pub fn extended_types(self) -> Self {
        self.jvm_argument("-Dzookeeper.extendedTypesEnabled=true")
    }

    /// Adds a line to `zoo.cfg`; the last line of a key counts.
    #[must_use]
    pub fn setting(mut self, key: &str, value: &str) -> Self {
        self.settings.retain(|(present, _)| present != key);
        self.settings.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Adds an argument of the JVM, such as `-Xmx1g` or `-Dzookeeper.forceSync=no`; it follows ours, and the last one
    /// counts.
    #[must_use]
    pub fn jvm_argument(mut self, argument: &str) -> Self {
        self.jvm_arguments.push(argument.to_owned());
        self
    }

    pub(super) fn jvm_arguments(&self) -> &[String] {
        &self.jvm_arguments
    }

    /// The text of `zoo.cfg` for a server with its data in `folder`.
    pub(super) fn zoo_cfg(
        &self,
        folder: &Path,
        client: SocketAddrV4,
        members: &[Member],
    ) -> String {
        let mut text = String::new();
        let mut line = |key: &str, value: &dyn std::fmt::Display| {
            writeln!(text, "{key}={value}").expect("a String takes any text");
        };

        line("tickTime", &self.tick.as_millis());
        line("dataDir", &folder.display());
        line("clientPortAddress", client.ip());
        line("clientPort", &client.port());
        for (key, value) in &self.settings {
            line(key, value);
        }

        for (id, member) in (1..).zip(members) {
            let Member { address, quorum, election } = member;
            line(&format!("server.{id}"), &format_args!("{address}:{quorum}:{election}"));
        }
        text
    }
}

/// The addresses by which the members of an ensemble reach a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) address: Ipv4Addr,
    pub(super) quorum: u16,
    pub(super) election: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_setting_of_a_key_counts() {
        let config = Config::new().tick(Duration::from_secs(2)).setting("syncLimit", "3");
        let members = [Member { address: Ipv4Addr::LOCALHOST, quorum: 11, election: 12 }];
        let text = config.zoo_cfg(
            Path::new("/data"),
            SocketAddrV4::new(Ipv4Addr::LOCALHOST, 10),
            &members,
        );
        assert!(text.contains("tickTime=2000\n"), "{text}");
        assert!(text.contains("clientPort=10\n"), "{text}");
        assert!(text.contains("syncLimit=3\n"), "{text}");
        assert!(!text.contains("syncLimit=10\n"), "{text}");
        assert!(text.contains("server.1=127.0.0.1:11:12\n"), "{text}");
    }
}

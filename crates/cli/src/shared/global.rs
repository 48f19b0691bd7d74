//! The options that every subcommand takes.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, Command, ValueEnum};
use lockkeeper::{ConnectString, DefaultAcl, LeaseMode};
use serde::{Deserialize, Serialize};

use crate::shared::config::{Settings, Source};
use crate::shared::exit::{Exit, Failure};
use crate::shared::names;

/// What these options are headed by in the help.
pub(crate) const HEADING: &str = "Global options (all: lockkeeper settings --help)";

/// Options that every subcommand takes.
#[derive(Debug, Args)]
#[command(next_help_heading = HEADING)]
pub(crate) struct Global {
    /// The servers: host:port,host:port/chroot or unix:/path; without it, an engine on this machine
    #[arg(long, global = true, value_name = "HOSTS[/CHROOT]", env = "LOCKKEEPER_CONNECT")]
    connect: Option<String>,

    /// Fail if no servers are named, instead of using an engine on this machine
    #[arg(long, global = true, value_name = "BOOL", env = "LOCKKEEPER_REQUIRE_SERVERS",
          num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = BoolishValueParser::new(), hide_possible_values = true)]
    require_servers: Option<bool>,

    /// Take no lock while too few of the named servers can be reached to tell that all of them are
    /// one service, instead of a warning
    #[arg(long, global = true, value_name = "BOOL", env = "LOCKKEEPER_STRICT_SERVERS",
          num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = BoolishValueParser::new(), hide_possible_values = true)]
    pub(crate) strict_servers: Option<bool>,

    /// A configuration file, which goes over the user's own and the system's; its keys are the long
    /// names of these options [env: LOCKKEEPER_CONFIG]
    // Not by clap, which would hand the variable to `serve --config` as well.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// How long the servers keep the session of a client that went silent
    #[arg(long, global = true, value_name = "DURATION", default_value = "15s",
          value_parser = names::session_time, allow_hyphen_values = true)]
    pub(crate) session_timeout: Duration,

    /// How long to try to reach a server, also if -w is shorter [default: as long as -w, or 10s]
    #[arg(long, global = true, value_name = "DURATION", env = "LOCKKEEPER_CONNECT_TIMEOUT",
          value_parser = names::some_time, allow_hyphen_values = true)]
    pub(crate) connect_timeout: Option<Duration>,

    /// What proves that a lock is still held: a write that a quorum committed, or any answer of a
    /// server that stands alone [default: quorum; direct for an engine on this machine]
    #[arg(
        long,
        global = true,
        value_enum,
        hide_possible_values = true,
        value_name = "quorum|direct"
    )]
    lease: Option<Lease>,

    /// The servers' tickTime, by which a quorum lease is shortened
    #[arg(long, global = true, value_name = "DURATION", default_value = "2s",
          value_parser = names::some_time, allow_hyphen_values = true)]
    pub(crate) server_tick: Duration,

    /// Credentials for digest authentication; others on this machine see them in a process list
    #[arg(long, global = true, value_name = "USER:PASSWORD", env = Digest::VARIABLE,
          hide_env_values = true, value_parser = Digest::read)]
    pub(crate) digest: Option<Digest>,

    /// A file with the credentials; they then appear neither in a process list nor in the
    /// environment of the command
    // Not in conflict with the above by clap, to which a variable is the same as an option.
    #[arg(long, global = true, value_name = "FILE", env = "LOCKKEEPER_DIGEST_FILE")]
    pub(crate) digest_file: Option<PathBuf>,

    /// Who may do what with the znodes of a lock: open (everyone), creator (others only read), or
    /// a list such as digest:ann:HASH:cdrwa,world:anyone:r [default: creator with credentials for
    /// digest authentication, else open]
    #[arg(long, global = true, value_name = "ACL", env = "LOCKKEEPER_ACL")]
    pub(crate) acl: Option<DefaultAcl>,

    /// The root certificates to trust: a PEM file; all connections then use TLS [default: for tls://,
    /// those that this system trusts, or those of SSL_CERT_FILE and SSL_CERT_DIR]
    #[arg(long, global = true, value_name = "FILE", env = "LOCKKEEPER_TLS_CA")]
    pub(crate) tls_ca: Option<PathBuf>,

    /// The certificate to show to servers that ask for one: a PEM file
    #[arg(long, global = true, value_name = "FILE", env = "LOCKKEEPER_TLS_CERT")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The private key of that certificate: a PEM file
    #[arg(long, global = true, value_name = "FILE", env = "LOCKKEEPER_TLS_KEY")]
    pub(crate) tls_key: Option<PathBuf>,

    /// The name in the servers' certificates [default: that of each server in --connect]
    #[arg(long, global = true, value_name = "NAME", env = "LOCKKEEPER_TLS_NAME")]
    pub(crate) tls_name: Option<String>,

    /// Write output as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Leave out the notices on standard error: who holds what is waited for, what became of an earlier run or of an item,
    /// how short an outage would end the command, that other users have engines of their own
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,

    /// Log more on standard error; repeat for more detail
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// What is in force, and from where; empty for commands that need no servers.
    #[arg(skip)]
    pub(crate) settings: Settings,
}

impl Global {
    /// The servers, if any are named. An empty text is a mistake, and does not mean the local engine: a
    /// user who meant other servers would hold a lock that no other program looks at.
    pub(crate) fn connect(&self) -> Option<&str> {
        self.connect.as_deref()
    }

    /// The file with the credentials, unless they are given otherwise.
    pub(crate) fn credentials_file(&self) -> Result<Option<&Path>, Failure> {
        let is_given = |name| *self.settings.source(name) != Source::Default;
        let Some(file) = self.digest_file.as_deref() else { return Ok(None) };
        match (is_given("digest"), is_given("digest-file")) {
            (false, _) => Ok(Some(file)),
            (true, false) => Ok(None),
            (true, true) => {
                let message = "--digest and --digest-file both give credentials: leave one out";
                Err(Failure::new(Exit::Usage, message))
            }
        }
    }

    /// Whether a command without servers fails.
    pub(crate) fn requires_servers(&self) -> bool {
        self.require_servers.unwrap_or_default()
    }

    /// What is told to a user who requires servers and names none.
    pub(crate) fn no_servers(&self) -> Failure {
        let by = self.settings.source("require-servers");
        let message = format!(
            "no servers are named, and {by} requires them (require-servers): no engine on this machine \
             is used"
        );
        let advice =
            "name them with --connect, LOCKKEEPER_CONNECT or connect in a configuration file";
        Failure::new(Exit::Config, message).advise(advice)
    }

    /// These options alone, as the keys of a configuration file are checked by.
    pub(crate) fn options() -> Command {
        // A wrong list is told with its line, and not when it is used.
        let servers = |text: &str| ConnectString::from_str(text).map(|_| text.to_owned());
        Self::augment_args(Command::new("options")).mut_args(|arg| {
            match arg.get_id() == "connect" {
                true => arg.value_parser(servers),
                false => arg,
            }
        })
    }

    /// What proves a lease. Behind a Unix socket is a server that stands alone.
    pub(crate) fn lease(&self) -> LeaseMode {
        let alone = self.connect().is_none_or(|servers| servers.starts_with("unix:"));
        match self.lease {
            Some(Lease::Direct) => LeaseMode::Direct,
            Some(Lease::Quorum) => LeaseMode::Quorum,
            None if alone => LeaseMode::Direct,
            None => LeaseMode::Quorum,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Lease {
    Quorum,
    Direct,
}

/// A user and a password; never printed.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Digest {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Digest").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Digest {
    /// The environment variable that has credentials.
    pub(crate) const VARIABLE: &str = "LOCKKEEPER_DIGEST";

    /// Reads `user:password`.
    pub(crate) fn read(text: &str) -> Result<Self, &'static str> {
        let (user, password) = text.split_once(':').ok_or("write it as user:password")?;
        Ok(Self { user: user.to_owned(), password: password.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_printed() {
        let digest = Digest::read("me:secret").unwrap();
        assert!(!format!("{digest:?}").contains("secret"));
    }
}

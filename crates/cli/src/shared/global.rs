//! The global options: those that every subcommand takes.

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

/// The heading of these options in the help.
pub(crate) const HEADING: &str = "Global options (all: lockkeeper settings --help)";

/// The global options.
#[derive(Debug, Args)]
#[command(next_help_heading = HEADING)]
pub(crate) struct Global {
    /// The servers: host:port,host:port/chroot or unix:/path [default: an engine on this machine]
    #[arg(long, global = true, value_name = "HOSTS[/CHROOT]", env = "LOCKKEEPER_CONNECT")]
    connect: Option<String>,

    /// Fail if no servers are configured, instead of using an engine on this machine
    #[arg(long, global = true, value_name = "BOOL", env = "LOCKKEEPER_REQUIRE_SERVERS",
          num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = BoolishValueParser::new(), hide_possible_values = true)]
    require_servers: Option<bool>,

    /// Fail instead of warning when too few of the configured servers are reachable to verify that all of
    /// them belong to one service
    #[arg(long, global = true, value_name = "BOOL", env = "LOCKKEEPER_STRICT_SERVERS",
          num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = BoolishValueParser::new(), hide_possible_values = true)]
    pub(crate) strict_servers: Option<bool>,

    /// A configuration file; overrides the user's and the system's file. Its keys are the long names of
    /// these options [env: LOCKKEEPER_CONFIG]
    // Not declared to clap, which would also apply the variable to `serve --config`.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// How long the servers keep the session of a client that is silent
    #[arg(long, global = true, value_name = "DURATION", default_value = "15s",
          value_parser = names::session_timeout, allow_hyphen_values = true)]
    pub(crate) session_timeout: Duration,

    /// How long to try to connect, even if -w is shorter [default: the value of -w, or 10s]
    #[arg(long, global = true, value_name = "DURATION", env = "LOCKKEEPER_CONNECT_TIMEOUT",
          value_parser = names::nonzero_duration, allow_hyphen_values = true)]
    pub(crate) connect_timeout: Option<Duration>,

    /// What renews a lease: a write committed by a quorum, or any answer of a standalone server
    /// [default: quorum; direct for an engine on this machine]
    #[arg(
        long,
        global = true,
        value_enum,
        hide_possible_values = true,
        value_name = "quorum|direct"
    )]
    lease: Option<Lease>,

    /// The servers' tickTime, which shortens a quorum lease
    #[arg(long, global = true, value_name = "DURATION", default_value = "2s",
          value_parser = names::nonzero_duration, allow_hyphen_values = true)]
    pub(crate) server_tick: Duration,

    /// Credentials for digest authentication; other users of this machine can see them in a process list
    #[arg(long, global = true, value_name = "USER:PASSWORD", env = Digest::VARIABLE,
          hide_env_values = true, value_parser = Digest::read)]
    pub(crate) digest: Option<Digest>,

    /// A file with the credentials, which keeps them out of process lists and of the command's
    /// environment
    // Not declared as a conflict with --digest: clap treats an environment variable like an option.
    #[arg(long, global = true, value_name = "FILE", env = "LOCKKEEPER_DIGEST_FILE")]
    pub(crate) digest_file: Option<PathBuf>,

    /// The access rights of a lock's znodes: open (everyone), creator (others can only read), or
    /// a list such as digest:ann:HASH:cdrwa,world:anyone:r [default: creator if there are credentials
    /// for digest authentication, else open]
    #[arg(long, global = true, value_name = "ACL", env = "LOCKKEEPER_ACL")]
    pub(crate) acl: Option<DefaultAcl>,

    /// A PEM file with the root certificates to trust; enables TLS for all connections [default for tls://:
    /// the system's certificates, or those of SSL_CERT_FILE and SSL_CERT_DIR]
    #[arg(long, global = true, value_name = "FILE", env = "LOCKKEEPER_TLS_CA")]
    pub(crate) tls_ca: Option<PathBuf>,

    /// A PEM file with the client certificate, for servers that require one
    #[arg(long, global = true, value_name = "FILE", env = "LOCKKEEPER_TLS_CERT")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// A PEM file with the private key of the client certificate
    #[arg(long, global = true, value_name = "FILE", env = "LOCKKEEPER_TLS_KEY")]
    pub(crate) tls_key: Option<PathBuf>,

    /// The host name expected in the servers' certificates [default: the name of each server in --connect]
    #[arg(long, global = true, value_name = "NAME", env = "LOCKKEEPER_TLS_NAME")]
    pub(crate) tls_name: Option<String>,

    /// Write output as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Omit the notices on standard error, such as who holds a lock or how an earlier run ended
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,

    /// Log more on standard error; repeat for more detail
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// The settings in force, with their sources; empty for commands that use no servers.
    #[arg(skip)]
    pub(crate) settings: Settings,
}

impl Global {
    /// The servers, if any are configured. An empty value is an error. If it selected the local engine, a user who
    /// meant other servers would hold a lock that other machines do not see.
    pub(crate) fn connect(&self) -> Option<&str> {
        self.connect.as_deref()
    }

    /// The file with the credentials, unless they come from elsewhere.
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

    /// Whether a command fails if no servers are configured.
    pub(crate) fn requires_servers(&self) -> bool {
        self.require_servers.unwrap_or_default()
    }

    /// The failure if servers are required and none are configured.
    pub(crate) fn no_servers(&self) -> Failure {
        let by = self.settings.source("require-servers");
        let message = format!(
            "no servers are configured, and {by} requires them (require-servers); an engine on this machine \
             is not used"
        );
        let advice =
            "set them with --connect, LOCKKEEPER_CONNECT or connect in a configuration file";
        Failure::new(Exit::Config, message).advise(advice)
    }

    /// The global options alone, to check the keys of a configuration file.
    pub(crate) fn options() -> Command {
        // Report an invalid server list with its line in the file, not when the list is used.
        let servers = |text: &str| ConnectString::from_str(text).map(|_| text.to_owned());
        Self::augment_args(Command::new("options")).mut_args(|arg| {
            match arg.get_id() == "connect" {
                true => arg.value_parser(servers),
                false => arg,
            }
        })
    }

    /// What renews a lease. A server behind a Unix socket is standalone.
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

/// A user name and a password. The password is never printed.
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
    /// The environment variable for credentials.
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

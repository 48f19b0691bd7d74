//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use lockkeeper::{DefaultAcl, LeaseMode, ZnodePath};
use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};
use crate::transfer::{export, import};
use crate::{bench, demo, doctor, engine, local, names, revoke, run, serve, wait};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold());

const NOTES: &str = "\
Examples:
  lockkeeper run backups/nightly -- ./backup.sh
  lockkeeper run -n cleanup -- ./cleanup.sh      only if nobody does it already
  lockkeeper run --permits 3 gpus -- ./train.sh  three at a time
  lockkeeper show backups/nightly                who holds it, and who waits

Environment, besides that of the options:
  LOCKKEEPER_HOME              where this user's own engine lives
                               [default: ~/.local/state/lockkeeper]
  LOCKKEEPER_SYSTEM_HOME       where the engine for all users of this machine lives
                               (lockkeeper local enable --system), or none, to have
                               an engine of one's own all the same
                               [default: /var/lib/lockkeeper-system]
  LOCKKEEPER_LOCAL_DURABILITY  what it survives: sync (a power cut), os (kill -9)
                               or memory (nothing) [default: sync]
  LOCKKEEPER_LOCAL_IDLE        how long it stays without sessions [default: 10m]
  LOCKKEEPER_LOG               what is logged on standard error, such as debug
  NO_COLOR                     no colours

Exit codes: lockkeeper run --help";

/// Distributed locks for commands.
///
/// `lockkeeper run backups/nightly -- ./backup.sh` runs a command while holding a lock. Without
/// --connect the lock is kept by an engine on this machine, which is started when it is needed.
/// That engine is this user's own, and its locks do not exclude other users, unless root has enabled
/// one for all users (lockkeeper local enable --system). With --connect the lock is kept by ZooKeeper
/// servers, for all machines that use them.
#[derive(Debug, Parser)]
#[command(name = "lockkeeper", version, styles = STYLES, max_term_width = 100,
          after_help = "Try it: lockkeeper run demo/hello -- echo hello", after_long_help = NOTES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every subcommand takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// The servers: host:port,host:port/chroot or unix:/path; without it, an engine on this machine
    #[arg(long, global = true, value_name = "HOSTS[/CHROOT]", env = "LOCKKEEPER_CONNECT")]
    connect: Option<String>,

    /// How long the servers keep a session that they do not hear of
    #[arg(long, global = true, value_name = "DURATION", default_value = "15s",
          value_parser = names::session_time, allow_hyphen_values = true)]
    pub(crate) session_timeout: Duration,

    /// Where the session timeout is from.
    #[arg(skip)]
    pub(crate) session_timeout_source: Option<ValueSource>,

    /// How long to try to reach a server [default: as long as -w, or 10s]
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

    /// A file with the credentials, so that they show neither in a process list nor in the
    /// environment of the command
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "LOCKKEEPER_DIGEST_FILE",
        conflicts_with = "digest"
    )]
    pub(crate) digest_file: Option<PathBuf>,

    /// Who may do what with the znodes of a lock: open (everyone), creator (others only read), or
    /// a list such as digest:ann:HASH:cdrwa,world:anyone:r [default: creator with credentials for
    /// digest authentication, else open]
    #[arg(long, global = true, value_name = "ACL", env = "LOCKKEEPER_ACL")]
    pub(crate) acl: Option<DefaultAcl>,

    /// Whom to trust, with TLS: a PEM file with roots; every server is then talked to in TLS
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

    /// Say more on standard error; twice or three times: much more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl Global {
    /// The servers, if any are named. An empty text is a mistake and no wish for the local engine:
    /// whoever meant other servers would hold a lock that nobody else looks at.
    pub(crate) fn connect(&self) -> Option<&str> {
        self.connect.as_deref()
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

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::Options),
    Wait(wait::Options),
    Revoke(revoke::Options),
    Ls(LsOptions),
    Show(ShowOptions),
    Serve(Box<serve::Options>),
    Local(local::Options),
    Engine(engine::Options),
    Doctor(doctor::Options),
    Export(export::Options),
    Import(import::Options),
    Demo(demo::Options),
    Bench(bench::Options),
    /// Print a script that completes lockkeeper's commands in a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page of lockkeeper, or of a subcommand
    Man {
        /// The subcommand
        command: Option<String>,
    },
    /// The machine-local engine itself
    #[command(name = "__local-engine", hide = true)]
    LocalEngine(local::daemon::Options),
}

/// List the locks below a path: who holds them, and how many wait
#[derive(Debug, Args)]
pub(crate) struct LsOptions {
    /// Where to look
    #[arg(default_value = "/", value_parser = names::folder)]
    pub(crate) path: ZnodePath,
}

/// Show who holds a lock and who waits for it
#[derive(Debug, Args)]
pub(crate) struct ShowOptions {
    /// The lock
    #[arg(value_parser = names::lock)]
    pub(crate) lock: ZnodePath,
}

/// A directory that may be created.
pub(crate) type Directory = PathBuf;

/// The commands that look for no server.
const WITHOUT_SERVERS: [&str; 5] = ["serve", "local", "engine", "completions", "man"];

/// What says how to find and use one.
const ABOUT_SERVERS: [&str; 12] = [
    "connect",
    "session_timeout",
    "connect_timeout",
    "lease",
    "server_tick",
    "digest",
    "digest_file",
    "acl",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "tls_name",
];

/// Hides what has no effect, here and in the commands below.
fn hide_about_servers(command: clap::Command) -> clap::Command {
    let hide = |arg: clap::Arg| {
        let is_idle = ABOUT_SERVERS.contains(&arg.get_id().as_str());
        if is_idle { arg.hide(true) } else { arg }
    };
    command.mut_args(hide).mut_subcommands(hide_about_servers)
}

impl Cli {
    /// The command line, with all that each of its commands takes.
    pub(crate) fn definition() -> clap::Command {
        let mut command = Self::command().display_name("lockkeeper");
        // Hands the global options down.
        command.build();
        let hide = |command: clap::Command, name| command.mut_subcommand(name, hide_about_servers);
        WITHOUT_SERVERS.into_iter().fold(command, hide)
    }

    /// Reads the command line; `None` if that was a question for help, which is answered.
    pub(crate) fn read() -> Result<Option<Self>, Failure> {
        let matches = Self::definition().try_get_matches();
        let parsed = matches.and_then(|matches| {
            let mut cli = Self::from_arg_matches(&matches)?;
            cli.global.session_timeout_source = matches.value_source("session_timeout");
            Ok(cli)
        });
        match parsed {
            Ok(cli) => Ok(Some(cli)),
            Err(error) if error.use_stderr() && !is_overview(&error) => {
                Err(Failure::new(Exit::Usage, one_line(&error.to_string()) + tip(&error)))
            }
            Err(error) if error.use_stderr() => {
                let _ = error.print();
                Err(Failure::new(Exit::Usage, "say what to do: one of the commands above"))
            }
            Err(error) => {
                let _ = error.print();
                Ok(None)
            }
        }
    }
}

/// Whether nothing was asked, so that the help is the best answer.
fn is_overview(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// What is most often forgotten.
fn tip(error: &clap::Error) -> &'static str {
    let words: Vec<_> = std::env::args_os().collect();
    let is_run = words.iter().any(|word| word == "run") && !words.iter().any(|word| word == "--");
    match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument if is_run => {
            "; the command follows a --, as in: lockkeeper run demo/hello -- echo hello"
        }
        _ => "",
    }
}

/// Everything but the usage of clap's message, which has several paragraphs.
fn one_line(message: &str) -> String {
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let paragraphs = message.split("\n\n").filter(|text| !text.starts_with("Usage:"));
    let mut parts: Vec<_> = paragraphs.map(words).filter(|text| !text.is_empty()).collect();
    if let Some(last) = parts.last_mut().filter(|last| last.starts_with("For more information")) {
        *last = "see --help".to_owned();
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        Cli::definition().debug_assert();
    }

    #[test]
    fn only_options_with_an_effect_are_in_the_help() {
        let help = |name: &str| {
            let mut command = Cli::definition();
            let subcommand = command.find_subcommand_mut(name).expect(name);
            subcommand.render_long_help().to_string()
        };
        for idle in WITHOUT_SERVERS {
            let text = help(idle);
            assert!(!text.contains("--connect <") && !text.contains("--session-timeout"), "{text}");
        }
        assert!(help("local").contains("--json") && help("run").contains("--tls-ca"));
        assert!(help("run").contains("--connect <"), "as it is looked for above");
        let parsed = Cli::definition().try_get_matches_from(["lockkeeper", "--tls-ca", "f", "man"]);
        assert!(parsed.is_ok(), "it may be in the environment, or in a script, all the same");
    }

    #[test]
    fn mistakes_are_told_in_one_line() {
        let error = Cli::try_parse_from(["lockkeeper", "run", "--wait", "soon", "a", "--", "b"]);
        let line = one_line(&error.unwrap_err().to_string());
        assert!(line.contains("'soon'") && line.contains("10s"), "{line}");
        assert!(!line.contains('\n') && !line.contains("Usage"), "{line}");
    }

    #[test]
    fn a_password_is_never_printed() {
        let digest = Digest::read("me:secret").unwrap();
        assert!(!format!("{digest:?}").contains("secret"));
    }
}

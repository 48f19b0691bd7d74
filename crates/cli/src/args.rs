//! The command line.

use std::fmt::Write;

use clap::builder::StyledStr;
use clap::builder::styling::{AnsiColor, Styles};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

#[cfg(feature = "console")]
use crate::commands::console;
use crate::commands::transfer::{export, import};
use crate::commands::{
    barrier, counter, demo, doctor, engine, graph, id, leader, ls, members, permits, pool, queue,
    record, revoke, run, serve, service, settings, show, status, ticks, value, wait, watch,
};
use crate::local;
use crate::shared::config::{self, Files};
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::{self, Global};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold());

const NOTES: &str = "\
Examples:
  lockkeeper run backups/nightly -- ./backup.sh
  lockkeeper run -n cleanup -- ./cleanup.sh      only if no other run does it
  lockkeeper run --every 5m -q sync -- ./sync.sh from cron on all machines: once per 5 minutes
  lockkeeper run --one-of gpu/{0..7} -- ./train  on one of eight
  lockkeeper elect scheduler -- ./scheduler      one runs, the others wait
  lockkeeper queue work jobs -- ./resize         for each item of a queue
  lockkeeper show backups/nightly                its holders and waiters

Configuration files, environment, options of all commands: lockkeeper settings --help
Exit codes: lockkeeper run --help";

/// Distributed locks and queues for commands.
///
/// Without servers, an engine on this machine keeps the locks and is started when it is needed. Each user has a
/// separate engine, unless root has enabled one for all users (lockkeeper local enable --system). With servers
/// (--connect, or a configuration file), ZooKeeper servers keep the locks for all machines that use these servers.
#[derive(Debug, Parser)]
#[command(name = "lockkeeper", version, styles = STYLES, max_term_width = 100,
          after_help = "Try it: lockkeeper run demo/hello -- echo hello", after_long_help = NOTES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<run::RunOptions>),
    Hold(run::hold::HoldOptions),
    Wait(wait::WaitUntilFreeOptions),
    Revoke(revoke::RevokeOptions),
    Ls(ls::LsOptions),
    Show(show::ShowOptions),
    Status(status::StatusOptions),
    Graph(graph::GraphOptions),
    #[cfg(feature = "console")]
    Console(console::ConsoleOptions),
    Record(record::RecordOptions),
    Why(record::why::WhyOptions),
    /// Show or change the number of permits of a lock
    #[command(subcommand)]
    Permits(permits::PermitsTask),
    Ticks(ticks::TicksOptions),
    Elect(Box<run::elect::ElectOptions>),
    Leader(leader::LeaderOptions),
    /// Put items into a queue, work on them, manage them
    #[command(subcommand)]
    Queue(queue::QueueTask),
    /// Join a group while a command runs; list the members
    #[command(subcommand)]
    Members(members::MembersTask),
    /// Register an instance while a command runs; list or pick instances
    #[command(subcommand)]
    Service(service::ServiceTask),
    /// Read or set a value that programs share; its history
    #[command(subcommand)]
    Value(value::ValueTask),
    /// Read or add to a number that programs share
    #[command(subcommand)]
    Counter(counter::CounterTask),
    Id(id::IdOptions),
    /// Wait for other programs, or make them wait
    #[command(subcommand)]
    Barrier(barrier::BarrierTask),
    /// List the things of a pool, with their holders
    #[command(subcommand)]
    Pool(pool::PoolTask),
    Watch(watch::WatchOptions),
    Serve(Box<serve::ServeOptions>),
    /// Manage this machine's engine
    #[command(subcommand)]
    Local(local::LocalTask),
    /// Manage the data directory of an engine
    #[command(subcommand)]
    Engine(engine::EngineTask),
    Doctor(doctor::DoctorOptions),
    Settings(settings::SettingsOptions),
    Export(export::ExportOptions),
    Import(import::ImportOptions),
    Demo(demo::DemoOptions),
    Completions(CompletionsOptions),
    /// Print the manual page of lockkeeper, or of a subcommand
    Man {
        /// The subcommand, such as run or local status
        command: Vec<String>,
    },
}

const COMPLETIONS_NOTES: &str = "\
Names are looked up each time, on the servers of the configuration file or of LOCKKEEPER_CONNECT, or on this machine's \
engine if it is running.

Example: source <(lockkeeper completions bash)";

/// Print a shell script that completes commands, options and names
#[derive(Debug, Args)]
#[command(after_long_help = COMPLETIONS_NOTES)]
pub(crate) struct CompletionsOptions {
    /// The shell
    #[arg(required_unless_present = "names")]
    pub(crate) shell: Option<Shell>,

    /// Print the names on the servers with this prefix, for the script. Does not start an engine
    #[arg(long, value_name = "PREFIX", allow_hyphen_values = true)]
    pub(crate) names: Option<String>,
}

/// The groups of commands in the help.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Locks",
        &[
            "run", "hold", "wait", "revoke", "ls", "show", "status", "graph", "console", "permits",
            "ticks", "record", "why",
        ],
    ),
    (
        "Other recipes",
        &[
            "elect", "leader", "queue", "members", "service", "value", "counter", "id", "barrier",
            "pool", "watch",
        ],
    ),
    ("Servers", &["serve", "local", "engine", "doctor", "export", "import"]),
    ("This command", &["settings", "demo", "completions", "man"]),
];

/// The global options in the help of each command. `settings --help` lists all of them.
const SHOWN_EVERYWHERE: &[&str] = &["connect", "json", "quiet", "verbose"];

/// The commands that use no server, including their subcommands.
const WITHOUT_SERVERS: &[&str] = &["why", "serve", "local", "engine", "man"];

/// The commands without JSON output.
const WITHOUT_JSON: &[&str] = &[
    "run",
    "elect",
    "queue work",
    "wait",
    "members wait",
    "barrier open",
    "barrier wait",
    "barrier enter",
    "watch",
    "console",
    "serve",
    "export",
    "completions",
    "man",
    "local start",
    "local stop",
    "local enable",
    "local disable",
    "local unit",
];

/// The commands that require another command.
const WITH_COMMAND: &[&str] = &["run", "elect", "queue work", "watch"];

/// Replacements in the help of shared options, for some of the commands that have them.
const REPLACEMENTS: &[(&str, &str, &str)] = &[
    ("elect", "the lock was not free", "another candidate led"),
    ("elect", "the lock", "the lead"),
    ("queue work", "the lock", "the item"),
];

/// The shared options whose help is adapted by these replacements.
const SHARED_OPTIONS: &[&str] = &["conflict_exit_code", "on_lost", "on_outage"];

fn is_json(arg: &Arg) -> bool {
    arg.get_id() == "json"
}

/// Whether only the help of `settings` lists a global option.
fn is_rare(arg: &Arg) -> bool {
    let is_global = arg.get_help_heading() == Some(global::HEADING);
    is_global && !SHOWN_EVERYWHERE.contains(&arg.get_id().as_str())
}

/// The overview of all commands in the main help, by topic.
fn overview(command: &clap::Command) -> StyledStr {
    let (header, literal) = (STYLES.get_header(), STYLES.get_literal());
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (heading, names) in GROUPS {
        let _ = write!(text, "\n{header}{heading}:{header:#}\n");
        for name in names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {literal}{name:<12}{literal:#} {about}");
        }
    }
    (text + "{after-help}").into()
}

/// Whether an option is about finding and using servers.
fn is_about_servers(arg: &Arg) -> bool {
    let is_global = arg.get_help_heading() == Some(global::HEADING);
    is_global && !is_json(arg) && arg.get_id() != "verbose"
}

/// Applies a change to a command and all its subcommands.
fn each(command: clap::Command, change: &dyn Fn(clap::Command) -> clap::Command) -> clap::Command {
    change(command).mut_subcommands(|below| each(below, change))
}

/// Applies a change to the command with this name.
fn at(
    command: clap::Command,
    words: &str,
    change: &dyn Fn(clap::Command) -> clap::Command,
) -> clap::Command {
    match words.split_once(' ') {
        Some((name, rest)) => command.mut_subcommand(name, |below| at(below, rest, change)),
        None => command.mut_subcommand(words, change),
    }
}

/// Hides options that have no effect on this command and its subcommands.
fn hide(command: clap::Command, words: &str, is_idle: fn(&Arg) -> bool) -> clap::Command {
    let hide_arg = |arg: Arg| if is_idle(&arg) { arg.hide(true) } else { arg };
    at(command, words, &|below| each(below, &|below| below.mut_args(hide_arg)))
}

/// Adapts the help of shared options to a command.
fn reword(command: clap::Command, from: &str, to: &str) -> clap::Command {
    command.mut_args(|arg| match arg.get_help().map(ToString::to_string) {
        Some(help) if SHARED_OPTIONS.contains(&arg.get_id().as_str()) => {
            arg.help(help.replace(from, to))
        }
        _ => arg,
    })
}

impl Cli {
    /// The definition of the command line, with all options of each command.
    pub(crate) fn definition() -> clap::Command {
        Self::defined(Self::command())
    }

    /// The definition for manual pages, which refer to each other. `help` does not get a page.
    pub(crate) fn without_help() -> clap::Command {
        Self::defined(each(Self::command(), &|below| below.disable_help_subcommand(true)))
    }

    fn defined(command: clap::Command) -> clap::Command {
        let mut command = command.display_name("lockkeeper");
        for words in WITH_COMMAND {
            let require = |arg: Arg| arg.required_unless_present("line");
            command = at(command, words, &|below| below.mut_arg("command", require));
        }
        for (words, from, to) in REPLACEMENTS {
            command = at(command, words, &|below| reword(below, from, to));
        }
        // Propagates the global options to the subcommands.
        command.build();
        let overview = overview(&command);
        command = command.help_template(overview);
        command = command.mut_subcommands(|below| match below.get_name() {
            "settings" => below,
            _ => each(below, &|below| {
                below.mut_args(|arg| if is_rare(&arg) { arg.hide(true) } else { arg })
            }),
        });
        for words in WITHOUT_SERVERS {
            command = hide(command, words, is_about_servers);
        }
        for words in WITHOUT_JSON {
            command = hide(command, words, is_json);
        }
        command
    }

    /// Rejects `--json` where the command does not write JSON.
    fn check_json(&self, subcommand: Option<(&str, &ArgMatches)>) -> Result<(), clap::Error> {
        let words = subcommand.map(|(name, matches)| match matches.subcommand_name() {
            Some(below) => format!("{name} {below}"),
            None => name.to_owned(),
        });
        let idle = WITHOUT_JSON.iter().find(|idle| words.as_deref() == Some(idle));
        match idle.filter(|_| self.global.json) {
            None => Ok(()),
            Some(name) => Err(clap::Error::raw(
                ErrorKind::ArgumentConflict,
                format!("--json has no effect on {name}, which does not write JSON"),
            )),
        }
    }

    /// Adds the settings of configuration files, for a command that uses servers. Other commands do not read the files,
    /// so a mistake in a file does not prevent a server from starting.
    fn read_files(&mut self, matches: &ArgMatches) -> Result<(), Failure> {
        let is_idle = |name| WITHOUT_SERVERS.contains(&name);
        // A mistake in a file must not prevent a shell from starting.
        let is_script =
            matches!(&self.command, Command::Completions(options) if options.names.is_none());
        if is_script || matches.subcommand_name().is_none_or(is_idle) {
            return Ok(());
        }
        let global = &mut self.global;
        let files = Files::of_process(global.config.as_deref())?;
        let (settings, values) = config::resolve(&Global::options(), matches, &files)?;

        global.settings = settings;
        let Some(values) = values else { return Ok(()) };

        let (json, quiet, verbose) = (global.json, global.quiet, global.verbose);
        global.update_from_arg_matches(&values).map_err(|error| {
            Failure::new(Exit::Bug, format!("a valid value of a file was rejected: {error}"))
        })?;
        // clap would reset these flags, which a file cannot set.
        (global.json, global.quiet, global.verbose) = (json, quiet, verbose);
        Ok(())
    }

    /// Reads the command line; `None` if the user asked for help, which was printed.
    pub(crate) fn read() -> Result<Option<Self>, Failure> {
        let matches = Self::definition().try_get_matches();
        let parsed = matches.and_then(|matches| {
            let cli = Self::from_arg_matches(&matches)?;
            cli.check_json(matches.subcommand())?;
            Ok((cli, matches))
        });

        match parsed {
            Ok((mut cli, matches)) => {
                cli.read_files(&matches)?;
                Ok(Some(cli))
            }
            Err(mut error) if error.use_stderr() && !is_overview(&error) => {
                let tip = tip(&error);
                remove_misleading_tips(&mut error);
                Err(Failure::new(Exit::Usage, one_line(&error.to_string()) + tip))
            }
            Err(error) if error.use_stderr() => {
                let _ = error.print();
                Err(Failure::new(Exit::Usage, "choose one of the commands above"))
            }
            Err(error) => {
                let _ = error.print();
                Ok(None)
            }
        }
    }
}

/// Whether the command line is empty, so that the overview is the best answer.
fn is_overview(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// Options of flock(1) that have another meaning here or none, and the alternative.
const UNSUPPORTED_FLOCK_OPTIONS: [(&str, &str); 4] =
    [("-u", UNLOCK), ("--unlock", UNLOCK), ("-F", NO_FORK), ("--no-fork", NO_FORK)];
const UNLOCK: &str =
    "; a lock is released when its command ends, and lockkeeper revoke asks for it before";
const NO_FORK: &str = "; lockkeeper keeps running to renew the lock";

/// Other programs' names for `run`, which clap does not suggest: `lock` is more similar to `local`.
const RUN_ALIASES: [&str; 5] = ["lock", "flock", "acquire", "exec", "with"];

/// clap would suggest an unknown option as the name of a lock (`-- -x`), and `local` for `lock`.
fn remove_misleading_tips(error: &mut clap::Error) {
    if error.kind() == ErrorKind::UnknownArgument && error.get(ContextKind::SuggestedArg).is_none()
    {
        error.remove(ContextKind::Suggested);
    }
    if is_other_for_run(error) {
        error.remove(ContextKind::SuggestedSubcommand);
    }
}

fn is_other_for_run(error: &clap::Error) -> bool {
    let other = error.get(ContextKind::InvalidSubcommand);
    matches!(other, Some(ContextValue::String(name)) if RUN_ALIASES.contains(&name.as_str()))
}

/// Advice for the most frequent mistake.
fn tip(error: &clap::Error) -> &'static str {
    let has = |word: &str| std::env::args_os().any(|own| own == word);
    let is_unknown = error.kind() == ErrorKind::UnknownArgument;
    if has("run")
        && is_unknown
        && let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
        && let Some((_, instead)) =
            UNSUPPORTED_FLOCK_OPTIONS.iter().find(|(other, _)| other == option)
    {
        return instead;
    }
    if has("revoke") && has("--wait") && is_unknown {
        return revoke::TIME_OF_WAIT;
    }

    let is_run = has("run") && !has("--");
    match error.kind() {
        ErrorKind::InvalidSubcommand if is_other_for_run(error) => {
            "; a command runs under a lock as in: lockkeeper run demo/hello -- echo hello"
        }
        ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument if is_run => {
            "; the command follows a --, as in: lockkeeper run demo/hello -- echo hello"
        }
        _ => "",
    }
}

/// clap's message without the usage, as one line.
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
    fn every_command_is_in_the_overview() {
        let command = Cli::definition();
        let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
        let mut names: Vec<_> =
            shown.map(clap::Command::get_name).filter(|it| *it != "help").collect();
        let mut listed: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        names.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, names);
    }

    /// Two screens of 40 lines, 80 columns wide.
    #[test]
    fn the_help_of_the_whole_is_short() {
        let help = Cli::definition().render_long_help().to_string();
        assert!(help.lines().count() <= 64, "{help}");
        let long: Vec<_> = help.lines().filter(|line| line.chars().count() > 100).collect();
        assert!(long.is_empty(), "{long:?}");
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        Cli::definition().debug_assert();
    }

    #[test]
    fn only_options_with_an_effect_are_in_the_help() {
        let help = |words: &str| {
            let mut command = Cli::definition();
            let below = words
                .split(' ')
                .fold(&mut command, |command, word| command.find_subcommand_mut(word).expect(word));
            below.render_long_help().to_string()
        };
        for idle in WITHOUT_SERVERS {
            let text = help(idle);
            assert!(!text.contains("--connect <") && !text.contains("--session-timeout"), "{text}");
        }
        for idle in WITHOUT_JSON {
            // `--json-log` of `run` is another option.
            assert!(!help(idle).replace("--json-log", "").contains("--json"), "{idle}");
        }
        assert!(help("local").contains("--json") && help("run").contains("--tls-ca"));
        assert!(help("run").contains("--connect <"), "the check above must be able to fail");
        let parsed = Cli::definition().try_get_matches_from(["lockkeeper", "--tls-ca", "f", "man"]);
        assert!(parsed.is_ok(), "it may still be in the environment, or in a script");
    }

    /// Each global option is a key or is listed as an exception, and the documentation contains all of both.
    #[test]
    fn every_global_option_can_be_in_a_file() {
        let page = include_str!("../../../docs/configuration.md");
        let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| `")).collect();
        let (mut keys, options) = (0, Global::options());
        for option in options.get_arguments() {
            let name = option.get_long().expect("a long name");
            let is_none = config::WITHOUT_KEY.iter().any(|(other, _)| *other == name);
            let is_in_table = rows.iter().any(|row| row.contains(&format!("`{name}`")));
            assert_eq!(is_in_table, !is_none, "{name}");
            assert!(!is_none || page.contains(&format!("`--{name}`")), "{name}");
            keys += usize::from(!is_none);
        }
        let in_table = rows.iter().filter_map(|row| row.split('|').nth(1));
        assert_eq!(keys, in_table.map(|cell| cell.matches(", ").count() + 1).sum::<usize>());

        let (_, example) = page.split_once("```toml\n").expect("an example");
        let (example, _) = example.split_once("```").expect("its end");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        std::fs::write(&file, example).unwrap();
        let matches = Cli::definition().get_matches_from(["lockkeeper", "--connect", "a", "ls"]);
        let files = Files::only(&file);
        let (settings, values) = config::resolve(&options, &matches, &files).unwrap();
        let values = values.expect("a value of the file");
        assert_eq!(settings.source("connect"), &config::Source::Option("connect".to_owned()));
        assert_eq!(values.get_one("require_servers"), Some(&true));
        assert!(values.get_one::<String>("connect").is_none(), "the option overrides it");
    }

    /// Symptom: `local` was suggested for `lock`, and an unknown option was suggested as the name of a lock.
    #[test]
    fn tips_do_not_mislead() {
        let told = |arguments: &[&str]| {
            let mut error = Cli::try_parse_from(arguments).unwrap_err();
            let tip = tip(&error);
            remove_misleading_tips(&mut error);
            one_line(&error.to_string()) + tip
        };
        let lock = told(&["lockkeeper", "lock", "a", "--", "true"]);
        assert!(!lock.contains("'local'") && lock.contains("lockkeeper run"), "{lock}");
        for arguments in [["lockkeeper", "show", "-x", "l"], ["lockkeeper", "wait", "l", "-c"]] {
            let option = told(&arguments);
            assert!(
                option.contains("unexpected argument") && !option.contains("as a value"),
                "{option}"
            );
        }
        let typo = told(&["lockkeeper", "loca", "status"]);
        assert!(typo.contains("'local'"), "{typo}");
        let typo = told(&["lockkeeper", "show", "--wach", "l"]);
        assert!(typo.contains("'--watch'"), "{typo}");
    }

    #[test]
    fn mistakes_are_reported_in_one_line() {
        let error = Cli::try_parse_from(["lockkeeper", "run", "--wait", "soon", "a", "--", "b"]);
        let line = one_line(&error.unwrap_err().to_string());
        assert!(line.contains("'soon'") && line.contains("10s"), "{line}");
        assert!(!line.contains('\n') && !line.contains("Usage"), "{line}");
    }
}

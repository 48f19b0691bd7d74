//! The `lockkeeper` command.
//!
//! ```text
//!   args         the command line            shell     completions and the manual page
//!
//!   commands/    what each subcommand does
//!     run/         run a command while holding a lock
//!       once         once for each key, or in each period
//!       lock         which lock: alone, shared, permits, several
//!       wait         the wait for the lock: the notice, the limit, the signals
//!       child        the command: its process group, its environment, its end
//!       supervise    supervises it: signals, requests for the lock, --max-run
//!       at_least     the time after it (--at-least)      events  events for other programs
//!       pause        pauses a command during an outage
//!       loss         when the command must be asked to end, and when it must be dead
//!       terminal     which group may read it   exec    between fork and command
//!       watchdog/    ends the command when lockkeeper itself is stopped or killed
//!       parent_lock  a name below a lock in use
//!       group        the end of a process group      processes  those that have left it
//!       hold         holds a lock without a command      release    releases the lock
//!       job          runs a command while something is held: the common part
//!       elect        while this program leads     items   for each item of a queue
//!     wait         until a lock is free      revoke  asks its holders to release it
//!     ls, show     holders and waiters       permits the number of permits of a lock
//!     status       all recipes, with warnings       graph   deadlocks, and holders that others wait for
//!     record/      records the history of locks; why shows it
//!     console/     pages for a browser
//!     queue        items: put, take, list, change   leader  the leader of an election
//!     members      members of a group               service  the instances of a service
//!     value        a value that programs share     counter  a number
//!     barrier      programs that wait for each other
//!     pool         the things of a pool            id       unique ids
//!     watch        a command after each change
//!     ticks        the history of runs that run once
//!     serve/       the engine in the foreground; zoo_cfg reads ZooKeeper's own configuration
//!       limits       the limits for clients          certificates  the files of TLS, read again on HUP
//!       notify       notifies the service manager    with          builders, where an option was given
//!     engine       checks and copies an engine's data directory
//!     transfer/    export and import of persistent znodes, for a move to other servers
//!     doctor/      problems of a service for locks
//!     settings     the settings in force, and their sources
//!     demo/        a live demonstration of locks on ZooKeeper, and scenes
//!
//!   session/     opens sessions
//!     command_line  the command to run, as arguments or as a line for a shell
//!     connect      opens one                 nested   a wait for a lock that an outer run holds
//!     waiting      what all waits for a lock have in common
//!     follow       shows a state again after each change
//!     limited      work with a time limit that a signal can end
//!     user_command a command while this program is registered    path_use  which recipe uses a path
//!
//!   local/       the machine-local engine: home, start, daemon, control, and its subcommands
//!     system       the one for all users     enable      enables and disables it
//!     other_engines  those of other users    address     connection strings that lead to an engine here
//!     disk_space   the disk space of its data
//!
//!   shared/      code that needs no server
//!     global       the global options
//!     config/      configuration files with these options
//!     trust        which files no other user can have written
//!     roots        the root certificates of the system
//!     exit         exit codes, and the errors that cause them
//!     output       standard output, and the log on standard error
//!     content      input: an argument or standard input
//!     signals      the signals that end a wait or are forwarded to a command
//!     log          the log of a server, which never blocks
//!     journal      its lines for the journal of systemd
//!     view         formats locks             names    lock names and durations
//!     user         the user, as shown to others
//!     program      this program, as a child process
//!     runtime      the event loop            server_signals  the signals of a process with an engine
//!     allocator    the memory allocator, and when it returns memory
//! ```
//!
//! Invariant: a command that runs under a lock is dead before another program can have the lock, as long as this
//! process or its watchdog gets to run. If this process is killed, so is the command, and the session ends after it.

// Tests create files in their own directories.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod args;
mod commands;
mod local;
mod session;
mod shared;
mod shell;

use std::process::ExitCode;

use crate::args::{Cli, Command};
#[cfg(feature = "console")]
use crate::commands::console;
use crate::commands::{
    barrier, counter, demo, doctor, engine, graph, id, leader, ls, members, permits, pool, queue,
    record, revoke, run, serve, service, settings, show, status, ticks, transfer, value, wait,
    watch,
};
use crate::shared::exit::{Exit, Failure};
use crate::shared::output;
use crate::shared::runtime::block_on;

fn main() -> ExitCode {
    // Before the command line is parsed: the remaining arguments are the user's command.
    if let Some(request) = run::exec::Request::from_args() {
        return request.exec();
    }
    if run::watchdog::is_asked_for() {
        return run::watchdog::run();
    }
    if local::daemon::is_asked_for() {
        output::start_log(0, true);
        return ExitCode::from(output::end(local::daemon::run()));
    }
    let result = Cli::read().and_then(|cli| match cli {
        Some(cli) => dispatch(cli),
        None => Ok(Exit::Ok.code()),
    });
    ExitCode::from(output::end(result))
}

fn dispatch(cli: Cli) -> Result<u8, Failure> {
    let global = &cli.global;
    let is_server = matches!(cli.command, Command::Serve(_));
    output::start_log(global.verbose, is_server);

    match cli.command {
        Command::Run(options) => block_on(run::run(global, *options)),
        Command::Hold(options) => block_on(run::hold::hold(global, options)),
        Command::Wait(options) => block_on(wait::wait(global, options)),
        Command::Revoke(options) => block_on(revoke::revoke(global, options)),
        Command::Ls(options) => block_on(ls::ls(global, options)),
        Command::Show(options) => block_on(show::show(global, options)),
        Command::Status(options) => block_on(status::status(global, options)),
        Command::Graph(options) => block_on(graph::graph(global, options)),
        #[cfg(feature = "console")]
        Command::Console(options) => block_on(console::console(global, options)),
        Command::Record(options) => block_on(record::record(global, options)),
        Command::Why(options) => record::why::why(global, &options),
        Command::Ticks(options) => block_on(ticks::ticks(global, options)),
        Command::Permits(task) => block_on(permits::permits(global, task)),
        Command::Elect(options) => block_on(run::elect::elect(global, *options)),
        Command::Leader(options) => block_on(leader::leader(global, options)),
        Command::Queue(task) => block_on(queue::queue(global, task)),
        Command::Members(task) => block_on(members::members(global, task)),
        Command::Service(task) => block_on(service::service(global, task)),
        Command::Value(task) => block_on(value::value(global, task)),
        Command::Counter(task) => block_on(counter::counter(global, task)),
        Command::Id(options) => block_on(id::id(global, options)),
        Command::Barrier(task) => block_on(barrier::barrier(global, task)),
        Command::Pool(task) => block_on(pool::pool(global, task)),
        Command::Watch(options) => block_on(watch::watch(global, options)),
        Command::Serve(options) => block_on(serve::serve(*options)),
        Command::Local(options) => local::command(global, options),
        Command::Engine(options) => engine::command(global, options),
        Command::Export(options) => block_on(transfer::export::export(global, options)),
        Command::Import(options) => block_on(transfer::import::import(global, options)),
        Command::Doctor(options) => block_on(doctor::doctor(global, options)),
        Command::Settings(_) => settings::print(global),
        Command::Demo(options) => block_on(demo::demo(global, options)),
        Command::Completions(options) => block_on(shell::completions(global, options)),
        Command::Man { command } => shell::man(&command),
    }
}

//! The processes of a run: those in the process group of its command, and those that have left it.
//!
//! A process leaves the group by `setsid`, by the job control of a shell, or by `timeout`; signals for the group then
//! no longer reach it. But it keeps its environment. So the command gets a variable with an id of this run, and every
//! process with that id belongs to this run. A process that starts with a new environment (`env -i`, `sudo`), or that
//! has changed its user, is not found.

use std::env;
use std::fs::read_dir;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

use lockkeeper::Clock;
use lockkeeper_engine::files::read_kernel_file;
use rustix::process::{
    Pid, PidfdFlags, Signal, geteuid, getpgid, kill_process_group, pidfd_open, pidfd_send_signal,
};
use serde::{Deserialize, Serialize};

use super::group;
use crate::shared::program::RUN;

/// How often to search again for processes that were killed.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// How many searches in a row must find no process. A process that is executing another program has no environment for
/// a moment, and a process that was just started may not be listed yet.
const LOOKS: u32 = 8;

/// A name that only this run has on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunName(String);

/// All processes of a run.
#[derive(Clone, Debug)]
pub(super) struct Processes {
    pub(super) group: Pid,
    pub(super) run: RunName,
}

impl RunName {
    /// The name of a run of this process; no other run starts with this session id.
    pub(super) fn new(session: i64) -> Self {
        Self(format!("{session:x}-{}", std::process::id()))
    }

    /// The name for a later command of this process.
    pub(super) fn next(session: i64, number: u64) -> Self {
        Self(format!("{}.{number}", Self::new(session).0))
    }

    /// The value of the environment variable for the command.
    pub(super) fn value(&self) -> String {
        match env::var(RUN) {
            Ok(outer) if !outer.is_empty() => format!("{outer} {}", self.0),
            _ => self.0.clone(),
        }
    }

    /// Whether a process with this environment (`/proc/<pid>/environ`) belongs to the run, or to one nested in it.
    fn is_in(&self, environment: &str) -> bool {
        runs(environment).any(|run| run == self.0)
    }

    /// Sends signals to those processes of this run that `is_to_get` selects by id and environment. Returns their
    /// number.
    fn signal(&self, signals: &[Signal], is_to_get: impl Fn(Pid, &str) -> bool) -> usize {
        let entries = read_dir("/proc").into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let found = ids.filter_map(Pid::from_raw).filter_map(|id| self.handle(id, &is_to_get));
        let send = |process: OwnedFd| {
            for signal in signals {
                let _ = pidfd_send_signal(&process, *signal);
            }
        };
        found.map(send).count()
    }

    /// A handle of this process, if it belongs to the run and is selected.
    fn handle(&self, id: Pid, is_to_get: impl Fn(Pid, &str) -> bool) -> Option<OwnedFd> {
        let folder = Path::new("/proc").join(id.as_raw_nonzero().to_string());
        let look = || {
            let environment = read_kernel_file(folder.join("environ")).ok()?;
            (self.is_in(&environment) && is_to_get(id, &environment)).then_some(())
        };
        // Processes of other users are skipped: they could be many, with long environments.
        is_mine(&read_kernel_file(folder.join("status")).ok()?).then_some(())?;
        look()?;
        let handle = pidfd_open(id, PidfdFlags::empty()).ok()?;
        // The id may have been reused by another process before the handle existed.
        look().map(|()| handle)
    }

    /// Whether a process does not belong to a nested run.
    fn is_last_in(&self, environment: &str) -> bool {
        runs(environment).last() == Some(&self.0)
    }
}

impl Processes {
    /// Sends these signals once to each process, and immediately to the group. Finding the others takes longer, so a
    /// separate thread does that: the caller must renew a lease. A nested run forwards the signals to its own command.
    pub(super) fn signal(&self, signals: &'static [Signal]) {
        for signal in signals {
            // Fails if the whole group has ended.
            let _ = kill_process_group(self.group, *signal);
        }
        let Self { group, run } = self.clone();
        let ask = move || {
            run.signal(signals, |id, environment| {
                getpgid(Some(id)) != Ok(group) && run.is_last_in(environment)
            })
        };
        // Without a thread, these processes are killed at the end.
        let _ = thread::Builder::new().spawn(ask);
    }

    /// Kills all processes, and waits until none can run any more; `false` if that takes longer than the limit.
    pub(super) fn end_within(&self, limit: Duration) -> bool {
        let end = Clock.now() + limit;
        let (mut seen_none, mut has_group_ended) = (0, false);
        loop {
            // Not after the group has ended: its number may be reused.
            if !has_group_ended {
                let _ = kill_process_group(self.group, Signal::KILL);
                has_group_ended = group::has_ended(self.group);
            }

            let found = self.run.signal(&[Signal::KILL], |_, _| true);
            let is_none = found == 0 && has_group_ended;
            seen_none = if is_none { seen_none + 1 } else { 0 };
            if seen_none == LOOKS {
                return true;
            }
            if Clock.now() >= end {
                return false;
            }
            thread::sleep(LOOK_AGAIN);
        }
    }
}

/// The names of the runs that a process with this environment belongs to, the innermost last.
fn runs(environment: &str) -> impl Iterator<Item = &str> {
    let variables = environment.split('\0').filter_map(|text| text.split_once('='));
    let values = variables.filter(|(name, _)| *name == RUN).map(|(_, value)| value);
    values.flat_map(|value| value.split(' '))
}

/// Whether all ids of a process with this `/proc/<pid>/status` are this user's. A set-user-ID program keeps the
/// environment that another user has given it.
fn is_mine(status: &str) -> bool {
    let me = geteuid().as_raw().to_string();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.is_some_and(|ids| ids.split_whitespace().all(|id| id == me))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    /// Attack: many processes of another user with long environments delayed the end of a command.
    #[test]
    fn processes_of_other_users_are_not_looked_at() {
        let me = geteuid().as_raw();
        let status = |real: u32, own: u32| format!("Name:\tx\nUid:\t{real}\t{own}\t{own}\t{own}\n");
        assert!(is_mine(&status(me, me)));
        assert!(!is_mine(&status(me + 1, me + 1)) && !is_mine(&status(me + 1, me)));
        assert!(is_mine(&read_kernel_file("/proc/self/status").unwrap()) && !is_mine(""));
    }

    #[test]
    fn a_process_belongs_to_its_run_and_to_those_around_it() {
        let run = RunName("1f-20".to_owned());
        assert!(run.is_in("PATH=/bin\0LOCKKEEPER_RUN=1f-20\0"));
        assert!(run.is_in("LOCKKEEPER_RUN=aa-1 1f-20 bb-2"));
        assert!(!run.is_in("LOCKKEEPER_RUN=1f-200\0X=1f-20"));
        assert!(!run.is_in("OLD_LOCKKEEPER_RUN=1f-20"));
        assert!(!run.is_in(""));
        // A nested run forwards requests: its command must not get them twice.
        assert!(
            run.is_last_in("LOCKKEEPER_RUN=aa-1 1f-20")
                && !run.is_last_in("LOCKKEEPER_RUN=1f-20 bb-2")
        );
    }

    /// Symptom: processes that had left the command's group kept running while the next holder had the lock.
    #[test]
    fn what_has_left_the_group_is_ended_too() {
        let run = RunName::new(i64::from(std::process::id()) << 20);
        let start = |variable: &str| {
            let mut command = Command::new("sleep");
            command.arg("1000").env(RUN, variable).stdin(Stdio::null()).process_group(0);
            command.spawn().unwrap()
        };
        let (mut first, mut other) = (start(&run.value()), start(&run.value()));
        let mut foreign = start("another");
        let group = Pid::from_raw(first.id().try_into().unwrap()).unwrap();

        let processes = Processes { group, run };
        assert!(!group::has_ended(group));
        let ended = std::thread::spawn(move || processes.end_within(Duration::from_secs(30)));
        // Reap both: a zombie has ended as well.
        assert!(!first.wait().unwrap().success() && !other.wait().unwrap().success());
        assert!(ended.join().unwrap());
        assert!(foreign.try_wait().unwrap().is_none(), "a process of no run was killed");
        foreign.kill().unwrap();
        foreign.wait().unwrap();
    }
}

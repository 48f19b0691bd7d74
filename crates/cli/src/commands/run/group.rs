//! Waits until a process group has ended or is stopped.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use lockkeeper::Clock;
use lockkeeper_engine::files::read_kernel_file;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process_group};

/// How often to check a group that was killed. The kernel needs milliseconds to end one.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Waits until all processes of a stopped group are stopped; `false` if that takes longer than the limit.
pub(super) fn stops_within(group: Pid, limit: Duration) -> bool {
    within(limit, || stands_still(group))
}

fn within(limit: Duration, mut so: impl FnMut() -> bool) -> bool {
    let end = Clock.now() + limit;
    while !so() {
        if Clock.now() >= end {
            return false;
        }
        sleep(LOOK_AGAIN);
    }
    true
}

/// Whether no process of a group can run any more. If that is unknown, `false`.
pub(super) fn has_ended(group: Pid) -> bool {
    // A zombie still counts as a member of the group. If process 1 does not reap orphans, it stays for ever.
    test_kill_process_group(group) == Err(Errno::SRCH) || has_only_zombies(group)
}

/// Whether no thread of a group runs. A thread in an uninterruptible wait in the kernel has not stopped yet. If the
/// state is unknown, `false`.
fn stands_still(group: Pid) -> bool {
    test_kill_process_group(group) == Err(Errno::SRCH) || are_all_in(group, &['T', 't', 'Z', 'X'])
}

/// Whether the group has members and all of them are zombies.
fn has_only_zombies(group: Pid) -> bool {
    // Check all threads: the first thread of a process can end before the others.
    are_all_in(group, &['Z', 'X'])
}

/// Whether the group has members and each of their threads is in one of these states. `false` if that is unknown,
/// because `/proc` is missing or hides the processes of other users.
fn are_all_in(group: Pid, states: &[char]) -> bool {
    if stat(Path::new("/proc/1")).is_none() {
        return false;
    }
    let Ok(entries) = fs::read_dir("/proc") else { return false };
    let processes = entries.flatten().map(|entry| entry.path());
    let mut members = processes.filter(|process| is_member(process, group)).peekable();
    members.peek().is_some() && members.all(|process| is_in(&process, states))
}

fn is_member(process: &Path, group: Pid) -> bool {
    stat(process).is_some_and(|stat| stat.group == group.as_raw_nonzero().get())
}

/// Whether all threads of a process are in one of these states.
fn is_in(process: &Path, states: &[char]) -> bool {
    // A process that was reaped has no directory any more.
    let Ok(threads) = fs::read_dir(process.join("task")) else { return true };
    let mut stats = threads.flatten().filter_map(|thread| stat(&thread.path()));
    stats.all(|stat| states.contains(&stat.state))
}

struct Stat {
    state: char,
    group: i32,
}

/// Reads `/proc/<pid>/stat`: `PID (NAME) STATE PARENT GROUP ...`.
fn stat(folder: &Path) -> Option<Stat> {
    let text = read_kernel_file(folder.join("stat")).ok()?;
    // A name may contain spaces and parentheses.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let group = fields.nth(1)?.parse().ok()?;
    Some(Stat { state, group })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use rustix::process::{Signal, kill_process_group};

    use super::*;

    /// Longer than any step takes on a busy machine.
    const LONG: Duration = Duration::from_secs(30);

    fn start() -> (Child, Pid) {
        // A thousand seconds are longer than any test takes. The shell starts a second process.
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000; true"]).stdin(Stdio::null()).process_group(0);
        let child = command.spawn().unwrap();
        let group = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
        (child, group)
    }

    /// Fails if zombies count as members that can run.
    #[test]
    fn a_group_has_ended_when_all_of_it_are_zombies() {
        let (mut child, group) = start();
        assert!(!within(Duration::from_millis(50), || has_ended(group)), "it runs");
        kill_process_group(group, Signal::STOP).unwrap();
        assert!(!has_ended(group), "it is stopped, and can be continued");
        assert!(stops_within(group, LONG));
        kill_process_group(group, Signal::CONT).unwrap();
        assert!(within(LONG, || !stands_still(group)), "it runs");
        kill_process_group(group, Signal::KILL).unwrap();
        assert!(within(LONG, || has_ended(group)), "it was killed and not reaped");
        child.wait().unwrap();
        assert!(has_ended(group));
    }
}

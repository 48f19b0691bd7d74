//! Decides which process group may read from the terminal.
//!
//! The command is in a separate process group, and a terminal lets only one group read: a process of any other group is
//! stopped when it tries. If the user interacts with the command (this process is a job by itself, with the terminal as
//! standard input and output), its group gets the terminal immediately. In a pipeline such as `lockkeeper run lock --
//! cmd | less`, or in a script that Ctrl-C is to end as well, other processes of our own group need it. There the
//! command gets the terminal only when it is stopped for reading.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, stdin, stdout};

use nix::sys::signal::{SigSet, SigmaskHow, Signal as Blocked};
use rustix::process::{Pid, getpgrp, getpid, getppid, getsid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The controlling terminal of this process.
#[derive(Debug)]
pub(super) struct Terminal {
    tty: File,
    /// Its settings before the command got it.
    settings: Option<Termios>,
    lent: bool,
}

impl Terminal {
    /// The terminal, if there is one.
    #[expect(clippy::disallowed_methods, reason = "the kernel's name for the terminal")]
    pub(super) fn find() -> Option<Self> {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        Some(Self { tty, settings: None, lent: false })
    }

    /// Lets the group read, if this process may decide that. Returns whether it may.
    pub(super) fn lend(&mut self, group: Pid) -> bool {
        if tcgetpgrp(&self.tty) != Ok(getpgrp()) {
            return false;
        }
        self.settings = tcgetattr(&self.tty).ok();
        self.lent = tcsetpgrp(&self.tty, group).is_ok();
        self.lent
    }

    /// The same, if the user interacts with the command itself.
    pub(super) fn lend_to_foreground(&mut self, group: Pid) {
        let is_alone = getpgrp() == getpid() && stdin().is_terminal() && stdout().is_terminal();
        if is_alone {
            self.lend(group);
        }
    }

    /// Whether this group still has the terminal.
    pub(super) fn is_with(&self, group: Pid) -> bool {
        self.lent && tcgetpgrp(&self.tty) == Ok(group)
    }

    /// Takes the terminal back from the group. `broken`: also restores its settings, because the process that changed
    /// them could not.
    pub(super) fn take_back(&mut self, group: Pid, broken: bool) {
        if !self.is_with(group) {
            return;
        }
        // A background process that does this is stopped by TTOU, unless that signal is blocked.
        let mut stop = SigSet::empty();
        stop.add(Blocked::SIGTTOU);
        let Ok(before) = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return };
        let _ = tcsetpgrp(&self.tty, getpgrp());
        if let Some(settings) = self.settings.as_ref().filter(|_| broken) {
            let _ = tcsetattr(&self.tty, OptionalActions::Drain, settings);
        }
        let _ = before.thread_set_mask();
        self.lent = false;
    }
}

/// Whether no shell would continue this process after a stop: its parent is not a shell of the same session.
pub(super) fn is_on_its_own() -> bool {
    let parent_session = getppid().and_then(|parent| getsid(Some(parent)).ok());
    getsid(Some(getpid())).ok() != parent_session
}

//! Who may read the terminal.
//!
//! The command is in a process group of its own, and a terminal lets only one group read: any
//! other is stopped when it tries. If the command is what the user deals with (we are a job of
//! our own, with the terminal as standard input and output), its group gets the terminal at once.
//! In a pipeline such as `lockkeeper run lock -- cmd | less`, or in a script that Ctrl-C is to end
//! as well, others of our own group need it. There the command only gets it when it is stopped for
//! reading.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, stdin, stdout};

use nix::sys::signal::{SigSet, SigmaskHow, Signal as Blocked};
use rustix::process::{Pid, getpgrp, getpid, getppid, getsid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The controlling terminal of this process.
#[derive(Debug)]
pub(super) struct Terminal {
    tty: File,
    /// Its settings before the command had it.
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

    /// Lets the group read, if that is ours to give. Says whether it is.
    pub(super) fn lend(&mut self, group: Pid) -> bool {
        if tcgetpgrp(&self.tty) != Ok(getpgrp()) {
            return false;
        }
        self.settings = tcgetattr(&self.tty).ok();
        self.lent = tcsetpgrp(&self.tty, group).is_ok();
        self.lent
    }

    /// The same, if the user deals with the command itself.
    pub(super) fn lend_to_foreground(&mut self, group: Pid) {
        let is_alone = getpgrp() == getpid() && stdin().is_terminal() && stdout().is_terminal();
        if is_alone {
            self.lend(group);
        }
    }

    /// Whether the group that had it has it still.
    pub(super) fn is_with(&self, group: Pid) -> bool {
        self.lent && tcgetpgrp(&self.tty) == Ok(group)
    }

    /// Takes it back from the group. `broken`: its settings too, as the one who changed them could
    /// not change them back.
    pub(super) fn take_back(&mut self, group: Pid, broken: bool) {
        if !self.is_with(group) {
            return;
        }
        // Whoever does this from the background is stopped by TTOU, unless that is blocked.
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

/// Whether nobody would continue this process if it were stopped: its parent is no shell of the
/// same session.
pub(super) fn is_on_its_own() -> bool {
    let parent_session = getppid().and_then(|parent| getsid(Some(parent)).ok());
    getsid(Some(getpid())).ok() != parent_session
}

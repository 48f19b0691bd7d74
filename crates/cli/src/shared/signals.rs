//! The signals that lockkeeper handles.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use lockkeeper_engine::files::read_kernel_file;
use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{self, SignalKind};

use crate::shared::exit::{Failure, no_signals};

/// The signals that end a wait and that are forwarded to the command.
const PASSED_ON: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// The signals that matter only while a command runs. Without a command, a stop has its default effect. The order
/// matters: if a stop and a continuation arrive together, the stop was first.
const WITH_CHILD: [Signal; 3] = [Signal::CHILD, Signal::TSTP, Signal::CONT];

/// The signals that are handled, from registration until the process exits.
#[derive(Debug)]
pub(crate) struct Signals {
    ignored: u64,
    /// Whether the signals of a running command are handled as well.
    with_child: bool,
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Handles the signals that end a wait.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let mut signals = Self { ignored: ignored(), with_child: false, streams: Vec::new() };
        signals.add(&PASSED_ON)?;
        Ok(signals)
    }

    /// Also handles the signals of a running command. Must be called before the command starts.
    pub(crate) fn listen_for_child(&mut self) -> Result<(), Failure> {
        if std::mem::replace(&mut self.with_child, true) {
            return Ok(());
        }
        // The end of the child must be seen before signals are forwarded to it.
        let before = std::mem::take(&mut self.streams);
        self.add(&WITH_CHILD)?;
        self.streams.extend(before);
        Ok(())
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Waits for the next signal that ends a wait. After the command has ended, the other signals have their default
    /// effect.
    pub(crate) async fn next_of_wait(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::CHILD | Signal::CONT => {}
                Signal::TSTP => drop(kill_process(getpid(), Signal::STOP)),
                signal => return signal,
            }
        }
    }

    fn add(&mut self, signals: &[Signal]) -> Result<(), Failure> {
        for signal in signals {
            let wanted = *signal == Signal::CHILD || !self.is_ignored(*signal);
            if wanted {
                self.streams.push((*signal, stream(*signal).map_err(no_signals)?));
            }
        }
        Ok(())
    }

    /// Whether the parent process (such as `nohup`) set the signal to be ignored. The command must inherit this
    /// setting, which a handler would reset.
    fn is_ignored(&self, signal: Signal) -> bool {
        self.ignored & (1 << (signal.as_raw() - 1)) != 0
    }
}

fn stream(signal: Signal) -> io::Result<unix::Signal> {
    unix::signal(SignalKind::from_raw(signal.as_raw()))
}

/// The signals that this process ignores, as the kernel's bit mask; zero if the kernel does not provide it.
fn ignored() -> u64 {
    let status = read_kernel_file("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

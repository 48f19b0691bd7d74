//! The signals that lockkeeper acts on.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use lockkeeper_engine::files::read_kernel_file;
use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{self, SignalKind};

use crate::shared::exit::{Failure, no_signals};

/// What ends a wait, and is passed on to the command.
const PASSED_ON: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// What matters only when there is a command. Before that, a stopped wait is simply stopped. In
/// this order: of a stop and a continuation that are seen together, the stop was first.
const WITH_CHILD: [Signal; 3] = [Signal::CHILD, Signal::TSTP, Signal::CONT];

/// The signals that are listened to, from then until the end of the process.
#[derive(Debug)]
pub(crate) struct Signals {
    ignored: u64,
    /// Whether it listens to what happens to a command.
    with_child: bool,
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Listens to what ends a wait.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let mut signals = Self { ignored: ignored(), with_child: false, streams: Vec::new() };
        signals.add(&PASSED_ON)?;
        Ok(signals)
    }

    /// Listens to what happens to a command, too. To be called before there is one.
    pub(crate) fn listen_for_child(&mut self) -> Result<(), Failure> {
        if std::mem::replace(&mut self.with_child, true) {
            return Ok(());
        }
        // The end of the child comes before anything that would be passed on to it.
        let before = std::mem::take(&mut self.streams);
        self.add(&WITH_CHILD)?;
        self.streams.extend(before);
        Ok(())
    }

    /// Waits for the next one.
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

    /// Waits for the next one that ends a wait. After a command, what would happen to one is as without a handler of ours.
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

    /// Whether whoever started us (such as `nohup`) has had the signal ignored. The command is to
    /// inherit that, which it would not if we listened.
    fn is_ignored(&self, signal: Signal) -> bool {
        self.ignored & (1 << (signal.as_raw() - 1)) != 0
    }
}

fn stream(signal: Signal) -> io::Result<unix::Signal> {
    unix::signal(SignalKind::from_raw(signal.as_raw()))
}

/// The signals that this process ignores, as the kernel's bit mask; none where it does not tell.
fn ignored() -> u64 {
    let status = read_kernel_file("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

//! The messages to a watchdog over its pipe: one JSON object per line.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use lockkeeper::{Instant, SessionId, SessionIdentity};
use rustix::fs::OFlags;
use rustix::io::read;
use rustix::process::{Pid, getpgrp};
use rustix::stdio::stdin;
use serde::{Deserialize, Serialize};

use crate::commands::run::processes::RunName;
use crate::session::connect::{Access, Connection};

/// How much is read at once, in bytes.
const READ_SIZE: usize = 4096;

/// One message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// The session that holds the lock, or will hold it. Sent first, and again if it changes.
    Session(Box<Session>),
    /// The mark in the environment of all processes of the command.
    Run(RunName),
    /// The command is about to run in this process group.
    Group(i32),
    /// The command may run until this time after the start of the lease clock. In nanoseconds, because lockkeeper uses
    /// the same precision.
    Until(Duration),
    /// After that time, the command is stopped for this long before it is killed, in milliseconds.
    Grace(u64),
    /// The command may run again, if the watchdog has stopped it.
    Resume,
    /// The command has ended, and the lock is being released.
    Ended,
}

/// How to close a session whose owner was killed.
///
/// Sent over the pipe because arguments and the environment are visible to others: the password of a session and the
/// digest are secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) servers: String,
    pub(super) access: Access,
    pub(super) id: i64,
    password: Secret,
    timeout: Duration,
}

#[derive(Clone, Serialize, Deserialize)]
struct Secret(Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Session {
    /// The current session; `None` without one.
    pub(super) fn of(connection: &Connection) -> Option<Self> {
        let SessionIdentity { id, password, timeout } = connection.client.session_identity()?;
        let (servers, access) = (connection.servers.clone(), connection.access.clone());
        Some(Self { servers, access, id: id.0, password: Secret(password.to_vec()), timeout })
    }

    pub(super) fn identity(&self) -> SessionIdentity {
        let password = self.password.0.clone().into();
        SessionIdentity { id: SessionId(self.id), password, timeout: self.timeout }
    }
}

impl Message {
    pub(super) fn session(session: &Session) -> Self {
        Self::Session(Box::new(session.clone()))
    }

    pub(super) fn group(group: Pid) -> Self {
        Self::Group(group.as_raw_nonzero().get())
    }

    pub(super) fn grace(grace: Duration) -> Self {
        Self::Grace(u64::try_from(grace.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn until(instant: Instant) -> Self {
        Self::Until(instant.since_start())
    }

    pub(super) fn send(&self, pipe: &mut impl Write) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        pipe.write_all(&line)
    }
}

/// Sends this process's group to the watchdog, over an inherited descriptor of its pipe, and closes the descriptor: the
/// pipe must close when lockkeeper ends.
#[expect(clippy::disallowed_methods, reason = "the kernel's name for a descriptor")]
pub(crate) fn announce(pipe: RawFd) -> io::Result<()> {
    // Without unsafe code, only files with a name can be opened. Non-blocking, because the watchdog may be stopped and
    // the pipe full.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let path = format!("/dev/fd/{pipe}");
    let mut opened = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
    match Message::group(getpgrp()).send(&mut opened) {
        // A watchdog that was killed is replaced, and lockkeeper sends the group to the new one.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
        _ => {}
    }
    Ok(nix::unistd::close(pipe)?)
}

/// The receiving end of the pipe: standard input.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    unread: Vec<u8>,
}

impl Inbox {
    /// Whether a complete message is already buffered.
    pub(super) fn has_message(&self) -> bool {
        self.unread.contains(&b'\n')
    }

    /// Waits for the next message; `None` at the end of the pipe, or if the message is invalid.
    pub(super) fn next(&mut self) -> Option<Message> {
        while !self.has_message() {
            let mut bytes = [0; READ_SIZE];
            match read(stdin(), &mut bytes) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.unread.extend_from_slice(&bytes[..count]),
            }
        }
        let end = self.unread.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.unread.drain(..=end).collect();
        serde_json::from_slice(&line).ok()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A session, as in a message.
    pub(in crate::commands::run::watchdog) fn session() -> Session {
        let access = r#"{"digest":null,"tls_ca":null,"system_roots":false,"tls_cert":null,
            "tls_key":null,"tls_name":null}"#;
        let timeout = r#"{"secs":15,"nanos":0}"#;
        serde_json::from_str(&format!(
            r#"{{"servers":"a:2181","access":{access},"id":1,"password":[],"timeout":{timeout}}}"#
        ))
        .unwrap()
    }
}

//! The task that owns the connection.

use std::future::{pending, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use bytes::BytesMut;
use lockkeeper_session::{Contact, Disconnect, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

use crate::Host;
use crate::clock::sleep_towards;
use crate::dial::Dialer;
use crate::shared::Shared;
use crate::world::Transport;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Session(#[from] Disconnect),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the server closed the connection")]
    Eof,
    #[error(
        "the server closed the connection during the handshake; a server does so when it is full, \
         starting, or behind what this session has seen (its data may have been wiped)"
    )]
    EofInHandshake,
}

/// What was wrong with each server, for whoever waits for the first connection.
pub(crate) type Failures = watch::Sender<Vec<(Host, String)>>;

/// Keeps the session connected until it is closed.
pub(crate) async fn drive(shared: Arc<Shared>, mut dialer: Dialer, failures: Failures) {
    while shared.look(|session| session.contact()) != Contact::Closed {
        let dialed = tokio::select! {
            biased;
            dialed = dialer.dial() => dialed,
            () = keep_time(&shared) => break,
        };
        let (host, reason) = match dialed {
            Ok((host, transport)) => {
                tracing::debug!(%host, "connected");
                let ended = talk(&shared, transport, &mut dialer).await;
                shared.disconnected();
                tracing::debug!(%host, %ended, "connection ended");
                (host, ended.to_string())
            }
            Err(failure) => failure,
        };
        dialer.failed(host, reason);
        failures.send_replace(dialer.reasons());
    }
}

/// Lets the session's timeouts happen while there is no connection; ends when it is closed.
async fn keep_time(shared: &Shared) {
    loop {
        let deadline = shared.poll(&mut BytesMut::new());
        if shared.look(|session| session.contact()) == Contact::Closed {
            return;
        }
        tokio::select! {
            biased;
            () = shared.woken() => {}
            () = until(shared, deadline) => {
                // Without a transport there is none to close.
                let _ = shared.timeout();
            }
        }
    }
}

async fn talk(shared: &Shared, transport: Transport, dialer: &mut Dialer) -> Ended {
    shared.connected();
    let result = match transport {
        Transport::Tcp(stream) => {
            let (reader, writer) = stream.into_split();
            exchange(shared, reader, writer, dialer).await
        }
        Transport::Unix(stream) => {
            let (reader, writer) = stream.into_split();
            exchange(shared, reader, writer, dialer).await
        }
        Transport::Other(stream) => {
            let (reader, writer) = tokio::io::split(stream);
            exchange(shared, reader, writer, dialer).await
        }
    };
    match result {
        Ok(never) => match never {},
        Err(ended) => ended,
    }
}

/// Moves bytes until the connection ends.
async fn exchange(
    shared: &Shared,
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
    dialer: &mut Dialer,
) -> Result<std::convert::Infallible, Ended> {
    let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
    let mut accepted = false;
    loop {
        let deadline = shared.poll(&mut output);
        input.reserve(READ_SIZE);
        let turn = {
            let read = pin!(reader.read_buf(&mut input));
            let write = pin!(write_some(&mut writer, &mut output));
            let (woken, due) = (pin!(shared.woken()), pin!(until(shared, deadline)));
            Turn::next(read, write, woken, due).await
        };
        if let Some(written) = turn.written {
            written?;
        }
        if let Some(read) = turn.read {
            if read? == 0 {
                return Err(if accepted { Ended::Eof } else { Ended::EofInHandshake });
            }
            shared.input(&mut input)?;
            if !accepted {
                accepted = shared.look(|session| session.contact()) == Contact::Connected;
                if accepted {
                    dialer.succeeded();
                }
            }
        }
        if turn.due && deadline.is_some_and(|deadline| deadline <= shared.now()) {
            shared.timeout()?;
        }
    }
}

/// What there is to do.
///
/// Everything that is ready at the same time has its turn: a flood in one direction starves
/// nothing, and no die decides what comes first, so that a simulation can be repeated.
struct Turn {
    read: Option<io::Result<usize>>,
    written: Option<io::Result<usize>>,
    due: bool,
}

impl Turn {
    async fn next(
        mut read: Pin<&mut impl Future<Output = io::Result<usize>>>,
        mut write: Pin<&mut impl Future<Output = io::Result<usize>>>,
        mut woken: Pin<&mut impl Future<Output = ()>>,
        mut due: Pin<&mut impl Future<Output = ()>>,
    ) -> Self {
        poll_fn(|context| {
            let written = ready(write.as_mut().poll(context));
            let read = ready(read.as_mut().poll(context));
            let woken = woken.as_mut().poll(context).is_ready();
            let due = due.as_mut().poll(context).is_ready();
            match written.is_some() || read.is_some() || woken || due {
                true => Poll::Ready(Self { read, written, due }),
                false => Poll::Pending,
            }
        })
        .await
    }
}

fn ready<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Writes some of the bytes, if there are any; else it never ends.
async fn write_some(
    writer: &mut (impl AsyncWrite + Unpin),
    output: &mut BytesMut,
) -> io::Result<usize> {
    if output.is_empty() {
        return pending().await;
    }
    writer.write_buf(output).await
}

/// How much is read at once, in bytes.
const READ_SIZE: usize = 16 * 1024;

async fn until(shared: &Shared, deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_towards(deadline.since(shared.now())).await,
        None => pending().await,
    }
}

//! The task that owns the connection.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use lockkeeper_session::{Contact, Disconnect, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

use crate::Host;
use crate::clock::sleep_towards;
use crate::dial::{Dialer, Transport};
use crate::shared::Shared;

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
        tokio::select! {
            read = reader.read_buf(&mut input) => {
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
            written = writer.write_buf(&mut output), if !output.is_empty() => { written?; }
            () = shared.woken() => {}
            () = until(shared, deadline) => {
                if deadline.is_some_and(|deadline| deadline <= shared.clock().now()) {
                    shared.timeout()?;
                }
            }
        }
    }
}

/// How much is read at once, in bytes.
const READ_SIZE: usize = 16 * 1024;

async fn until(shared: &Shared, deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_towards(shared.clock(), deadline).await,
        None => std::future::pending().await,
    }
}

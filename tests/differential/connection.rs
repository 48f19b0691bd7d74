//! One connection to one server, frame by frame, without any of our client's cleverness.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{
    ConnectRequest, ConnectResponse, Decoder, MAX_FRAME, Record, split_frame, write_frame,
};

/// A server that is silent for so long has lost the request.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// What came next.
#[derive(Debug)]
pub(crate) enum Incoming {
    Frame(Bytes),
    Closed,
    /// Nothing within the time that was asked for.
    Silence,
}

#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).context("cannot connect")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, buffer: BytesMut::new() })
    }

    /// Shakes hands; `None` if the server closes the connection without an answer.
    pub(crate) fn shake(&mut self, request: &ConnectRequest) -> Result<Option<ConnectResponse>> {
        let mut out = BytesMut::new();
        write_frame(&mut out, |out| request.encode(out));
        self.send(&out)?;
        match self.next()? {
            Incoming::Frame(frame) => {
                Ok(Some(ConnectResponse::decode(&mut Decoder::new(frame)).context("handshake")?))
            }
            Incoming::Closed => Ok(None),
            Incoming::Silence => bail!("no answer to the handshake"),
        }
    }

    /// A connection that the server has closed takes nothing, which shows when reading.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        match self.stream.write_all(bytes) {
            Err(e) if is_gone(e.kind()) => Ok(()),
            result => Ok(result?),
        }
    }

    pub(crate) fn next(&mut self) -> Result<Incoming> {
        self.next_within(PATIENCE)
    }

    pub(crate) fn next_within(&mut self, limit: Duration) -> Result<Incoming> {
        loop {
            if let Some(frame) = split_frame(&mut self.buffer, 2 * MAX_FRAME)? {
                return Ok(Incoming::Frame(frame));
            }
            if limit != PATIENCE {
                self.stream.set_read_timeout(Some(limit))?;
            }
            let read = self.read();
            if limit != PATIENCE {
                self.stream.set_read_timeout(Some(PATIENCE))?;
            }
            if let Some(end) = read? {
                return Ok(end);
            }
        }
    }

    /// Says that nothing more will be sent, which a server takes for the end.
    pub(crate) fn finish(&self) -> Result<()> {
        match self.stream.shutdown(Shutdown::Write) {
            Err(e) if e.kind() == ErrorKind::NotConnected => Ok(()),
            result => Ok(result?),
        }
    }

    /// Reads until the server closes the connection, which must be within this time after the last
    /// frame: events may have been on their way.
    pub(crate) fn expect_end(&mut self, limit: Duration) -> Result<()> {
        loop {
            match self.next_within(limit)? {
                Incoming::Closed => return Ok(()),
                Incoming::Frame(_) => {}
                Incoming::Silence => bail!("a connection was not closed"),
            }
        }
    }

    /// `None` if something arrived.
    fn read(&mut self) -> Result<Option<Incoming>> {
        let mut chunk = [0; 16 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => Ok(Some(Incoming::Closed)),
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                Ok(None)
            }
            Err(e) if is_gone(e.kind()) => Ok(Some(Incoming::Closed)),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Ok(Some(Incoming::Silence))
            }
            Err(e) => Err(e.into()),
        }
    }
}

fn is_gone(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted
    )
}

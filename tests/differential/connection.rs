//! One connection to one server, plain or with TLS, frame by frame, without any of our client's
//! cleverness.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{
    ConnectRequest, ConnectResponse, Decoder, MAX_FRAME, Record, split_frame, write_frame,
};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConnection, StreamOwned};

use crate::certificates::Credentials;

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
    stream: Stream,
    buffer: BytesMut,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => &stream.sock,
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(bytes),
            Self::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        if let Self::Tls(stream) = self {
            stream.conn.send_close_notify();
            stream.flush()?;
        }
        self.socket().shutdown(Shutdown::Write)
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket().fmt(f)
    }
}

impl Connection {
    /// Connects, with TLS if there are credentials.
    pub(crate) fn open(address: SocketAddr, credentials: Option<&Credentials>) -> Result<Self> {
        let socket = TcpStream::connect(address).context("cannot connect")?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let stream = match credentials {
            None => Stream::Plain(socket),
            Some(config) => {
                let name = ServerName::try_from("localhost")?;
                let connection = ClientConnection::new(config.clone(), name)?;
                Stream::Tls(Box::new(StreamOwned::new(connection, socket)))
            }
        };
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

    /// A connection that the server has closed does not accept data, which the next read shows.
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
                self.stream.socket().set_read_timeout(Some(limit))?;
            }
            let read = self.read();
            if limit != PATIENCE {
                self.stream.socket().set_read_timeout(Some(PATIENCE))?;
            }
            if let Some(end) = read? {
                return Ok(end);
            }
        }
    }

    /// Says that nothing more will be sent, which a server takes for the end.
    pub(crate) fn finish(&mut self) -> Result<()> {
        match self.stream.finish() {
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
        ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::ConnectionAborted
            // With TLS: without a word that it is the end, or with one about a certificate.
            | ErrorKind::UnexpectedEof
            | ErrorKind::InvalidData
    )
}

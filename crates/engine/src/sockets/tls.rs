//! TLS for the engine's own connections.
//!
//! The engine writes replies from any thread, without waiting, so it uses `rustls` directly as a state between plain
//! and encrypted bytes, behind a lock that both halves of a connection share. `tokio-rustls` only does the handshake.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use rustix::net::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, tcp};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{Error, RootCertStore, ServerConfig, ServerConnection, crypto};

use crate::files::read_regular_file;
use crate::sockets::x509;

/// How much is encrypted before the socket has accepted it, in bytes: two records of full length.
const MAX_ENCRYPTED: usize = 32 * 1024;

/// Whether clients must present a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientCertificates {
    /// A client may present one, and then has its identity.
    Optional,
    /// A client without one is refused.
    Required,
}

/// The engine's certificate, and the issuers of clients' certificates that it accepts.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
}

/// The settings of the next handshake, which the handle of the engine can replace.
#[derive(Clone, Debug)]
pub(crate) struct CurrentTls(Arc<Mutex<Tls>>);

impl CurrentTls {
    pub(crate) fn new(tls: Tls) -> Self {
        Self(Arc::new(Mutex::new(tls)))
    }

    pub(crate) fn get(&self) -> Tls {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, tls: Tls) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = tls;
    }
}

/// Why a certificate or a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{} cannot be read ({source}): give the path of a PEM file that this program's user may read", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A text contains no certificate.
    #[error("no certificate was found: PEM begins with -----BEGIN CERTIFICATE-----")]
    NoCertificate,
    /// A text for the roots of clients' certificates contains no certificate.
    #[error("no certificate of a CA was found: PEM begins with -----BEGIN CERTIFICATE-----")]
    NoClientRoot,
    /// A text contains no private key.
    #[error(
        "no private key was found: PEM begins with -----BEGIN PRIVATE KEY----- (encrypted keys are \
         not supported)"
    )]
    NoKey,
    /// A certificate and a key do not belong together, or an algorithm is unknown.
    #[error("the certificate or its key cannot be used: {0}")]
    Unusable(String),
}

impl Tls {
    /// Creates the settings from a certificate (with the chain up to its root, if there is one) and its key, in PEM
    /// format. Clients are not asked for certificates.
    ///
    /// # Errors
    /// One of them cannot be read, or they do not belong together.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let verifier = WebPkiClientVerifier::no_client_auth();
        Self::new(certificates, key, verifier)
    }

    /// Like [`Tls::from_pem`], but also asks clients for certificates issued by one of `roots`. A client that presents
    /// one has an identity of the scheme `x509`: the subject, as ZooKeeper spells it (`CN=alice,O=Example`).
    ///
    /// # Errors
    /// One of the texts cannot be read, or they do not belong together.
    pub fn with_client_roots(
        certificates: &[u8],
        key: &[u8],
        roots: &[u8],
        clients: ClientCertificates,
    ) -> Result<Self, TlsError> {
        let mut store = RootCertStore::empty();
        for root in read_certificates(roots).map_err(|_| TlsError::NoClientRoot)? {
            store.add(root).map_err(unusable)?;
        }
        let provider = Arc::new(crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider);
        let verifier = match clients {
            ClientCertificates::Optional => verifier.allow_unauthenticated(),
            ClientCertificates::Required => verifier,
        };
        Self::new(certificates, key, verifier.build().map_err(unusable)?)
    }

    fn new(
        certificates: &[u8],
        key: &[u8],
        verifier: Arc<dyn ClientCertVerifier>,
    ) -> Result<Self, TlsError> {
        let certificates = read_certificates(certificates)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::NoKey)?;
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificates, key)
            .map_err(unusable)?;
        Ok(Self { config: Arc::new(config) })
    }

    /// Performs the handshake with a new client; returns the subject of its certificate, if it presents one.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        on_read: impl Fn(usize) -> io::Result<()> + Send + Unpin,
    ) -> io::Result<(TlsIncoming, TlsOutlet, Option<String>)> {
        let acceptor = TlsAcceptor::from(self.config.clone());
        let stream = acceptor.accept(Metered { stream, on_read }).await.map_err(plainly)?;
        let (Metered { stream, .. }, mut connection) = stream.into_inner();
        connection.set_buffer_limit(Some(MAX_ENCRYPTED));
        let certificates = connection.peer_certificates().unwrap_or_default();
        let subject = certificates.first().and_then(|certificate| x509::subject(certificate));
        let state = Arc::new(Mutex::new(connection));
        let (read, write) = stream.into_split();
        let incoming = TlsIncoming { half: read, state: state.clone() };
        Ok((incoming, TlsOutlet { half: write, state }, subject))
    }
}

/// A socket during the handshake, which reports how many bytes are read from it.
struct Metered<F> {
    stream: TcpStream,
    on_read: F,
}

impl<F: Fn(usize) -> io::Result<()> + Unpin> AsyncRead for Metered<F> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let metered = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut metered.stream).poll_read(context, buffer))?;
        Poll::Ready((metered.on_read)(buffer.filled().len() - before))
    }
}

impl<F: Unpin> AsyncWrite for Metered<F> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

/// Describes the error clearly if the client does not speak TLS.
fn plainly(error: io::Error) -> io::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(Error::InvalidMessage(_)) => {
            io::Error::new(error.kind(), "the client does not speak TLS, which this port requires")
        }
        _ => error,
    }
}

lockkeeper_wire::impl_debug! {
    /// Without the key.
    Tls, self =>
}

/// The largest PEM file that is read, in bytes: far larger than the list of all public roots. A larger file is
/// something else, such as a device.
const MAX_PEM: u64 = 16 * 1024 * 1024;

/// Reads a PEM file of at most 16 MiB, for the functions that take texts.
///
/// # Errors
/// The file cannot be read, is larger, or is not a regular file: for example a pipe, which might never end, or a
/// device.
pub fn read_pem(path: impl AsRef<Path>) -> Result<Vec<u8>, TlsError> {
    let path = path.as_ref();
    read_regular_file(path, MAX_PEM)
        .map_err(|source| TlsError::File { path: path.to_path_buf(), source })
}

fn read_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(TlsError::NoCertificate),
    }
}

fn unusable(e: impl fmt::Display) -> TlsError {
    TlsError::Unusable(e.to_string())
}

/// The half that is read.
pub(crate) struct TlsIncoming {
    half: tcp::OwnedReadHalf,
    state: Arc<Mutex<ServerConnection>>,
}

impl TlsIncoming {
    /// See `Incoming::read`. It waits for the socket only, so it is as cancel-safe as that.
    pub(crate) async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        loop {
            match self.decrypt(buffer) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.half.readable().await?,
                done => return done,
            }
        }
    }

    fn decrypt(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        let mut state = lock(&self.state);
        loop {
            let room = buffer.spare_capacity_mut().len().clamp(1, 64 * 1024);
            let start = buffer.len();
            buffer.resize(start + room, 0);
            let read = state.reader().read(&mut buffer[start..]);
            buffer.truncate(start + read.as_ref().map_or(0, |count| *count));
            match read {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }

            let mut socket = Nonblocking(self.half.as_ref());
            let count = state.read_tls(&mut socket)?;
            if let Err(e) = state.process_new_packets() {
                // The peer may want the reason; it does not matter if it does not read it.
                let _ = state.write_tls(&mut socket);
                return Err(io::Error::new(io::ErrorKind::InvalidData, e));
            }
            if count == 0 {
                return Ok(0);
            }
        }
    }
}

/// The half to which any thread may write.
pub(crate) struct TlsOutlet {
    half: tcp::OwnedWriteHalf,
    state: Arc<Mutex<ServerConnection>>,
}

impl TlsOutlet {
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.half.writable().await
    }

    /// Encrypts and sends as much as the socket accepts, and at most a little more.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = lock(&self.state);
        self.send(&mut state)?;
        let count = state.writer().write(bytes)?;
        match self.send(&mut state) {
            // Encrypted bytes count as written; `has_backlog` shows that they are still here.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(count),
            result => result.map(|()| count),
        }
    }

    /// Whether encrypted bytes wait for the socket.
    pub(crate) fn has_backlog(&self) -> bool {
        lock(&self.state).wants_write()
    }

    /// Sends encrypted bytes that wait for the socket.
    pub(crate) fn try_flush(&self) -> io::Result<()> {
        self.send(&mut lock(&self.state))
    }

    fn send(&self, state: &mut ServerConnection) -> io::Result<()> {
        while state.wants_write() {
            state.write_tls(&mut Nonblocking(self.half.as_ref()))?;
        }
        Ok(())
    }

    pub(crate) fn shutdown(&self, how: Shutdown) {
        if how == Shutdown::Write {
            let mut state = lock(&self.state);
            state.send_close_notify();
            // A peer that reads nothing more does not need the notification.
            let _ = self.send(&mut state);
        }
        let _ = shutdown(self.half.as_ref(), how);
    }
}

/// A panic under the lock breaks a connection that only its own client can notice.
fn lock(state: &Mutex<ServerConnection>) -> MutexGuard<'_, ServerConnection> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A socket that is read and written without waiting.
struct Nonblocking<'a>(&'a TcpStream);

impl Read for Nonblocking<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(bytes)
    }
}

impl Write for Nonblocking<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

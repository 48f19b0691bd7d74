//! TLS to the servers.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use lockkeeper_session::Instant;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::connect_string::Host;
use crate::fault::FaultKind;
use crate::runtime::{Boxed, Runtime, TokioRuntime, Transport};

/// The roots that the client trusts, and its own certificate. Unix sockets are not encrypted.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use lockkeeper_client::{Client, Tls};
///
/// let tls = Tls::from_pem(&std::fs::read("roots.pem")?)?;
/// let client = Client::builder().tls(tls).connect("tls://locks.example.org:2281").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

/// Why a certificate, a key or a name is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The text does not contain a certificate.
    #[error("no certificate was found: PEM begins with -----BEGIN CERTIFICATE-----")]
    NoCertificate,
    /// The text does not contain a private key.
    #[error(
        "no private key was found: PEM begins with -----BEGIN PRIVATE KEY----- (encrypted keys are \
         not supported)"
    )]
    NoKey,
    /// The certificate and the key do not match, or the algorithm is unknown.
    #[error("the certificate or its key cannot be used: {0}")]
    Unusable(String),
    /// The text is neither a host name nor an IP address.
    #[error("{0:?} is not a valid server name: use a host name or an IP address")]
    BadName(String),
}

impl Tls {
    /// Trusts servers whose certificates were issued by one of these roots, in PEM.
    ///
    /// # Errors
    /// If the text does not contain a certificate, or contains an unusable one.
    pub fn from_pem(roots: &[u8]) -> Result<Self, TlsError> {
        let config = trusting(roots)?.with_no_client_auth();
        Ok(Self { config: Arc::new(config), name: None })
    }

    /// Like [`Tls::from_pem`], and presents this certificate to servers that request one. Its subject is then
    /// an identity of the scheme `x509`.
    ///
    /// # Errors
    /// If a text cannot be parsed, or the certificate and the key do not match.
    pub fn with_identity(roots: &[u8], certificates: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::NoKey)?;
        let config = trusting(roots)?.with_client_auth_cert(read(certificates)?, key);
        Ok(Self { config: Arc::new(config.map_err(unusable)?), name: None })
    }

    /// The name that the servers' certificates must have. Default: the host names or addresses of the
    /// connection string.
    ///
    /// # Errors
    /// If `name` is neither a host name nor an IP address.
    pub fn server_name(mut self, name: &str) -> Result<Self, TlsError> {
        self.name = Some(parse(name)?);
        Ok(self)
    }

    /// Encrypts a connection to a host with this name.
    async fn encrypt(
        &self,
        name: &str,
        stream: impl Future<Output = io::Result<TcpStream>>,
    ) -> io::Result<Transport> {
        let expected = match &self.name {
            Some(name) => name.clone(),
            None => parse(name).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?,
        };
        let stream = stream.await?;
        let address = stream.peer_addr().ok().map(|peer| peer.ip());
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let stream =
            connector.connect(expected, stream).await.map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), CUT_OFF),
                _ => error,
            })?;
        Ok(Transport::Other(Box::new(stream), address))
    }
}

const CUT_OFF: &str = "the server closed the connection during the TLS handshake; it may still be starting, or \
                       may not use TLS on this port";

/// Whether a retry may help after a connection ended with this error.
pub(crate) fn fault_kind(error: &io::Error) -> FaultKind {
    use tokio_rustls::rustls::{AlertDescription as Alert, Error};
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(Error::InvalidMessage(_)) => FaultKind::NotZooKeeper,
        Some(Error::InvalidCertificate(_)) => FaultKind::Untrusted,
        Some(Error::AlertReceived(
            Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::CertificateRequired
            // The certificate has the right name, but another authority issued it.
            | Alert::DecryptError,
        )) => FaultKind::Untrusted,
        _ => FaultKind::Transient,
    }
}

lockkeeper_wire::impl_debug! {
    /// The key is left out.
    Tls, self => name: self.name
}

/// The real runtime, with encrypted TCP connections.
#[derive(Debug)]
pub(crate) struct Encrypted {
    plain: TokioRuntime,
    tls: Tls,
}

impl Encrypted {
    pub(crate) fn new(tls: Tls) -> Self {
        Self { plain: TokioRuntime::default(), tls }
    }
}

impl Runtime for Encrypted {
    fn now(&self) -> Instant {
        self.plain.now()
    }

    fn connect<'a>(
        &'a self,
        host: &'a Host,
        address: Option<IpAddr>,
    ) -> Boxed<'a, io::Result<Transport>> {
        match host {
            Host::Tcp { name, port } => {
                let stream = self.plain.addresses.connect(name, *port, address);
                Box::pin(self.tls.encrypt(name, stream))
            }
            Host::Unix(_) => self.plain.connect(host, address),
        }
    }

    fn addresses<'a>(&'a self, host: &'a Host) -> Boxed<'a, Vec<IpAddr>> {
        self.plain.addresses(host)
    }

    fn unique_id(&self) -> uuid::Uuid {
        self.plain.unique_id()
    }

    fn spawn(&self, task: Boxed<'static, ()>) {
        self.plain.spawn(task);
    }
}

type Trusting = tokio_rustls::rustls::ConfigBuilder<
    ClientConfig,
    tokio_rustls::rustls::client::WantsClientCert,
>;

fn trusting(roots: &[u8]) -> Result<Trusting, TlsError> {
    let mut store = RootCertStore::empty();
    for root in read(roots)? {
        store.add(root).map_err(unusable)?;
    }
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().map_err(unusable)?;
    Ok(config.with_root_certificates(store))
}

fn read(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(TlsError::NoCertificate),
    }
}

fn parse(name: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(name.to_owned()).map_err(|_| TlsError::BadName(name.to_owned()))
}

fn unusable(e: impl fmt::Display) -> TlsError {
    TlsError::Unusable(e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_is_named() {
        assert_eq!(Tls::from_pem(b"").unwrap_err(), TlsError::NoCertificate);
        let garbage = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(Tls::from_pem(garbage), Err(TlsError::Unusable(_))));
        assert_eq!(parse("no name").unwrap_err(), TlsError::BadName("no name".to_owned()));
        assert!(parse("::1").is_ok() && parse("locks.example.org").is_ok());
    }
}

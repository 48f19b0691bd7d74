//! An authority, and certificates of it for both servers and for clients of several names.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    IsCa, KeyPair,
};
use tempfile::TempDir;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// How clients show themselves to a server that speaks TLS.
pub(crate) type Credentials = Arc<ClientConfig>;

/// Subjects of clients, as ZooKeeper spells them: plain, with characters that must be escaped and a
/// letter that is not ASCII, and with an attribute without a short name in ZooKeeper.
pub(crate) const SUBJECTS: [&str; 3] = [
    "CN=alice,O=Example",
    "CN=Bärbel \\\"B\\\"\\, Inc. \\+ Sons,OU=\\#1",
    "1.2.840.113549.1.9.1=#0c0b6540782e6578616d706c65,CN=eve",
];

pub(crate) struct Certificates {
    folder: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Certificates {
    pub(crate) fn new() -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let certificates = Self { folder: tempfile::tempdir()?, authority };
        let (certificate, key) = certificates.issue(DistinguishedName::new())?;
        // The form of ZooKeeper's PEM key stores.
        let both = key.serialize_pem() + &certificate.pem();
        fs::write(certificates.key_store(), both)?;
        fs::write(certificates.trust_store(), certificates.authority.pem())?;
        Ok(certificates)
    }

    /// The server's certificate and its key.
    pub(crate) fn key_store(&self) -> PathBuf {
        self.folder.path().join("server.pem")
    }

    pub(crate) fn trust_store(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// A client for each of [`SUBJECTS`], and one without a certificate.
    pub(crate) fn clients(&self) -> Result<Vec<Credentials>> {
        let names = [
            vec![(DnType::OrganizationName, "Example"), (DnType::CommonName, "alice")],
            vec![
                (DnType::OrganizationalUnitName, "#1"),
                (DnType::CommonName, "Bärbel \"B\", Inc. + Sons"),
            ],
            vec![
                (DnType::CommonName, "eve"),
                (DnType::CustomDnType(EMAIL.to_vec()), "e@x.example"),
            ],
        ];
        let mut clients = Vec::new();
        for name in names {
            let mut subject = DistinguishedName::new();
            name.into_iter().for_each(|(kind, value)| subject.push(kind, value));
            clients.push(self.client(Some(self.issue(subject)?))?);
        }
        clients.push(self.client(None)?);
        Ok(clients)
    }

    /// A client that trusts this authority, and shows a certificate of another one.
    pub(crate) fn stranger(&self) -> Result<Credentials> {
        let mut subject = DistinguishedName::new();
        subject.push(DnType::CommonName, "alice");
        self.client(Some(Self::new()?.issue(subject)?))
    }

    fn issue(&self, subject: DistinguishedName) -> Result<(Certificate, KeyPair)> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        params.distinguished_name = subject;
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &self.authority)?, key))
    }

    fn client(&self, identity: Option<(Certificate, KeyPair)>) -> Result<Credentials> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone())?;
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        Ok(Arc::new(match identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::try_from(key.serialize_der());
                let key = key.ok().context("a key of an unknown form")?;
                config.with_client_auth_cert(vec![certificate.der().clone()], key)?
            }
        }))
    }
}

/// The type of an e-mail address in a name.
const EMAIL: [u64; 7] = [1, 2, 840, 113_549, 1, 9, 1];

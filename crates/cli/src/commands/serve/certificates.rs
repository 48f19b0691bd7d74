//! Reads the certificate files for TLS.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lockkeeper_engine::{ClientCertificates, Tls, TlsError, read_pem};

use crate::shared::exit::{Exit, Failure};

/// The paths of the certificate, its key and the roots of client certificates.
#[derive(Clone, Debug)]
pub(super) struct TlsFiles {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) client_roots: Option<(PathBuf, ClientCertificates)>,
}

impl TlsFiles {
    /// Reads all files.
    ///
    /// # Errors
    /// If a file cannot be used; the error names it.
    pub(super) fn read(&self) -> Result<Tls, Failure> {
        let read = |path: &Path| read_pem(path).map_err(|error| unusable(&error));
        let (certificate, key) = (read(&self.certificate)?, read(&self.key)?);
        let tls = match &self.client_roots {
            None => Tls::from_pem(&certificate, &key),
            Some((roots, clients)) => {
                Tls::with_client_roots(&certificate, &key, &read(roots)?, *clients)
            }
        };
        let tls = tls.map_err(|error| unusable(&error).about(&self.named_by(&error)))?;
        self.warn_of_readers();
        Ok(tls)
    }

    /// The names of the files that an error is about.
    fn named_by(&self, error: &TlsError) -> String {
        match (error, &self.client_roots) {
            (TlsError::NoClientRoot, Some((roots, _))) => roots.display().to_string(),
            _ => format!("{}, {}", self.certificate.display(), self.key.display()),
        }
    }

    /// Access for a group may be intended (Debian has `ssl-cert`); access for everyone never is.
    fn warn_of_readers(&self) {
        let path = self.key.display();
        if fs::metadata(&self.key).is_ok_and(|meta| meta.mode() & 0o007 != 0) {
            tracing::warn!(
                "all users of this machine have access to the key {path}: chmod o= {path}"
            );
        }
    }
}

fn unusable(error: &TlsError) -> Failure {
    Failure::new(Exit::Config, error.to_string())
}

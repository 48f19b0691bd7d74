//! The root certificates of the system.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lockkeeper::Tls;
use rustls_native_certs::load_native_certs;

use crate::shared::exit::{Exit, Failure};

/// All valid root certificates, as PEM. `SSL_CERT_FILE` and `SSL_CERT_DIR` replace the system's locations.
///
/// # Errors
/// If there are no valid certificates.
pub(crate) fn of_system() -> Result<Vec<u8>, Failure> {
    let found = load_native_certs();
    let pems = found.certs.iter().map(|root| pem(root));
    // A malformed certificate does not invalidate the others.
    let pems: Vec<_> = pems.filter(|pem| Tls::from_pem(pem.as_bytes()).is_ok()).collect();
    if !pems.is_empty() {
        return Ok(pems.concat().into_bytes());
    }

    let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
    let message = format!("no trusted root certificates found on this system{why}");
    Err(Failure::new(Exit::Config, message)
        .advise("name the servers' root certificates with --tls-ca"))
}

fn pem(der: &[u8]) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der))
}

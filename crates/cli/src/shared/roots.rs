//! The root certificates that this system trusts.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lockkeeper::Tls;
use rustls_native_certs::load_native_certs;

use crate::shared::exit::{Exit, Failure};

/// All of them that can be used, as PEM. Where `SSL_CERT_FILE` or `SSL_CERT_DIR` is set, those that it names.
///
/// # Errors
/// If there is none.
pub(crate) fn of_system() -> Result<Vec<u8>, Failure> {
    let found = load_native_certs();
    let pems = found.certs.iter().map(|root| pem(root));
    // One that is malformed is no reason to trust none.
    let pems: Vec<_> = pems.filter(|pem| Tls::from_pem(pem.as_bytes()).is_ok()).collect();
    if !pems.is_empty() {
        return Ok(pems.concat().into_bytes());
    }

    let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
    let message = format!("no root certificates that this system trusts were found{why}");
    Err(Failure::new(Exit::Config, message).advise("give those of the servers with --tls-ca"))
}

fn pem(der: &[u8]) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der))
}

//! The client and the embedded engine, encrypted, with the certificates of one test.

use lockkeeper_client::{Acl, Permissions};
use lockkeeper_client::{Client, ConnectError, CreateMode, ErrorCode, Tls, ZnodePath};
use lockkeeper_engine::{ClientCertificates, Engine};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn pem(&self) -> Vec<u8> {
        self.0.pem().into_bytes()
    }

    /// A certificate for `host` that belongs to `name`, and its key.
    fn issue(&self, host: &str, name: &str) -> (Vec<u8>, Vec<u8>) {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem().into_bytes(), key.serialize_pem().into_bytes())
    }
}

async fn engine(authority: &Authority, host: &str) -> Engine {
    let (certificate, key) = authority.issue(host, "engine");
    let clients = ClientCertificates::Optional;
    let tls =
        lockkeeper_engine::Tls::with_client_roots(&certificate, &key, &authority.pem(), clients);
    let builder = Engine::builder().listen_tls("127.0.0.1:0".parse().unwrap(), tls.unwrap());
    builder.start().await.unwrap()
}

fn path(text: &str) -> ZnodePath {
    ZnodePath::new(text).unwrap()
}

#[tokio::test]
async fn a_client_works_over_tls_and_is_who_its_certificate_says() {
    let authority = Authority::new();
    let engine = engine(&authority, "127.0.0.1").await;
    let servers = engine.connect_string();
    assert!(servers.starts_with("tls://127.0.0.1:"));

    let anonymous = Tls::from_pem(&authority.pem()).unwrap();
    let anyone = Client::builder().tls(anonymous).connect(&servers).await.unwrap();
    let acl = Acl {
        permissions: Permissions::READ,
        scheme: "x509".to_owned(),
        id: "CN=alice".to_owned(),
    };
    let node = path("/alice");
    anyone.create_with_acl(&node, "secret", CreateMode::Persistent, vec![acl]).await.unwrap();
    let refused = anyone.data(&node).await.unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::NoAuth));

    let (certificate, key) = authority.issue("alice.example.org", "alice");
    let tls = Tls::with_identity(&authority.pem(), &certificate, &key).unwrap();
    // Without the prefix too: the builder already enables TLS.
    let plain = servers.trim_start_matches("tls://");
    let alice = Client::builder().tls(tls).connect(plain).await.unwrap();
    assert_eq!(&alice.data(&node).await.unwrap().0[..], b"secret");
    alice.close().await;
    anyone.close().await;
}

#[tokio::test]
async fn a_server_with_another_name_or_another_root_is_not_trusted() {
    let authority = Authority::new();
    let engine = engine(&authority, "locks.example.org").await;
    let servers = engine.connect_string();
    let connect = async |tls: Tls| {
        // Retrying does not help against an untrusted certificate.
        let long = std::time::Duration::from_secs(30);
        Client::builder().tls(tls).connect_timeout(long).connect(&servers).await
    };
    let trusting = Tls::from_pem(&authority.pem()).unwrap();
    let error = connect(trusting.clone()).await.unwrap_err().to_string();
    assert!(error.contains("certificate not valid for name"), "{error}");
    let named = trusting.server_name("locks.example.org").unwrap();
    connect(named).await.unwrap().close().await;
    let stranger = Tls::from_pem(&Authority::new().pem()).unwrap();
    let stranger = stranger.server_name("locks.example.org").unwrap();
    let error = connect(stranger).await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
}

/// It was tried again for the whole connect timeout, and the error did not name the reason.
#[tokio::test]
async fn a_port_that_wants_tls_is_named_at_once() {
    let engine = engine(&Authority::new(), "127.0.0.1").await;
    let plain = engine.connect_string().replace("tls://", "");
    let patient = Client::builder().connect_timeout(std::time::Duration::from_secs(30));
    let error = patient.connect(&plain).await.unwrap_err();
    assert!(matches!(error, ConnectError::NotZooKeeper(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("it speaks TLS") && text.contains("requires TLS"), "{text}");
}

#[tokio::test]
async fn tls_without_roots_is_an_error_at_once() {
    let error = Client::builder().connect("tls://127.0.0.1:1").await.unwrap_err();
    assert_eq!(error, ConnectError::NoTls);
}

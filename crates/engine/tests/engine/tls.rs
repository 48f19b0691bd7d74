//! The same engine behind TLS.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_engine::{ClientCertificates, Engine, Tls};
use lockkeeper_wire::{CreateMode, CreateRequest, Permissions, Request};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, Error as TlsFault, RootCertStore, StreamOwned, crypto,
};

use crate::client::{Client, LONG, Stream, eventually, get_data, only, persistent, word};
use crate::figures::Page;
use crate::log::Log;

/// A root that signs the certificates of one test.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub(crate) struct Identity {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub(crate) fn issue(&self, name: &str) -> Identity {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Example");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        Identity { certificate: params.signed_by(&key, &self.0).unwrap(), key }
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// A client configuration that trusts this root, with this identity.
    pub(crate) fn client(&self, identity: Option<&Identity>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots);
        match identity {
            None => config.with_no_client_auth(),
            Some(Identity { certificate, key }) => {
                let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
                config.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap()
            }
        }
    }
}

impl Identity {
    pub(crate) fn pem(&self) -> (String, String) {
        (self.certificate.pem(), self.key.serialize_pem())
    }
}

/// The settings of an engine with a certificate of this root, and what it requires of clients.
fn tls(authority: &Authority, clients: Option<ClientCertificates>) -> Tls {
    let (certificate, key) = authority.issue("engine").pem();
    let (certificate, key, roots) = (certificate.as_bytes(), key.as_bytes(), authority.pem());
    let tls = match clients {
        None => Tls::from_pem(certificate, key),
        Some(clients) => Tls::with_client_roots(certificate, key, roots.as_bytes(), clients),
    };
    tls.unwrap()
}

fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A client that speaks TLS, with a session.
fn connect(engine: &Engine, config: ClientConfig) -> Client {
    let mut client = dial(engine, config);
    client.handshake(LONG).unwrap();
    client
}

struct Encrypted(StreamOwned<ClientConnection, TcpStream>);

impl Read for Encrypted {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for Encrypted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Stream for Encrypted {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.0.sock.set_nodelay(true)?;
        self.0.sock.set_read_timeout(Some(timeout))
    }

    fn half_close(&self) -> io::Result<()> {
        self.0.sock.shutdown(Shutdown::Write)
    }
}

fn dial(engine: &Engine, config: ClientConfig) -> Client {
    dial_to(engine.tls_addrs()[0], config)
}

pub(crate) fn dial_to(address: SocketAddr, config: ClientConfig) -> Client {
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(address).unwrap();
    Client::over(Box::new(Encrypted(StreamOwned::new(connection, stream))))
}

async fn start(authority: &Authority, clients: Option<ClientCertificates>) -> Engine {
    // Encrypted traffic is unreadable to other machines, so this needs no permission.
    let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let builder = Engine::builder().listen_tls(everywhere, tls(authority, clients));
    builder.start().await.unwrap()
}

#[tokio::test]
async fn a_client_is_served_over_tls() {
    let authority = Authority::new();
    let engine = start(&authority, None).await;
    assert_eq!(engine.addr(), None);
    assert!(engine.connect_string().starts_with("tls://127.0.0.1:"), "nothing but TLS");
    let mut client = connect(&engine, authority.client(None));
    client.create("/lock", CreateMode::Ephemeral).unwrap();
    let mut other = connect(&engine, authority.client(None));
    assert!(other.exists("/lock"));
    client.call(Request::CloseSession).unwrap();
    assert!(client.rest().is_empty(), "the end is announced in TLS, or this would fail");
    assert!(!other.exists("/lock"));
    let mut terminal = dial(&engine, authority.client(None));
    terminal.send_bytes(b"ruok");
    assert_eq!(terminal.rest(), b"imok");
    engine.stop().await.unwrap();
    assert!(other.reply().is_err());
}

/// Replies far larger than what TLS or the socket accepts at once.
#[tokio::test]
async fn large_replies_arrive_whole_although_read_late() {
    const COUNT: usize = 40;
    let authority = Authority::new();
    let engine = start(&authority, None).await;
    let mut client = connect(&engine, authority.client(None));
    client.create_large("/large", 900 * 1024);
    let xids = client.send(&vec![get_data("/large"); COUNT]);
    std::thread::sleep(Duration::from_millis(200));
    for xid in xids {
        assert_eq!(client.reply().unwrap().0.xid, xid);
    }
}

#[tokio::test]
async fn failed_handshakes_are_closed_and_do_not_affect_others() {
    let authority = Authority::new();
    let engine = start(&authority, None).await;
    let mut bystander = connect(&engine, authority.client(None));
    let mut plain = Client::raw_to(&format!("127.0.0.1:{}", engine.tls_addrs()[0].port()));
    plain.send_bytes(b"ruok this is no TLS at all");
    assert!(!plain.rest().starts_with(b"imok"));
    let mut stranger = dial(&engine, Authority::new().client(None));
    assert!(stranger.handshake_fails(LONG));
    bystander.create("/a", CreateMode::Persistent).unwrap();
}

#[tokio::test]
async fn silence_before_the_tls_handshake_is_limited() {
    let authority = Authority::new();
    let builder = Engine::builder().listen_tls(anywhere(), tls(&authority, None));
    let engine = builder.handshake_time(Duration::from_millis(50)).start().await.unwrap();
    let mut silent = Client::raw_to(&engine.tls_addrs()[0].to_string());
    assert!(silent.rest().is_empty());
}

#[tokio::test]
async fn a_certificate_opens_what_its_owner_may_read() {
    let authority = Authority::new();
    let engine = start(&authority, Some(ClientCertificates::Optional)).await;
    let alice = authority.issue("alice");
    let mut anyone = connect(&engine, authority.client(None));
    let acl = vec![only(Permissions::READ, "x509", "CN=alice,O=Example")].into();
    anyone.call(Request::Create(CreateRequest { acl, ..persistent("/alice") })).unwrap();
    assert_eq!(anyone.call(get_data("/alice")), Err(-102));
    let mut shown = connect(&engine, authority.client(Some(&alice)));
    assert!(shown.call(get_data("/alice")).is_ok());
}

#[tokio::test]
async fn clients_without_a_required_certificate_are_refused() {
    let authority = Authority::new();
    let engine = start(&authority, Some(ClientCertificates::Required)).await;
    let mut welcome = connect(&engine, authority.client(Some(&authority.issue("alice"))));
    assert!(dial(&engine, authority.client(None)).handshake_fails(LONG));
    let forged = Authority::new().issue("alice");
    assert!(dial(&engine, authority.client(Some(&forged))).handshake_fails(LONG));
    eventually("only one connection is left", || engine.stats().connections == 1);
    welcome.ping();
}

#[tokio::test]
async fn plain_and_encrypted_clients_share_one_tree() {
    let authority = Authority::new();
    let builder = Engine::builder().listen(anywhere()).four_letter_word("conf");
    let builder = builder.listen_tls(anywhere(), tls(&authority, None));
    let engine = builder.start().await.unwrap();
    let mut plain = Client::connect(&engine, LONG);
    plain.create("/a", CreateMode::Persistent).unwrap();
    let mut encrypted = connect(&engine, authority.client(None));
    assert!(encrypted.exists("/a"));
    let port = format!("secureClientPort={}\n", engine.tls_addrs()[0].port());
    assert!(word(&engine, "conf").contains(&port));
}

#[test]
fn useless_certificates_and_keys_are_named() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("engine").pem();
    let (_, other) = authority.issue("engine").pem();
    let refusal = |certificate: &str, key: &str| {
        Tls::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err().to_string()
    };
    assert!(refusal("", &key).contains("no certificate"));
    assert!(refusal(&certificate, "").contains("no private key"));
    assert!(refusal(&certificate, &other).contains("cannot be used"));
    let missing = lockkeeper_engine::read_pem("/no/such.pem").unwrap_err();
    assert!(missing.to_string().starts_with("/no/such.pem cannot be read"));
}

/// U10: certificates were read at the start only.
#[tokio::test]
async fn u10_new_certificates_are_for_new_connections() {
    let (old, new) = (Authority::new(), Authority::new());
    let engine = start(&old, Some(ClientCertificates::Required)).await;
    let mut before = connect(&engine, old.client(Some(&old.issue("alice"))));
    assert!(dial(&engine, new.client(Some(&new.issue("alice")))).handshake_fails(LONG));

    engine.set_tls(tls(&new, Some(ClientCertificates::Required)));
    let mut after = connect(&engine, new.client(Some(&new.issue("alice"))));
    assert!(dial(&engine, old.client(Some(&old.issue("alice")))).handshake_fails(LONG));
    before.create("/a", CreateMode::Persistent).unwrap();
    assert!(after.exists("/a"));
}

/// Symptom: a device never ends, and used all memory.
#[test]
fn a_device_is_not_read_as_a_pem_file() {
    let refused = |path: &std::path::Path, why: &str| {
        let error = lockkeeper_engine::read_pem(path).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused("/dev/zero".as_ref(), "not a regular file");
    refused("/".as_ref(), "not a regular file");
    let long = tempfile::NamedTempFile::new().unwrap();
    long.as_file().set_len((16 << 20) + 1).unwrap();
    refused(long.path(), "longer than 16777216 bytes");
}

/// F15: a client that spoke TLS at a port without it was disconnected without a reply, as by an engine that is
/// starting, so it tried again until its timeout.
#[tokio::test]
async fn f15_tls_at_a_plain_port_is_reported_at_once() {
    let (log, _here) = Log::here();
    let engine = Engine::builder().start().await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let config = Arc::new(Authority::new().client(None));
    let mut connection = ClientConnection::new(config, name).unwrap();
    let mut stream = TcpStream::connect(engine.addr().unwrap()).unwrap();
    let error = connection.complete_io(&mut stream).unwrap_err();
    let error = error.get_ref().and_then(|inner| inner.downcast_ref());
    assert!(matches!(error, Some(TlsFault::InvalidMessage(_))), "{error:?}");
    assert_eq!(log.lines_with("a client uses TLS, which this address does not support"), 1);
}

/// The opposite case.
#[tokio::test]
async fn a_client_without_tls_at_a_port_with_it_is_in_the_log() {
    let (log, _here) = Log::here();
    let authority = Authority::new();
    let engine = start(&authority, None).await;
    let mut plain = Client::raw_to(&format!("127.0.0.1:{}", engine.tls_addrs()[0].port()));
    plain.send_handshake(LONG);
    plain.rest();
    let line = "the client does not speak TLS, which this port requires";
    eventually("it is said", || log.lines_with(line) == 1);
}

/// Symptom: the memory that the library holds for each connection was not charged to a budget. Before the handshake is
/// complete, it is what the client has sent and a little more.
#[tokio::test]
async fn what_tls_may_hold_is_counted() {
    let authority = Authority::new();
    let builder = Engine::builder().metrics_address(anywhere());
    let engine = builder.listen_tls(anywhere(), tls(&authority, None)).start().await.unwrap();
    let counted = || Page::of(&engine).value("tls_bytes") as usize;
    assert_eq!(counted(), 0);
    let client = connect(&engine, authority.client(None));
    let one = counted();
    assert!(one > 32 * 1024, "{one}");
    // One sends nothing, and so is charged nothing; another has begun.
    let silent = TcpStream::connect(engine.tls_addrs()[0]).unwrap();
    let mut begun = TcpStream::connect(engine.tls_addrs()[0]).unwrap();
    begun.write_all(&[0x16]).unwrap();
    eventually("it is counted", || counted() > one);
    begun.write_all(&[3, 1, 1, 0]).unwrap();
    eventually("each byte is", || counted() > one && counted() % 1024 == 5);
    assert!(counted() < one + one / 4, "{}", counted());
    drop((client, silent, begun));
    eventually("both are disconnected", || counted() == 0);
}

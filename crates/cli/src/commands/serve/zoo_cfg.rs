//! ZooKeeper's own configuration file, `zoo.cfg`.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use lockkeeper_engine::files::read_regular_file;
use lockkeeper_engine::{Builder, ClientCertificates, DigestAlgorithm, UnknownDigestAlgorithm};

use super::with::With;
use crate::shared::exit::{Exit, Failure};

/// The maximum file size, in bytes. Anything larger is not a configuration file; it may be a device.
const MAX_BYTES: u64 = 1024 * 1024;

/// The default port of ZooKeeper's Prometheus provider.
const METRICS_PORT: u16 = 7000;

/// The settings of a file that have an effect here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ZooCfg {
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) tick: Option<Duration>,
    port: Option<u16>,
    host: Option<IpAddr>,
    min_session_timeout: Option<Duration>,
    max_session_timeout: Option<Duration>,
    max_client_connections: Option<usize>,
    max_connections: Option<usize>,
    backlog: Option<u32>,
    max_frame: Option<usize>,
    reap_interval: Option<Duration>,
    handshake_time: Option<Duration>,
    unused_container: Option<Duration>,
    words: Option<String>,
    super_digest: Option<String>,
    digest_algorithm: Option<DigestAlgorithm>,
    ttl_nodes: bool,
    enforce_quotas: bool,
    metrics: Metrics,
    secure: Secure,
    ensemble: Ensemble,
    /// The keys without an effect, with their lines.
    ignored: Vec<(usize, String)>,
    name: String,
}

/// Settings that only a server of an ensemble has. By ZooKeeper's rules, a file with one participant, `server.1`, also
/// describes a standalone server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ensemble {
    /// The lines of `server.N`, by N.
    servers: BTreeMap<String, usize>,
    /// The other settings that prove an ensemble, with their lines.
    proofs: Vec<(usize, String)>,
}

/// `metricsProvider`: ZooKeeper has several providers, one of which is Prometheus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Metrics {
    wanted: bool,
    host: Option<IpAddr>,
    port: Option<u16>,
}

impl Metrics {
    fn address(&self) -> Option<SocketAddr> {
        let host = self.host.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        self.wanted.then(|| SocketAddr::new(host, self.port.unwrap_or(METRICS_PORT)))
    }
}

/// TLS: the address and the PEM files. A store consists of its line, type and location.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Secure {
    port: Option<u16>,
    host: Option<IpAddr>,
    key_store: Store,
    trust_store: Store,
    client_auth: ClientAuth,
    /// Restrictions that the engine does not support, with their lines.
    unmet: Vec<(usize, String)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Store {
    line: usize,
    location: PathBuf,
    pem: bool,
}

/// Whether clients show certificates, with ZooKeeper's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ClientAuth {
    None,
    Want,
    #[default]
    Need,
}

impl ZooCfg {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let text = read(path).map_err(|error| {
            let message = format!("cannot read {}: {error}", path.display());
            Failure::new(Exit::Config, message)
        })?;
        Self::parse(&path.display().to_string(), &text)
    }

    fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let mut cfg = Self { name: name.to_owned(), ..Self::default() };
        // Editors on Windows put a byte order mark before the first line.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        // Java also treats a single carriage return as a line end.
        let text = text.replace("\r\n", "\n").replace('\r', "\n");

        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', '!']) {
                continue;
            }
            let number = index + 1;
            cfg.line(number, line).map_err(|why| {
                Failure::new(Exit::Config, format!("{name}, line {number}: {why}"))
            })?;
        }

        cfg.skip_java_stores();
        cfg.check_alone()?;
        Ok(cfg)
    }

    /// Rejects the file of an ensemble: each of its machines would be a separate lock service, and all of them would
    /// grant the same lock.
    fn check_alone(&self) -> Result<(), Failure> {
        let Some((line, proof)) = self.ensemble.proof() else { return Ok(()) };
        let message = format!(
            "{}, line {line}: {proof} belongs to a server of an ensemble, but the engine is a single server: \
             several of these would be separate lock services that grant the same lock to several holders",
            self.name
        );
        let advice = format!(
            "run Apache ZooKeeper for an ensemble, or delete {} for one server",
            self.ensemble.lines()
        );
        Err(Failure::new(Exit::Config, message).advise(&advice))
    }

    /// Skips Java key stores, which are not supported. PEM files are supported, as in ZooKeeper.
    fn skip_java_stores(&mut self) {
        let stores = [
            ("ssl.keyStore.location", &mut self.secure.key_store),
            ("ssl.trustStore.location", &mut self.secure.trust_store),
        ];
        for (key, store) in stores {
            if store.path().is_none() && store.line > 0 {
                self.ignored.push((store.line, format!("{key} (not a PEM file)")));
            }
        }
    }

    fn line(&mut self, number: usize, line: &str) -> Result<(), String> {
        let (key, value) = line
            .split_once('=')
            .map(|(key, value)| (key.trim(), value.trim()))
            .filter(|(key, _)| is_key(key))
            .ok_or_else(|| "this is not a setting; use the form clientPort=2181".to_owned())?;

        match key {
            "dataDir" if value.is_empty() => return Err("dataDir is empty".to_owned()),
            "dataDir" => self.data_dir = Some(value.into()),
            "tickTime" => self.tick = Some(Duration::from_millis(parse(key, value)?)),
            "clientPort" => self.port = Some(parse(key, value)?),
            "clientPortAddress" => self.host = Some(host(key, value)?),
            "minSessionTimeout" => self.min_session_timeout = milliseconds(key, value)?,
            "maxSessionTimeout" => self.max_session_timeout = milliseconds(key, value)?,
            "maxClientCnxns" => self.max_client_connections = Some(parse(key, value)?),
            "maxCnxns" => self.max_connections = Some(parse(key, value)?),
            // Any number below 1 selects the system's default.
            "clientPortListenBacklog" => {
                self.backlog = parse::<i64>(key, value)?.try_into().ok().filter(|count| *count > 0);
            }
            "jute.maxbuffer" => self.max_frame = Some(bytes(key, value)?),
            "nio.sessionlessCnxnTimeout" => {
                self.handshake_time = Some(Duration::from_millis(parse(key, value)?));
            }
            "znode.container.checkIntervalMs" => self.reap_interval = milliseconds(key, value)?,
            "znode.container.maxNeverUsedIntervalMs" => {
                self.unused_container = milliseconds(key, value)?.filter(|limit| !limit.is_zero());
            }
            "4lw.commands.whitelist" => self.words = Some(value.to_owned()),
            "extendedTypesEnabled" => self.ttl_nodes = truth(key, value)?,
            "enforceQuota" => self.enforce_quotas = truth(key, value)?,
            "DigestAuthenticationProvider.superDigest" => self.super_digest = Some(value.into()),
            "DigestAuthenticationProvider.digestAlg" => {
                let algorithm = value.parse();
                let explain = |error: UnknownDigestAlgorithm| format!("{key}: {error}");
                self.digest_algorithm = Some(algorithm.map_err(explain)?);
            }
            "metricsProvider.className" if value.ends_with(".PrometheusMetricsProvider") => {
                self.metrics.wanted = true;
            }
            "metricsProvider.httpHost" => self.metrics.host = Some(host(key, value)?),
            "metricsProvider.httpPort" => self.metrics.port = Some(parse(key, value)?),
            provider if provider.starts_with("authProvider.") => {
                if known_provider(key, value)? == Provider::WithoutEffect {
                    self.ignored.push((number, format!("{key} (SASL)")));
                }
            }
            "enforce.auth.enabled" | "sessionRequireClientSASLAuth"
                if value.eq_ignore_ascii_case("false") => {}
            "enforce.auth.enabled" | "sessionRequireClientSASLAuth" | "requireClientAuthScheme" => {
                return Err(format!(
                    "{key} is unsupported: the engine would admit clients that it must reject"
                ));
            }
            other => {
                let is_taken = self.ensemble.line(number, other, value)?
                    || self.secure.line(number, other, value)?;
                if !is_taken {
                    self.ignored.push((number, other.to_owned()));
                }
            }
        }
        Ok(())
    }

    /// The address to listen on, if the file sets it. Like ZooKeeper, all addresses if none is given.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        let host = self.host.unwrap_or(Ipv6Addr::UNSPECIFIED.into());
        self.port.map(|port| SocketAddr::new(host, port))
    }

    /// The address to listen on with TLS, and the PEM file with the certificate and its key.
    pub(crate) fn secure(&self) -> Option<(SocketAddr, &Path)> {
        let host = self.secure.host.unwrap_or(Ipv6Addr::UNSPECIFIED.into());
        let port = self.secure.port?;
        Some((SocketAddr::new(host, port), self.secure.key_store.path()?))
    }

    /// The roots for client certificates, and whether clients must show one.
    pub(crate) fn client_roots(&self) -> Option<(&Path, ClientCertificates)> {
        let clients = match self.secure.client_auth {
            ClientAuth::None => return None,
            ClientAuth::Want => ClientCertificates::Optional,
            ClientAuth::Need => ClientCertificates::Required,
        };
        Some((self.secure.trust_store.path()?, clients))
    }

    /// Rejects security settings that would not take effect: otherwise the server would serve plaintext, or any client.
    /// A certificate on the command line replaces the key store.
    pub(crate) fn check_security(&self, has_certificate: bool) -> Result<(), Failure> {
        let secure = &self.secure;
        if secure.port.is_none() {
            return Ok(());
        }
        let fail = |why: String| Err(Failure::new(Exit::Config, format!("{}: {why}", self.name)));
        if let Some((line, key)) = secure.unmet.first() {
            return fail(format!(
                "line {line}: {key} is unsupported; delete it if it is not needed"
            ));
        }

        if has_certificate {
            return Ok(());
        }
        if secure.key_store.line == 0 {
            let needed = "ssl.keyStore.location, a PEM file with the certificate and its key";
            return fail(format!("secureClientPort needs {needed}"));
        }

        let shown = secure.client_auth != ClientAuth::None;
        let stores = [
            ("ssl.keyStore.location", &secure.key_store, true),
            ("ssl.trustStore.location", &secure.trust_store, shown && secure.trust_store.line > 0),
        ];
        for (key, store, is_needed) in stores {
            if is_needed && store.path().is_none() {
                let line = store.line;
                if store.may_be_pem() {
                    let kind = key.replace("location", "type");
                    return fail(format!(
                        "line {line}: {key}: if it is a PEM file, add {kind}=PEM"
                    ));
                }
                return fail(format!("line {line}: {key}: {}", store.conversion()));
            }
        }
        Ok(())
    }

    /// Logs the settings without an effect.
    pub(crate) fn warn(&self) {
        for (line, key) in &self.ignored {
            tracing::warn!("{}, line {line}: {key} has no effect here", self.name);
        }
        if self.secure.port.is_some() && self.secure().is_none() {
            tracing::warn!(
                "{}: secureClientPort has no effect unless ssl.keyStore.location is a PEM file",
                self.name
            );
        }
        let old = self.data_dir.as_ref().map(|directory| directory.join("version-2"));
        if let Some(old) = old.filter(|old| old.is_dir()) {
            tracing::warn!("the Apache ZooKeeper data in {} is not read", old.display());
        }
    }

    /// Sets the values that only the file can contain.
    pub(crate) fn apply(&self, builder: Builder) -> Builder {
        builder
            .with(self.min_session_timeout, Builder::min_session_timeout)
            .with(self.max_session_timeout, Builder::max_session_timeout)
            .with(self.max_client_connections.map(limit), Builder::max_connections_per_address)
            .with(self.max_connections.map(limit), Builder::max_connections)
            .with(self.backlog, Builder::listen_backlog)
            .with(self.reap_interval, Builder::reap_interval)
            .with(self.handshake_time, Builder::handshake_time)
            .with(self.unused_container, Builder::unused_container)
            .with(self.super_digest.as_deref(), Builder::super_digest)
            .with(self.digest_algorithm, Builder::digest_algorithm)
            .with(self.metrics.address(), Builder::metrics_address)
            .set_flag(self.ttl_nodes, Builder::allow_ttl_nodes)
            .set_flag(self.enforce_quotas, Builder::enforce_quotas)
            .with(self.max_frame, Builder::max_frame)
            .with(self.words.as_deref(), Builder::four_letter_whitelist)
    }
}

impl Ensemble {
    /// Takes a setting if it proves an ensemble. A single `server.1` does not: it is counted here, and otherwise has no
    /// effect.
    fn line(&mut self, number: usize, key: &str, value: &str) -> Result<bool, String> {
        let (kind, id) = key.split_once('.').unwrap_or((key, ""));
        let is_proof = match kind {
            "server" => {
                // ZooKeeper reads a number: `server.01` is the same as `server.1`.
                let id = id.parse::<i64>().map_or_else(|_| id.to_owned(), |id| id.to_string());
                self.servers.insert(id, number);
                // The part before `;` of `host:2888:3888:observer;2181`.
                let address = value.split(';').next().unwrap_or_default().to_ascii_lowercase();
                address.split(':').any(|part| part.trim() == "observer")
            }
            "group" | "weight" => !id.is_empty(),
            "dynamicConfigFile" | "peerType" => true,
            "standaloneEnabled" => match value.to_ascii_lowercase().as_str() {
                "true" => false,
                "false" => true,
                _ => return Err(format!("{key}: write true or false")),
            },
            _ => false,
        };

        if is_proof {
            self.proofs.push((number, key.to_owned()));
        }
        Ok(is_proof)
    }

    /// The best proof of an ensemble, with its line: several servers, or a server that is not the first.
    fn proof(&self) -> Option<(usize, String)> {
        let others = self.servers.iter().filter(|(id, _)| *id != "1");
        let other = others.map(|(id, line)| (*line, format!("server.{id}"))).min();
        other.or_else(|| self.proofs.first().cloned())
    }

    /// The lines that a file for one server must not contain.
    fn lines(&self) -> String {
        let proofs = self.proofs.iter().map(|(line, _)| *line);
        let mut lines: Vec<_> = self.servers.values().copied().chain(proofs).collect();
        lines.sort_unstable();
        lines.dedup();
        let (word, lines) = match lines.as_slice() {
            [line] => ("line", line.to_string()),
            lines => ("lines", lines.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
        };
        format!("{word} {lines}")
    }
}

impl Secure {
    /// Takes a setting if it belongs to TLS.
    fn line(&mut self, number: usize, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "secureClientPort" => self.port = Some(parse(key, value)?),
            "secureClientPortAddress" => self.host = Some(host(key, value)?),
            "ssl.keyStore.location" => self.key_store.locate(number, value),
            "ssl.keyStore.type" => self.key_store.pem = value.eq_ignore_ascii_case("pem"),
            "ssl.trustStore.location" => self.trust_store.locate(number, value),
            "ssl.trustStore.type" => self.trust_store.pem = value.eq_ignore_ascii_case("pem"),
            "ssl.clientAuth" => {
                self.client_auth = match value {
                    "none" => ClientAuth::None,
                    "want" => ClientAuth::Want,
                    "need" => ClientAuth::Need,
                    _ => return Err(format!("{key}: write none, want or need")),
                }
            }
            "ssl.crl" | "ssl.ocsp" | "ssl.clientHostnameVerification" if value == "false" => {}
            "ssl.crl"
            | "ssl.ocsp"
            | "ssl.clientHostnameVerification"
            | "ssl.ciphersuites"
            | "ssl.context.supplier.class" => self.unmet.push((number, key.to_owned())),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Store {
    fn locate(&mut self, line: usize, location: &str) {
        self.line = line;
        self.location = location.into();
    }

    /// Whether its name is usual for PEM files and not for Java's stores.
    fn may_be_pem(&self) -> bool {
        let names = ["key", "crt", "cer", "cert"];
        self.location.extension().is_some_and(|e| names.iter().any(|name| e == *name))
    }

    /// How to convert it to a PEM file.
    fn conversion(&self) -> String {
        let file = self.location.display();
        let is_pkcs12 = self.location.extension().is_some_and(|e| e == "p12" || e == "pfx");
        let (first, source) = match is_pkcs12 {
            true => (String::new(), file.to_string()),
            false => (
                format!(
                    "keytool -importkeystore -srckeystore {file} -destkeystore {file}.p12 \
                     -deststoretype PKCS12 && "
                ),
                format!("{file}.p12"),
            ),
        };
        format!(
            "only PEM files are supported; create one: {first}openssl pkcs12 -in {source} -nodes -out {file}.pem"
        )
    }

    /// The file, if it is a PEM file.
    fn path(&self) -> Option<&Path> {
        let pem = self.pem || self.location.extension().is_some_and(|e| e == "pem");
        (pem && self.line > 0).then_some(&self.location)
    }
}

/// The whole file, if it is short enough for a configuration file.
fn read(path: &Path) -> io::Result<String> {
    let text = read_regular_file(path, MAX_BYTES)?;
    String::from_utf8(text).map_err(|_| io::Error::other("it is not UTF-8"))
}

/// Whether a key may be shown: the user can name any file, and its lines may be secret.
fn is_key(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !text.is_empty() && text.chars().all(is_part)
}

/// What `authProvider.*` means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Provider {
    /// The engine always has it.
    Present,
    /// It identifies clients without rejecting any: `sessionRequireClientSASLAuth` or `enforce.auth.enabled` would
    /// reject them.
    WithoutEffect,
}

fn known_provider(key: &str, class: &str) -> Result<Provider, String> {
    let name = class.strip_prefix("org.apache.zookeeper.server.auth.");
    match name.and_then(|name| name.strip_suffix("AuthenticationProvider")) {
        Some("Digest" | "IP" | "X509") => Ok(Provider::Present),
        Some("SASL") => Ok(Provider::WithoutEffect),
        _ => Err(format!("{key}: the engine has the schemes digest, ip and x509 only")),
    }
}

/// ZooKeeper's 0 means no limit.
fn limit(count: usize) -> usize {
    if count == 0 { usize::MAX } else { count }
}

fn truth(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{key}: write true or false")),
    }
}

fn parse<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{key}: this is not a number in range"))
}

/// ZooKeeper's -1 means its default.
fn milliseconds(key: &str, value: &str) -> Result<Option<Duration>, String> {
    match value {
        "-1" => Ok(None),
        _ => Ok(Some(Duration::from_millis(parse(key, value)?))),
    }
}

/// A number of bytes, decimal or hexadecimal (`0xfffff`).
fn bytes(key: &str, value: &str) -> Result<usize, String> {
    match value.strip_prefix("0x") {
        Some(digits) => usize::from_str_radix(digits, 16)
            .map_err(|_| format!("{key}: this is not a number in range")),
        None => parse(key, value),
    }
}

fn host(key: &str, value: &str) -> Result<IpAddr, String> {
    let explain = |why: String| format!("{key}: {why}");
    let mut found = (value, 0).to_socket_addrs().map_err(|error| explain(error.to_string()))?;
    let address = found.next().ok_or_else(|| explain("the name has no address".to_owned()))?;
    Ok(address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_file_is_understood() {
        let text = "# the basic time unit\ntickTime=2000\ninitLimit = 10\n\
                    dataDir=/var/lib/zookeeper\nclientPort=2181\n\n\
                    clientPortAddress=127.0.0.1\nmaxClientCnxns=0\nminSessionTimeout=-1\n\
                    maxSessionTimeout=60000\njute.maxbuffer=0xfffff\n";
        let cfg = ZooCfg::parse("zoo.cfg", text).unwrap();
        assert_eq!(cfg.tick, Some(Duration::from_secs(2)));
        assert_eq!(cfg.data_dir, Some("/var/lib/zookeeper".into()));
        assert_eq!(cfg.address(), Some("127.0.0.1:2181".parse().unwrap()));
        assert_eq!(cfg.min_session_timeout, None);
        assert_eq!(cfg.max_session_timeout, Some(Duration::from_secs(60)));
        assert_eq!(cfg.max_frame, Some(0xfffff));
        assert_eq!(cfg.ignored, [(3, "initLimit".to_owned())]);
    }

    #[test]
    fn what_an_operator_adds_is_understood() {
        let text = "maxCnxns=0\nclientPortListenBacklog=200\n4lw.commands.whitelist=stat, mntr,stmk\n\
                    extendedTypesEnabled=true\nenforceQuota=true\n\
                    DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=\n\
                    metricsProvider.className=\
                    org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider\n\
                    metricsProvider.httpPort=7001\nadmin.enableServer=false\n\
                    DigestAuthenticationProvider.digestAlg=SHA-1\n\
                    nio.sessionlessCnxnTimeout=5000\n";
        let cfg = ZooCfg::parse("zoo.cfg", text).unwrap();
        assert_eq!(cfg.words.as_deref(), Some("stat, mntr,stmk"));
        assert!(cfg.ttl_nodes && cfg.enforce_quotas && cfg.super_digest.is_some());
        let metrics = Metrics { wanted: true, host: None, port: Some(7001) };
        assert_eq!((cfg.metrics, cfg.max_connections), (metrics, Some(0)));
        assert_eq!(cfg.backlog, Some(200));
        assert_eq!(cfg.digest_algorithm, Some(DigestAlgorithm::Sha1));
        assert_eq!(cfg.handshake_time, Some(Duration::from_secs(5)));
        assert_eq!(cfg.ignored, [(9, "admin.enableServer".to_owned())]);
    }

    /// Symptom: the first line of a file that was written by an editor on Windows was not recognized.
    #[test]
    fn k42_a_byte_order_mark_is_not_part_of_the_first_line() {
        let cfg = ZooCfg::parse("zoo.cfg", "\u{feff}tickTime=3000\r\nclientPort=2181\r\n").unwrap();
        assert_eq!((cfg.tick, cfg.port), (Some(Duration::from_secs(3)), Some(2181)));
        assert!(ZooCfg::parse("zoo.cfg", "tickTime=3000\n\u{feff}clientPort=2181\n").is_err());
    }

    #[test]
    fn key_stores_are_read_if_they_are_pem() {
        let text = "secureClientPort=2281\nsecureClientPortAddress=127.0.0.1\n\
                    ssl.keyStore.location=/etc/server.pem\nssl.trustStore.location=/etc/ca\n\
                    ssl.trustStore.type=PEM\n";
        let cfg = ZooCfg::parse("zoo.cfg", text).unwrap();
        let address = "127.0.0.1:2281".parse().unwrap();
        assert_eq!(cfg.secure(), Some((address, Path::new("/etc/server.pem"))));
        let roots = (Path::new("/etc/ca"), ClientCertificates::Required);
        assert_eq!(cfg.client_roots(), Some(roots));

        let java = ZooCfg::parse("zoo.cfg", &text.replace("server.pem", "server.jks")).unwrap();
        assert_eq!(java.secure(), None);
        assert_eq!(java.ignored, [(3, "ssl.keyStore.location (not a PEM file)".to_owned())]);
        let lenient = format!("{text}ssl.clientAuth=none\n");
        assert_eq!(ZooCfg::parse("zoo.cfg", &lenient).unwrap().client_roots(), None);
    }

    /// Symptom: a file with unsupported TLS settings was served in plaintext.
    #[test]
    fn unsupported_security_is_rejected() {
        let store = |file: &str| format!("secureClientPort=2281\nssl.keyStore.location=/{file}\n");
        let check = |text: &str| {
            let cfg = ZooCfg::parse("zoo.cfg", text).unwrap();
            cfg.check_security(false).map_err(|failure| failure.to_string())
        };
        for (text, part) in [
            (store("a.jks"), "keytool -importkeystore -srckeystore /a.jks"),
            (store("srv.key"), "add ssl.keyStore.type=PEM"),
            (store("a.p12"), "create one: openssl pkcs12 -in /a.p12"),
            (
                store("a.pem") + "ssl.trustStore.location=/t.jks\n",
                "line 3: ssl.trustStore.location",
            ),
            (store("a.pem") + "ssl.ocsp=true\n", "line 3: ssl.ocsp is unsupported"),
            ("secureClientPort=2281\n".to_owned(), "needs ssl.keyStore.location"),
        ] {
            let error = check(&text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(check(&(store("a.pem") + "ssl.crl=false\n")), Ok(()));
        assert_eq!(check("clientPort=2181\nssl.keyStore.location=/a.jks\n"), Ok(()));
        let java = ZooCfg::parse("zoo.cfg", &store("a.jks")).unwrap();
        assert!(java.check_security(true).is_ok(), "--cert replaces it");
    }

    #[test]
    fn a_file_without_an_end_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
        for path in [Path::new("/dev/zero"), &pipe] {
            let error = ZooCfg::read(path).unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
        let long = folder.path().join("long");
        std::fs::write(&long, vec![b'#'; MAX_BYTES as usize + 1]).unwrap();
        let error = ZooCfg::read(&long).unwrap_err().to_string();
        assert!(error.contains("longer than"), "{error}");
    }

    #[test]
    fn a_port_alone_listens_everywhere_as_in_zookeeper() {
        let cfg = ZooCfg::parse("zoo.cfg", "clientPort=2181").unwrap();
        assert!(cfg.address().unwrap().ip().is_unspecified());
    }

    /// Symptom: three machines of an ensemble each served the same lock, to three holders at once; the log reported
    /// that `server.1` has no effect.
    #[test]
    fn the_file_of_an_ensemble_is_refused() {
        for (text, line, advice) in [
            (
                "server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2\n",
                "line 3: server.2",
                "lines 2, 3, 4",
            ),
            ("server.1 = a:1:2\r\n  server.2 = b:1:2\r\n", "line 3: server.2", "lines 2, 3"),
            ("server.1=a:1:2\rserver.2=b:1:2", "line 3: server.2", "lines 2, 3"),
            ("server.1=a:1:2\n#server.2=b:1:2\nserver.3=c:1:2", "line 4: server.3", "lines 2, 4"),
            ("#server.1=a:1:2\nserver.2=b:1:2\n", "line 3: server.2", "line 3"),
            ("server.1=a:1:2:observer;2181\n", "line 2: server.1", "line 2"),
            ("server.1=a:1:2\nserver.2=\n", "line 3: server.2", "lines 2, 3"),
            ("dynamicConfigFile=/conf/zoo.cfg.dynamic\n", "line 2: dynamicConfigFile", "line 2"),
            ("peerType=participant\nserver.1=a:1:2\n", "line 2: peerType", "lines 2, 3"),
            ("standaloneEnabled = False\n", "line 2: standaloneEnabled", "line 2"),
            ("group.1=1:2:3\nweight.1=1\n", "line 2: group.1", "lines 2, 3"),
            ("weight.1=1\n", "line 2: weight.1", "line 2"),
        ] {
            let failure = ZooCfg::parse("zoo.cfg", &format!("tickTime=2000\n{text}")).unwrap_err();
            assert_eq!(failure.code(), Exit::Config.code());
            let error = failure.to_string();
            assert!(error.contains(line) && error.contains("one server"), "{text:?}: {error}");
            assert!(error.contains(&format!("delete {advice} for")), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_file_of_one_server_is_not_that_of_an_ensemble() {
        let text = "standaloneEnabled=true\n#server.2=b:1:2\n!server.3=c:1:2\nserver.1=a:1:2\n\
                    server.01=a:1:2\ninitLimit=5\nelectionAlg=3\nreconfigEnabled=false\n";
        let cfg = ZooCfg::parse("zoo.cfg", text).unwrap();
        let ignored: Vec<_> = cfg.ignored.iter().map(|(line, _)| *line).collect();
        assert_eq!(ignored, [1, 4, 5, 6, 7, 8], "each is named in the log");
    }

    #[test]
    fn mistakes_are_found_with_their_line() {
        for (line, part) in [
            ("tickTime", "is not a setting"),
            ("root:$6$x=:1", "is not a setting"),
            ("tickTime=soon", "tickTime: this is not a number"),
            ("clientPort=70000", "clientPort: this is not a number"),
            ("authProvider.1=org.example.Own", "authProvider.1: the engine has"),
            ("sessionRequireClientSASLAuth=true", "would admit"),
            ("enforce.auth.enabled=TRUE", "would admit"),
            ("requireClientAuthScheme=sasl", "would admit"),
            ("dataDir=", "dataDir is empty"),
            ("=x", "is not a setting"),
            ("two words=1", "is not a setting"),
            ("jute.maxbuffer=0xzz", "jute.maxbuffer"),
            ("enforceQuota=maybe", "true or false"),
            ("ssl.clientAuth=maybe", "none, want or need"),
            ("DigestAuthenticationProvider.digestAlg=MD5", "SHA3-512"),
        ] {
            let error = ZooCfg::parse("zoo.cfg", &format!("# one\n{line}\n")).unwrap_err();
            let error = error.to_string();
            for secret in ["soon", "70000", "$6$", "maybe", "0xzz", "Own"] {
                assert!(!error.contains(secret), "{error}");
            }
            assert!(error.contains("zoo.cfg, line 2") && error.contains(part), "{line}: {error}");
        }
    }
}

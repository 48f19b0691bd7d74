//! An authority, and certificates for the servers and a client: PEM files, and the stores of Java.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lockkeeper_engine::{ClientCertificates, Engine, Tls, read_pem};
use lockkeeper_testkit::{scratch, zookeeper};
use tempfile::TempDir;

use crate::{TICK, finish};

const PASSWORD: &str = "secret7";

pub(crate) struct Stores {
    folder: TempDir,
}

impl Stores {
    /// Makes them with `openssl` and Java's `keytool`.
    pub(crate) fn new() -> Result<Self> {
        let stores = Self { folder: scratch::folder()? };
        stores.run(
            "openssl",
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=root -keyout ca.key -out ca.pem",
        )?;
        let names = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:127.0.0.77\n";
        fs::write(stores.path("names"), names)?;
        for name in ["server", "client"] {
            let request = format!(
                "req -newkey rsa:2048 -nodes -subj /O=Example/CN={name} -keyout {name}.key -out {name}.csr"
            );
            stores.run("openssl", &request)?;
            let sign = format!(
                "x509 -req -days 2 -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names \
                 -out {name}.pem"
            );
            stores.run("openssl", &sign)?;
        }
        let both = fs::read(stores.path("server.key"))?;
        let both = [both, fs::read(stores.path("server.pem"))?].concat();
        fs::write(stores.path("both.pem"), both)?;
        stores.make_java_stores()?;
        Ok(stores)
    }

    fn make_java_stores(&self) -> Result<()> {
        let export =
            "pkcs12 -export -in client.pem -inkey client.key -name client -out keys.PKCS12";
        self.run("openssl", &format!("{export} -passout pass:{PASSWORD}"))?;
        let passwords = format!("-srcstorepass {PASSWORD} -deststorepass {PASSWORD}");
        let convert =
            "-importkeystore -srckeystore keys.PKCS12 -destkeystore keys.JKS -deststoretype JKS";
        self.run("keytool", &format!("{convert} {passwords}"))?;
        for kind in ["JKS", "PKCS12"] {
            let import =
                format!("-importcert -noprompt -alias root -file ca.pem -keystore roots.{kind}");
            self.run("keytool", &format!("{import} -storetype {kind} -storepass {PASSWORD}"))?;
        }
        Ok(())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What makes ZooKeeper's client speak TLS with the stores of this kind.
    pub(crate) fn java_options(&self, kind: &str) -> String {
        let store = |name: &str| self.path(&format!("{name}.{kind}")).display().to_string();
        [
            ("client.secure", "true".to_owned()),
            ("clientCnxnSocket", "org.apache.zookeeper.ClientCnxnSocketNetty".to_owned()),
            ("ssl.keyStore.location", store("keys")),
            ("ssl.keyStore.password", PASSWORD.to_owned()),
            ("ssl.keyStore.type", kind.to_owned()),
            ("ssl.trustStore.location", store("roots")),
            ("ssl.trustStore.password", PASSWORD.to_owned()),
            ("ssl.trustStore.type", kind.to_owned()),
        ]
        .map(|(key, value)| format!("-Dzookeeper.{key}={value}"))
        .join(" ")
    }

    /// Runs a program on both servers, which speak TLS with the PEM files; it must be fine with so many
    /// checks at least.
    pub(crate) async fn alike(
        &self,
        program: impl Fn(&str) -> Command,
        checks: usize,
    ) -> Result<()> {
        let (both, roots) = (self.path("both.pem"), self.path("ca.pem"));
        let address = zookeeper::secure_address()?;
        let server = zookeeper::Config::new().secure(address, &both, &roots);
        let server = server.standalone().await?;
        zookeeper::wait_for_secure(address)?;
        let expected = finish(program(&address.to_string())).await.context("on ZooKeeper")?;
        drop(server);
        ensure!(expected.len() >= checks, "no more than {expected:?}");

        let (both, roots) = (read_pem(both)?, read_pem(roots)?);
        let tls = Tls::with_client_roots(&both, &both, &roots, ClientCertificates::Optional)?;
        let engine = Engine::builder().tick(TICK).max_session_timeout(Duration::from_secs(60));
        let engine = engine.listen_tls((Ipv4Addr::LOCALHOST, 0).into(), tls).start().await?;
        let address = engine.tls_addrs()[0].to_string();
        let on_engine = finish(program(&address)).await.context("on the engine")?;
        ensure!(on_engine == expected, "only {on_engine:?} of {expected:?}");
        Ok(())
    }

    fn run(&self, program: &str, arguments: &str) -> Result<()> {
        let mut command = Command::new(program);
        command.args(arguments.split_whitespace()).current_dir(self.folder.path());
        let output = command.stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("cannot start {program}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{program} {arguments}: {said}");
        Ok(())
    }
}

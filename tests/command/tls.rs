//! TLS: `serve` with certificates, and commands that trust it.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use lockkeeper_testkit::process::Process;

use crate::support::{Home, eventually};

const SERVE: &str = "serve --durability memory --tls-listen 127.0.0.1:0 --cert server.pem \
                     --key server.key --client-ca ca.pem --require-client-cert";

#[tokio::test]
async fn a_command_shows_its_certificate_and_trusts_the_servers() -> Result<()> {
    let home = Home::new()?;
    certificates(&home)?;
    let server = Process::spawn("server", &home.command(SERVE), home.folder())?;
    let mut address = None;
    eventually("the server is ready", || {
        let log = server.stderr();
        let word = log.split_once("--connect ").and_then(|(_, rest)| rest.split_once(' '));
        address = word.map(|(address, _)| address.to_owned());
        Ok(address.is_some())
    })?;
    let connect = format!("--connect {}", address.context("no address")?);
    ensure!(connect.contains("tls://127.0.0.1:"), "{connect}");

    let trusting = format!("{connect} --tls-ca ca.pem");
    let known = format!("{trusting} --tls-cert client.pem --tls-key client.key");
    let held = home.ends(&format!("{known} run l -- echo held"))?;
    held.is_fine();
    assert_eq!(held.stdout, "held\n");

    home.ends(&format!("{connect} ls"))?.complains(64, &["tls://", "--tls-ca"]);
    home.ends(&format!("{trusting} --tls-cert client.pem ls"))?
        .complains(64, &["--tls-cert", "--tls-key"]);
    home.ends(&format!("{connect} --tls-ca none.pem ls"))?.complains(78, &["none.pem"]);
    home.ends(&format!("{connect} --tls-ca client.key ls"))?
        .complains(78, &["client.key", "BEGIN CERTIFICATE"]);
    for refused in [trusting, format!("{known} --tls-name elsewhere.example")] {
        let ended = home.ends(&format!("{refused} run -w 1 l -- true"))?;
        assert_eq!(ended.code, Some(75), "{ended:?}");
    }
    Ok(())
}

/// A root, and a certificate for the server and one for a client.
fn certificates(home: &Home) -> Result<()> {
    let files =
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=root -keyout ca.key -out ca.pem";
    openssl(home, files)?;
    fs::write(home.folder().join("names"), "subjectAltName=IP:127.0.0.1\n")?;
    for name in ["server", "client"] {
        openssl(
            home,
            &format!(
                "req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"
            ),
        )?;
        openssl(
            home,
            &format!(
                "x509 -req -days 2 -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial \
                 -extfile names -out {name}.pem"
            ),
        )?;
    }
    Ok(())
}

fn openssl(home: &Home, arguments: &str) -> Result<()> {
    let mut command = Command::new("openssl");
    command.args(arguments.split_whitespace()).current_dir(home.folder());
    let output = command.output().context("cannot start openssl")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

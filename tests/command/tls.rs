//! TLS: `serve` with certificates, and commands that trust it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::process::Process;
use rustix::process::Signal;

use crate::killed::killed_holder_keeps_nobody_waiting;
use crate::serve::{address_of, in_memory};
use crate::support::{Ended, Home, LIMIT, eventually};

pub(crate) const SERVE: &str = "serve --durability memory --tick 3s --tls-listen 127.0.0.1:0 --cert server.pem \
                     --key server.key --client-ca ca.pem --require-client-cert";

#[tokio::test]
async fn a_command_shows_its_certificate_and_trusts_the_servers() -> Result<()> {
    let home = Home::new()?;
    let (_server, connect) = served(&home)?;

    let trusting = format!("{connect} --tls-ca ca.pem");
    let known = format!("{trusting} --tls-cert client.pem --tls-key client.key");
    let held = home.ends(&format!("{known} run l -- echo held"))?;
    held.is_fine();
    assert_eq!(held.stdout, "held\n");

    home.ends(&format!("{trusting} --tls-cert client.pem ls"))?
        .complains(64, &["--tls-cert", "--tls-key"]);
    home.ends(&format!("{connect} --tls-ca none.pem ls"))?.complains(78, &["none.pem"]);
    home.ends(&format!("{connect} --tls-ca client.key ls"))?
        .complains(78, &["client.key", "BEGIN CERTIFICATE"]);
    Ok(())
}

/// B1: a run within a run was given the servers, and not the certificates that they ask for.
#[tokio::test]
async fn a_run_within_a_run_reaches_the_same_servers() -> Result<()> {
    let home = Home::new()?;
    let (_server, connect) = served(&home)?;
    let secret = home.folder().join("secret");
    fs::write(&secret, "me:secret")?;
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
    fs::create_dir(home.folder().join("elsewhere"))?;

    let known = "--tls-ca ca.pem --tls-cert client.pem --tls-key client.key --digest-file secret";
    let known = format!("{connect} {known}");
    let own = lockkeeper_testkit::command::lockkeeper()?;
    let own = own.display();
    let script = format!("cd elsewhere && {own} run inner -- {own} settings");
    let ended = home.runs(&format!("{known} outer"), &script)?;
    ended.is_fine();
    let file = fs::canonicalize(&secret)?;
    assert!(ended.stdout.contains(&file.display().to_string()), "{ended:?}");
    // Other credentials than the outer ones.
    let script = format!("{own} --digest you:secret run mine -- true");
    home.runs(&format!("{known} outer"), &script)?.is_fine();
    Ok(())
}

/// Where no roots are given, those of the system count; for a run within a run and for the watchdog, too.
#[tokio::test]
async fn servers_that_the_system_trusts_need_no_option() -> Result<()> {
    let home = Home::new()?;
    let (_server, connect) = served(&home)?;
    let known = "--tls-cert client.pem --tls-key client.key --session-timeout 60s";
    let trusting = |roots: &str, run: &str| {
        let mut command = home.command(&format!("{connect} {known} {run}"));
        command.env("SSL_CERT_FILE", home.folder().join(roots)).env_remove("SSL_CERT_DIR");
        command
    };

    let program = lockkeeper_testkit::command::lockkeeper()?;
    let inner = format!("run l -- {} {known} run m -- echo held", program.display());
    let held = Ended::of(&mut trusting("ca.pem", &inner))?;
    held.is_fine();
    assert_eq!(held.stdout, "held\n");

    let holder = trusting("ca.pem", "run l -- sh -c");
    let holder = with_argument(holder, "echo held; exec sleep 60");
    let mut holder = Process::spawn("holder", &holder, home.folder())?;
    holder.prints("held", LIMIT).await?;
    holder.kill();
    Ended::of(&mut trusting("ca.pem", "run -w 20s l -- true"))?.is_fine();

    openssl(
        &home,
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=x -keyout x.key -out x.pem",
    )?;
    Ended::of(&mut trusting("x.pem", "run l -- true"))?
        .complains(78, &["UnknownIssuer", "--tls-ca", "of this system are trusted"]);
    fs::write(home.folder().join("none.pem"), "")?;
    Ended::of(&mut trusting("none.pem", "run l -- true"))?
        .complains(78, &["no trusted root certificates", "--tls-ca"]);
    // One that is malformed is passed over.
    let roots = fs::read_to_string(home.folder().join("ca.pem"))?;
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    fs::write(home.folder().join("mixed.pem"), format!("{garbage}{roots}"))?;
    Ended::of(&mut trusting("mixed.pem", "run l -- true"))?.is_fine();
    Ok(())
}

fn with_argument(mut command: Command, argument: &str) -> Command {
    command.arg(argument);
    command
}

/// Symptom: the exit code was that of an unreachable server, and a mismatched key was reported as
/// an error in the file of the roots.
///
/// Fails with `Nature::Distrust` told as unreachable.
#[tokio::test]
async fn distrust_is_a_mistake_of_the_configuration() -> Result<()> {
    let home = Home::new()?;
    let (_server, connect) = served(&home)?;
    openssl(
        &home,
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=x -keyout x.key -out x.pem",
    )?;

    let known = "--tls-cert client.pem --tls-key client.key";
    for (options, parts) in [
        (format!("--tls-ca x.pem {known}"), ["UnknownIssuer", "--tls-ca"]),
        (format!("--tls-ca ca.pem {known} --tls-name else.where"), ["else.where", "--tls-name"]),
        ("--tls-ca ca.pem".to_owned(), ["ertificate", "--tls-cert"]),
        ("--tls-ca ca.pem --tls-cert x.pem --tls-key x.key".to_owned(), ["alert", "--tls-cert"]),
        (
            "--tls-ca ca.pem --tls-cert client.pem --tls-key x.key".to_owned(),
            ["client.pem", "x.key:"],
        ),
        (
            "--tls-ca ca.pem --tls-cert client.pem --tls-key client.pem".to_owned(),
            ["client.pem: ", "key"],
        ),
    ] {
        let ended = home.ends(&format!("{connect} {options} run -w 20s l -- true"))?;
        ended.complains(78, &parts);
        assert!(
            !options.contains("x.key") || !ended.stderr.contains("lockkeeper: ca.pem"),
            "{ended:?}"
        );
    }
    Ok(())
}

/// Symptom: `doctor` sent plain-text requests to TLS servers, and reported that they did not reply.
#[tokio::test]
async fn doctor_asks_over_tls_who_a_server_is() -> Result<()> {
    let home = Home::new()?;
    let (_server, connect) = served(&home)?;
    let known = "--tls-ca ca.pem --tls-cert client.pem --tls-key client.key --server-tick 3s";
    let ended = home.ends(&format!("{connect} {known} doctor"))?;
    ended.is_fine();
    assert!(ended.stdout.contains("lockkeeper-"), "{ended:?}");
    assert!(ended.stdout.contains("standalone"), "{ended:?}");
    Ok(())
}

/// The watchdog, which ends the session, needs the certificates as well.
#[tokio::test]
async fn a_killed_holder_keeps_nobody_waiting() -> Result<()> {
    let home = Home::new()?;
    let (_server, connect) = served(&home)?;
    let options = "--tls-ca ca.pem --tls-cert client.pem --tls-key client.key";
    let options = format!("{connect} {options} --session-timeout 60s --server-tick 3s");
    killed_holder_keeps_nobody_waiting(&home, &options).await
}

/// U10: HUP ended `serve`, and new certificates took a restart.
#[tokio::test]
async fn u10_certificates_are_read_again_on_hup() -> Result<()> {
    let home = Home::new()?;
    let (mut server, connect) = served(&home)?;
    certificates(&home, "new-")?;
    let old = format!("{connect} --tls-ca ca.pem --tls-cert client.pem --tls-key client.key");
    let new =
        format!("{connect} --tls-ca new-ca.pem --tls-cert new-client.pem --tls-key new-client.key");
    fs::copy(home.folder().join("ca.pem"), home.folder().join("old-ca.pem"))?;
    let old = old.replace("ca.pem", "old-ca.pem");
    rustix::fs::mkfifoat(rustix::fs::CWD, home.folder().join("go"), 0o600.into())?;
    let script = "echo held; read -r line < go; echo $line";
    let mut holder =
        home.says("held", "holder", &format!("{old} --server-tick 3s l"), script).await?;
    home.ends(&format!("{new} run m -- true"))?.complains(78, &["--tls-ca"]);

    // An unusable certificate is reported, and does not change the server.
    let replace =
        |name: &str| fs::copy(home.folder().join(format!("new-{name}")), home.folder().join(name));
    replace("server.pem")?;
    server.signal(Signal::HUP)?;
    eventually("it says so", || {
        let log = server.stderr();
        Ok(log.contains("previous certificates stay in use") && log.contains("server.key: "))
    })?;
    home.ends(&format!("{old} run m -- true"))?.is_fine();
    home.ends(&format!("{new} run m -- true"))?.complains(78, &["--tls-ca"]);

    // All three files count.
    replace("server.key")?;
    replace("ca.pem")?;
    server.signal(Signal::HUP)?;
    eventually("it has read them", || Ok(server.stderr().contains("certificates reloaded")))?;
    home.ends(&format!("{new} run m -- true"))?.is_fine();
    home.ends(&format!("{old} run m -- true"))?.complains(78, &["--tls-ca"]);
    let mixed = new.replace("new-client", "client");
    home.ends(&format!("{mixed} run m -- true"))?.complains(78, &["--tls-cert"]);

    // Connected clients continue with the same session.
    home.ends(&format!("{new} run -n l -- true"))?.complains(1, &["l"]);
    fs::write(home.folder().join("go"), "went on\n")?;
    assert_eq!(holder.end(LIMIT).await?.code(), Some(0), "{}", holder.tail());
    assert_eq!(holder.stdout(), "held\nwent on\n");
    server.signal(Signal::TERM)?;
    assert_eq!(server.end(LIMIT).await?.code(), Some(0), "{}", server.tail());
    Ok(())
}

/// F15: a key that everyone may read was taken without a word.
#[tokio::test]
async fn a_key_that_everyone_may_read_is_told() -> Result<()> {
    let home = Home::new()?;
    let (server, _) = served(&home)?;
    assert!(!server.stderr().contains("all users"), "{}", server.stderr());
    fs::set_permissions(home.folder().join("server.key"), fs::Permissions::from_mode(0o604))?;
    server.signal(Signal::HUP)?;
    let line = "all users of this machine have access to the key server.key";
    eventually("it says so", || Ok(server.stderr().contains(line)))
}

/// The engine says that it does not speak TLS, so the command does not try until its patience is over.
#[tokio::test]
async fn a_plain_port_is_told_from_a_server_that_is_just_starting() -> Result<()> {
    let home = Home::new()?;
    certificates(&home, "")?;
    let (_server, address) = in_memory(&home).await?;
    let asked = format!("--connect tls://{address} --tls-ca ca.pem --connect-timeout 10m ls");
    home.ends(&asked)?.complains(75, &[&address, "TLS"]);
    Ok(())
}

/// K3: the advice for a store of Java has to work as it is printed.
#[tokio::test]
async fn k3_the_commands_for_javas_stores_work_as_printed() -> Result<()> {
    let home = Home::new()?;
    if !peers::ready("command: Java's key stores", &[Peer::ZooKeeper]) {
        return Ok(());
    }
    certificates(&home, "")?;
    // A name that ends in .p12 is taken for PKCS12, any other for JKS.
    let export = "pkcs12 -export -in server.pem -inkey server.key -passout pass:secret7";
    openssl(&home, &format!("{export} -out server.p12"))?;
    let passwords = "-srcstorepass secret7 -deststorepass secret7";
    let arguments = format!(
        "-importkeystore -srckeystore server.p12 -destkeystore server.jks -deststoretype JKS {passwords}"
    );
    run(&home, "keytool", &arguments, "")?;
    let roots = "-importcert -noprompt -alias root -file ca.pem -keystore roots.jks -storetype JKS";
    run(&home, "keytool", &format!("{roots} -storepass secret7"), "")?;

    let folder = home.folder().display();
    for (keys, trust) in [("server.jks", "roots.jks"), ("server.p12", "ca.pem")] {
        let text = format!(
            "dataDir=zk-{keys}\nsecureClientPort=0\nsecureClientPortAddress=127.0.0.1\n\
             ssl.keyStore.location={folder}/{keys}\nssl.trustStore.location={folder}/{trust}\n"
        );
        let text = convert(&home, text, keys)?;
        let text = if trust == "ca.pem" { text } else { convert(&home, text, trust)? };
        fs::write(home.folder().join("zoo.cfg"), text)?;
        let serve = home.command("serve --config zoo.cfg");
        let (_server, connect) = started(&home, keys, &serve)?;
        let known = "--tls-ca ca.pem --tls-cert client.pem --tls-key client.key";
        home.ends(&format!("{connect} {known} run l -- true"))?.is_fine();
    }
    Ok(())
}

/// Does what the refusal of a store says, and gives the configuration with the file that this made.
fn convert(home: &Home, text: String, store: &str) -> Result<String> {
    fs::write(home.folder().join("zoo.cfg"), &text)?;
    let refusal = home.ends("serve --config zoo.cfg")?;
    refusal.complains(78, &[store, "create one: "]);
    let (_, commands) =
        refusal.stderr.trim_end().split_once("create one: ").context("no command")?;
    for command in commands.split(" && ") {
        let (program, arguments) = command.split_once(' ').context("no arguments")?;
        // Each asks for a password, or two and then the old one.
        run(home, program, arguments, "secret7\nsecret7\nsecret7\n")?;
    }
    let (_, made) = commands.rsplit_once(' ').context("no file")?;
    Ok(text.replace(&format!("{}/{store}", home.folder().display()), made))
}

/// A server, and the option that names it.
fn served(home: &Home) -> Result<(Process, String)> {
    certificates(home, "")?;
    started(home, "server", &home.command(SERVE))
}

fn started(home: &Home, name: &str, command: &Command) -> Result<(Process, String)> {
    let mut server = Process::spawn(name, command, home.folder())?;
    let connect = format!("--connect {}", address_of(&mut server)?);
    ensure!(connect.contains("tls://127.0.0.1:"), "{connect}");
    Ok((server, connect))
}

/// A root, and a certificate for the server and one for a client, in files with this prefix.
pub(crate) fn certificates(home: &Home, prefix: &str) -> Result<()> {
    let root = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=root";
    openssl(home, &format!("{root} -keyout {prefix}ca.key -out {prefix}ca.pem"))?;
    fs::write(home.folder().join("names"), "subjectAltName=IP:127.0.0.1\n")?;
    for name in ["server", "client"].map(|name| format!("{prefix}{name}")) {
        openssl(
            home,
            &format!(
                "req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"
            ),
        )?;
        openssl(
            home,
            &format!(
                "x509 -req -days 2 -in {name}.csr -CA {prefix}ca.pem -CAkey {prefix}ca.key \
                 -CAcreateserial -extfile names -out {name}.pem"
            ),
        )?;
    }
    Ok(())
}

fn openssl(home: &Home, arguments: &str) -> Result<()> {
    run(home, "openssl", arguments, "")
}

/// Runs a program to its end, with this standard input instead of a terminal.
fn run(home: &Home, program: &str, arguments: &str, input: &str) -> Result<()> {
    let mut command = Command::new("setsid");
    command.args(["--wait", program]).args(arguments.split_whitespace());
    let file = home.folder().join("input");
    fs::write(&file, input)?;
    command.current_dir(home.folder()).stdin(fs::File::open(&file)?);
    let output = command.output().with_context(|| format!("cannot start {program}"))?;
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {arguments}: {said}");
    Ok(())
}

/// Symptom: with a pipe in place of a file, HUP waited for a writer, and later signals were not handled.
#[tokio::test]
async fn a_pipe_in_the_place_of_a_certificate_is_told() -> Result<()> {
    let home = Home::new()?;
    let (mut server, connect) = served(&home)?;
    let key = home.folder().join("server.key");
    let was = fs::read(&key)?;
    fs::remove_file(&key)?;
    rustix::fs::mkfifoat(rustix::fs::CWD, &key, 0o600.into())?;
    server.signal(Signal::HUP)?;
    let line = "server.key cannot be read (it is not a regular file)";
    eventually("it says so", || Ok(server.stderr().contains(line)))?;

    fs::remove_file(&key)?;
    fs::write(&key, was)?;
    server.signal(Signal::HUP)?;
    eventually("it has read them", || Ok(server.stderr().contains("certificates reloaded")))?;
    let tls = "--tls-ca ca.pem --tls-cert client.pem --tls-key client.key";
    home.ends(&format!("{connect} {tls} run l -- true"))?.is_fine();
    home.ends(&format!("{connect} --tls-ca / run l -- true"))?.complains(78, &["regular file"]);
    server.signal(Signal::TERM)?;
    assert_eq!(server.end(LIMIT).await?.code(), Some(0), "{}", server.tail());
    Ok(())
}

//! `serve`: the engine in the foreground.

use std::fs;
use std::io::{Read, Write};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lockkeeper::{Acl, Client, CreateMode, ZnodePath};
use lockkeeper_testkit::process::Process;
use rustix::process::Signal;

use crate::support::{Home, LIMIT, eventually, has_all};

/// The options of one that keeps its data in memory.
pub(crate) const SERVER: &str = "--listen 127.0.0.1:0 --durability memory";

/// A server, and what clients connect to.
pub(crate) async fn served(home: &Home, name: &str, options: &str) -> Result<(Process, String)> {
    let mut server = home.spawns(name, &format!("serve {options}"))?;
    let address = address_of(&mut server)?;
    Ok((server, address))
}

/// A server that keeps its data in memory.
pub(crate) async fn in_memory(home: &Home) -> Result<(Process, String)> {
    served(home, "server", SERVER).await
}

/// What clients connect to, when a server is ready.
pub(crate) fn address_of(server: &mut Process) -> Result<String> {
    let mut address = None;
    eventually("the server is ready", || {
        let log = server.stderr();
        let word = log.split_once("--connect ").and_then(|(_, rest)| rest.split_once(' '));
        address = word.map(|(address, _)| address.to_owned());
        anyhow::ensure!(server.status()?.is_none(), "{}", server.tail());
        Ok(address.is_some())
    })?;
    address.context("no address")
}

#[tokio::test]
async fn other_commands_use_it_and_its_data_survives() -> Result<()> {
    let home = Home::new()?;
    let options = "--listen 127.0.0.1:0 --data-dir data --tick 500ms";
    let mut tokens = Vec::new();
    for name in ["first", "second"] {
        let (mut server, address) = served(&home, name, options).await?;
        let connect = format!("--connect {address} --server-tick 500ms l");
        let ended = home.runs(&connect, "echo $LOCKKEEPER_TOKEN $LOCKKEEPER_CONNECT")?;
        ended.is_fine();
        let (token, servers) = ended.stdout.trim().split_once(' ').context("two words")?;
        assert_eq!(servers, address);
        tokens.push(token.parse::<i64>()?);
        assert!(server.stderr().contains("started"), "{}", server.stderr());
        server.signal(Signal::TERM)?;
        assert_eq!(server.end(LIMIT).await?.code(), Some(0), "{}", server.tail());
        assert!(server.stderr().contains("stopped"), "{}", server.stderr());
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    Ok(())
}

/// Symptom: "ready; try: lockkeeper ... run" in a quiet time, in which that fails.
#[tokio::test]
async fn k45_what_serve_suggests_works() -> Result<()> {
    let home = Home::new()?;
    let options = "--listen 127.0.0.1:0 --data-dir data --quiet-time 100s --durability memory";
    let (server, _) = served(&home, "quiet", options).await?;
    let log = server.stderr();
    assert!(log.contains("ready; no session starts for another 100 s"), "{log}");
    assert!(log.contains("; after that, try: lockkeeper --connect "), "{log}");
    Ok(())
}

#[test]
fn the_data_of_a_real_zookeeper_are_left_alone() -> Result<()> {
    let home = Home::new()?;
    fs::create_dir_all(home.folder().join("data/version-2"))?;
    let ended = home.ends("serve --listen 127.0.0.1:0 --data-dir data")?;
    ended.complains(73, &["data", "ZooKeeper", "empty directory"]);
    Ok(())
}

#[tokio::test]
async fn a_chroot_that_is_missing_is_made() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) =
        served(&home, "chroot", "--listen 127.0.0.1:0 --data-dir data").await?;
    home.runs(&format!("--connect {address}/several/new/segments l"), "true")?.is_fine();
    Ok(())
}

#[tokio::test]
async fn what_is_taken_is_told() -> Result<()> {
    let home = Home::new()?;
    let (server, address) = served(&home, "one", "--listen 127.0.0.1:0 --data-dir data").await?;
    let other = home.ends(&format!("serve --listen {address} --durability memory"))?;
    other.complains(69, &[&address, "another port"]);
    // The machine may get it later, so a service manager is to try again.
    let nowhere =
        home.ends("serve --listen 192.0.2.1:2181 --allow-plaintext --data-dir nowhere")?;
    nowhere.complains(69, &["192.0.2.1:2181"]);
    let pid = server.id().to_string();
    let other = home.ends("serve --listen 127.0.0.1:0 --data-dir data")?;
    assert_eq!(other.code, Some(69), "{other:?}");
    assert!(other.stderr.contains(&pid) && other.stderr.contains("another directory"), "{other:?}");
    Ok(())
}

#[test]
fn a_directory_that_cannot_be_one_is_told() -> Result<()> {
    let home = Home::new()?;
    fs::write(home.folder().join("file"), "")?;
    let ended = home.ends("serve --listen 127.0.0.1:0 --data-dir file/below")?;
    ended.complains(73, &["file/below", "directory"]);
    // Nobody can make one there, root included.
    let ended = home.ends("serve --listen 127.0.0.1:0 --data-dir /proc/none")?;
    ended.complains(73, &["/proc/none", "choose another"]);
    Ok(())
}

/// Each option reaches the limit that it is about.
#[tokio::test]
async fn limits_are_set_by_options() -> Result<()> {
    let home = Home::new()?;
    let options = "--listen 127.0.0.1:0 --durability memory --max-sessions 1 --max-watches 1 \
                   --max-multi 2 --max-frame 4000 --max-outgoing 100000 --connection-rate 100 \
                   --handshake-time 5s --max-connections 3 --max-connections-per-address 2 \
                   --send-timeout 5s --memory-budget 50000000 --data-budget 5000000 \
                   --disk-reserve 0 --max-ephemerals 1 --four-letter-words mntr";
    let (_server, address) = served(&home, "server", options).await?;
    let client = Client::connect(&address).await?;
    let path = |name: &str| ZnodePath::new(name);
    let error = client.create(&path("/large")?, vec![0; 5_000], CreateMode::Persistent).await;
    assert!(error.is_err(), "a request of 5000 bytes");
    let mut multi = client.transaction();
    for name in ["/a", "/b", "/c"] {
        multi = multi.create(&path(name)?, "", CreateMode::Persistent);
    }
    assert!(multi.commit().await.is_err(), "a multi of three");
    let _watch = client.exists_watched(&path("/a")?).await?;
    assert!(client.exists_watched(&path("/b")?).await.is_err(), "a second watch");
    client.create(&path("/first")?, "", CreateMode::Ephemeral).await?;
    let error = client.create(&path("/second")?, "", CreateMode::Ephemeral).await;
    assert!(error.is_err(), "a second ephemeral node");
    let mut word = std::net::TcpStream::connect(&address)?;
    word.write_all(b"mntr")?;
    let mut numbers = String::new();
    word.read_to_string(&mut numbers)?;
    for number in ["zk_memory_budget\t50000000", "zk_data_budget\t5000000"] {
        assert!(numbers.contains(number), "{numbers}");
    }
    let second = Client::builder().connect_timeout(Duration::from_secs(1));
    assert!(second.connect(&address).await.is_err(), "a second session");
    home.ends("serve --connection-rate 0")?.complains(64, &["--connection-rate"]);
    Ok(())
}

#[test]
fn others_reach_it_only_when_asked_for() -> Result<()> {
    let home = Home::new()?;
    let ended = home.ends("serve --listen 0.0.0.0:0 --durability memory")?;
    ended.complains(64, &["0.0.0.0", "--allow-plaintext"]);
    Ok(())
}

#[tokio::test]
async fn zookeepers_own_configuration_is_read() -> Result<()> {
    let home = Home::new()?;
    let text = "tickTime=200\ninitLimit=5\ndataDir=zk\nclientPort=0\nclientPortAddress=127.0.0.1\n\
                maxSessionTimeout=60000\nserver.1=a:1:2\n4lw.commands.whitelist=mntr,dbug\n";
    fs::write(home.folder().join("zoo.cfg"), text)?;
    let (server, address) = served(&home, "configured", "--config zoo.cfg").await?;
    let log = server.stderr();
    let parts =
        ["line 2: initLimit has no effect", "line 7: server.1 has no effect", "word \"dbug\""];
    has_all(&log, &parts);
    assert!(talk(&address, "mntr")?.contains("zk_version"));
    assert!(talk(&address, "ruok")?.contains("whitelist"), "the file does not list it");
    assert!(home.folder().join("zk/FORMAT").is_file());
    home.runs(&format!("--connect {address} --session-timeout 30s l"), "true")?.is_fine();
    Ok(())
}

/// A file like those that kazoo's own test harness writes, without its secure port: stores of Java, and a SASL
/// provider, which identifies clients and refuses none. Symptom: its line was refused (78).
///
/// Fails without `Provider::WithoutEffect`.
#[tokio::test]
async fn k39_a_sasl_provider_and_stores_without_a_secure_port_are_named_and_served() -> Result<()> {
    let home = Home::new()?;
    let text = "\ntickTime=2000\ndataDir=zk\nclientPort=0\nclientPortAddress=127.0.0.1\n\
                maxClientCnxns=0\nadmin.serverPort=20004\n\
                serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n\
                ssl.keyStore.location=keystore.jks\nssl.keyStore.password=a\n\
                ssl.trustStore.location=truststore.jks\nssl.trustStore.password=a\n";
    fs::write(home.folder().join("zoo.cfg"), text)?;
    let (server, address) = served(&home, "harness", "--config zoo.cfg").await?;
    let log = server.stderr();
    let parts = [
        "line 9: authProvider.1 (SASL) has no effect",
        "line 10: ssl.keyStore.location",
        "line 12: ssl.trustStore.location",
        "line 8: serverCnxnFactory has no effect",
    ];
    has_all(&log, &parts);
    home.runs(&format!("--connect {address} l"), "true")?.is_fine();

    for more in [
        "sessionRequireClientSASLAuth=true",
        "enforce.auth.enabled=true\nenforce.auth.schemes=sasl",
    ] {
        fs::write(home.folder().join("zoo.cfg"), format!("{text}{more}\n"))?;
        home.ends("serve --config zoo.cfg")?.complains(78, &["line 14", "would admit"]);
    }
    Ok(())
}

#[test]
fn a_wrong_configuration_is_told_with_its_line() -> Result<()> {
    let home = Home::new()?;
    home.ends("serve --config zoo.cfg")?.complains(78, &["zoo.cfg", "No such file"]);
    fs::write(home.folder().join("zoo.cfg"), "tickTime=2000\nwhat is this\n")?;
    home.ends("serve --config zoo.cfg")?.complains(78, &["zoo.cfg, line 2", "not a setting"]);
    fs::write(home.folder().join("zoo.cfg"), "tickTime=soon\n")?;
    home.ends("serve --config zoo.cfg")?.complains(78, &["zoo.cfg, line 1", "tickTime"]);
    Ok(())
}

/// Symptom: each machine of an ensemble served its own lock by its `zoo.cfg`, to three holders at once.
///
/// Seen to start without `check_alone`.
#[tokio::test]
async fn the_configuration_of_an_ensemble_is_refused() -> Result<()> {
    let home = Home::new()?;
    let text = "dataDir=zk\nclientPort=0\nclientPortAddress=127.0.0.1\n";
    for (more, what) in [
        ("server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2\n", "line 5: server.2"),
        ("dynamicConfigFile=zoo.cfg.dynamic\n", "line 4: dynamicConfigFile"),
        ("standaloneEnabled=false\nserver.1=a:1:2\n", "line 4: standaloneEnabled"),
    ] {
        fs::write(home.folder().join("zoo.cfg"), format!("{text}{more}"))?;
        let mut server = home.spawns("server", "serve --config zoo.cfg")?;
        eventually("it ends, or serves", || {
            Ok(server.status()?.is_some() || server.stderr().contains("ready"))
        })?;
        assert_eq!(server.end(LIMIT).await?.code(), Some(78), "{}", server.tail());
        let parts = [what, "separate lock services", "Apache ZooKeeper", "delete line"];
        has_all(&server.stderr(), &parts);
    }
    assert!(!home.folder().join("zk").exists(), "nothing was started");
    Ok(())
}

#[tokio::test]
async fn operators_see_what_they_ask_for() -> Result<()> {
    let home = Home::new()?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let metrics = listener.local_addr()?.to_string();
    drop(listener);
    let options = format!(
        "--listen 127.0.0.1:0 --durability memory --metrics {metrics} --four-letter-words mntr,stat"
    );
    let (_server, address) = served(&home, "watched", &options).await?;
    let words = |word: &str| talk(&address, word);
    assert!(words("mntr")?.contains("zk_version"), "{}", words("mntr")?);
    assert!(words("dump")?.contains("whitelist"), "{}", words("dump")?);
    let page = talk(&metrics, "GET /metrics HTTP/1.0\r\n\r\n")?;
    assert!(page.contains("# TYPE"), "{page}");
    let unknown = home.ends("serve --durability memory --four-letter-words kill")?;
    unknown.complains(64, &["\"kill\"", "*"]);
    Ok(())
}

#[tokio::test]
async fn a_super_user_may_do_everything_and_is_never_shown() -> Result<()> {
    let home = Home::new()?;
    // Of the password "super".
    let digest = "super:gG7s8t3oDEtIqF6DM9LlI/R+9Ss=";
    let mut command = home.command("serve -v --listen 127.0.0.1:0 --durability memory --ttl-nodes");
    command.env("LOCKKEEPER_SUPER_DIGEST", digest);
    let mut server = Process::spawn("super", &command, home.folder())?;
    let address = address_of(&mut server)?;
    let owner = Client::builder().digest("owner", "secret").connect(&address).await?;
    let path = ZnodePath::new("/closed")?;
    owner.create(&path, "x", CreateMode::Persistent).await?;
    owner.set_acl(&path, Acl::creator_all(), None).await?;
    home.ends(&format!("--connect {address} show closed"))?.complains(77, &["/closed"]);
    let shown = home.ends(&format!("--connect {address} --digest super:super show closed"))?;
    shown.is_fine();
    assert!(!server.stderr().contains("gG7s8"), "{}", server.stderr());
    home.ends("serve --durability memory --super-digest super:plain")?
        .complains(64, &["user:base64"]);
    owner.close().await;
    Ok(())
}

#[test]
fn certificates_that_cannot_be_used_are_told() -> Result<()> {
    let home = Home::new()?;
    let serve = "serve --durability memory --tls-listen 127.0.0.1:0";
    home.ends(serve)?.complains(64, &["--cert"]);
    home.ends(&format!("{serve} --cert none.pem --key none.pem"))?
        .complains(78, &["none.pem", "No such file"]);
    fs::write(home.folder().join("empty.pem"), "")?;
    home.ends(&format!("{serve} --cert empty.pem --key empty.pem"))?
        .complains(78, &["empty.pem", "BEGIN CERTIFICATE"]);
    Ok(())
}

#[tokio::test]
async fn a_file_for_a_real_zookeeper_starts_the_engine() -> Result<()> {
    let home = Home::new()?;
    let text = "dataDir=zk\nclientPort=0\nclientPortAddress=127.0.0.1\n\
                ssl.keyStore.location=/etc/zookeeper/server.jks\nssl.keyStore.password=secret\n\
                4lw.commands.whitelist=stat,stmk\nautopurge.purgeInterval=1\n";
    fs::write(home.folder().join("zoo.cfg"), text)?;
    let (server, address) = served(&home, "configured", "--config zoo.cfg").await?;
    let log = server.stderr();
    let parts = [
        "line 4: ssl.keyStore.location (not a PEM file) has no effect",
        "line 5: ssl.keyStore.password has no effect",
        "line 7: autopurge.purgeInterval has no effect",
    ];
    has_all(&log, &parts);
    assert!(!log.contains("secret"), "{log}");
    assert!(talk(&address, "stat")?.contains("Zookeeper version"));
    assert_eq!(talk(&address, "stmk\0\0\0\0\0\0\0\x01")?, "1");
    fs::write(home.folder().join("zoo.cfg"), format!("{text}secureClientPort=0\n"))?;
    home.ends("serve --config zoo.cfg")?.complains(78, &["line 4", "keytool", "openssl pkcs12"]);
    Ok(())
}

/// Symptom: signals were not heard before the engine was up.
#[tokio::test]
async fn it_can_be_stopped_while_it_starts() -> Result<()> {
    let home = Home::new()?;
    fs::create_dir(home.folder().join("data"))?;
    // An engine that binds a socket in a directory waits for another one that is about to.
    let turn = fs::File::open(home.folder().join("data"))?;
    turn.lock()?;
    let command = home.command("serve --listen 127.0.0.1:0 --data-dir data");
    let mut server = Process::spawn("server", &command, home.folder())?;
    let lock = home.folder().join("data/LOCK");
    eventually("it has begun", || Ok(fs::metadata(&lock).is_ok_and(|meta| meta.len() > 0)))?;
    server.signal(Signal::TERM)?;
    assert_eq!(server.end(LIMIT).await?.code(), Some(0), "{}", server.tail());
    Ok(())
}

/// N53: an engine waited forever for a process that had locked the directory of its sockets.
#[tokio::test]
async fn a_lock_on_the_directory_keeps_no_engine_from_starting() -> Result<()> {
    let home = Home::new()?;
    fs::create_dir(home.folder().join("data"))?;
    let turn = fs::File::open(home.folder().join("data"))?;
    turn.lock()?;
    let (_server, address) = served(&home, "s", "--listen 127.0.0.1:0 --data-dir data").await?;
    home.runs(&format!("--connect {address} l"), "true")?.is_fine();
    Ok(())
}

/// Everything that is answered to a few bytes.
pub(crate) fn talk(address: &str, text: &str) -> Result<String> {
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.write_all(text.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[tokio::test]
async fn data_is_checked_and_backed_up() -> Result<()> {
    let home = Home::new()?;
    let options = "--listen 127.0.0.1:0 --data-dir data";
    let (mut server, address) = served(&home, "server", options).await?;
    home.runs(&format!("--connect {address} a/b"), "true")?.is_fine();
    home.ends("engine check data")?.complains(69, &["data", &server.id().to_string()]);

    let copied = home.json("engine backup data copy")?;
    assert!(copied["records"].as_u64() > Some(0), "{copied}");
    let checked = home.json("engine check copy")?;
    assert_eq!(checked["after_crash"], false);
    assert!(checked["znodes"].as_u64() > Some(2), "{checked}");
    assert!(home.ends("engine check copy")?.stdout.contains("copy is valid"));
    home.ends("engine backup data copy")?.complains(73, &["copy", "exists already"]);
    home.ends("engine check none")?.complains(64, &["none", "not a data directory"]);

    server.signal(Signal::TERM)?;
    assert_eq!(server.end(LIMIT).await?.code(), Some(0), "{}", server.tail());
    home.ends("engine check data")?.is_fine();
    let serve = "serve --listen 127.0.0.1:0 --data-dir copy";
    home.ends(serve)?.complains(73, &["copy is a backup", "engine restore"]);
    home.ends("engine restore --quiet-time 0s copy restored")?;
    let (_restored, address) =
        served(&home, "restored", "--listen 127.0.0.1:0 --data-dir restored").await?;
    home.runs(&format!("--connect {address} a/b"), "true")?.is_fine();
    fs::write(home.folder().join("data/FORMAT"), "something else\n")?;
    home.ends("engine check data")?.complains(65, &["damaged"]);
    Ok(())
}

/// One in a hundred damages made the database's library panic, and its words came before ours.
#[tokio::test]
async fn a_damaged_database_is_told_in_one_sentence() -> Result<()> {
    let home = Home::new()?;
    let (mut server, _) = served(&home, "server", "--listen 127.0.0.1:0 --data-dir data").await?;
    server.signal(Signal::TERM)?;
    server.end(LIMIT).await?;
    let file = home.folder().join("data/lockkeeper.redb");
    let whole = fs::read(&file)?;
    let mut panics = 0;
    for page in 0..16 {
        let mut damaged = whole.clone();
        damaged[page * 4096..][..512].fill(0xaa);
        fs::write(&file, damaged)?;
        let ended = home.ends("engine check data")?;
        ensure!(ended.stderr.lines().count() <= 1, "page {page}: {}", ended.stderr);
        panics += usize::from(ended.stderr.contains("reading it caused a panic"));
    }
    ensure!(panics > 0, "none of these damages shows it");
    Ok(())
}

/// It was taken for another program.
#[test]
fn a_port_that_is_given_twice_is_told() -> Result<()> {
    let home = Home::new()?;
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let twice = format!("--listen 127.0.0.1:{port} --metrics 127.0.0.1:{port}");
    home.ends(&format!("serve --durability memory {twice}"))?.complains(64, &["was given twice"]);
    Ok(())
}

#[test]
fn tokens_that_json_may_not_tell_apart_are_told() -> Result<()> {
    let home = Home::new()?;
    let floor = |above: i64| home.ends(&format!("engine floor --above {above} data-{above}"));
    let warned = floor(1 << 53)?;
    ensure!(warned.stderr.contains("2^53"), "{warned:?}");
    let fine = floor(1 << 52)?;
    ensure!(fine.stderr.is_empty(), "{fine:?}");
    Ok(())
}

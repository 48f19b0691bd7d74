//! Attacks on engines whose processes have limits of their own.

use std::env;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use lockkeeper_engine::{Durability, Engine};
use lockkeeper_wire::CreateMode;
use rustix::process::{Resource, Rlimit, setrlimit};
use tempfile::TempDir;

use super::{Holders, MB, TIMEOUT, Target};
use crate::child::{EngineProcess, serve};
use crate::client::{Client, get_data};

/// The limit of the child, and the directory of its data.
const LIMIT: &str = "LOCKKEEPER_TEST_LIMITED";
const FOLDER: &str = "LOCKKEEPER_TEST_LIMITED_DATA";

/// 2 GiB of addresses, and files for only a few connections.
const ADDRESSES: (&str, Resource, u64) = ("addresses", Resource::As, 2 << 30);
const FILES: (&str, Resource, u64) = ("files", Resource::Nofile, 160);

/// Not a test by itself: an engine with a limit and the default budgets.
#[tokio::test]
#[ignore = "the other half of the tests below"]
async fn child() {
    let Ok(limit) = env::var(LIMIT) else { return };
    let (_, resource, most) =
        [ADDRESSES, FILES].into_iter().find(|(name, ..)| *name == limit).unwrap();
    setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }).unwrap();
    let folder = PathBuf::from(env::var_os(FOLDER).unwrap());
    let builder = Engine::builder().listen("127.0.0.1:0".parse().unwrap());
    let builder = builder.data_dir(folder.join("data")).durability(Durability::Memory);
    serve(builder.four_letter_word("mntr")).await;
}

fn attacked((limit, ..): (&str, Resource, u64)) -> (Target, EngineProcess, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let variables = [(LIMIT, limit), (FOLDER, folder.path().to_str().unwrap())];
    let engine = EngineProcess::start("attacks::limited::child", &variables);
    let target = Target { connect: engine.connect.clone(), folder: folder.path().to_path_buf() };
    (target, engine, folder)
}

/// Symptom: with `ulimit -v`, budgets were parts of the machine's memory, and 150 clients that read no replies ended
/// the engine. Seen to fail that way.
#[test]
fn n44_a_limit_of_addresses_is_a_limit_of_budgets() {
    let (target, _engine, _folder) = attacked(ADDRESSES);
    let mut setup = target.client();
    setup.create("/locks", CreateMode::Persistent).unwrap();
    setup.create_large("/large", MB / 2);
    let holders = Holders::start(&target.connect);

    let requests = vec![get_data("/large"); 40];
    let mut clients: Vec<Client> = (0..150).map(|_| target.client()).collect();
    for client in &mut clients {
        client.try_send(&requests);
    }
    target.eventually("clients that do not read are dropped", |target| {
        target.number("dropped_for_memory") > 0
    });
    holders.stop();
    setup.ping();
}

/// Symptom: silent connections used all files, and an engine in memory ended at its first session, for which it writes
/// a file. Seen to fail that way.
#[test]
fn n41_silent_connections_leave_files_for_the_engine() {
    let (target, _engine, _folder) = attacked(FILES);
    let mut first = Client::raw_to(&target.connect);
    let silent: Vec<Client> = (0..200).map(|_| target.from(Ipv4Addr::new(127, 0, 0, 2))).collect();
    assert!(first.handshake(TIMEOUT).is_ok());
    first.create("/alive", CreateMode::Ephemeral).unwrap();
    drop(silent);
}

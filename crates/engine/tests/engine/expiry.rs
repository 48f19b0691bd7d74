//! Ten thousand clients that die at the same moment (lesson S10).

use std::time::{Duration, Instant};

use lockkeeper_engine::{Durability, Engine};
use lockkeeper_wire::CreateMode;

use crate::client::{Client, PATIENCE, create, exists};

const DEAD: usize = 10_000;
/// How many sessions end in one portion; between two of them, others have their turn.
const PORTION: usize = 256;
/// How many of them connect at once: less than files may be open.
const TOGETHER: usize = 250;
/// Far longer than the test takes, so that nobody expires before it skips that time.
const TICK: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(600);

/// Opens the sessions, each with a node as if it held a lock, and leaves them alone.
fn open_and_abandon(engine: &Engine) {
    for group in 0..DEAD / TOGETHER {
        let mut clients: Vec<Client> = (0..TOGETHER).map(|_| Client::raw(engine)).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.send_handshake(TIMEOUT);
            client.send(&[create(&format!("/n{group}-{number}"), CreateMode::Ephemeral)]);
        }
        for client in &mut clients {
            client.frame().unwrap();
            assert_eq!(client.reply().unwrap().0.error, 0);
        }
    }
    assert_eq!(engine.stats().ephemerals, DEAD);
}

async fn others_are_answered_between_the_portions(durability: Durability) {
    let dir = tempfile::tempdir().unwrap();
    let builder = Engine::builder().data_dir(dir.path()).durability(durability).tick(TICK);
    let engine = builder.connection_rate(1_000_000).start().await.unwrap();
    let mut living = Client::connect(&engine, TIMEOUT * 2);
    let mut round_trip = || {
        let asked = Instant::now();
        living.call(exists("/nothing", false)).unwrap_err();
        asked.elapsed()
    };
    open_and_abandon(&engine);
    let usual = (0..200).map(|_| round_trip()).max().unwrap();

    let start = Instant::now();
    engine.skip_time(TIMEOUT + TICK).await;
    let (mut replies, mut worst) = (0, Duration::ZERO);
    while engine.sessions() > 1 {
        assert!(start.elapsed() < PATIENCE, "{} sessions are left", engine.sessions());
        worst = worst.max(round_trip());
        replies += 1;
    }
    let took = start.elapsed();
    println!(
        "{durability}: {DEAD} sessions with a node each ended in {took:.1?}; meanwhile another \
         client got {replies} replies, the slowest after {worst:.1?} (before: {usual:.1?})"
    );
    // One turn in each portion, with some slack for portions that meet a busy machine.
    assert!(replies >= DEAD / PORTION / 2, "{replies} replies in {} portions", DEAD / PORTION);
    // Were all of them one portion, the slowest reply would take as long as the whole.
    assert!(worst < took / 4 + usual, "{worst:?} of {took:?}");
    assert_eq!(engine.stats().ephemerals, 0);
}

#[tokio::test]
async fn s10_a_mass_expiry_does_not_keep_others_waiting() {
    others_are_answered_between_the_portions(Durability::Memory).await;
}

#[tokio::test]
async fn s10_a_mass_expiry_does_not_keep_others_waiting_for_the_disk() {
    others_are_answered_between_the_portions(Durability::Sync).await;
}

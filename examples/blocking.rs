//! A lock in a program without async: threads count in a file, one at a time.
//!
//! `cargo run --example blocking` starts a server in a thread of its own; with an argument such as
//! `127.0.0.1:2181`, it uses that one.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lockkeeper::Mutex;
use lockkeeper::blocking::Client;
use lockkeeper_engine::Engine;

const THREADS: u32 = 4;
const ROUNDS: u32 = 25;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let servers = match std::env::args().nth(1) {
        Some(servers) => servers,
        None => start_server()?,
    };
    let file = std::env::temp_dir().join(format!("lockkeeper-blocking-{}", std::process::id()));
    fs::write(&file, "0")?;
    let client = Client::connect(&servers)?;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| count(&client, &file))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    println!("{THREADS} threads counted to {}", fs::read_to_string(&file)?);
    fs::remove_file(file)?;
    Ok(())
}

fn count(client: &Client, file: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
    let lock = Mutex::new(client, "/locks/count")?;
    for _ in 0..ROUNDS {
        let guard = client.wait(lock.acquire())?;
        guard.ensure(Duration::from_secs(1))?;
        let count: u32 = fs::read_to_string(file)?.parse()?;
        fs::write(file, (count + 1).to_string())?;
        client.wait(guard.release())?;
    }
    Ok(())
}

/// A server that runs as long as this program.
fn start_server() -> Result<String, Box<dyn Error + Send + Sync>> {
    let (started, servers) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let engine = Engine::builder().start().await.map_err(std::io::Error::other)?;
            let _ = started.send(engine.connect_string());
            std::future::pending::<std::io::Result<()>>().await
        })
    });
    Ok(servers.recv()?)
}

//! A lock in a program without async: threads count in a file, one at a time.
//!
//! `cargo run --example blocking` starts a server in a thread of its own; with an argument such as
//! `127.0.0.1:2181`, it uses that one.

use std::error::Error;
use std::fs;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lockkeeper::blocking::{Client, Mutex};
use lockkeeper_engine::Engine;

const THREADS: u32 = 4;
const ROUNDS: u32 = 25;

fn main() -> Result<(), Box<dyn Error>> {
    let servers = match std::env::args().nth(1) {
        Some(servers) => servers,
        None => start_server()?,
    };
    let file = std::env::temp_dir().join(format!("lockkeeper-blocking-{}", std::process::id()));
    fs::write(&file, "0")?;
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (servers, file) = (servers.clone(), file.clone());
            thread::spawn(move || -> Result<(), String> {
                let client = Client::connect(&servers).map_err(|error| error.to_string())?;
                let lock = Mutex::new(&client, "/locks/count").map_err(|e| e.to_string())?;
                for _ in 0..ROUNDS {
                    let guard = lock.acquire().map_err(|error| error.to_string())?;
                    guard.ensure(Duration::from_secs(1)).map_err(|error| error.to_string())?;
                    let count = fs::read_to_string(&file).map_err(|error| error.to_string())?;
                    let count: u32 = count.parse().map_err(|_| "not a number".to_owned())?;
                    fs::write(&file, (count + 1).to_string()).map_err(|error| error.to_string())?;
                    guard.release().map_err(|error| error.to_string())?;
                }
                Ok(())
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")??;
    }
    println!("{THREADS} threads counted to {}", fs::read_to_string(&file)?);
    fs::remove_file(file)?;
    Ok(())
}

/// A server that runs as long as this program.
fn start_server() -> Result<String, Box<dyn Error>> {
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

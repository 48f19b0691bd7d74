//! A store that checks fencing tokens: the late write of a holder that was paused is refused.
//!
//! `cargo run --example fenced_file_store`

use std::error::Error;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex as StdMutex;

use lockkeeper::{Client, FencingToken, Mutex, revoke};
use lockkeeper_engine::Engine;

/// A file, and a second one with the highest token with which it was written.
struct Store {
    folder: PathBuf,
    /// One write at a time: the check and the write belong together.
    writing: StdMutex<()>,
}

impl Store {
    fn write(&self, token: FencingToken, text: &str) -> Result<(), Box<dyn Error>> {
        let _writing = self.writing.lock().map_err(|_| "a write panicked")?;
        let highest = match fs::read_to_string(self.folder.join("token")) {
            Ok(text) => Some(text.parse::<FencingToken>()?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        if highest > Some(token) {
            return Err(
                format!("token {token} is stale, {} was seen", highest.unwrap_or(token)).into()
            );
        }
        // The token first: a crash in between refuses too much, never too little.
        self.replace("token", &token.to_string())?;
        self.replace("text", text)?;
        Ok(())
    }

    /// Atomic, and on disk before this returns.
    fn replace(&self, name: &str, text: &str) -> io::Result<()> {
        let aside = self.folder.join(format!("{name}.new"));
        fs::write(&aside, text)?;
        fs::File::open(&aside)?.sync_all()?;
        fs::rename(&aside, self.folder.join(name))?;
        fs::File::open(&self.folder)?.sync_all()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("lockkeeper-fenced-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let store = Store { folder: folder.clone(), writing: StdMutex::default() };
    let engine = Engine::builder().start().await?;
    let client = Client::connect(&engine.connect_string()).await?;

    // Alice holds the lock, and is paused before she writes.
    let alice = Mutex::new(&client, "/locks/file")?.acquire().await?;
    let hers = alice.token();

    // Her session has expired for the servers, so the lock is Bob's.
    revoke::revoke_within(&client, alice.path(), std::time::Duration::ZERO).await?;
    let bob = Mutex::new(&client, "/locks/file")?.acquire().await?;
    store.write(bob.token(), "Bob's text")?;
    println!("Bob wrote, with token {}", bob.token());

    // Alice resumes where she was, without checking the lock.
    let late = store.write(hers, "Alice's old text").expect_err("a later holder has written");
    println!("Alice's late write was refused: {late}");
    println!("the file says: {}", fs::read_to_string(folder.join("text"))?);

    bob.release().await?;
    client.close().await;
    fs::remove_dir_all(folder)?;
    Ok(())
}

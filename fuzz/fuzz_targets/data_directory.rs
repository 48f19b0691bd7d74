//! A data directory, damaged in any way.
#![no_main]

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use lockkeeper_engine::{Durability, Engine, EngineError, StartError};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// The files of a directory that an engine left in order.
fn sound() -> &'static [(PathBuf, Vec<u8>)] {
    static FILES: OnceLock<Vec<(PathBuf, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| {
        // The library that reads the file panics on some damage, which the engine catches and
        // reports: what must not happen is checked below, by what the engine says.
        panic::set_hook(Box::new(|_| {}));
        let folder = folder();
        run(folder.path()).expect("an empty directory is fine");
        let mut files = Vec::new();
        for entry in fs::read_dir(folder.path()).expect("it is there") {
            let path = entry.expect("an entry").path();
            if path.is_file() {
                let name = path.file_name().expect("a file has a name").into();
                files.push((name, fs::read(path).expect("readable")));
            }
        }
        files
    })
}

fn folder() -> TempDir {
    // In memory where that can be had: nothing here is about disks.
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.expect("a folder")
}

fn run(folder: &Path) -> Result<(), StartError> {
    let runtime: Runtime = Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let builder = Engine::builder()
            .unix_socket(folder.join("socket"))
            .data_dir(folder.join("."))
            .durability(Durability::Os);
        let engine = builder.start().await?;
        // What it says at its end is what it says of a damaged page that it needs only now.
        match engine.stop().await {
            Err(EngineError::Panicked) => panic_of_ours(),
            _ => Ok(()),
        }
    })
}

/// Not a panic: those are not reported here.
fn panic_of_ours() -> ! {
    eprintln!("the engine panicked");
    std::process::abort()
}

fuzz_target!(|data: &[u8]| {
    let sound = sound();
    let folder = folder();
    for (name, bytes) in sound {
        fs::write(folder.path().join(name), bytes).expect("writable");
    }
    let mut rest = data;
    while let [which, kind, a, b, c, value, more @ ..] = rest {
        rest = more;
        let (name, bytes) = &sound[usize::from(*which) % sound.len()];
        let position = u64::from(u32::from_be_bytes([0, *a, *b, *c])) % (bytes.len() as u64 + 1);
        let file = fs::OpenOptions::new().write(true).open(folder.path().join(name));
        let mut file = file.expect("writable");
        match kind % 8 {
            0 => file.set_len(position).expect("writable"),
            _ => {
                file.seek(SeekFrom::Start(position)).expect("seekable");
                file.write_all(&[*value]).expect("writable");
            }
        }
    }
    if let Err(StartError::Engine(EngineError::Panicked)) = run(folder.path()) {
        panic_of_ours();
    }
});

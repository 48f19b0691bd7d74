//! A data directory, damaged in any way.
#![no_main]

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::net::UnixStream;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bytes::{BufMut as _, BytesMut};
use libfuzzer_sys::fuzz_target;
use lockkeeper_engine::{Durability, Engine, EngineError, StartError};
use lockkeeper_fuzz::hello;
use lockkeeper_wire::write_frame;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

type Files = Vec<(PathBuf, Vec<u8>)>;

/// The files of a directory that an engine left in order, and those that a killed one leaves: there
/// the last commits are in a log.
fn sound() -> &'static [Files; 2] {
    static FILES: OnceLock<[Files; 2]> = OnceLock::new();
    FILES.get_or_init(|| {
        // The library that reads the file panics on some damage, which the engine catches and
        // reports: what must not happen is checked below, by what the engine says.
        panic::set_hook(Box::new(|_| {}));
        let folder = folder();
        let mut killed = Files::new();
        let meanwhile = || {
            open_sessions(&folder.path().join("socket"));
            killed = files(folder.path());
        };
        run_with(folder.path(), meanwhile).expect("an empty directory is fine");
        [files(folder.path()), killed]
    })
}

fn files(folder: &Path) -> Files {
    let paths = fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("one").path());
    let read = |path: PathBuf| {
        let name = path.file_name().expect("a file has a name").into();
        (name, fs::read(&path).expect("readable"))
    };
    paths.filter(|path| path.is_file()).map(read).collect()
}

/// Each is a commit.
fn open_sessions(socket: &Path) {
    for _ in 0..5 {
        let mut frame = BytesMut::new();
        write_frame(&mut frame, |out| out.put_slice(&hello()));
        let mut stream = UnixStream::connect(socket).expect("it listens");
        stream.write_all(&frame).expect("it reads");
        stream.read_exact(&mut [0; 4]).expect("it answers");
    }
}

fn folder() -> TempDir {
    // In memory where that can be had: nothing here is about disks.
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.expect("a folder")
}

fn run(folder: &Path) -> Result<(), StartError> {
    run_with(folder, || {})
}

fn run_with(folder: &Path, meanwhile: impl FnOnce()) -> Result<(), StartError> {
    let runtime: Runtime = Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let builder = Engine::builder()
            .unix_socket(folder.join("socket"))
            .data_dir(folder.join("."))
            .durability(Durability::Os);
        let engine = builder.start().await?;
        meanwhile();
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
    let [in_order, killed] = sound();
    let (sound, data) = match data {
        [first, rest @ ..] if first % 2 == 1 => (killed, rest),
        [_, rest @ ..] => (in_order, rest),
        [] => (in_order, data),
    };
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

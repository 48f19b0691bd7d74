//! A proxy in front of a server that injects faults which a real server cannot be made to have.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Result;

/// What is wrong behind it.
#[derive(Clone)]
pub(crate) enum Fault {
    /// Answers to four-letter words are other ones.
    Says(Arc<dyn Fn(&str) -> String + Send + Sync>),
    /// Answers take so much longer.
    Slow(Duration),
}

impl Fault {
    pub(crate) fn says(other: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self::Says(Arc::new(other))
    }
}

/// Listens in front of the server at `target`, for as long as this process lives. Tells where.
///
/// On threads of its own: tests wait for commands on theirs.
pub(crate) fn front(target: &str, fault: Fault) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (address, target) = (listener.local_addr()?.to_string(), target.to_owned());
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let (target, fault) = (target.clone(), fault.clone());
            // Its ends show on both sides.
            thread::spawn(move || drop(serve(client, &target, &fault)));
        }
    });
    Ok(address)
}

fn serve(mut client: TcpStream, target: &str, fault: &Fault) -> io::Result<()> {
    let mut server = TcpStream::connect(target)?;
    let mut first = [0; 4];
    client.read_exact(&mut first)?;
    server.write_all(&first)?;
    // The length of a request has a zero byte.
    if let (Fault::Says(other), true) = (fault, first.iter().all(u8::is_ascii_lowercase)) {
        let mut answer = String::new();
        server.read_to_string(&mut answer)?;
        return client.write_all(other(&answer).as_bytes());
    }

    let (mut requests, mut to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        // The server learns of the end, whatever its cause.
        let _ = io::copy(&mut requests, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    let delay = if let Fault::Slow(delay) = fault { *delay } else { Duration::ZERO };
    let mut buffer = [0; 4096];
    loop {
        let length = server.read(&mut buffer)?;
        if length == 0 {
            return client.shutdown(Shutdown::Both);
        }
        thread::sleep(delay);
        client.write_all(&buffer[..length])?;
    }
}

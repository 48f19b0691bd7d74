//! A server that is far away: what passes arrives later, by a time that the test knows.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// A listener in front of a server. It ends when it is dropped.
pub(crate) struct Slow {
    address: SocketAddr,
    listener: JoinHandle<()>,
}

impl Slow {
    /// Delays what goes to the server, and what comes from it, by so much each.
    pub(crate) async fn start(server: &str, delay: Duration) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, server) = (listener.local_addr()?, server.to_owned());
        let listener = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&server).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(pass(from_client, to_server, delay));
                tokio::spawn(pass(from_server, to_client, delay));
            }
        });
        Ok(Self { address, listener })
    }

    /// What clients connect to.
    pub(crate) fn connect_string(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// A listener in front of a server that says nothing for a while, and then does what the server does.
/// Gives its address.
pub(crate) async fn silent_at_first(server: &str, silence: Duration) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (address, server) = (listener.local_addr()?, server.to_owned());
    let end = Instant::now() + silence;
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let server = server.clone();
            tokio::spawn(async move {
                sleep_until(end).await;
                let Ok(mut server) = TcpStream::connect(&server).await else { return };
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    Ok(address.to_string())
}

/// Passes bytes on in their order, none of them earlier than they are due, until a side ends.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let (sender, mut receiver) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let reader = async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            let _ = sender.send((Instant::now() + delay, buffer[..length].to_vec()));
        }
    };
    let writer = async move {
        while let Some((due, bytes)) = receiver.recv().await {
            sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                break;
            }
        }
    };
    tokio::join!(reader, writer);
}

//! `lockkeeper console`: pages that show the locks, for a browser.
//!
//! ```text
//!   routes      which request gets which answer, and what every answer has
//!   actions     what a page can do: ask a holder to leave, take its lock, return an item
//!   pages/      what each page shows
//!     picture     the graph as a picture     line   the line of one lock as a picture
//!   answers     templates and refusals as answers
//!   frame       what all pages have around their content
//!   words       contenders, times and locks as the pages write them
//!   app         what all requests share
//!   watch       one cache for all viewers, a model when it has changed, and the history
//!   model       the tree at one moment, with the wait graph
//!   guard       which requests may see a page, and which may act
//!   server      the connections
//!   text        text that any client may have written
//! ```
//!
//! Invariant: no request changes anything unless `--allow-actions` was given and a page of this console sent it; and no text
//! of a znode reaches a page other than as escaped, bounded text.

mod actions;
mod answers;
mod app;
mod frame;
mod guard;
mod model;
mod pages;
mod routes;
mod server;
mod text;
mod watch;
mod words;

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use clap::Args;
use lockkeeper::{ConnectError, ConnectString, ZnodePath};
use rustix::fs::Mode;
use rustix::process::umask;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::Semaphore;

use self::app::App;
use self::guard::Gate;
use self::server::{Listener, serve};
use crate::session::connect::{self, Connection};
use crate::shared::exit::{Exit, Failure, signal_code};
use crate::shared::global::Global;
use crate::shared::names;
use crate::shared::output::{print_to_reader, tell};
use crate::shared::signals::Signals;

const NOTES: &str = "\
It prints an address with a token. Whoever has that may look, and with --allow-actions act; a browser keeps it in a cookie. The \
pages follow what happens. They cost the servers one watch on the path and one read for each change, however many look.

From another machine, through ssh:
  ssh -L 8080:localhost:8080 db1                 then open the printed address with port 8080
  lockkeeper console --listen unix:/run/user/1000/console.sock
  ssh -L 8080:/run/user/1000/console.sock db1

With --allow-actions, pages ask holders to release a lock, take a lock by force, take an item from its worker and put dead \
letters back, after a confirmation. Each act is written to standard error with the name that was typed in and the address it \
came from.

Examples:
  lockkeeper console
  lockkeeper console /backups --listen 127.0.0.1:8080
  lockkeeper console --allow-actions

Exit codes: 128 + n after signal n; 71, the address cannot be listened at; 75, the servers are gone for good; others: \
lockkeeper run --help";

/// How many pages may be open at once.
const MOST_STREAMS: usize = 64;

/// Show the locks on pages for a browser, live: holders, waiters, deadlocks, history
#[derive(Debug, Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct ConsoleOptions {
    /// The path to look below
    #[arg(default_value = "/", value_parser = names::folder)]
    path: ZnodePath,

    /// Where browsers connect: ADDRESS:PORT, with port 0 for any, or unix:PATH for a socket that only this user can use
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: ListenAddress,

    /// Let pages ask holders to leave, take locks by force, and return items of queues
    #[arg(long)]
    allow_actions: bool,

    /// Answer browsers that use this name for the machine too, as behind a proxy; may be repeated
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,

    /// Listen at an address that other machines can reach. The token can be read on the network between
    #[arg(long)]
    allow_remote: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ListenAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for ListenAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.is_empty() {
                true => Err("unix: is followed by a path"),
                false => Ok(Self::Unix(path.into())),
            };
        }
        let wrong = "write it as 127.0.0.1:8080, [::1]:8080, localhost:8080 or unix:/path";
        if let Some(port) = text.strip_prefix("localhost:") {
            let port = port.parse().map_err(|_| wrong)?;
            return Ok(Self::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)));
        }
        text.parse().map(Self::Tcp).map_err(|_| wrong)
    }
}

/// Serves the pages until a signal.
pub(crate) async fn console(global: &Global, options: ConsoleOptions) -> Result<u8, Failure> {
    let (listener, address) = listen(&options).await?;
    let id = match &listener {
        Listener::Tcp(listener) => listener.local_addr().map_or(0, |own| u32::from(own.port())),
        Listener::Unix(..) => std::process::id(),
    };
    let gate = Gate::new(options.allow_host.clone(), id)?;

    let connection = Connection::open_within(global, &mut None).await?;
    let result = with_session(global, &connection, options, &listener, &address, gate).await;
    connection.close().await;
    result
}

async fn with_session(
    global: &Global,
    connection: &Connection,
    options: ConsoleOptions,
    listener: &Listener,
    address: &str,
    gate: Gate,
) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let opened = tokio::select! {
        opened = watch::open(&connection.client, &options.path) => opened,
        failure = connection.keep_engine() => Err(failure),
        signal = signals.next_of_wait() => return Ok(signal_code(signal.as_raw())),
    };
    let (watched, follower) = opened?;

    let servers: ConnectString = connection.servers.parse().map_err(ConnectError::from)?;
    let url = format!("{address}/?token={}", gate.token());
    let app = App {
        watched,
        gate,
        client: connection.client.clone(),
        builder: connect::builder(global)?,
        hosts: servers.hosts,
        servers: connection.servers.clone(),
        path: options.path,
        allows_actions: options.allow_actions,
        streams: Arc::new(Semaphore::new(MOST_STREAMS)),
        acts: Mutex::new(VecDeque::new()),
    };
    if let Listener::Unix(_, path) = listener {
        let path = path.display();
        tell(&format!(
            "the console listens at {path}; reach it with ssh -L 8080:{path}, at port 8080 of localhost"
        ));
    }
    print_to_reader(&format!("{url}\n"))?;

    let pages = routes::routes(Arc::new(app));
    tokio::select! {
        failure = follower.run() => Err(failure),
        failure = connection.keep_engine() => Err(failure),
        () = serve(listener, pages) => Err(Failure::new(Exit::Bug, "the listener has ended")),
        signal = signals.next_of_wait() => Ok(signal_code(signal.as_raw())),
    }
}

/// Listens, and says where, as a browser writes it.
async fn listen(options: &ConsoleOptions) -> Result<(Listener, String), Failure> {
    match &options.listen {
        ListenAddress::Tcp(address) => {
            if !address.ip().is_loopback() && !options.allow_remote {
                let message =
                    format!("{address} can be reached from other machines, without encryption");
                let advice = "use 127.0.0.1 with ssh -L, or add --allow-remote";
                return Err(Failure::new(Exit::Usage, message).advise(advice));
            }
            let listener = TcpListener::bind(address)
                .await
                .map_err(|error| unusable(&address.to_string(), &error))?;
            let own =
                listener.local_addr().map_err(|error| unusable(&address.to_string(), &error))?;
            Ok((Listener::Tcp(listener), format!("http://{own}")))
        }
        ListenAddress::Unix(path) => {
            let name = path.display().to_string();
            // What is left of a console that was killed.
            let is_socket =
                path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
            if is_socket && is_refused(UnixStream::connect(path).await.err()) {
                let _ = std::fs::remove_file(path);
            }
            let before = umask(Mode::RWXG | Mode::RWXO);
            let listener = UnixListener::bind(path);
            umask(before);
            let listener = listener.map_err(|error| unusable(&name, &error))?;
            Ok((Listener::Unix(listener, path.clone()), "http://localhost".to_owned()))
        }
    }
}

fn is_refused(error: Option<io::Error>) -> bool {
    error.is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

fn unusable(address: &str, error: &io::Error) -> Failure {
    Failure::new(Exit::System, format!("cannot listen at {address}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_people_do() {
        let read = |text: &str| text.parse::<ListenAddress>().ok();
        let tcp = |text: &str| Some(ListenAddress::Tcp(text.parse().unwrap()));
        assert_eq!(read("127.0.0.1:0"), tcp("127.0.0.1:0"));
        assert_eq!(read("localhost:8080"), tcp("127.0.0.1:8080"));
        assert_eq!(read("[::1]:1"), tcp("[::1]:1"));
        assert_eq!(read("unix:/a/b"), Some(ListenAddress::Unix("/a/b".into())));
        for wrong in ["", "8080", "example:80", "unix:", "127.0.0.1"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}

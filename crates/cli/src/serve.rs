//! `lockkeeper serve`: the engine in the foreground.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lockkeeper_engine::{Builder, Durability, Engine, StartError};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Directory;
use crate::exit::{Exit, Failure};
use crate::zoo_cfg::ZooCfg;
use crate::{local, names};

const DEFAULT_PORT: u16 = 2181;

/// Run a server that any ZooKeeper client can use
///
/// It stops on TERM and INT, and then every lock is still there at the next start, for as long as
/// its session lasts. What the command line says goes before the configuration file.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// ZooKeeper's configuration file; keys that have no effect here are named in the log
    #[arg(long, value_name = "ZOO.CFG")]
    config: Option<PathBuf>,

    /// Where to listen [default: 127.0.0.1:2181]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    listen: Vec<SocketAddr>,

    /// Where to keep the data [default: a directory `serve` in LOCKKEEPER_HOME]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<Directory>,

    /// What a reply promises: sync (survives a power cut), os (survives kill -9) or memory
    #[arg(long, value_name = "sync|os|memory", default_value = "sync")]
    durability: Durability,

    /// The unit of session expiry; sessions last 2 to 20 of these [default: 2s]
    #[arg(long, value_name = "DURATION", value_parser = names::some_time)]
    tick: Option<Duration>,

    /// Listen where other machines can reach it, although nothing is encrypted
    #[arg(long)]
    allow_plaintext: bool,
}

/// Serves until a signal or an error ends it.
pub(crate) async fn serve(options: Options) -> Result<u8, Failure> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(refused)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(refused)?;
    let engine = builder(options)?.start().await.map_err(|error| match error {
        StartError::Plaintext { .. } => Failure::from(error).advise("see --allow-plaintext"),
        error => Failure::from(error),
    })?;
    let connect = engine.connect_string();
    tracing::info!("ready; try: lockkeeper --connect {connect} run demo/hello -- echo hello");
    tokio::select! {
        ended = engine.stopped() => ended?,
        _ = interrupt.recv() => tracing::info!("INT: stopping"),
        _ = terminate.recv() => tracing::info!("TERM: stopping"),
        _ = hangup.recv() => tracing::info!("HUP: stopping"),
    }
    engine.stop().await?;
    Ok(Exit::Ok.code())
}

fn refused(error: std::io::Error) -> Failure {
    Failure::new(Exit::System, format!("the system does not let signals be handled: {error}"))
}

/// The settings: the command line, then the file, then the defaults.
fn builder(options: Options) -> Result<Builder, Failure> {
    let file = match &options.config {
        Some(path) => ZooCfg::read(path)?,
        None => ZooCfg::default(),
    };
    file.warn();
    let mut listen = options.listen;
    if listen.is_empty() {
        listen.push(file.address().unwrap_or(SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT))));
    }
    let mut builder = Engine::builder().durability(options.durability);
    builder = listen.into_iter().fold(builder, Builder::listen);
    if options.durability != Durability::Memory {
        let given = options.data_dir.or(file.data_dir.clone());
        builder = builder.data_dir(match given {
            Some(directory) => directory,
            None => local::served_data()?,
        });
    }
    if options.allow_plaintext {
        builder = builder.allow_plaintext();
    }
    if let Some(tick) = options.tick.or(file.tick) {
        builder = builder.tick(tick);
    }
    Ok(file.apply(builder))
}

/// Reads `127.0.0.1:2181` or `localhost:2181`.
fn address(text: &str) -> Result<SocketAddr, String> {
    let explain = |why: &str| format!("{why}; write it like 127.0.0.1:2181");
    let mut found = text.to_socket_addrs().map_err(|error| explain(&error.to_string()))?;
    found.next().ok_or_else(|| explain("the name has no address"))
}

//! Asks the servers about their state.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lockkeeper::{
    Client, ClientBuilder, ConnectError, ConnectString, CreateMode, Error, ErrorCode, Host,
    ZnodePath, exposures,
};

use super::four_letter;
use super::judge::{AccessRights, RoomLeft, Server, ServerAnswer, Service};
use crate::session::connect::{self, Connection};
use crate::shared::exit::Failure;
use crate::shared::global::Global;

/// The number of requests that are timed.
const SAMPLES: usize = 10;

/// More data than the znode of a lock contains, in bytes.
const MORE_THAN_A_LOCK: usize = 2_048;

/// How long one server may take to answer.
const LIMIT: Duration = Duration::from_secs(3);

/// A session timeout that servers raise to their minimum of two ticks, unless a tick is shorter than half of this. Also
/// the lifetime of a connection attempt, so it must not be zero.
const TOO_SHORT: Duration = Duration::from_millis(500);

/// Examines the service of the options.
pub(super) async fn service(global: &Global, lock: Option<&ZnodePath>) -> Result<Service, Failure> {
    let connection = Connection::open(global).await?;
    let client = &connection.client;
    let marker = Marker::make(client).await;

    // Only once: it reads files, and reports errors in them.
    let builder = connect::builder(global)?.connect_timeout(LIMIT);
    let parts: ConnectString = connection.servers.parse().map_err(ConnectError::from)?;
    let mut servers = Vec::new();
    let mut shortest: Option<Duration> = None;
    for host in &parts.hosts {
        let alone = ConnectString { hosts: vec![host.clone()], ..parts.clone() }.to_string();
        let answer = answer(builder.clone(), host, &alone, marker.as_ref().ok()).await;
        if answer.is_ok() {
            shortest = shortest.max(shortest_session(builder.clone(), &alone).await);
        }
        servers.push(Server { name: host.to_string(), answer });
    }

    let found = exposed(client, lock).await;
    let room = match &marker {
        Ok(marker) => marker.room(client).await,
        Err(error) if is_full(error) => RoomLeft::Nothing,
        Err(_) => RoomLeft::All,
    };
    let (commits, skew) = match &marker {
        Ok(marker) => (marker.commits(client).await.map_err(|e| e.to_string()), Some(marker.skew)),
        Err(error) => (Err(error.to_string()), None),
    };
    let access = AccessRights {
        shows_credentials: connection.access.shows_credentials(),
        creates_open: client.creates_open(),
    };
    let last_zxid = client.last_zxid();
    let (timing, mode, told_tick) = (client.timing(), global.lease(), global.server_tick);
    let is_unnamed = connection.unnamed_engine().is_some();
    connection.close().await;
    Ok(Service {
        is_unnamed,
        servers,
        timing,
        mode,
        told_tick,
        shortest,
        room,
        commits,
        skew,
        last_zxid,
        access,
        exposures: found,
    })
}

/// Asks one server.
async fn answer(
    builder: ClientBuilder,
    host: &Host,
    alone: &str,
    marker: Option<&Marker>,
) -> Result<ServerAnswer, String> {
    let client = builder.clone().connect(alone).await.map_err(|error| error.to_string())?;

    let measured = measure(&client, marker).await;
    client.close().await;
    let (round_trip, same_service) = measured.map_err(|error| error.to_string())?;
    let who = four_letter::who(&builder, host).await;
    let digest_mismatches = four_letter::digest_mismatches(&builder, host).await;
    Ok(ServerAnswer { who, round_trip, same_service, digest_mismatches })
}

/// The fastest answer, and whether the marker exists.
async fn measure(
    client: &Client,
    marker: Option<&Marker>,
) -> Result<(Duration, Option<bool>), Error> {
    let root = ZnodePath::root();
    let mut quickest = Duration::MAX;
    for _ in 0..SAMPLES {
        let asked = Instant::now();
        client.exists(&root).await?;
        quickest = quickest.min(asked.elapsed());
    }

    let Some(marker) = marker else { return Ok((quickest, None)) };
    // The server may be behind the one that created the marker.
    client.sync(&marker.path).await?;
    let is_there = client.exists(&marker.path).await?.is_some();
    Ok((quickest, Some(is_there)))
}

/// The shortest session that a server grants; `None` if it grants the requested timeout, which is unusual.
async fn shortest_session(builder: ClientBuilder, alone: &str) -> Option<Duration> {
    let granted = match builder.session_timeout(TOO_SHORT).connect(alone).await {
        Ok(client) => {
            let granted = client.session_timeout();
            client.close().await;
            granted
        }
        Err(ConnectError::TimeoutTooShort { granted_ms, .. }) => Duration::from_millis(granted_ms),
        Err(_) => return None,
    };
    (granted > TOO_SHORT).then_some(granted)
}

async fn exposed(client: &Client, lock: Option<&ZnodePath>) -> Vec<lockkeeper::Exposure> {
    match lock {
        Some(lock) if !client.creates_open() => exposures(client, lock).await.unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// A znode that exists while the service is examined.
struct Marker {
    path: ZnodePath,
    /// The minimum difference between the server's clock and ours when the znode was created.
    skew: Duration,
}

impl Marker {
    async fn make(client: &Client) -> Result<Self, Error> {
        let name = format!("lockkeeper-doctor-{}", client.unique_id());
        let path = ZnodePath::root().child(&name).expect("letters, digits and dashes");
        let before = unix_time();
        let made = match client.create(&path, "", CreateMode::Ephemeral).await {
            // Usually, the first lock creates the chroot.
            Err(error) if error.code() == Some(ErrorCode::NoNode) => {
                client.ensure(&ZnodePath::root(), CreateMode::Container).await?;
                client.create(&path, "", CreateMode::Ephemeral).await
            }
            made => made,
        };

        let made_at = Duration::from_millis(u64::try_from(made?.stat.ctime).unwrap_or_default());
        let late = made_at.saturating_sub(unix_time());
        Ok(Self { path, skew: late.max(before.saturating_sub(made_at)) })
    }

    /// What the servers have space for. A full engine rejects growth; it rejects locks last.
    async fn room(&self, client: &Client) -> RoomLeft {
        match client.set_data(&self.path, vec![0; MORE_THAN_A_LOCK], None).await {
            Err(error) if is_full(&error) => RoomLeft::Locks,
            _ => RoomLeft::All,
        }
    }

    /// How long some writes take.
    async fn commits(&self, client: &Client) -> Result<Vec<Duration>, Error> {
        let mut times = Vec::new();
        for _ in 0..SAMPLES {
            let asked = Instant::now();
            client.set_data(&self.path, "", None).await?;
            times.push(asked.elapsed());
        }
        Ok(times)
    }
}

fn is_full(error: &Error) -> bool {
    error.code() == Some(ErrorCode::QuotaExceeded)
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

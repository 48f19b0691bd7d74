//! Words about the server itself: `srvr`, `conf`, `envi` and `dirs`.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use rustix::system::uname;

use crate::shared::Shared;

/// The version and the state of the server, in lines that monitoring tools for ZooKeeper read.
pub(super) fn srvr(shared: &Shared) -> String {
    version() + &summary(shared)
}

pub(super) fn version() -> String {
    format!("Zookeeper version: {}\n", version_text())
}

/// The release date of this version, in the form of ZooKeeper's build date, which clients expect after the version. It
/// is changed with the version; the time of the build would make every build differ.
const RELEASED: &str = "2026-11-27 00:00 UTC";

/// The release of Apache ZooKeeper whose protocol and behaviour this server has, in the form that clients expect,
/// followed by the server's own version.
pub(super) fn version_text() -> String {
    const LIKE: &str = "3.9.4";
    format!("{LIKE}-lockkeeper-{}, built on {RELEASED}", env!("CARGO_PKG_VERSION"))
}

/// The lines that `srvr` and `stat` share.
pub(super) fn summary(shared: &Shared) -> String {
    let stats = shared.metrics.stats();
    let traffic = shared.metrics.traffic();
    let latency = traffic.latency;
    format!(
        "Latency min/avg/max: {}/{:.4}/{}\n\
         Received: {}\n\
         Sent: {}\n\
         Connections: {}\n\
         Outstanding: {}\n\
         Zxid: {}\n\
         Mode: standalone\n\
         Node count: {}\n",
        latency.min.as_millis(),
        milliseconds(latency.mean()),
        latency.max.as_millis(),
        traffic.received,
        traffic.sent,
        stats.connections,
        shared.pipeline.waiting(),
        stats.last_zxid,
        stats.nodes,
    )
}

pub(super) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

pub(super) fn conf(shared: &Shared) -> String {
    let config = &shared.plan.config;
    let port = |addresses: &[std::net::SocketAddr]| {
        addresses.first().map_or(-1, |address| i32::from(address.port()))
    };

    let dir = shared.plan.data_dir.as_deref();
    let name = dir.map(|dir| dir.display().to_string()).unwrap_or_default();
    let size = dir.map_or(0, size);

    format!(
        "clientPort={}\n\
         secureClientPort={}\n\
         dataDir={name}\n\
         dataDirSize={size}\n\
         dataLogDir={name}\n\
         dataLogSize={size}\n\
         tickTime={}\n\
         maxClientCnxns={}\n\
         minSessionTimeout={}\n\
         maxSessionTimeout={}\n\
         clientPortListenBacklog={}\n\
         serverId=0\n",
        port(&shared.addresses.plain),
        port(&shared.addresses.tls),
        config.tick.as_millis(),
        shared.plan.limits.max_connections_per_address(),
        config.min_session_timeout.as_millis(),
        config.max_session_timeout.as_millis(),
        shared.plan.limits.backlog,
    )
}

/// The machine, without ZooKeeper's lines about Java.
pub(super) fn envi() -> String {
    let system = uname();
    let of_path = |path: std::io::Result<std::path::PathBuf>| {
        path.map_or_else(|_| "<NA>".to_owned(), |path| path.display().to_string())
    };
    let variable = |name| std::env::var(name).unwrap_or_else(|_| "<NA>".to_owned());

    let entries = [
        ("zookeeper.version", version_text()),
        ("host.name", system.nodename().to_string_lossy().into_owned()),
        ("os.name", system.sysname().to_string_lossy().into_owned()),
        ("os.arch", system.machine().to_string_lossy().into_owned()),
        ("os.version", system.release().to_string_lossy().into_owned()),
        ("user.name", variable("USER")),
        ("user.home", variable("HOME")),
        ("user.dir", of_path(std::env::current_dir())),
    ];

    let mut text = "Environment:\n".to_owned();
    for (key, value) in entries {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "{key}={value}");
    }
    text
}

/// Snapshots and logs are not separate here; both lines show the same value.
pub(super) fn dirs(shared: &Shared) -> String {
    let size = shared.plan.data_dir.as_deref().map_or(0, size);
    format!("datadir_size: {size}\nlogdir_size: {size}\n")
}

/// The total size of the files in a data directory, which has no subdirectories.
fn size(dir: &Path) -> u64 {
    let Ok(entries) = dir.read_dir() else {
        return 0;
    };
    entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|meta| meta.len()).sum()
}

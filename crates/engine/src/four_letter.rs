//! The words that a plain terminal can send instead of a handshake.

use std::fmt::Write;
use std::time::Duration;

use crate::conversation::Hub;

/// The answer to a word; `None` if it is not one that everybody may ask.
pub(crate) fn answer(word: [u8; 4], hub: &Hub) -> Option<String> {
    match &word {
        b"ruok" => Some("imok".to_owned()),
        b"isro" => Some("rw".to_owned()),
        b"srvr" => Some(srvr(hub)),
        _ => None,
    }
}

/// The server in eight lines, in the form that programs which watch ZooKeeper read.
fn srvr(hub: &Hub) -> String {
    let stats = hub.metrics.stats();
    let traffic = hub.metrics.traffic();
    let (min, mean, max) = traffic.latency();
    let mut text = format!("Zookeeper version: lockkeeper-{}\n", env!("CARGO_PKG_VERSION"));
    // Writing to a `String` cannot fail.
    let _ = write!(
        text,
        "Latency min/avg/max: {}/{:.4}/{}\n\
         Received: {}\n\
         Sent: {}\n\
         Connections: {}\n\
         Outstanding: {}\n\
         Zxid: {}\n\
         Mode: standalone\n\
         Node count: {}\n",
        min.as_millis(),
        milliseconds(mean),
        max.as_millis(),
        traffic.received,
        traffic.sent,
        stats.connections,
        hub.pipeline.waiting(),
        stats.last_zxid,
        stats.nodes,
    );
    text
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

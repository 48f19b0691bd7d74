//! The servers: what the client knows of them, and their answers to `srvr`. This page asks them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use futures_util::future::join_all;
use lockkeeper::{Host, ZnodePath};
use tokio::time::timeout;

use crate::commands::console::answers::page;
use crate::commands::console::app::App;
use crate::commands::console::frame::Frame;
use crate::commands::console::text;
use crate::shared::view;

/// How long a server may take.
const LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug, Template)]
#[template(path = "console/servers.html")]
struct ServersPage {
    frame: Frame,
    session: String,
    timeout: String,
    round_trip: String,
    zxid: String,
    model_zxid: String,
    nodes: String,
    rewinds: u64,
    servers: Vec<Row>,
    seen_at: String,
}

#[derive(Debug)]
struct Row {
    name: String,
    /// Whether it answers the word.
    answers: bool,
    role: String,
    version: String,
    zxid: String,
    latency: String,
    connections: String,
    outstanding: String,
}

/// The servers.
pub(crate) async fn servers(State(app): State<Arc<App>>) -> Response {
    let model = app.model();
    let began = Instant::now();
    let asked = timeout(LIMIT, app.client.stat(&ZnodePath::root()));
    let rows = join_all(app.hosts.iter().map(|host| row(&app, host)));
    let (answer, rows) =
        tokio::join!(async { asked.await.ok()?.ok().map(|_| began.elapsed()) }, rows);
    let round_trip = match answer {
        Some(took) => format!("{:.1} ms", took.as_secs_f64() * 1e3),
        None => "no answer".to_owned(),
    };
    let status = *app.client.status().borrow();
    page(&ServersPage {
        frame: Frame::new(&app, &model, "/servers", "Servers"),
        session: status.session.to_string(),
        timeout: view::duration(app.client.session_timeout()),
        round_trip,
        zxid: format!("{:#x}", app.client.last_zxid().0),
        model_zxid: format!("{:#x}", model.zxid.0),
        nodes: text::number(model.nodes),
        rewinds: status.rewinds,
        servers: rows,
        seen_at: view::local(model.at, "%T"),
    })
}

async fn row(app: &App, host: &Host) -> Row {
    let answer = timeout(LIMIT, app.builder.ask_word(host, "srvr")).await;
    let answer = answer.ok().and_then(Result::ok).unwrap_or_default();
    let value = |name: &str| {
        let found = answer.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        text::visible(found.trim(), 80)
    };
    let version = value("Zookeeper version: ");
    Row {
        name: text::visible(&host.to_string(), text::LONG),
        answers: !version.is_empty(),
        role: value("Mode: "),
        version: version.split([',', '-']).next().unwrap_or_default().to_owned(),
        zxid: value("Zxid: "),
        latency: value("Latency min/avg/max: "),
        connections: value("Connections: "),
        outstanding: value("Outstanding: "),
    }
}

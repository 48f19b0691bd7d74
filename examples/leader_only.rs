//! An HTTP service of which only one instance works at a time: the others answer 503.
//!
//! `cargo run --example leader_only` starts a server of its own; with an argument such as
//! `127.0.0.1:2181`, it uses that one.

use std::error::Error;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::{Router, body::Body, http::StatusCode, routing::get};
use http_body_util::BodyExt;
use hyper_util::client::legacy::{Client as HyperClient, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use lockkeeper::{Client, Election, Leadership};
use lockkeeper_engine::Engine;
use tokio::net::TcpListener;

type Failure = Box<dyn Error + Send + Sync>;
type Http = HyperClient<HttpConnector, Body>;

/// Longer than the work of one request.
const WORK: Duration = Duration::from_millis(500);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let engine = Engine::builder().start().await?;
    let servers = std::env::args().nth(1).unwrap_or_else(|| engine.connect_string());
    let (mut instances, mut urls) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        urls.push(format!("http://{}/", listener.local_addr()?));
        instances.push(tokio::spawn(serve(servers.clone(), listener)));
    }

    let http = HyperClient::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
    let leader = loop {
        let (first, second) = (ask(&http, &urls[0]).await?, ask(&http, &urls[1]).await?);
        if first.0 != second.0 {
            println!("first: {first:?}; second: {second:?}");
            break usize::from(second.0.is_success());
        }
    };
    instances[leader].abort();
    while !ask(&http, &urls[1 - leader]).await?.0.is_success() {}
    println!("then the other: {:?}", ask(&http, &urls[1 - leader]).await?);
    Ok(())
}

/// One instance: it answers HTTP requests, and stands for election.
async fn serve(servers: String, listener: TcpListener) -> Result<(), Failure> {
    let client = Client::connect(&servers).await?;
    let election = Election::new(&client, "/election/reports")?;
    // Weak, so that leadership ends with the future that holds it, and not with a request.
    let place = Arc::new(Mutex::new(Weak::<Leadership>::new()));
    let role = Arc::clone(&place);
    let router = Router::new().route("/", get(async move || work(&role)));
    tokio::select! {
        served = axum::serve(listener, router) => Ok(served?),
        led = election.lead(|leadership| {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&leadership);
            async move { let _leads = leadership; pending().await }
        }) => led?,
    }
}

/// Does the work if this instance will lead until the work is done.
fn work(role: &Mutex<Weak<Leadership>>) -> (StatusCode, String) {
    match role.lock().unwrap_or_else(PoisonError::into_inner).upgrade() {
        Some(leadership) if leadership.ensure(WORK).is_ok() => {
            (StatusCode::OK, format!("done, with token {}", leadership.token()))
        }
        _ => (StatusCode::SERVICE_UNAVAILABLE, "another instance leads".to_owned()),
    }
}

async fn ask(http: &Http, url: &str) -> Result<(StatusCode, String), Failure> {
    let answer = http.get(url.parse()?).await?;
    let status = answer.status();
    Ok((status, String::from_utf8(answer.into_body().collect().await?.to_bytes().into())?))
}

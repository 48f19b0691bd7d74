//! A layer for axum: the routes below it answer 503 unless this instance leads, and get the leader's token.
//!
//! `cargo run --example axum_leader` starts a server of its own; with an argument such as
//! `127.0.0.1:2181`, it uses that one.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use lockkeeper::{Client, Election, FencingToken, Leadership};
use lockkeeper_engine::Engine;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

type Failure = Box<dyn Error + Send + Sync>;

/// Longer than a request takes.
const WORK: Duration = Duration::from_millis(500);

/// The leadership of this instance, while it leads.
type Role = watch::Receiver<Option<Arc<Leadership>>>;

/// Accepts a request if this instance will lead until the request is done.
async fn only_the_leader(State(role): State<Role>, mut request: Request, next: Next) -> Response {
    let token = match &*role.borrow() {
        Some(leadership) if leadership.ensure(WORK).is_ok() => leadership.token(),
        _ => return (StatusCode::SERVICE_UNAVAILABLE, "another instance leads").into_response(),
    };
    request.extensions_mut().insert(token);
    next.run(request).await
}

async fn report(Extension(token): Extension<FencingToken>) -> String {
    format!("a report, with token {token}")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let engine = Engine::builder().start().await?;
    let servers = std::env::args().nth(1).unwrap_or_else(|| engine.connect_string());
    let client = Client::connect(&servers).await?;
    let election = Election::new(&client, "/election/reports")?;

    let (leads, role) = watch::channel(None);
    let router = Router::new()
        .route("/report", get(report))
        .layer(from_fn_with_state(role, only_the_leader))
        // The layer covers only routes that were added before it.
        .route("/health", get(async || "alive"));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });

    println!("before: {}", ask(&address.to_string(), "/report").await?);
    let leadership = Arc::new(election.campaign().await?);
    leads.send_replace(Some(Arc::clone(&leadership)));
    println!("as the leader: {}", ask(&address.to_string(), "/report").await?);

    // A request that still uses the leadership keeps the next instance waiting.
    leads.send_replace(None);
    let leadership = Arc::into_inner(leadership).ok_or("a request still runs")?;
    leadership.resign().await?;
    println!("afterwards: {}", ask(&address.to_string(), "/report").await?);
    println!("all the time: {}", ask(&address.to_string(), "/health").await?);
    client.close().await;
    Ok(())
}

/// Status and body of an answer.
async fn ask(address: &str, path: &str) -> Result<String, Failure> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no body")?;
    let status = head.lines().next().unwrap_or_default().trim_start_matches("HTTP/1.1 ");
    Ok(format!("{status}: {body}"))
}

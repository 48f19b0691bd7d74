//! A minimal HTTP/1.1 server for monitors: the metrics, and whether the engine is alive and ready.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use httparse::{EMPTY_HEADER, Request, Status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{sleep, timeout};

use crate::admin::{host, prometheus};
use crate::connection::budget::Pressure;
use crate::settings::builder::is_loopback;
use crate::shared::Shared;
use crate::sockets::pace::Pace;

/// The number of simultaneous connections. A monitor needs one.
const MAX_CONNECTIONS: usize = 256;
/// How long a connection keeps its place although others wait for one.
const GRACE: Duration = Duration::from_millis(50);
/// The number of connections accepted in a second: all that the system holds in its queue ([`BACKLOG`] by default)
/// within 256 ms, so that slow ones do not delay a probe. At this rate, each has its place for 64 ms. The accepting
/// thread also owns the tree.
///
/// [`BACKLOG`]: crate::sockets::listen::BACKLOG
const ACCEPT_RATE: u32 = 4_000;
/// The longest request, in bytes.
const MAX_REQUEST: usize = 8 * 1024;
/// The most header lines of a request. A browser sends twenty.
const MAX_HEADERS: usize = 64;
/// How long a request may take to arrive. Monitors send theirs in one packet.
const REQUEST_TIME: Duration = Duration::from_secs(2);
/// How long sending the answer may take.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// The engine is not ready while it has waited this long for the disk.
const STALLED: Duration = Duration::from_secs(2);
/// The approximate weight of a lock's nodes, in bytes.
const ONE_LOCK: usize = 1024;

/// Answers requests while the runtime runs.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let pace = Pace::per_second(ACCEPT_RATE);
    let mut open = OpenConnections::default();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        open.make_room().await;
        let shared = shared.clone();
        open.take(tokio::spawn(async move {
            // Errors of a slow or disconnected peer are not worth a log line.
            let _ = answer(stream, &shared).await;
        }));

        // A request that has arrived is answered before the next connection may need the place.
        yield_now().await;
        let pause = pace.admit(Instant::now());
        if !pause.is_zero() {
            sleep(pause).await;
        }
    }
}

/// The open connections, the oldest first.
#[derive(Default)]
struct OpenConnections(VecDeque<(Instant, JoinHandle<()>)>);

impl OpenConnections {
    /// Waits for a place, and drops the oldest connection if none becomes free soon. Otherwise connections that neither
    /// send nor read would keep others out.
    async fn make_room(&mut self) {
        self.0.retain(|(_, task)| !task.is_finished());
        if self.0.len() < MAX_CONNECTIONS {
            return;
        }
        if let Some((since, mut task)) = self.0.pop_front() {
            let left = GRACE.saturating_sub(since.elapsed());
            if timeout(left, &mut task).await.is_err() {
                task.abort();
            }
        }
    }

    fn take(&mut self, task: JoinHandle<()>) {
        self.0.push_back((Instant::now(), task));
    }
}

async fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let response = match timeout(REQUEST_TIME, read_request(&mut stream)).await {
        Ok(Ok(request)) => respond(&request, shared).await,
        Ok(Err(e)) => return Err(e),
        Err(_) => Response::text("408 Request Timeout", "the request took too long").encode(),
    };
    timeout(ANSWER_TIME, async {
        stream.write_all(response.as_bytes()).await?;
        stream.shutdown().await
    })
    .await?
}

/// Reads up to the empty line; a body is neither expected nor read.
async fn read_request(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < MAX_REQUEST {
        if stream.read_buf(&mut request).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(request)
}

async fn respond(bytes: &[u8], shared: &Shared) -> String {
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut request = Request::new(&mut headers);
    if !matches!(request.parse(bytes), Ok(Status::Complete(_))) {
        return Response::text("400 Bad Request", "not an HTTP/1.1 request").encode();
    }
    if let Err(refusal) = check_host(&request, shared) {
        return refusal.encode();
    }

    let target = request.path.unwrap_or_default();
    let path = target.split('?').next().unwrap_or_default();
    match request.method {
        Some("GET") => find(path, shared).await.encode(),
        Some("HEAD") => find(path, shared).await.encode_head(),
        _ => Response::text("405 Method Not Allowed", "only GET and HEAD are supported").encode(),
    }
}

/// Whether the request is meant for this server. A page in a browser on this machine may make its own name resolve to
/// the loopback address, and would then read the answers as its own (DNS rebinding); the header still contains that
/// name.
fn check_host(request: &Request<'_, '_>, shared: &Shared) -> Result<(), Response> {
    let is_host = |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case("host");
    let mut hosts = request.headers.iter().filter(is_host).map(|header| header.value);
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host,
        (None, None) if request.version == Some(0) => return Ok(()),
        _ => return Err(Response::text("400 Bad Request", "exactly one Host header is required")),
    };

    let names = &shared.plan.metrics_hosts;
    let is_loopback = shared.addresses.metrics.is_some_and(|address| is_loopback(&address));
    if (is_loopback || !names.is_empty()) && !host::is_allowed(host, names) {
        let why = "this name does not belong to the server: use its address, or allow the name \
                   (serve --allow-host NAME)";
        return Err(Response::text("421 Misdirected Request", why));
    }
    Ok(())
}

async fn find(path: &str, shared: &Shared) -> Response {
    match path {
        "/metrics" => Response {
            status: "200 OK",
            kind: prometheus::CONTENT_TYPE,
            body: prometheus::exposition(shared),
        },
        "/healthz" => Response::probe(alive(shared).await, "alive"),
        "/readyz" => Response::probe(ready(shared).await, "ready"),
        "/" => Response::text("200 OK", "see /metrics, /healthz and /readyz"),
        _ => Response::text("404 Not Found", "only /metrics, /healthz and /readyz exist"),
    }
}

/// Whether the engine works, apart from waiting for a disk; otherwise the reason. In that case a restart may help.
async fn alive(shared: &Shared) -> Result<(), String> {
    if shared.pipeline.is_aborted() {
        return Err("the storage has failed".to_owned());
    }
    match shared.look(|_| ()).await {
        Some(()) => Ok(()),
        None => Err("the engine is stopping".to_owned()),
    }
}

/// Whether a client would get a session and a lock now; otherwise the reason.
async fn ready(shared: &Shared) -> Result<(), String> {
    alive(shared).await?;
    if let Some(left) = shared.quiet_time_left() {
        return Err(format!("the quiet time lasts another {} s", left.as_secs_f64().ceil()));
    }
    if let Some(wait) = shared.pipeline.waits_for().filter(|wait| *wait >= STALLED) {
        return Err(format!("the disk has not completed a commit for {} s", wait.as_secs()));
    }
    let (sessions, max) = (shared.metrics.stats().sessions, shared.plan.config.max_sessions);
    if sessions >= max {
        return Err(format!("{sessions} sessions are alive, which is the limit"));
    }
    if let Some(open) = shared.admission.is_full() {
        return Err(format!(
            "{open} connections are open; the last ones are reserved for clients that reconnect"
        ));
    }
    has_room(shared)
}

/// Whether a client with a session could acquire a lock, as far as space is concerned.
fn has_room(shared: &Shared) -> Result<(), String> {
    if shared.budget.pressure() == Pressure::Full {
        let max = shared.budget.max();
        return Err(format!("the memory for waiting data is used up: all {max} bytes"));
    }

    let (weight, max) = (shared.metrics.stats().weight, shared.plan.config.max_weight);
    if weight.saturating_add(ONE_LOCK) > max {
        return Err(format!("the data takes {weight} bytes, and the limit is {max}"));
    }

    if shared.memory.is_full() {
        let (used, limit) = (shared.memory.used(), shared.memory.limit());
        return Err(format!("the process uses nearly all memory: {used} of {limit} bytes"));
    }

    if shared.disk.is_full() {
        let free = shared.disk.free();
        return Err(format!("the disk is almost full: {free} bytes are free"));
    }
    Ok(())
}

struct Response {
    status: &'static str,
    kind: &'static str,
    body: String,
}

impl Response {
    fn text(status: &'static str, line: &str) -> Self {
        Self { status, kind: "text/plain", body: format!("{line}\n") }
    }

    fn probe(result: Result<(), String>, good: &str) -> Self {
        match result {
            Ok(()) => Self::text("200 OK", good),
            Err(why) => Self::text("503 Service Unavailable", &why),
        }
    }

    fn encode(self) -> String {
        self.encode_head() + &self.body
    }

    /// Without the body, but with its length.
    fn encode_head(&self) -> String {
        format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.status,
            self.kind,
            self.body.len()
        )
    }
}

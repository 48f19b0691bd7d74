//! A service of several instances, one of which runs its jobs, and a client that balances its calls over them.
//!
//! ```text
//!   fleet instance ID SERVERS      an instance: it answers over HTTP, and stands for election
//!   fleet client SERVERS           a client: it calls the instances, again and again
//! ```

use std::{error::Error, future::pending, sync::Arc, time::Duration};

use axum::{Router, body::Body, routing::get};
use http_body_util::BodyExt;
use hyper_util::client::legacy::{Client as HyperClient, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use lockkeeper::{Client, Election, Instance, Leadership, ListedInstance};
use lockkeeper::{Pick, Registration, ServiceDirectory};
use tokio::time::{sleep, timeout};

type Failure = Box<dyn Error + Send + Sync>;
type Http = HyperClient<HttpConnector, Body>;

/// The servers notice a dead instance after this time, and the client at its first call.
const SESSION_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest duration of a job, or an answer.
const LIMIT: Duration = Duration::from_millis(500);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let connect = Client::builder().session_timeout(SESSION_TIMEOUT);
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["instance", id, servers] => be_instance(&connect.connect(servers).await?, id).await,
        ["client", servers] => be_client(&connect.connect(servers).await?).await,
        _ => Err("usage: fleet instance ID SERVERS | fleet client SERVERS".into()),
    }
}

async fn be_instance(client: &Client, id: &str) -> Result<(), Failure> {
    let answer = id.to_owned();
    let router = Router::new().route("/", get(async move || answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;

    // Found under its id, which is unique, and stays the same when the instance is restarted.
    let web = Instance::new("web", id).address("127.0.0.1").port(listener.local_addr()?.port());
    let found = Registration::start(client, "/services", web).await?;
    let told = async {
        eprintln!("{id} gets no calls: {}", found.taken().await);
        pending().await
    };

    let election = Election::builder(client, "/election/web").id(id).build()?;
    tokio::select! {
        served = axum::serve(listener, router) => Ok(served?),
        led = election.lead(|leadership| run_jobs(id, leadership)) => led?,
        never = told => never,
    }
}

/// Runs the jobs of the service, until another instance may do so.
async fn run_jobs(id: &str, leadership: Arc<Leadership>) -> Result<(), Failure> {
    loop {
        // Starts no job that would not end in time. Pass the token to the resource that the job writes.
        if leadership.ensure(LIMIT).is_ok() {
            println!("{id} runs a job with token {}", leadership.token());
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn be_client(client: &Client) -> Result<(), Failure> {
    let web = ServiceDirectory::open(client, "/services", "web").await?;
    let http = HyperClient::builder(TokioExecutor::new()).build_http();
    for number in 0_u64.. {
        match call(&web, &http).await {
            Ok(answer) => println!("call {number}: {answer} answers"),
            Err(error) => println!("call {number} failed: {error}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Calls an instance, and others if it fails. The failure also keeps the next calls away from it.
async fn call(web: &ServiceDirectory, http: &Http) -> Result<String, Failure> {
    let mut failure = "no try".into();
    for _ in 0..5 {
        match web.run(Pick::PowerOfTwo, |instance| request(http, instance)).await? {
            Ok(answer) => return Ok(answer),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

async fn request(http: &Http, to: Arc<ListedInstance>) -> Result<String, Failure> {
    let (host, port) = (to.address.as_deref().ok_or("no address")?, to.port.ok_or("no port")?);
    let answer = timeout(LIMIT, http.get(format!("http://{host}:{port}/").parse()?)).await??;
    let body = timeout(LIMIT, answer.into_body().collect()).await??;
    Ok(String::from_utf8(body.to_bytes().into())?)
}

//! A client that balances its HTTP calls over the instances of a service, one of which stops answering.
//!
//! `cargo run --example http_balancer` starts a server of its own; with an argument such as
//! `127.0.0.1:2181`, it uses that one.

use std::collections::BTreeMap;
use std::error::Error;

use axum::{Router, body::Body, routing::get};
use http_body_util::BodyExt;
use hyper_util::client::legacy::{Client as HyperClient, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use lockkeeper::{Client, Instance, ListedInstance, Pick, Registration, ServiceDirectory};
use lockkeeper_engine::Engine;
use tokio::{net::TcpListener, task::JoinHandle};

type Failure = Box<dyn Error + Send + Sync>;
type Http = HyperClient<HttpConnector, Body>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let engine = Engine::builder().start().await?;
    let servers = std::env::args().nth(1).unwrap_or_else(|| engine.connect_string());
    let (provider, consumer) = (Client::connect(&servers).await?, Client::connect(&servers).await?);

    let mut instances = Vec::new();
    for id in ["web-1", "web-2", "web-3"] {
        instances.push(start(&provider, id).await?);
    }
    let web = ServiceDirectory::open(&consumer, "/services", "web").await?;
    // Kept-alive connections would outlive the listener that is stopped below.
    let http = HyperClient::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();

    let mut answers = BTreeMap::<String, u32>::new();
    for number in 0..300 {
        // It is still in the directory, like a program that hangs.
        if number == 150 {
            instances[1].0.abort();
        }
        *answers.entry(call(&web, &http).await?).or_default() += 1;
    }
    println!("{answers:?}");
    for load in web.loads() {
        println!("{}: {:?}", load.instance.id, load.health);
    }

    drop((web, instances));
    consumer.close().await;
    provider.close().await;
    Ok(())
}

/// An instance that answers with its id, and is registered.
async fn start(client: &Client, id: &str) -> Result<(JoinHandle<()>, Registration), Failure> {
    let answer = id.to_owned();
    let router = Router::new().route("/", get(async move || answer));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let instance =
        Instance::new("web", id).address("127.0.0.1").port(listener.local_addr()?.port());
    let server = tokio::spawn(async { axum::serve(listener, router).await.expect("it serves") });
    Ok((server, Registration::start(client, "/services", instance).await?))
}

/// Calls an instance, and tries others while the call fails.
async fn call(web: &ServiceDirectory, http: &Http) -> Result<String, Failure> {
    loop {
        match web.run(Pick::PowerOfTwo, |instance| request(http, instance)).await? {
            Ok(answer) => return Ok(answer),
            Err(error) => println!("{error}; trying another"),
        }
    }
}

async fn request(http: &Http, instance: std::sync::Arc<ListedInstance>) -> Result<String, Failure> {
    let (host, port) = (instance.address.as_deref().ok_or("no address")?, instance.port);
    let answer = http.get(format!("http://{host}:{}/", port.unwrap_or(80)).parse()?).await?;
    let body = answer.into_body().collect().await?;
    Ok(String::from_utf8(body.to_bytes().into())?)
}

//! Three instances of a service, and a client that calls one of them each time.
//!
//! `cargo run --example service_directory` starts a server of its own; with an argument such as
//! `127.0.0.1:2181`, it uses that one.

use std::error::Error;

use lockkeeper::{Client, Instance, Pick, Registration, ServiceDirectory};
use lockkeeper_engine::Engine;

const BASE: &str = "/services";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().start().await?;
    let servers = std::env::args().nth(1).unwrap_or_else(|| engine.connect_string());
    let (service, user) = (Client::connect(&servers).await?, Client::connect(&servers).await?);

    // Usually each of these is a separate program.
    let mut registered = Vec::new();
    for (id, port) in [("a", 8001), ("b", 8002), ("c", 8003)] {
        let spec = "{scheme}://{address}:{port}".parse()?;
        let instance = Instance::new("web", id).address("127.0.0.1").port(port).uri_spec(spec);
        registered.push(Registration::start(&service, BASE, instance).await?);
    }

    let web = ServiceDirectory::open(&user, BASE, "web").await?;
    let mut changes = web.changes();
    for _ in 0..3 {
        call(&web)?;
    }

    // One of them is about to end: it gets no new calls, and has time for those in flight.
    registered[1].drain().await?;
    let update = changes.next().await?;
    println!("{} of {} instances take calls", enabled(&web), update.instances.len());
    for _ in 0..2 {
        call(&web)?;
    }

    for registration in registered {
        registration.unregister().await?;
    }
    while !web.instances().is_empty() {
        changes.next().await?;
    }
    println!("{}", call(&web).expect_err("no instance is left"));

    drop((changes, web));
    service.close().await;
    user.close().await;
    Ok(())
}

fn call(web: &ServiceDirectory) -> Result<(), Box<dyn Error>> {
    let call = web.pick(Pick::RoundRobin)?;
    println!("calling {}", call.instance().uri().unwrap_or_default());
    // Report a failed call with `call.failed()` or `call.outcome(result)`: an instance that fails repeatedly is
    // left out for a while.
    Ok(())
}

fn enabled(web: &ServiceDirectory) -> usize {
    web.instances().iter().filter(|instance| instance.is_enabled).count()
}

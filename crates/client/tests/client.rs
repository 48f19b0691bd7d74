//! The client beside servers, and beside what is none.

use std::sync::mpsc;
use std::time::Duration;

use lockkeeper_client::{Client, ConnectError, Contact, SessionId};
use lockkeeper_engine::Engine;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::runtime::Handle;

/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A wrong port was tried again and again for the whole connect timeout, and the error did not say
/// what was wrong.
#[tokio::test]
async fn a_stranger_is_named_after_one_round() {
    let (one, other) = (stranger().await, stranger().await);
    let patient = Client::builder().connect_timeout(Duration::from_secs(30));
    let error = patient.connect(&format!("{one},{other}")).await.unwrap_err();
    let ConnectError::NotZooKeeper(hosts) = &error else { panic!("{error:?}") };
    assert_eq!(hosts.len(), 2);
    let text = error.to_string();
    for part in [one.as_str(), other.as_str(), "HTTP/1.1 400 Bad Request", "wrong port"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

/// As long as one server may be a good one, the others do not matter.
#[tokio::test]
async fn a_stranger_in_the_list_is_passed_over() {
    let engine = Engine::builder().listen("127.0.0.1:0".parse().unwrap()).start().await.unwrap();
    let servers = format!("{},{}", stranger().await, engine.connect_string());
    for _ in 0..4 {
        Client::connect(&servers).await.unwrap().close().await;
    }
}

/// A web server.
async fn stranger() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // Whoever has gone away has seen enough.
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    address
}

/// C9: somebody who looked at the status and then called the client waited for the driver, which
/// waited with the session's lock until the look was over.
#[test]
fn c9_a_look_at_the_status_holds_nobody_up() {
    let (connected, is_connected) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let engine = Engine::builder().listen("127.0.0.1:0".parse().unwrap());
            let engine = engine.start().await.unwrap();
            let client = Client::connect(&engine.connect_string()).await.unwrap();
            connected.send((client, Handle::current())).unwrap();
            std::future::pending::<()>().await;
        });
    });
    let (client, driver) = is_connected.recv_timeout(LIMIT).unwrap();
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let status = client.status();
        let look = status.borrow();
        assert_eq!(look.contact, Contact::Connected);
        let closing = client.clone();
        driver.spawn(async move { closing.close().await });
        // The driver ends the session, and then publishes that, or waits to.
        while client.lease().session != SessionId::NONE {
            std::thread::yield_now();
        }
        drop(look);
        done.send(()).unwrap();
    });
    assert_eq!(is_done.recv_timeout(LIMIT), Ok(()), "they wait for each other");
}

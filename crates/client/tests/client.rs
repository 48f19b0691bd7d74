//! The client with real servers, and with peers that are not ZooKeeper servers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use lockkeeper_client::{
    Client, Clock, ConnectError, Contact, CreateMode, NameUse, SessionId, ZnodePath,
};
use lockkeeper_engine::Engine;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::runtime::Handle;

/// A time limit that is ample even on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A wrong port was tried again for the whole connect timeout, and the error did not name the reason.
#[tokio::test]
async fn a_stranger_is_named_after_one_round() {
    let ((one, calls), (other, other_calls)) = (stranger().await, stranger().await);
    let patient = Client::builder().connect_timeout(Duration::from_secs(30));
    let error = patient.connect(&format!("{one},{other}")).await.unwrap_err();
    let ConnectError::NotZooKeeper(hosts) = &error else { panic!("{error:?}") };
    assert_eq!(hosts.len(), 2);
    let text = error.to_string();
    for part in [one.as_str(), other.as_str(), "HTTP/1.1 400 Bad Request", "check the port"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    // Without the fix there would be about twenty attempts. The next round may have begun.
    for calls in [calls, other_calls] {
        assert!((1..=2).contains(&calls.load(Ordering::Relaxed)), "{calls:?}");
    }
}

/// N32: a connect timeout ended at the session timeout, if that was shorter.
#[tokio::test]
async fn n32_a_connect_timeout_lasts_as_long_as_it_says() {
    let session_timeout = Duration::from_millis(200);
    let connect_timeout = session_timeout * 6;
    let builder =
        Client::builder().session_timeout(session_timeout).connect_timeout(connect_timeout);
    // One address without a listener, and one server that accepts and never answers.
    let (away, hanging) = (free_address().await, TcpListener::bind("127.0.0.1:0").await.unwrap());
    let hanging = hanging.local_addr().unwrap().to_string();
    let both = format!("{away},{hanging}");
    let waits = [away, hanging, both].map(|servers| {
        let builder = builder.clone();
        tokio::spawn(async move {
            let start = Clock.now();
            let error = builder.connect(&servers).await.unwrap_err();
            assert!(matches!(error, ConnectError::Unreachable(_)), "{servers}: {error:?}");
            let waited = Clock.now().since(start);
            assert!(waited >= connect_timeout, "{servers}: {waited:?}");
        })
    });
    for wait in waits {
        wait.await.unwrap();
    }
}

/// N31: a program that repeated failed requests kept a processor busy while the servers were unreachable.
#[tokio::test]
async fn n31_a_retry_loop_costs_nothing_while_servers_are_away() {
    let session_timeout = Duration::from_millis(300);
    let builder = Client::builder().session_timeout(session_timeout);
    let client = builder.connect_later(&free_address().await).unwrap();
    let unreachable = |contact| contact == Contact::Unreachable;
    client.status().wait_for(|status| unreachable(status.contact)).await.unwrap();

    let node = ZnodePath::new("/node").unwrap();
    let attempts = AtomicUsize::new(0);
    let repeated = async {
        loop {
            let error = client.create(&node, "", CreateMode::Ephemeral).await.unwrap_err();
            assert!(error.is_unreachable() && error.is_retryable(), "{error}");
            attempts.fetch_add(1, Ordering::Relaxed);
        }
    };
    let ended: Result<(), _> = tokio::time::timeout(session_timeout * 5, repeated).await;
    assert!(ended.is_err());
    assert!(attempts.load(Ordering::Relaxed) <= 5, "{attempts:?} in five session timeouts");

    // A task that waits for a server is woken when the client is closed, and does not prevent that.
    let waiting = client.clone();
    let waiting = tokio::spawn(async move { waiting.reachable().await });
    let reply = client.data(&node);
    client.close().await;
    assert!(reply.await.unwrap_err().is_closed());
    assert!(!waiting.await.unwrap());
}

#[tokio::test]
async fn a_server_that_comes_ends_the_wait_for_one() {
    let address = free_address().await;
    let builder = Client::builder().session_timeout(Duration::from_millis(300));
    let client = builder.connect_later(&address).unwrap();
    let mut waiting = tokio::spawn({
        let client = client.clone();
        async move { client.reachable().await }
    });
    let unreachable = |contact| contact == Contact::Unreachable;
    client.status().wait_for(|status| unreachable(status.contact)).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(10), &mut waiting).await.is_err());
    let _engine = Engine::builder().listen(address.parse().unwrap()).start().await.unwrap();
    assert!(tokio::time::timeout(LIMIT, waiting).await.unwrap().unwrap());
    assert!(client.reachable().await);
    client.exists(&ZnodePath::root()).await.unwrap();
}

/// An address without a listener.
async fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

/// If one server may become usable, the errors of the others do not matter.
#[tokio::test]
async fn a_stranger_in_the_list_is_passed_over() {
    let engine = Engine::builder().listen("127.0.0.1:0".parse().unwrap()).start().await.unwrap();
    let servers = format!("{},{}", stranger().await.0, engine.connect_string());
    for _ in 0..4 {
        Client::connect(&servers).await.unwrap().close().await;
    }
}

/// Closing a client ended the locks of tasks that were still working under them.
///
/// Fails with a `Shared::close_if_released` that does not check the holds.
#[tokio::test]
async fn a_client_can_wait_for_its_holds_before_it_closes() {
    let engine = Engine::builder().listen("127.0.0.1:0".parse().unwrap()).start().await.unwrap();
    let client = Client::connect(&engine.connect_string()).await.unwrap();
    let node = ZnodePath::new("/node").unwrap();
    client.create(&node, "", CreateMode::Ephemeral).await.unwrap();
    let (one, two) = (client.hold(&node, NameUse::Once), client.hold(&node, NameUse::Once));

    let soon = Duration::from_millis(10);
    let error = client.close_when_released(soon).await.unwrap_err();
    assert_eq!((error.holds, error.waited), (2, soon));
    assert!(error.to_string().contains("2 znodes are still held"), "{error}");
    assert!(client.exists(&node).await.unwrap().is_some(), "the client is still open");

    let closing = client.clone();
    let mut closing = tokio::spawn(async move { closing.close_when_released(LIMIT).await });
    drop(one);
    assert!(tokio::time::timeout(soon, &mut closing).await.is_err(), "one is left");
    drop(two);
    assert_eq!(closing.await.unwrap(), Ok(()));
    assert_eq!(client.contact(), Contact::Closed);
    client.close_when_released(soon).await.unwrap();
}

/// Closes the session of a process that no longer runs, and its nodes with it.
///
/// Fails with a wrong password.
#[tokio::test]
async fn another_client_can_close_a_session() {
    let engine = Engine::builder().listen("127.0.0.1:0".parse().unwrap()).start().await.unwrap();
    let servers = engine.connect_string();
    let (owner, other) =
        (Client::connect(&servers).await.unwrap(), Client::connect(&servers).await);
    let (other, node) = (other.unwrap(), ZnodePath::new("/node").unwrap());
    owner.create(&node, "", CreateMode::Ephemeral).await.unwrap();

    let session = owner.session_identity().unwrap();
    assert!(!format!("{session:?}").contains(&format!("{:?}", session.password)));
    Client::builder().close_session(&servers, &session).await.unwrap();
    assert_eq!(other.exists(&node).await.unwrap(), None);
    // Closing an expired session succeeds too.
    Client::builder().close_session(&servers, &session).await.unwrap();
}

/// A web server, and the number of its connections.
async fn stranger() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            // The peer may have closed the connection.
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    (address, calls)
}

/// C9: a task that kept the status borrowed and then called the client waited for the driver, which held the
/// session's lock and waited for the borrow to end.
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
    assert_eq!(is_done.recv_timeout(LIMIT), Ok(()), "deadlock between status and session");
}

//! Just enough of HTTP/1.1 for a monitor that fetches the metrics now and then.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::conversation::Hub;
use crate::prometheus;

/// How many are served at once; more wait until one is done. A monitor needs one.
const MOST: usize = 8;
/// The longest request, in bytes.
const MAX_REQUEST: usize = 8 * 1024;
/// How long a request and its answer may take, each.
const TIME: Duration = Duration::from_secs(5);

/// Answers requests for as long as the runtime lives.
pub(crate) async fn serve(listener: TcpListener, hub: Arc<Hub>) {
    let places = Arc::new(Semaphore::new(MOST));
    loop {
        // Never closed, so there always is one some time.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let hub = hub.clone();
        tokio::spawn(async move {
            // A peer that is slow or gone is not waited for, and not worth a line.
            let _ = answer(stream, &hub).await;
            drop(place);
        });
    }
}

async fn answer(mut stream: TcpStream, hub: &Hub) -> io::Result<()> {
    let reply = match timeout(TIME, read_request(&mut stream)).await {
        Ok(Ok(request)) => reply(&request, hub),
        Ok(Err(e)) => return Err(e),
        Err(_) => response("408 Request Timeout", "text/plain", "the request took too long\n"),
    };
    timeout(TIME, async {
        stream.write_all(reply.as_bytes()).await?;
        stream.shutdown().await
    })
    .await?
}

/// Reads up to the empty line; a body is neither expected nor read.
async fn read_request(stream: &mut TcpStream) -> io::Result<String> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < MAX_REQUEST {
        if stream.read_buf(&mut request).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(String::from_utf8_lossy(&request).into_owned())
}

fn reply(request: &str, hub: &Hub) -> String {
    let mut words = request.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (words.next(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    match (method, path) {
        (Some("GET"), "/metrics") => {
            response("200 OK", prometheus::CONTENT_TYPE, &prometheus::exposition(hub))
        }
        (Some("GET"), "/") => response("200 OK", "text/plain", "the metrics are at /metrics\n"),
        (Some("GET"), _) => response("404 Not Found", "text/plain", "only /metrics is here\n"),
        _ => response("405 Method Not Allowed", "text/plain", "only GET is answered\n"),
    }
}

fn response(status: &str, kind: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\
         \r\n{body}",
        body.len()
    )
}

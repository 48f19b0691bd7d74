//! WebDriver, as far as the suite uses it: JSON over HTTP, one request for each connection.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) async fn get(address: &str, path: &str, limit: Duration) -> Result<Value> {
    ask(address, "GET", path, "", limit).await
}

pub(crate) async fn post(
    address: &str,
    path: &str,
    body: &Value,
    limit: Duration,
) -> Result<Value> {
    ask(address, "POST", path, &body.to_string(), limit).await
}

pub(crate) async fn delete(address: &str, path: &str, limit: Duration) -> Result<Value> {
    ask(address, "DELETE", path, "", limit).await
}

async fn ask(
    address: &str,
    method: &str,
    path: &str,
    body: &str,
    limit: Duration,
) -> Result<Value> {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        read_answer(stream).await
    };
    let body = timeout(limit, exchange).await.with_context(|| format!("{path} hangs"))??;
    let mut value: Value = serde_json::from_str(&body).with_context(|| body.clone())?;
    let value = value["value"].take();
    ensure!(value["error"].is_null(), "{path}: {}", value["message"]);
    Ok(value)
}

/// Reads an answer to its end. The driver keeps its connections open whatever it is asked.
async fn read_answer(mut stream: TcpStream) -> Result<String> {
    let mut answer = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&answer);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
            });
            let length: usize = length.context("a length")?;
            if body.len() >= length {
                return Ok(body.to_owned());
            }
        }
        ensure!(stream.read_buf(&mut answer).await? > 0, "the driver has closed the connection");
    }
}

//! The four-letter words by which servers tell who they are.

use std::time::Duration;

use lockkeeper::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::judge::Who;

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(2);

/// More than any answer has.
const LONGEST: u64 = 256 * 1024;

/// Who a server is; `None` if it does not tell, as behind TLS or in a socket of this machine.
pub(super) async fn who(host: &Host) -> Option<Who> {
    let text = ask(host, "srvr").await?;
    let software = value(&text, "Zookeeper version: ")?;
    let software = software.split(',').next().unwrap_or(software).trim();
    let role = value(&text, "Mode: ")?.trim().to_owned();
    Some(Who::new(software, role))
}

/// How often a server's tree was another than its leader's; `None` if it does not tell.
pub(super) async fn digest_mismatches(host: &Host) -> Option<u64> {
    let text = ask(host, "mntr").await?;
    value(&text, "zk_digest_mismatches_count")?.trim().parse().ok()
}

async fn ask(host: &Host, word: &str) -> Option<String> {
    let Host::Tcp { name, port } = host else { return None };
    let answered = timeout(LIMIT, async {
        let mut stream = TcpStream::connect((name.as_str(), *port)).await.ok()?;
        stream.write_all(word.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.take(LONGEST).read_to_end(&mut answer).await.ok()?;
        Some(String::from_utf8_lossy(&answer).into_owned())
    });
    answered.await.ok().flatten()
}

/// What follows a word at the beginning of a line.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name))
}

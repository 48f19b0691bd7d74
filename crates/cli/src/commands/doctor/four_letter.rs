//! The four-letter commands by which servers report their version and role.

use std::time::Duration;

use lockkeeper::{ClientBuilder, Host};
use tokio::time::timeout;

use super::judge::Who;

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(2);

/// The server's version and role; `None` if it does not report them.
pub(super) async fn who(builder: &ClientBuilder, host: &Host) -> Option<Who> {
    let text = ask(builder, host, "srvr").await?;
    let software = value(&text, "Zookeeper version: ")?;
    let software = software.split(',').next().unwrap_or(software).trim();
    let role = value(&text, "Mode: ")?.trim().to_owned();
    Some(Who::new(software, role))
}

/// How often a server's tree differed from its leader's; `None` if it does not report it.
pub(super) async fn digest_mismatches(builder: &ClientBuilder, host: &Host) -> Option<u64> {
    let text = ask(builder, host, "mntr").await?;
    value(&text, "zk_digest_mismatches_count")?.trim().parse().ok()
}

async fn ask(builder: &ClientBuilder, host: &Host, word: &str) -> Option<String> {
    timeout(LIMIT, builder.ask_word(host, word)).await.ok()?.ok()
}

/// The rest of the line that starts with this name.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name))
}

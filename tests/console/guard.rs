//! What is refused, without a browser.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use lockkeeper::Mutex;
use lockkeeper_testkit::command;
use tokio::net::UnixStream;

use crate::eventually;
use crate::site::{Site, cookie_of, exchange, is_asked};

/// Every kind of address.
const ADDRESSES: [&str; 6] = ["/", "/lock?path=/a", "/events", "/app.js", "/act", "/nothing"];

#[tokio::test]
async fn a_rebound_name_and_a_stranger_see_nothing() -> Result<()> {
    let site = Site::start(&["--allow-host", "locks.example"]).await?;
    let cookie = site.cookie().await?;
    for path in ADDRESSES {
        for host in ["evil.example", &site.host.replace("127.0.0.1", "127.0.0.1.evil.example"), ""]
        {
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n");
            let answer = site.ask(&request).await?;
            ensure!(answer.status == 421, "{path} as {host:?}: {}", answer.status);
        }
    }
    for path in ["/", "/lock?path=/a", "/events", "/act"] {
        let answer =
            site.ask(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", site.host)).await?;
        ensure!(
            answer.status == 401 && answer.body.contains("printed when it started"),
            "{path}: {}",
            answer.head
        );
    }
    for host in ["localhost:1", "locks.example", &site.host] {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n");
        let answer = site.ask(&request).await?;
        ensure!(answer.status == 200, "{host}: {}", answer.head);
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self'",
            "x-content-type-options: nosniff",
            "referrer-policy: same-origin",
            "cache-control: no-store",
        ] {
            ensure!(answer.head.contains(header), "{header} is not in {}", answer.head);
        }
    }
    let wrong = format!("GET /?token={} HTTP/1.1\r\nHost: {}\r\n\r\n", "0".repeat(32), site.host);
    ensure!(site.ask(&wrong).await?.status == 401);
    let long = format!("GET /?{} HTTP/1.1\r\nHost: {}\r\n\r\n", "x".repeat(100_000), site.host);
    ensure!(site.ask(&long).await.map(|answer| answer.status >= 400).unwrap_or(true));
    Ok(())
}

#[tokio::test]
async fn a_socket_is_for_its_user_and_goes_with_the_console() -> Result<()> {
    let mut site = Site::start(&["--listen", "unix:console.sock"]).await?;
    let socket = site.folder().join("console.sock");
    ensure!(fs::symlink_metadata(&socket)?.mode() & 0o077 == 0, "others can connect");
    let get = async |path: &str, more: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost:8080\r\n{more}\r\n");
        exchange(UnixStream::connect(&socket).await?, &request).await
    };

    ensure!(get("/", "").await?.status == 401, "without the token");
    let cookie = cookie_of(&get(site.start_path()?, "").await?)?;
    let page = get("/", &format!("Cookie: {cookie}\r\n")).await?;
    ensure!(page.status == 200 && page.body.contains("Lockkeeper"), "{}", page.head);
    site.stop_console().await?;
    ensure!(!socket.exists(), "it is left behind");
    Ok(())
}

#[tokio::test]
async fn nothing_is_done_for_a_foreign_page() -> Result<()> {
    let site = Site::start(&["--allow-actions"]).await?;
    let client = site.client().await?;
    let guard = Mutex::new(&client, "/a")?.acquire().await?;
    let (cookie, other) = (site.cookie().await?, site.cookie().await?);
    let host = &site.host;
    let wish = format!("do=ask&lock=/a&node={}&fence={}", guard.node(), guard.token());
    let get = format!("GET /act?{wish} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n");
    let mut page = String::new();
    eventually("the page knows the holder", async || {
        page = site.ask(&get).await?.body;
        Ok(page.contains("name=\"key\""))
    })
    .await?;
    let (_, rest) = page.split_once("name=\"key\" value=\"").context("a key")?;
    let (key, _) = rest.split_once('"').context("its end")?;

    let post = |more: &str, cookie: &str, form: &str| {
        let length = form.len();
        format!(
            "POST /act HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n{more}Content-Length: {length}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n\r\n{form}"
        )
    };
    let form = format!("{wish}&name=ann&key={key}");
    let own = format!("Origin: http://{host}\r\n");
    let other_token = form.replace(&format!("fence={}", guard.token()), "fence=1");
    let other_node = form.replace(guard.node().as_str(), "/a/other");
    for (what, status, request) in [
        ("no origin", 403, post("", &cookie, &form)),
        ("a foreign origin", 403, post("Origin: http://evil.example\r\n", &cookie, &form)),
        (
            "a foreign site",
            403,
            post("Origin: null\r\nSec-Fetch-Site: cross-site\r\n", &cookie, &form),
        ),
        ("no cookie", 401, post(&own, "", &form)),
        ("the key of another browser", 403, post(&own, &other, &form)),
        ("no key", 403, post(&own, &cookie, &wish)),
        ("no name", 400, post(&own, &cookie, &format!("{wish}&key={key}"))),
        ("a long form", 400, post(&own, &cookie, &format!("{form}&reason={}", "x".repeat(20_000)))),
        ("another holder's token", 409, post(&own, &cookie, &other_token)),
        ("another holder's node", 409, post(&own, &cookie, &other_node)),
        ("what is no deed", 400, post(&own, &cookie, &form.replace("do=ask", "do=delete"))),
    ] {
        let answer = site.ask(&request).await?;
        ensure!(answer.status == status, "{what}: {}", answer.head);
        ensure!(!is_asked(&client, "/a").await?, "{what}");
    }
    ensure!(site.ask(&post(&own, &cookie, &form)).await?.status == 200);
    guard.revoke_requested().await?;
    guard.release().await?;
    client.close().await;
    Ok(())
}

#[tokio::test]
async fn a_console_is_read_only_unless_it_was_told() -> Result<()> {
    let site = Site::start(&[]).await?;
    let cookie = site.cookie().await?;
    let get = format!(
        "GET /act?do=ask&lock=/a HTTP/1.1\r\nHost: {}\r\nCookie: {cookie}\r\n\r\n",
        site.host
    );
    let answer = site.ask(&get).await?;
    ensure!(answer.status == 403 && answer.body.contains("--allow-actions"), "{}", answer.head);

    let mut command = Command::new(command::lockkeeper()?);
    command.args(["--connect", "127.0.0.1:1", "console", "--listen", "0.0.0.0:0"]);
    let refused = command.output()?;
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.status.code() == Some(64) && told.contains("--allow-remote"), "{told}");
    Ok(())
}

//! What pages show, and how they follow.

use anyhow::{Context, Result, ensure};
use lockkeeper::Mutex;

use crate::browser::Browser;
use crate::eventually;
use crate::site::Site;

pub(crate) async fn the_first_page_shows_a_busy_tree(site: &Site, browser: &Browser) -> Result<()> {
    // The token has left the address for a cookie that no script reads.
    ensure!(!browser.address().await?.contains("token"));
    ensure!(browser.js("return document.cookie").await? == "");
    browser.shows("No program waits for a lock").await?;

    let holder = site.client().await?;
    let mut guards = Vec::new();
    for number in 0..30 {
        let lock =
            Mutex::builder(&holder, &format!("/tenants/{number}")).label("importer").build()?;
        guards.push(lock.acquire().await?);
    }
    let waiter = site.client().await?;
    let contended = Mutex::builder(&waiter, "/tenants/7").label("repairer").build()?;
    let waits = tokio::spawn(async move { contended.acquire().await });
    browser.shows("repairer").await?;
    browser.shows("/tenants/7").await?;
    let first = "return document.querySelector('#blockers tbody tr')?.innerText ?? ''";
    eventually("the holder is a root blocker", async || {
        let text = browser.js(first).await?;
        Ok(text
            .as_str()
            .is_some_and(|text| text.contains("importer") && text.contains("/tenants/7")))
    })
    .await?;

    browser.open(&site.page("/locks?q=tenants/2&sort=lock")).await?;
    let rows = "return document.querySelectorAll('#locks tbody tr').length";
    ensure!(browser.js(rows).await? == 11, "2, and 20 to 29");
    drop(guards);
    waits.await??.release().await?;
    browser.shows("No lock in use has this text").await?;
    holder.close().await;
    waiter.close().await;
    Ok(())
}

pub(crate) async fn a_hand_over_is_followed(site: &Site, browser: &Browser) -> Result<()> {
    let (first, second) = (site.client().await?, site.client().await?);
    let lock = |client, label| Mutex::builder(client, "/deploy").label(label).build();
    let held = lock(&first, "ann")?.acquire().await?;
    browser.open(&site.page("/lock?path=/deploy")).await?;
    browser.shows("ann").await?;
    // A reload would lose it.
    browser.js("window.stays = true").await?;

    let waiting = lock(&second, "ben")?;
    let waits = tokio::spawn(async move { waiting.acquire().await });
    browser.shows("ben").await?;
    browser.shows("behind 1").await?;
    let marks = "return [...document.querySelectorAll('svg.rail circle')].map((it) => it.classList[0]).join()";
    ensure!(browser.js(marks).await? == "holds,waits");
    ensure!(browser.js("return document.querySelectorAll('svg.rail .arc').length").await? == 1);

    held.release().await?;
    let next = waits.await??;
    eventually("ben holds", async || Ok(browser.js(marks).await? == "holds")).await?;
    browser.shows("waited").await?;
    next.release().await?;
    browser.shows("No program holds this lock").await?;
    ensure!(browser.js("return window.stays").await? == true, "the page was loaded again");
    first.close().await;
    second.close().await;
    Ok(())
}

pub(crate) async fn what_is_typed_stays_while_the_page_follows(
    site: &Site,
    browser: &Browser,
) -> Result<()> {
    let client = site.client().await?;
    let kept = Mutex::new(&client, "/typed/kept")?.acquire().await?;
    browser.open(&site.page("/locks")).await?;
    browser.write("body", "/").await?;
    ensure!(browser.js("return document.activeElement.id").await? == "q", "the key for the filter");
    browser.write("#q", "typed").await?;
    browser.shows("1 lock of").await?;

    let more = Mutex::new(&client, "/typed/more")?.acquire().await?;
    browser.shows("/typed/more").await?;
    ensure!(
        browser.js("return document.activeElement.id + document.activeElement.value").await?
            == "qtyped"
    );
    browser.write("#q", "/more").await?;
    browser.hides("/typed/kept").await?;
    ensure!(browser.address().await?.contains("q=typed%2Fmore"));
    kept.release().await?;
    more.release().await?;
    client.close().await;
    Ok(())
}

/// Whoever may create a lock writes its name and its owner.
pub(crate) async fn text_of_a_znode_stays_text(site: &Site, browser: &Browser) -> Result<()> {
    let client = site.client().await?;
    let hostile = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>\u{202e}";
    let path = format!("/hostile/{}", hostile.replace('/', "|"));
    let guard = Mutex::builder(&client, &path).label(hostile).build()?.acquire().await?;
    for page in ["/", "/locks", "/programs", "/history?q=hostile"] {
        browser.open(&site.page(page)).await?;
        browser.shows("<img src=x onerror=").await?;
        ensure!(
            browser.js("return document.querySelectorAll('main img, main script').length").await?
                == 0
        );
        ensure!(
            browser.text().await?.contains("⟨U+202E⟩") || page.starts_with("/history"),
            "{page}"
        );
    }
    browser.open(&site.page("/locks")).await?;
    browser.click("#locks a.path[href*=hostile]").await?;
    browser.shows("<img src=x").await?;
    let title = browser.title().await?;
    ensure!(title.starts_with("/hostile/<img"), "{title}");
    guard.release().await?;
    client.close().await;
    Ok(())
}

pub(crate) async fn a_circle_is_seen(site: &Site, browser: &Browser) -> Result<()> {
    browser.open(&site.page("/")).await?;
    let script = |other: &str| {
        format!(
            "echo held; until test -e go; do sleep 0.1; done; exec \"$LOCKKEEPER\" run -q {other} -- true"
        )
    };
    let mut one = site.runs("one", "stock/a", &script("stock/b"))?;
    let mut two = site.runs("two", "stock/b", &script("stock/a"))?;
    one.prints("held", crate::LIMIT).await?;
    two.prints("held", crate::LIMIT).await?;
    std::fs::write(site.folder().join("go"), "")?;
    browser.shows("Deadlock").await?;
    browser.shows("whose command waits").await?;
    let spoken = browser.js("return document.getElementById('spoken').textContent").await?;
    ensure!(spoken.as_str().is_some_and(|text| text.contains("1 deadlock")), "{spoken}");

    browser.open(&site.page("/graph")).await?;
    let red = "return document.querySelectorAll('svg.graph .edge.bad').length";
    eventually("the circle is red", async || Ok(browser.js(red).await?.as_u64() >= Some(4)))
        .await?;
    browser.open(&site.page("/lock?path=/stock/a")).await?;
    browser.shows("deadlock").await?;
    drop(one);
    browser.open(&site.page("/graph")).await?;
    drop(two);
    browser.hides("Deadlock").await
}

/// Everything is there after a reload, for a browser that runs no scripts.
pub(crate) async fn pages_work_without_scripts(site: &Site, browser: &Browser) -> Result<()> {
    let client = site.client().await?;
    let guard = Mutex::new(&client, "/plain")?.acquire().await?;
    let cookie = site.cookie().await?;
    let get = |path: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: {}\r\nCookie: {cookie}\r\n\r\n", site.host)
    };
    eventually("the lock is on the page", async || {
        Ok(site.ask(&get("/locks?q=plain")).await?.body.contains("/lock?path=/plain"))
    })
    .await?;
    for path in [
        "/",
        "/locks",
        "/lock?path=/plain",
        "/graph",
        "/programs",
        "/recipes",
        "/history",
        "/servers",
    ] {
        let answer = site.ask(&get(path)).await?;
        ensure!(answer.status == 200 && answer.body.contains("</html>"), "{path}: {}", answer.head);
        ensure!(!answer.body.contains("style=") && !answer.body.contains("onclick"), "{path}");
    }
    ensure!(site.ask(&get("/servers")).await?.body.contains("standalone"), "the word srvr");
    browser.open(&site.page("/locks")).await?;
    guard.release().await?;
    client.close().await;
    Ok(())
}

pub(crate) async fn a_restart_of_the_server_is_survived(
    site: &Site,
    browser: &Browser,
) -> Result<()> {
    let client = site.client().await?;
    let guard = Mutex::builder(&client, "/kept").label("keeper").build()?.acquire().await?;
    browser.open(&site.page("/")).await?;
    browser.open(&site.page("/lock?path=/kept")).await?;
    browser.shows("keeper").await?;
    site.stop_server();
    browser.shows("No server can be reached since").await?;
    browser.shows("keeper").await.context("what was seen stays")?;
    site.start_server().await?;
    browser.hides("No server can be reached since").await?;
    guard.release().await?;
    browser.shows("No program holds this lock").await?;
    client.close().await;
    Ok(())
}

//! What pages do.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use lockkeeper::{HolderState, LossReason, Mutex, Queue, Raw};
use tokio::time::timeout;

use crate::browser::Browser;
use crate::site::{Site, is_asked};
use crate::{LIMIT, eventually};

pub(crate) async fn a_holder_is_asked_after_a_confirmation(
    site: &Site,
    browser: &Browser,
) -> Result<()> {
    let client = site.client().await?;
    let guard = Mutex::builder(&client, "/asked").label("holder").build()?.acquire().await?;
    browser.open(&site.page("/lock?path=/asked")).await?;
    browser.click(".line summary").await?;
    browser.click("a[href*='do=ask']").await?;
    browser.shows("Ask the holder to release the lock?").await?;
    let confirmation = browser.address().await?;
    browser.write("#name", "Ann").await?;
    browser.write("#reason", "an upgrade").await?;
    ensure!(!is_asked(&client, "/asked").await?, "before the confirmation");
    browser.click("#confirm").await?;
    browser.shows("The holder was asked.").await?;

    timeout(LIMIT, guard.revoke_requested()).await.context("the guard is told")??;
    let request = guard.revoke_request().context("it says who asks")?;
    ensure!(
        request.by.as_deref().is_some_and(|by| by.starts_with("Ann at 127.0.0.1")),
        "{request:?}"
    );
    ensure!(request.reason.as_deref() == Some("an upgrade"), "{request:?}");
    ensure!(site.log().contains("Ann at 127.0.0.1: ask the holder of /asked"), "{}", site.log());
    browser.open(&site.page("/history")).await?;
    browser.shows("Done from this console").await?;

    // What was confirmed was another holder by then.
    guard.release().await?;
    let next = Mutex::builder(&client, "/asked").label("next").build()?.acquire().await?;
    eventually("the page knows", async || {
        browser.open(&confirmation).await?;
        Ok(browser.text().await?.contains("Another program holds the lock now"))
    })
    .await?;
    ensure!(!is_asked(&client, "/asked").await?);
    next.release().await?;
    client.close().await;
    Ok(())
}

pub(crate) async fn a_lock_is_taken_by_force(site: &Site, browser: &Browser) -> Result<()> {
    let client = site.client().await?;
    let deaf = Mutex::builder(&client, "/forced").label("deaf").build()?.acquire().await?;
    browser.open(&site.page("/lock?path=/forced")).await?;
    browser.click(".line summary").await?;
    browser.click("a[href*='do=force']").await?;
    browser.shows("Take the lock by force").await?;
    ensure!(!is_asked(&client, "/forced").await?, "before the confirmation");
    browser.click("#confirm").await?;
    browser.shows("The lock was taken by force.").await?;

    timeout(LIMIT, deaf.lost()).await.context("the guard is told")?;
    ensure!(deaf.state() == HolderState::Lost(LossReason::NodeDeleted), "{:?}", deaf.state());
    let next = Mutex::new(&client, "/forced")?.acquire_timeout(LIMIT).await?;
    ensure!(next.is_held(), "the lock is free");
    client.close().await;
    Ok(())
}

pub(crate) async fn a_dead_letter_is_put_back(site: &Site, browser: &Browser) -> Result<()> {
    let id = site.ends(&["queue", "put", "mails", "first"])?;
    site.ends(&["queue", "bury", "mails", &id, "--reason", "the address is unknown"])?;
    browser.open(&site.page("/")).await?;
    browser.shows("/mails has 1 dead letter").await?;
    browser.open(&site.page("/recipes")).await?;
    browser.click("a[href='/queue?path=/mails']").await?;
    browser.shows("the address is unknown").await?;
    browser.click("a[href*='do=retry']").await?;
    // The name is that of the last form.
    ensure!(browser.js("return document.getElementById('name').value").await? == "Ann");
    browser.click("#confirm").await?;
    browser.shows("The item is in the queue again.").await?;
    ensure!(site.ends(&["queue", "take", "-n", "mails"])? == "first");
    Ok(())
}

pub(crate) async fn an_item_is_taken_from_its_worker(site: &Site, browser: &Browser) -> Result<()> {
    let client = site.client().await?;
    let queue = Queue::<Bytes>::builder(&client, "/jobs").build_with(Raw)?;
    queue.put(&Bytes::from_static(b"resize")).await?;
    let item = queue.take().await?;
    browser.open(&site.page("/queue?path=/jobs")).await?;
    browser.shows("worked on").await?;
    browser.click("a[href*='do=return']").await?;
    browser.shows("Take the item from its worker?").await?;
    let confirmation = browser.address().await?;
    browser.click("#confirm").await?;
    browser.shows("The item is in the queue again.").await?;
    ensure!(item.done().await.is_err(), "another worker may have it");
    ensure!(queue.items(1).await?[0].claim.is_none());

    // The same confirmation again is about a claim that is gone.
    browser.open(&confirmation).await?;
    browser.click("#confirm").await?;
    browser.shows("Nothing was done.").await?;
    client.close().await;
    Ok(())
}

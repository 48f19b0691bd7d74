//! The pages of `lockkeeper console`, in a real browser, and what they refuse.
//!
//! One browser and one console serve all tests in a browser: starting Chromium takes longer than all of them.

mod acts;
mod browser;
mod guard;
mod pages;
mod site;
mod webdriver;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::time::sleep;

/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Waits until something is so. `what` says what that is.
async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + LIMIT;
    while !is_so().await? {
        if Instant::now() > end {
            bail!("not in {LIMIT:?}: {what}");
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

#[tokio::test]
async fn pages_in_a_browser() -> Result<()> {
    use lockkeeper_testkit::peers::{self, Peer};
    if !peers::ready("console", &[Peer::Chromium]) {
        return Ok(());
    }
    let site = site::Site::start(&["--allow-actions"]).await?;
    let browser = browser::Browser::start(site.folder()).await?;
    browser.open(&site.url).await?;

    let told = async {
        pages::the_first_page_shows_a_busy_tree(&site, &browser).await?;
        pages::a_hand_over_is_followed(&site, &browser).await?;
        pages::what_is_typed_stays_while_the_page_follows(&site, &browser).await?;
        pages::text_of_a_znode_stays_text(&site, &browser).await?;
        pages::a_circle_is_seen(&site, &browser).await?;
        acts::a_holder_is_asked_after_a_confirmation(&site, &browser).await?;
        acts::a_lock_is_taken_by_force(&site, &browser).await?;
        acts::a_dead_letter_is_put_back(&site, &browser).await?;
        acts::an_item_is_taken_from_its_worker(&site, &browser).await?;
        pages::pages_work_without_scripts(&site, &browser).await?;
        pages::a_restart_of_the_server_is_survived(&site, &browser).await
    };
    let told = told.await;
    if told.is_err() {
        browser.show_failure().await;
        eprintln!("{}", site.tail());
    }
    browser.end().await;
    told
}

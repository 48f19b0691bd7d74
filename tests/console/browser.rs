//! Chromium, driven by WebDriver.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::zookeeper::free_ports;
use serde_json::{Value, json};

use crate::{LIMIT, eventually, webdriver};

/// How long Chromium may take to start: a cold one on a busy machine takes long.
const START: Duration = Duration::from_secs(60);

/// A browser with one window.
pub(crate) struct Browser {
    driver_address: String,
    /// The path of its commands.
    session: String,
    _driver: Process,
}

impl Browser {
    pub(crate) async fn start(folder: &Path) -> Result<Self> {
        let [port] = free_ports::<1>()?;
        let mut command = Command::new("chromedriver");
        command.arg(format!("--port={port}")).current_dir(folder);
        let mut driver = Process::spawn("chromedriver", &command, folder)?;
        driver.prints("started successfully", START).await?;

        let profile = format!("--user-data-dir={}", folder.join("profile").display());
        let flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1280,900",
            &profile,
        ];
        let options = json!({ "goog:chromeOptions": { "args": flags } });
        let wish = json!({ "capabilities": { "alwaysMatch": options } });
        let driver_address = format!("127.0.0.1:{port}");
        let started = webdriver::post(&driver_address, "/session", &wish, START).await?;
        println!("browser: {}", started["capabilities"]["browserVersion"]);
        let id = started["sessionId"].as_str().context("a session")?;
        let session = format!("/session/{id}");
        Ok(Self { driver_address, session, _driver: driver })
    }

    async fn get(&self, path: &str) -> Result<Value> {
        webdriver::get(&self.driver_address, &format!("{}{path}", self.session), LIMIT).await
    }

    async fn post(&self, path: &str, body: Value) -> Result<Value> {
        let path = format!("{}{path}", self.session);
        webdriver::post(&self.driver_address, &path, &body, LIMIT).await
    }

    /// The path of the commands for an element.
    async fn find(&self, css: &str) -> Result<String> {
        let wish = json!({ "using": "css selector", "value": css });
        let found = self.post("/element", wish).await?;
        let id = found.as_object().and_then(|it| it.values().next()).and_then(Value::as_str);
        Ok(format!("/element/{}", id.context("an element")?))
    }

    pub(crate) async fn address(&self) -> Result<String> {
        Ok(self.get("/url").await?.as_str().unwrap_or_default().to_owned())
    }

    pub(crate) async fn title(&self) -> Result<String> {
        Ok(self.get("/title").await?.as_str().unwrap_or_default().to_owned())
    }

    pub(crate) async fn open(&self, address: &str) -> Result<()> {
        self.post("/url", json!({ "url": address })).await.map(drop)
    }

    /// What is seen of the present page.
    pub(crate) async fn text(&self) -> Result<String> {
        Ok(self.js("return document.body.innerText").await?.as_str().unwrap_or_default().to_owned())
    }

    pub(crate) async fn js(&self, script: &str) -> Result<Value> {
        self.post("/execute/sync", json!({ "script": script, "args": [] })).await
    }

    /// Waits until the present page shows a text, without a reload.
    pub(crate) async fn shows(&self, text: &str) -> Result<()> {
        eventually(&format!("the page shows {text}"), async || {
            Ok(self.text().await?.contains(text))
        })
        .await
    }

    /// Waits until it does not.
    pub(crate) async fn hides(&self, text: &str) -> Result<()> {
        eventually(&format!("the page shows {text} no more"), async || {
            Ok(!self.text().await?.contains(text))
        })
        .await
    }

    /// Clicks on what this selects.
    pub(crate) async fn click(&self, css: &str) -> Result<()> {
        eventually(&format!("{css} can be clicked"), async || {
            let Ok(element) = self.find(css).await else { return Ok(false) };
            // The page may be replaced between the look and the click.
            Ok(self.post(&format!("{element}/click"), json!({})).await.is_ok())
        })
        .await
    }

    pub(crate) async fn write(&self, css: &str, text: &str) -> Result<()> {
        let element = self.find(css).await?;
        self.post(&format!("{element}/value"), json!({ "text": text })).await.map(drop)
    }

    /// Prints the text of the page for whoever looks into a failure.
    pub(crate) async fn show_failure(&self) {
        let address = self.address().await;
        eprintln!("at {address:?}: {}", self.text().await.unwrap_or_default());
    }

    pub(crate) async fn end(self) {
        let _ = webdriver::delete(&self.driver_address, &self.session, LIMIT).await;
    }
}

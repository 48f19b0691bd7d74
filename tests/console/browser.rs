//! Chromium, driven by WebDriver.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::zookeeper::free_ports;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::eventually;

/// How long Chromium may take to start: a cold one on a busy machine takes long.
const START: Duration = Duration::from_secs(60);

/// A browser with one window.
pub(crate) struct Browser {
    pub(crate) client: Client,
    folder: PathBuf,
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
        let capabilities = options.as_object().context("an object")?.clone();
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(capabilities);
        let address = format!("http://127.0.0.1:{port}");
        let client =
            timeout(START, builder.connect(&address)).await.context("Chromium hangs")??;
        let about = client.capabilities();
        println!("browser: {:?}", about.and_then(|about| about.get("browserVersion")));
        Ok(Self { client, folder: folder.to_owned(), _driver: driver })
    }

    pub(crate) async fn open(&self, address: &str) -> Result<()> {
        Ok(self.client.goto(address).await?)
    }

    /// What is seen of the present page.
    pub(crate) async fn text(&self) -> Result<String> {
        Ok(self.js("return document.body.innerText").await?.as_str().unwrap_or_default().to_owned())
    }

    pub(crate) async fn js(&self, script: &str) -> Result<Value> {
        Ok(self.client.execute(script, Vec::new()).await?)
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
            let Ok(element) = self.client.find(Locator::Css(css)).await else { return Ok(false) };
            // The page may be replaced between the look and the click.
            Ok(element.click().await.is_ok())
        })
        .await
    }

    pub(crate) async fn write(&self, css: &str, text: &str) -> Result<()> {
        Ok(self.client.find(Locator::Css(css)).await?.send_keys(text).await?)
    }

    /// Leaves a picture and the text of the page for whoever looks into a failure.
    pub(crate) async fn show_failure(&self) {
        let address = self.client.current_url().await;
        eprintln!("at {address:?}: {}", self.text().await.unwrap_or_default());
        if let Ok(picture) = self.client.screenshot().await {
            let file = self.folder.join("failure.png");
            let _ = std::fs::write(&file, picture);
        }
    }

    pub(crate) async fn end(self) {
        let _ = self.client.close().await;
    }
}

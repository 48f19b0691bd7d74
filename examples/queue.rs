//! Images are resized: three producers put jobs into a queue, five consumers work on them. A job that fails is
//! tried again, up to three times; one that cannot succeed becomes a dead letter.
//!
//! Each producer and consumer has its own client, like programs on several machines. Kill any of them: its current
//! item goes to another consumer when its session ends, and no confirmed job is lost.
//!
//! `cargo run --example queue`

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::{Client, Failure, Item, Queue, Verdict};
use lockkeeper_engine::Engine;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::{task::JoinSet, time::sleep};

type AnyError = Box<dyn Error + Send + Sync>;

/// What producers put: JSON in the queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Resize {
    image: String,
    width: u32,
}

async fn open(servers: &str) -> Result<Queue<Resize>, AnyError> {
    let client = Client::connect(servers).await?;
    Ok(Queue::<Resize>::builder(&client, "/images/jobs").max_tries(3).build()?)
}

async fn produce(servers: String, camera: usize) -> Result<(), AnyError> {
    let jobs = open(&servers).await?;
    for number in 0..10 {
        let suffix = if number == 7 { "txt" } else { "jpg" };
        let image = format!("camera{camera}/{number}.{suffix}");
        let job = Resize { image, width: 640 };
        // Once this is confirmed, the job is in the queue until a consumer has recorded that it is done. It fails
        // if no server can be reached for long.
        while let Err(error) = jobs.put(&job).await {
            if !error.is_retryable() {
                return Err(error.into());
            }
        }
    }
    Ok(())
}

async fn consume(servers: String, mut closing: watch::Receiver<bool>) -> Result<(), AnyError> {
    let jobs = open(&servers).await?;
    // Started items are finished, as in a service that shuts down.
    let stop = async { _ = closing.wait_for(|closing| *closing).await };
    Ok(jobs.work_until(2, stop, resize).await?)
}

/// The work. It may be done twice, if its consumer is lost at the wrong moment: `queue_sqlite` shows how to
/// recognise the second time.
async fn resize(job: Arc<Item<Resize>>) -> Result<Verdict, AnyError> {
    let Resize { image, width } = job.value();
    if !image.ends_with(".jpg") {
        return Ok(Verdict::Bury(format!("{image} is not an image")));
    }
    if image.contains("/3.") {
        return Err(format!("the disk with {image} does not answer").into());
    }
    sleep(Duration::from_millis(5)).await;
    println!("{image} is {width} pixels wide now, at attempt {}", job.attempt());
    Ok(Verdict::Done)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), AnyError> {
    let engine = Engine::builder().start().await?;
    let servers = engine.connect_string();
    let (close, closing) = watch::channel(false);
    let mut producers: JoinSet<_> = (0..3).map(|camera| produce(servers.clone(), camera)).collect();
    let mut consumers: JoinSet<_> =
        (0..5).map(|_| consume(servers.clone(), closing.clone())).collect();
    while let Some(put) = producers.join_next().await {
        put??;
    }

    let jobs = open(&servers).await?;
    loop {
        let now = jobs.inspect().await?;
        println!("{} jobs wait, {} are being worked on", now.waiting, now.claimed);
        if now.waiting + now.claimed == 0 {
            break;
        }
        sleep(Duration::from_millis(50)).await;
    }
    close.send_replace(true);
    while let Some(consumed) = consumers.join_next().await {
        consumed??;
    }
    for letter in jobs.dead_letters().await? {
        println!("dead letter after {} attempts: {}", letter.attempts, letter.reason);
    }
    Ok(())
}

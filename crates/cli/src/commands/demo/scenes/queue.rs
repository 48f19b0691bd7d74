//! `queue`: one of two consumers is killed while it works.

use std::collections::BTreeMap;
use std::time::Instant;

use lockkeeper::Queue;
use serde_json::json;

use super::figures::{SceneResult, ms, timeout_ms};
use crate::commands::demo::stage::Stage;

const ITEMS: usize = 6;

/// Each item is recorded as done once, and the killed consumer's item at its second attempt.
pub(super) async fn queue(stage: &Stage<'_>) -> SceneResult {
    let path = stage.path("jobs");
    let producer = stage.actor().await?;
    let jobs: Queue<String> = Queue::new(&producer.client, &path)?;
    jobs.put_all(&(1..=ITEMS).map(|number| format!("job-{number}")).collect::<Vec<_>>()).await?;
    stage.say(&format!("   {ITEMS} items wait"))?;

    let (one, two) = (stage.actor().await?, stage.actor().await?);
    let (mut done, mut attempts) = (BTreeMap::<String, u32>::new(), BTreeMap::new());
    let consumer: Queue<String> = Queue::new(&one.client, &path)?;
    let item = consumer.take().await?;
    item.done().await?;
    *done.entry(item.value().clone()).or_default() += 1;
    stage.say(&format!("   one does {}", item.value()))?;
    let unfinished = consumer.take().await?;
    let session = timeout_ms(&one);
    let killed = one.kill();
    stage.say(&format!("   one takes {}, and is killed", unfinished.value()))?;

    let consumer: Queue<String> = Queue::new(&two.client, &path)?;
    let mut took_over = None;
    while done.len() < ITEMS {
        let item = consumer.take().await?;
        if item.value() == unfinished.value() {
            took_over = Some(ms(killed, Instant::now()));
        }
        item.done().await?;
        *done.entry(item.value().clone()).or_default() += 1;
        attempts.insert(item.value().clone(), item.attempt());
        let after = ms(killed, Instant::now());
        let (name, attempt) = (item.value(), item.attempt());
        stage.say(&format!("   after {after} ms two has done {name}, at attempt {attempt}"))?;
    }

    let left = jobs.inspect().await?;
    let left = left.waiting + left.claimed + left.delayed + left.dead;
    stage.say(&format!("   {} items are done; {left} are left", done.values().sum::<u32>()))?;
    Ok(json!({ "items": ITEMS, "done": done, "attempts": attempts, "left": left,
               "unfinished": unfinished.value(), "taken_over_ms": took_over,
               "session_timeout_ms": session }))
}

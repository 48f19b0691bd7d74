//! Programs that publish editions in parts, and follow them: nobody must see half of one.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::{Client, Outcome, Publication, SessionId, ValueChange, ValueError, Zxid};
use tokio::time::{sleep, timeout};

use super::{Scene, is_unknown_without_reason};
use crate::history::What;

/// Where the editions are.
pub const PUBLICATION: &str = "/publication";

/// How many numbers a long edition has: more than fit into one node.
const LONG: usize = 60_000;

/// How long to wait for something else to come.
const PAUSE: Duration = Duration::from_secs(2);

fn publication(client: &Client) -> Publication<Vec<u64>> {
    Publication::new(client, PUBLICATION).expect("a path")
}

/// Publishes editions, short ones and long ones: in each, all numbers are the same.
pub async fn publish(
    scene: Arc<dyn Scene + Send + Sync>,
    name: String,
    client: Client,
    mut random: fastrand::Rng,
) {
    let publication = publication(&client);
    while scene.goes_on() {
        sleep(scene.pace().mul_f64(random.f64())).await;
        let count = if random.u8(0..4) == 0 { LONG } else { random.usize(1..100) };
        // Numbers of as many digits: a long edition is long in any case.
        let edition = vec![random.u64(1_000_000_000_000..10_000_000_000_000); count];
        let session = client.session_id();
        if let Err(error) = publication.publish(&edition).await {
            let same_session = client.session_id() == session && session != SessionId::NONE;
            if error.outcome() == Outcome::Unknown
                && is_unknown_without_reason(&error, same_session)
            {
                let what = format!("unknown in one session: {error:?}");
                scene.note(&name, What::InexactValue(what));
            }
        }
    }
}

/// Follows them; says how many it has seen.
pub async fn follow(scene: Arc<dyn Scene + Send + Sync>, name: String, client: Client) -> usize {
    let mut editions = publication(&client).follow();
    let (mut newest, mut seen) = (Zxid(0), 0);
    while scene.goes_on() {
        let Ok(news) = timeout(PAUSE, editions.next()).await else { continue };
        let wrong = match news {
            Ok(ValueChange::Set(now)) => {
                seen += 1;
                let is_whole = now.value.iter().all(|number| *number == now.value[0]);
                let before = std::mem::replace(&mut newest, now.revision.mzxid);
                let is_fine = is_whole && newest > before;
                (!is_fine).then(|| format!("{:?} after {before:?}", now.revision))
            }
            Ok(ValueChange::Absent) if seen == 0 => None,
            Ok(other) => Some(format!("{other:?}")),
            Err(ValueError::Undecodable { reason, .. }) => Some(reason),
            // Without a server for a while; it goes on.
            Err(_) => {
                sleep(PAUSE).await;
                None
            }
        };
        if let Some(wrong) = wrong {
            scene.note(&name, What::InexactValue(format!("an edition: {wrong}")));
        }
    }
    seen
}

//! The test kit's programs that share data, in a program of ours that takes part.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::{Client, Counter, Shared};
use lockkeeper_testkit::clock;
use lockkeeper_testkit::history::What;
use lockkeeper_testkit::sharing::{Scene, groups, publications, services, trees, values};
use tokio::task::JoinHandle;

use super::contender::STOP;
use super::programs::PARTICIPANTS;
use super::recorder::Pen;

/// The longest pauses: of those that write a little, and of those that publish long editions, which
/// servers keep in their logs.
const PACE: Duration = Duration::from_secs(1);
const EDITIONS_PACE: Duration = Duration::from_secs(8);

/// What is said of such programs goes to the recorder.
struct Stage {
    pen: Pen,
    folder: PathBuf,
    pace: Duration,
}

impl Stage {
    fn scene(folder: &Path, who: &str, pace: Duration) -> Result<Arc<dyn Scene + Send + Sync>> {
        Ok(Arc::new(Self { pen: Pen::new(folder, who)?, folder: folder.to_owned(), pace }))
    }
}

impl Scene for Stage {
    fn now(&self) -> Duration {
        clock::now()
    }

    fn goes_on(&self) -> bool {
        !self.folder.join(STOP).exists()
    }

    /// The pen has reported its name.
    fn note(&self, _: &str, what: What) {
        self.pen.note(clock::now(), &what);
    }

    fn pace(&self) -> Duration {
        self.pace
    }
}

/// Starts all of them for a participant, on one client.
///
/// # Errors
///
/// The recorder is not there.
pub(super) fn start(
    name: &str,
    client: &Client,
    folder: &Path,
    random: &mut fastrand::Rng,
) -> Result<Vec<JoinHandle<()>>> {
    let counter = Counter::new(client, values::COUNTER)?;
    let list: Shared<Vec<u64>> = Shared::new(client, values::LIST)?;
    let who = |what: &str| format!("{name}/{what}");
    let stage = |what: &str, pace| Stage::scene(folder, &who(what), pace);
    let mut program = |what: &str| {
        let (scene, client, random) = (stage(what, PACE)?, client.clone(), random.fork());
        anyhow::Ok(values::ValueProgram { scene, client, name: who(what), random })
    };
    let mut tasks = vec![
        tokio::spawn(program("adds")?.add(counter.clone())),
        tokio::spawn(program("adds-too")?.add(counter)),
        tokio::spawn(program("appends")?.append(list.clone())),
        tokio::spawn(program("follows")?.follow(list)),
    ];

    let writer = trees::write(stage("writes", PACE)?, who("writes"), client.clone(), random.fork());
    let watcher = trees::watch(stage("tree", PACE)?, who("tree"), client.clone(), random.fork());
    let publisher = stage("publishes", EDITIONS_PACE)?;
    let publisher =
        publications::publish(publisher, who("publishes"), client.clone(), random.fork());
    let (scene, reading) = (stage("editions", PACE)?, random.fork());
    let follower = publications::follow(scene, who("editions"), client.clone(), reading);
    tasks.extend([tokio::spawn(writer), tokio::spawn(watcher)]);
    tasks.extend([tokio::spawn(publisher), tokio::spawn(follower)]);

    let ids = PARTICIPANTS.iter().filter(|participant| participant.is_ours());
    let ids: Vec<_> = ids.map(|participant| participant.name.to_owned()).collect();
    let (scene, client, mut random) = (stage("serves", PACE)?, client.clone(), random.fork());
    let server = services::serve(scene, name.to_owned(), client.clone(), random.fork());
    tokio::spawn(async move {
        // Until the program ends.
        let _registration = server.await;
        std::future::pending::<()>().await;
    });
    let (directory, watching) = (stage("directory", PACE)?, random.fork());
    let directory =
        services::watch(directory, who("directory"), client.clone(), watching, ids.clone());
    tasks.push(tokio::spawn(directory));

    let (scene, coming) = (stage("joins", PACE)?, client.clone());
    let guest = groups::come_and_go(scene, who("joins"), coming, random);
    let scene = stage("member", PACE)?;
    let member = groups::stay(scene, who("member"), client, name.to_owned(), ids);
    tasks.extend([tokio::spawn(guest), tokio::spawn(until_seen(member))]);
    Ok(tasks)
}

/// Ends when a member has seen all others; it stays in the group until the program ends.
async fn until_seen(member: impl Future<Output = Option<groups::Stays>>) {
    if let Some(stays) = member.await {
        tokio::spawn(async move {
            let _stays = stays;
            std::future::pending::<()>().await;
        });
    }
}

/// Describes the state after all programs have ended.
///
/// # Errors
///
/// This sink does not have a server.
pub(crate) async fn look(servers: &str, folder: &Path) -> Result<()> {
    let client = Client::connect(servers).await.context("the servers cannot be read")?;
    let stage = Stage::scene(folder, "world", PACE)?;
    values::look_at_the_end(&*stage, &client).await;
    publications::look_at_the_end(&*stage, &client).await;
    services::look_at_the_end(&*stage, &client).await;
    groups::look_at_the_end(&*stage, &client).await;
    client.close().await;
    Ok(())
}

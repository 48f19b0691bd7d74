//! Tree caches, and programs that write to the cached trees.
//!
//! Every transaction also writes the content of the whole tree into the top node, on condition that the top node is
//! unchanged. So each snapshot shows by itself whether it is a state of the tree, and the version of the top node gives
//! the order of the states. The answers to the writers, and the top node of each snapshot, name the transactions: from
//! these, [`crate::checker`] derives the state of the tree at the transaction that a snapshot names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::{
    CachedNode, Change, Client, CreateMode, ErrorCode, OpResult, Snapshot, Transaction, TreeCache,
    ZnodePath,
};
use tokio::time::{sleep, timeout};

use super::Scene;
use crate::data_event::DataEvent;
use crate::history::What;

/// The path of the top node.
pub const TREE: &str = "/tree";

/// The interval between two looks.
const GLANCE: Duration = Duration::from_millis(200);

/// The data of each path.
type Nodes = BTreeMap<String, String>;

fn path(text: &str) -> ZnodePath {
    ZnodePath::new(text).expect("a valid path")
}

fn parse(top: &[u8]) -> Nodes {
    let text = String::from_utf8_lossy(top).into_owned();
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines.map(|(path, data)| (path.to_owned(), data.to_owned())).collect()
}

fn print(nodes: &Nodes) -> String {
    nodes.iter().map(|(path, data)| format!("{path}={data}\n")).collect()
}

/// Creates the top node, or makes sure that it exists. Without a sync, a server that lags could show a tree without it.
pub async fn make(client: &Client) {
    while let Err(error) = client.create(&path(TREE), "", CreateMode::Persistent).await
        && error.code() != Some(ErrorCode::NodeExists)
    {
        sleep(Duration::from_millis(50)).await;
    }
}

/// Writes transactions.
pub async fn write(
    scene: Arc<dyn Scene + Send + Sync>,
    name: String,
    client: Client,
    mut random: fastrand::Rng,
) {
    while scene.goes_on() {
        // Often without a pause, because rapid changes are the hardest to follow.
        if random.u8(0..3) == 0 {
            sleep(scene.pace().mul_f64(random.f64())).await;
        }
        let Ok((top, stat)) = client.data(&path(TREE)).await else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };

        let mut nodes = parse(&top);
        let transaction = change(client.transaction(), &mut nodes, &mut random);
        // If another program wrote first, nothing of this transaction is applied.
        let transaction = transaction.set_data(&path(TREE), print(&nodes), Some(stat.version));
        if let Ok((results, zxid)) = transaction.commit_numbered().await
            && let Some(OpResult::SetData(stat)) = results.last()
        {
            let told = DataEvent::Wrote { zxid: zxid.0, version: stat.version };
            scene.note(&name, What::Data(told));
        }
    }
}

/// Adds a few changes to a transaction and applies them to `nodes`.
fn change(
    mut transaction: Transaction,
    nodes: &mut Nodes,
    random: &mut fastrand::Rng,
) -> Transaction {
    for _ in 0..random.usize(1..4) {
        let parents = nodes.keys().cloned().chain([TREE.to_owned()]);
        let parents: Vec<_> = parents.filter(|path| path.matches('/').count() < 4).collect();
        let parent = &parents[random.usize(0..parents.len())];
        let node = format!("{parent}/{}", ["a", "b", "c"][random.usize(0..3)]);

        let inside = format!("{node}/");
        let is_leaf = !nodes.keys().any(|other| other.starts_with(&inside));
        let data = random.u16(..).to_string();
        let exists = nodes.contains_key(&node);

        transaction = match random.u8(0..4) {
            0 if exists && is_leaf => {
                nodes.remove(&node);
                transaction.delete(&path(&node), None)
            }
            // Deleted and created again: its version is 0 again.
            1 if exists && is_leaf => {
                nodes.insert(node.clone(), data.clone());
                let deleted = transaction.delete(&path(&node), None);
                deleted.create(&path(&node), data, CreateMode::Persistent)
            }
            _ if exists => {
                nodes.insert(node.clone(), data.clone());
                transaction.set_data(&path(&node), data, None)
            }
            _ => {
                nodes.insert(node.clone(), data.clone());
                transaction.create(&path(&node), data, CreateMode::Persistent)
            }
        };
    }
    transaction
}

/// Keeps a cache open, replaces it now and then, and finally waits until it has seen everything.
pub async fn watch(
    scene: Arc<dyn Scene + Send + Sync>,
    name: String,
    client: Client,
    mut random: fastrand::Rng,
) {
    let mut watcher = TreeWatcher { scene, name, newest: -1 };
    while watcher.scene.goes_on() {
        let Some(cache) = open(&client).await else {
            sleep(Duration::from_millis(200)).await;
            continue;
        };

        let lasts = watcher.scene.pace().mul_f64(20.0 * random.f64());
        let until = (!random.bool()).then(|| watcher.scene.now() + lasts);
        let followed = match watcher.follow(&cache, until).await {
            Ok(()) if !watcher.scene.goes_on() => watcher.catch_up(&client, &cache).await,
            followed => followed,
        };

        if let Err(why) = followed {
            return watcher.scene.note(&watcher.name, What::InexactSnapshot(why));
        }
    }
}

/// Opens a cache that is not older than the previous one: only a single cache never goes back by itself, and the server
/// of the next session may lag.
async fn open(client: &Client) -> Option<TreeCache> {
    let session = client.session_id();
    client.sync(&path(TREE)).await.ok()?;
    let cache = TreeCache::open(client, TREE).await.ok()?;
    (client.session_id() == session).then_some(cache)
}

/// An observer of snapshots.
struct TreeWatcher {
    scene: Arc<dyn Scene + Send + Sync>,
    name: String,
    /// The version of the top node in the last snapshot.
    newest: i32,
}

impl TreeWatcher {
    /// Checks every update until that time, or while the programs run.
    async fn follow(&mut self, cache: &TreeCache, until: Option<Duration>) -> Result<(), String> {
        let mut changes = cache.changes();
        let mut seen = self.look(&cache.snapshot())?;
        while self.scene.goes_on() && until.is_none_or(|until| self.scene.now() < until) {
            let update = match timeout(GLANCE, changes.next()).await {
                Ok(Ok(update)) => update,
                Ok(Err(error)) => return Err(format!("the cache ended: {error}")),
                Err(_) => continue,
            };

            let now = self.look(&update.snapshot)?;
            update.changes.iter().try_for_each(|change| apply(change, &mut seen))?;
            if seen != now {
                return Err(format!("the changes lead to {seen:?}, and the snapshot is {now:?}"));
            }
        }
        Ok(())
    }

    /// The nodes of a snapshot, if it is a state of the tree and not older than the newest one.
    fn look(&mut self, snapshot: &Snapshot) -> Result<Nodes, String> {
        let mut nodes = Nodes::new();
        let mut top = None;
        for (path, node) in snapshot.nodes() {
            match path == TREE {
                true => top = Some(node),
                false => {
                    let data = String::from_utf8_lossy(node.data()).into_owned();
                    nodes.insert(path, data);
                }
            }
        }

        let top: &CachedNode = top.ok_or("the node at the top is missing")?;
        let said = parse(top.data());
        if said != nodes {
            return Err(format!("{nodes:?} is not a state of the tree, which is {said:?} there"));
        }

        let (version, mzxid) = (top.stat().version, top.stat().mzxid.0);
        let told = DataEvent::Saw { zxid: snapshot.zxid().0, version, mzxid };
        self.scene.note(&self.name, What::Data(told));

        if version < self.newest {
            return Err(format!("back to version {version}, after {}", self.newest));
        }
        self.newest = version;
        Ok(nodes)
    }

    /// Waits until the cache has the server's state, after the last write.
    async fn catch_up(&mut self, client: &Client, cache: &TreeCache) -> Result<(), String> {
        for _ in 0..600 {
            if let Ok((_, stat)) = client.data(&path(TREE)).await
                && cache.is_current()
            {
                self.look(&cache.snapshot())?;
                if self.newest >= stat.version {
                    return Ok(());
                }
            }
            sleep(GLANCE).await;
        }
        Err(format!("not current again, at version {}", self.newest))
    }
}

/// Applies a change that was reported, if it follows from the nodes seen.
fn apply(change: &Change, seen: &mut Nodes) -> Result<(), String> {
    let path = change.path().to_owned();
    if path == TREE {
        return Ok(());
    }

    let data = |node: &CachedNode| String::from_utf8_lossy(node.data()).into_owned();
    match change {
        Change::Created { node, .. } if !seen.contains_key(&path) => {
            seen.insert(path, data(node));
        }
        Change::Changed { node, before, .. } | Change::Replaced { node, before, .. }
            if seen.get(&path) == Some(&data(before)) =>
        {
            seen.insert(path, data(node));
        }
        Change::Deleted { before, .. } if seen.get(&path) == Some(&data(before)) => {
            seen.remove(&path);
        }
        _ => return Err(format!("{change:?} does not follow from {seen:?}")),
    }
    Ok(())
}

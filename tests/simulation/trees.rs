//! Tree caches, and programs that write what they cache.
//!
//! Every transaction also writes what the whole tree is after it into the node at its top, if that is
//! still as it was read. So each snapshot says by itself whether it is a state that the tree passed
//! through, and the version of the top in which order they came.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::{Change, Client, CreateMode, Snapshot, TreeCache, ZnodePath};
use lockkeeper_testkit::history::What;
use tokio::time::{sleep, timeout};

use crate::run::Run;

/// The node at the top.
pub(crate) const TREE: &str = "/tree";

/// Path to data.
type Nodes = BTreeMap<String, String>;

fn path(text: &str) -> ZnodePath {
    ZnodePath::new(text).expect("a path")
}

fn parse(top: &[u8]) -> Nodes {
    let text = String::from_utf8_lossy(top).into_owned();
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines.map(|(path, data)| (path.to_owned(), data.to_owned())).collect()
}

fn print(nodes: &Nodes) -> String {
    nodes.iter().map(|(path, data)| format!("{path}={data}\n")).collect()
}

/// Makes the node at the top.
pub(crate) async fn make_tree(client: &Client) {
    let _ = client.create(&path(TREE), "", CreateMode::Persistent).await;
}

/// Writes transactions until `end`.
pub(crate) async fn write_tree(
    run: Arc<Run>,
    client: Client,
    mut random: fastrand::Rng,
    end: Duration,
) {
    while run.now() < end {
        // Often one after the other, as that is what is hard to follow.
        if random.u8(0..3) == 0 {
            sleep(run.pace.register.mul_f64(random.f64())).await;
        }
        let Ok((top, stat)) = client.data(&path(TREE)).await else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let mut nodes = parse(&top);
        let mut transaction = client.transaction();
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
                // Deleted and made anew: its version is 0 again.
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
        // Somebody else may have been first; then none of it is applied.
        let top = print(&nodes);
        let _ = transaction.set_data(&path(TREE), top, Some(stat.version)).commit().await;
    }
}

/// Keeps a cache until `end`, and then until it has seen everything.
pub(crate) async fn watch_tree(
    run: Arc<Run>,
    name: String,
    client: Client,
    mut random: fastrand::Rng,
    end: Duration,
) {
    let mut newest = -1;
    while run.now() < end {
        let Ok(cache) = TreeCache::open(&client, TREE).await else {
            sleep(Duration::from_millis(200)).await;
            continue;
        };
        let lasts = run.pace.register.mul_f64(20.0 * random.f64());
        let until = if random.bool() { end } else { end.min(run.now() + lasts) };
        let followed = follow(&run, &cache, &mut newest, until).await;
        let followed = match followed {
            Ok(()) if until == end => catch_up(&client, &cache, &mut newest).await,
            followed => followed,
        };
        if let Err(why) = followed {
            return run.note(&name, What::InexactSnapshot(why));
        }
    }
}

/// Looks at every update until then.
async fn follow(
    run: &Run,
    cache: &TreeCache,
    newest: &mut i32,
    until: Duration,
) -> Result<(), String> {
    let mut changes = cache.changes();
    let mut seen = look(&cache.snapshot(), newest)?;
    while run.now() < until {
        let left = until.saturating_sub(run.now()).max(Duration::from_millis(1));
        let update = match timeout(left, changes.next()).await {
            Ok(Ok(update)) => update,
            Ok(Err(error)) => return Err(format!("the cache ended: {error}")),
            Err(_) => return Ok(()),
        };
        let now = look(&update.snapshot, newest)?;
        let told = update.changes.iter().filter(|change| change.path() != TREE);
        for change in told {
            let path = change.path().to_owned();
            let data =
                |node: &lockkeeper::CachedNode| String::from_utf8_lossy(node.data()).into_owned();
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
        }
        if seen != now {
            return Err(format!("the changes lead to {seen:?}, and the snapshot is {now:?}"));
        }
    }
    Ok(())
}

/// The nodes of a snapshot, if it is a state of the tree that is not older than the newest one.
fn look(snapshot: &Snapshot, newest: &mut i32) -> Result<Nodes, String> {
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
    let top = top.ok_or("the node at the top is missing")?;
    let said = parse(top.data());
    if said != nodes {
        return Err(format!("{nodes:?} is no state of the tree, which is {said:?} there"));
    }
    let version = top.stat().version;
    if version < *newest {
        return Err(format!("back to version {version}, after {newest}"));
    }
    *newest = version;
    Ok(nodes)
}

/// Waits until the cache has the state that the server has, when nobody writes any more.
async fn catch_up(client: &Client, cache: &TreeCache, newest: &mut i32) -> Result<(), String> {
    for _ in 0..600 {
        if let Ok((_, stat)) = client.data(&path(TREE)).await
            && cache.is_current()
        {
            let snapshot = cache.snapshot();
            look(&snapshot, newest)?;
            if *newest >= stat.version {
                return Ok(());
            }
        }
        sleep(Duration::from_millis(200)).await;
    }
    Err(format!("not current again, at version {newest}"))
}

//! Finds out which recipe uses a path, from its znode, its children and their data.

use std::collections::{BTreeMap, BTreeSet};

use lockkeeper::inspect::LockQueue;
use lockkeeper::overview::PathUse;
use lockkeeper::{Client, Error, ErrorCode, Stat, ZnodePath};
use tokio::time::timeout;

use crate::session::waiting::NOTICE_DELAY;
use crate::shared::exit::{Exit, Failure};
use crate::shared::view;

/// The recipe's name, and the command that shows it.
pub(crate) fn names(found: PathUse) -> (&'static str, &'static str) {
    match found {
        PathUse::Lock => ("a lock", "show"),
        PathUse::Queue => ("a queue", "queue ls"),
        PathUse::Pool => ("a pool", "pool ls"),
        PathUse::Value => ("a value", "value get"),
        PathUse::Counter => ("a counter", "counter get"),
        PathUse::Ids => ("a source of ids", "id"),
        PathUse::Group => ("a group", "members ls"),
        PathUse::Service => ("a service", "service ls"),
        PathUse::Barrier => ("a barrier", "barrier show"),
        _ => ("used by another recipe", "status"),
    }
}

/// Looks at a path; `None` if no recipe is known to use it. Costs one round trip, or two if only the data of a child
/// can tell.
pub(crate) async fn look(client: &Client, path: &ZnodePath) -> Result<Option<PathUse>, Error> {
    let (data, names) = tokio::join!(biased; client.data(path), client.children(path));
    let (Some((data, _)), Some((names, _))) = (there(data)?, there(names)?) else {
        return Ok(None);
    };
    if let Some(used) = PathUse::of(&data, &names) {
        return Ok(Some(used));
    }
    let Some(child) = names.first().and_then(|name| path.child(name).ok()) else { return Ok(None) };
    Ok(there(client.data(&child).await)?
        .and_then(|(data, stat)| PathUse::by_child(path, &data, &stat)))
}

fn there<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.code() == Some(ErrorCode::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Fails if another recipe uses the path.
pub(crate) async fn check(
    client: &Client,
    path: &ZnodePath,
    wanted: PathUse,
) -> Result<(), Failure> {
    match timeout(NOTICE_DELAY, look(client, path)).await {
        Ok(Ok(Some(found))) if found != wanted => {
            let ((what, see), (not, _)) = (names(found), names(wanted));
            let message = format!("{path} is {what}, not {not}");
            Err(Failure::new(Exit::Data, message).advise(&format!("see lockkeeper {see} {path}")))
        }
        // A failed read is ignored: the command's own request reports the error.
        _ => Ok(()),
    }
}

/// The failure of a command that has found unexpected data or nodes at a path. It names the recipe that uses the path,
/// if that is another one. Makes a request only for such a failure.
pub(crate) async fn explain(
    client: &Client,
    path: &ZnodePath,
    wanted: PathUse,
    failure: Failure,
) -> Failure {
    if failure.code() != Exit::Data.code() {
        return failure;
    }
    if let Err(other) = check(client, path, wanted).await {
        return other;
    }
    if wanted == PathUse::Lock {
        return failure;
    }
    // A semaphore that is not in use has only its number.
    match timeout(NOTICE_DELAY, LockQueue::inspect(client, path)).await {
        Ok(Ok(Some(LockQueue { permits: Some(permits), .. }))) => {
            let ((what, see), (not, _)) = (names(PathUse::Lock), names(wanted));
            let has = view::permits(permits);
            let message = format!("{path} is {what} with {has}, not {not}");
            failure.instead(message).advise(&format!("see lockkeeper {see} {path}"))
        }
        _ => failure,
    }
}

/// Passes a success on, and [explains](explain) a failure.
pub(crate) async fn explained<T>(
    client: &Client,
    path: &ZnodePath,
    wanted: PathUse,
    result: Result<T, Failure>,
) -> Result<T, Failure> {
    match result {
        Err(failure) => Err(explain(client, path, wanted, failure).await),
        done => done,
    }
}

/// The largest number of paths that are read at once.
const MAX_PATHS_AT_ONCE: usize = 256;

/// A recipe that is known by its children has no more of them. A path with more is not listed again.
const MAX_CHILDREN_OF_RECIPE: i32 = 16;

/// Removes what only looks like a lock: the nodes of queues, ids, barriers and services. A member of a group stays, as
/// nothing tells it from a lock of another library. A thing of a pool is held like a lock. Reads only the paths above
/// what was found, in one round trip for each 256 paths, or in two if some have few children.
pub(crate) async fn keep_locks(client: &Client, queues: &mut Vec<LockQueue>) -> Result<(), Error> {
    let above = |queue: &LockQueue| std::iter::successors(queue.path.parent(), ZnodePath::parent);
    let all: BTreeSet<_> = queues.iter().flat_map(above).filter(|path| !path.is_root()).collect();
    let mut recipes = BTreeMap::new();
    let all: Vec<_> = all.into_iter().collect();
    for paths in all.chunks(MAX_PATHS_AT_ONCE) {
        let asked: Vec<_> = paths.iter().map(|path| (path, client.data(path))).collect();
        let mut unmarked = Vec::new();
        for (path, asked) in asked {
            let Some((data, stat)) = readable(asked.await)? else { continue };
            if let Some(recipe) = PathUse::by_data(&data) {
                recipes.insert(path.clone(), recipe);
            } else if (2..=MAX_CHILDREN_OF_RECIPE).contains(&stat.num_children) {
                unmarked.push((path, client.children(path)));
            }
        }
        for (path, asked) in unmarked {
            let Some((names, _)) = readable(asked.await)? else { continue };
            recipes.extend(PathUse::by_children(&names).map(|recipe| (path.clone(), recipe)));
        }
    }

    let may_be_lock = |queue: &LockQueue| matches!(of_node(queue), None | Some(PathUse::Group));
    let is_part = |node: ZnodePath| {
        let recipe = node.parent().and_then(|path| recipes.get(&path));
        recipe.is_some_and(|recipe| recipe.is_part(node.name()))
    };
    let path = |queue: &LockQueue| std::iter::once(queue.path.clone()).chain(above(queue));
    queues.retain(|queue| may_be_lock(queue) && !path(queue).any(is_part));
    Ok(())
}

/// The recipe to which a single node belongs, as far as its data shows; `None` for a lock.
fn of_node(queue: &LockQueue) -> Option<PathUse> {
    let node = queue.entries.first().filter(|_| queue.is_node())?;
    let stat = Stat { ephemeral_owner: node.session, ..Stat::default() };
    let by_child = || PathUse::by_child(&queue.path.parent()?, &node.data, &stat);
    PathUse::by_data(&node.data).or_else(by_child)
}

/// What can be read; `None` for a node that is gone, or that the session may not read.
fn readable<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Err(error) if error.code() == Some(ErrorCode::NoAuth) => Ok(None),
        answer => there(answer),
    }
}

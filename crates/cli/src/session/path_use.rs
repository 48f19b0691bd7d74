//! Finds out which recipe uses a path, from its znode, its children and their data.

use lockkeeper::overview::PathUse;
use lockkeeper::{Client, Error, ErrorCode, ZnodePath};
use tokio::time::timeout;

use crate::session::waiting::NOTICE_DELAY;
use crate::shared::exit::{Exit, Failure};

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

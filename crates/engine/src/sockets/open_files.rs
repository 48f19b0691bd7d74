//! The limit of open files: each connection needs a file descriptor, and many systems allow 1,024 by default.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for everything except clients' connections: listeners, the data directory, monitors, and other files of
/// the process. If there are few descriptors, a quarter of them.
const OTHERS: u64 = 256;

/// Raises this process's limit of open files as far as `connections` need it and the system allows. A sufficient limit
/// is left unchanged. Returns for how many connections there is room, up to `connections`: with more, no connection
/// could be accepted, not even on reserved places, and the engine could not open any file.
pub(crate) fn make_room_for(connections: usize) -> usize {
    let needed = (connections as u64).saturating_add(OTHERS);
    let limit = getrlimit(Resource::Nofile);
    let present = limit.current.unwrap_or(u64::MAX);
    if present >= needed {
        return connections;
    }

    let possible = limit.maximum.unwrap_or(u64::MAX).min(needed);
    let raised = Rlimit { current: Some(possible), maximum: limit.maximum };
    let got = match possible > present && setrlimit(Resource::Nofile, raised).is_ok() {
        true => possible,
        false => present,
    };

    let room = usize::try_from(got - OTHERS.min(got / 4)).unwrap_or(connections);
    if room < connections {
        tracing::warn!(
            "this process may open {got} files, so at most {room} connections are accepted: raise the hard \
             limit (ulimit -Hn) for more"
        );
    }
    room.min(connections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_and_never_lowered() {
        let current = || getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let before = current();
        assert_eq!(make_room_for(1), 1);
        assert_eq!(current(), before);
        let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        make_room_for(before as usize);
        assert_eq!(current(), before.saturating_add(OTHERS).min(hard));
        let room = make_room_for(usize::MAX);
        assert!(current() <= hard);
        assert!(room as u64 <= current() - OTHERS, "{room} connections besides other files");
    }
}

//! Room for connections: each needs a file descriptor, and many systems give 1,024 unless asked.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for everything but clients' connections: listeners, the data directory, monitors, the
/// owner of the process, and what else it has open. Of few descriptors, a quarter.
const OTHERS: u64 = 256;

/// Raises this process's limit of open files as far as `connections` need it and the system
/// allows. A limit that is high enough already stays as it is. Returns how many connections there is
/// room for, up to `connections`: with more, none could be accepted any more, not even from those for
/// whom places are kept, and the engine could open no file.
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
            "this process may open {got} files, so no more than {room} connections are accepted: raise the hard \
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
        assert!(room as u64 <= current() - OTHERS, "{room} beside the files that are not theirs");
    }
}

//! Room for connections: each needs a file descriptor, and many systems give 1,024 unless asked.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for everything but connections: listeners, the data directory, and what else the
/// process has open.
const OTHERS: u64 = 128;

/// Raises this process's limit of open files as far as `connections` need it and the system
/// allows. A limit that is high enough already stays as it is.
pub(crate) fn make_room_for(connections: usize) {
    let needed = (connections as u64).saturating_add(OTHERS);
    let limit = getrlimit(Resource::Nofile);
    let present = limit.current.unwrap_or(u64::MAX);
    if present >= needed {
        return;
    }

    let possible = limit.maximum.unwrap_or(u64::MAX).min(needed);
    let raised = Rlimit { current: Some(possible), maximum: limit.maximum };
    let got = match possible > present && setrlimit(Resource::Nofile, raised).is_ok() {
        true => possible,
        false => present,
    };

    if got < needed {
        tracing::warn!(
            "this process may open {got} files, which is enough for about {} connections, while \
             {connections} are allowed: raise the hard limit (ulimit -Hn)",
            got.saturating_sub(OTHERS)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_and_never_lowered() {
        let current = || getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let before = current();
        make_room_for(1);
        assert_eq!(current(), before);
        let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        make_room_for(before as usize);
        assert_eq!(current(), before.saturating_add(OTHERS).min(hard));
        make_room_for(usize::MAX);
        assert!(current() <= hard);
    }
}

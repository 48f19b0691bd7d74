//! What `{:?}` shows of locks and recipes: the type and where it is. What they contain is of no use to a reader of
//! a log.

use std::fmt;

use crate::election::Election;
use crate::group::Group;
use crate::locks::{ExclusiveNode, MultiLock, Mutex, ReentrantMutex, RwLock, Semaphore};
use crate::names::Names;
use crate::values::{Counter, Notify};

macro_rules! by_path {
    ($($type:ident),*) => {$(
        /// Its path.
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($type), self.path())
            }
        }
    )*};
}

by_path! {
    Mutex, ReentrantMutex, RwLock, Semaphore, ExclusiveNode, Election, Group, Names, Counter, Notify
}

/// Its paths.
impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.paths().map(|path| path.as_str()).collect();
        write!(f, "MultiLock({})", paths.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_client::Client;

    use super::*;
    use crate::locks::Locks;
    use crate::once::Once;
    use crate::values::{IdBlocks, Publication, Shared};

    /// A mutex filled 593 characters of a log.
    #[tokio::test]
    async fn what_is_shown_fits_into_a_line_of_a_log() {
        let client = &Client::builder().connect_later("127.0.0.1:1").unwrap();
        let mutex = Mutex::new(client, "/a").unwrap();
        assert_eq!(format!("{mutex:?}"), "Mutex(/a)");
        // A path that was checked before is taken too.
        assert_eq!(Mutex::new(client, mutex.path()).unwrap().path(), mutex.path());
        let multi = MultiLock::new(client, ["/a", "/b"]).unwrap();
        assert_eq!(format!("{multi:?}"), "MultiLock(/a, /b)");
        assert_eq!(format!("{client:?}"), "Client(session 0x0, Disconnected)");

        let shown: [&dyn fmt::Debug; 14] = [
            &ReentrantMutex::new(client, "/a").unwrap(),
            &RwLock::new(client, "/a").unwrap(),
            &Semaphore::new(client, "/a", 2).unwrap(),
            &ExclusiveNode::new(client, "/a").unwrap(),
            &Locks::new(client, "/a").unwrap(),
            &Election::new(client, "/a").unwrap(),
            &Group::new(client, "/a").unwrap(),
            &Names::new(client, "/a").unwrap(),
            &Counter::new(client, "/a").unwrap(),
            &IdBlocks::new(&Counter::new(client, "/a").unwrap(), 10),
            &Notify::new(client, "/a").unwrap(),
            &Shared::<u8>::new(client, "/a").unwrap(),
            &Publication::<u8>::new(client, "/a").unwrap(),
            &Once::new(client, "/a").unwrap(),
        ];
        for shown in shown.map(|shown| format!("{shown:?}")) {
            assert!(shown.len() < 160 && shown.contains("/a"), "{}: {shown}", shown.len());
        }
    }
}

//! The locks for programs without async: the same names, and calls that wait.
//!
//! ```text
//!   Client            a session, served by a thread of its own
//!   Lock<L>           any lock of this crate: Mutex, ReentrantMutex, ExclusiveNode, …
//!   Builder<B>        the options of any lock
//!   Guard<G>          any guard of this crate
//!   Locks             a lock for any key
//!   Election          one leader at a time; Leaders: who it is
//!   Names             names that one program has at a time
//!   Once              something is done once for each key
//!   Group             programs that are there; Members: which
//!   TreeCache         a part of the tree in memory
//!   Presence          a node that is there while this program is
//!   ServiceDirectory  the instances of a service; Registration: to be one of them
//!   Shared, Counter   values that programs share; Publication, IdBlocks, Notify
//!   inspect, revoke   who holds and who waits; asking holders to leave
//! ```
//!
//! Each type here stands for the async one of the same name, whose page has the guarantees, the znodes,
//! the costs and an example.
//!
//! # Guarantees
//!
//! - Those of each lock.
//! - It can be used and dropped anywhere, in async code too, where waiting blocks the thread, so that
//!   nothing else on that thread goes on.
//!
//! # Not guaranteed
//!
//! Work does not stop when a lock is lost: a thread cannot be stopped. Ask [`Guard::ensure`] before each
//! step, or use tokens.
//!
//! # Cost
//!
//! That of each lock, and a thread for each [`Client`].
//!
//! # Examples
//!
//! ```
//! # let (send, servers) = std::sync::mpsc::channel();
//! # let (done, wait) = tokio::sync::oneshot::channel::<()>();
//! # let server = std::thread::spawn(move || {
//! #     tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! #         let engine = lockkeeper_engine::Engine::builder().start().await.unwrap();
//! #         send.send(engine.connect_string()).unwrap();
//! #         wait.await.ok();
//! #     })
//! # });
//! # let servers = servers.recv()?;
//! use lockkeeper::blocking::{Client, Mutex};
//!
//! let client = Client::connect(&servers)?;
//! let lock = Mutex::new(&client, "/locks/orders")?;
//!
//! let guard = lock.acquire()?;
//! println!("held; fencing token {}", guard.token());
//! guard.verify()?;
//! guard.release()?;
//! # drop((lock, client));
//! # done.send(()).ok();
//! # server.join().unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Methods
//!
//! Every method of the async locks and guards is here too, and waits; except `run` and `run_through`, which
//! would have to stop a thread. The work of [`Election::lead`] asks between its steps whether it may go on. No
//! method returns a future, which would do nothing here, as nothing
//! polls it: what is only for async code does not compile.
//!
//! ```compile_fail
//! fn work(guard: &lockkeeper::blocking::Guard<lockkeeper::MutexGuard>) {
//!     guard.run(async { println!("never") });
//! }
//! ```
//!
//! ```compile_fail
//! fn is_free(lock: &lockkeeper::blocking::Mutex) -> bool {
//!     let lock: &lockkeeper::Mutex = lock;
//!     lock.path().is_root()
//! }
//! ```
//!
//! Where async code is wanted, `as_async` has its types, and [`Client::wait`] waits for a future:
//!
//! ```
//! use lockkeeper::{LossReason, MutexGuard, blocking};
//!
//! fn work(
//!     client: &blocking::Client,
//!     guard: &blocking::Guard<MutexGuard>,
//! ) -> Result<(), LossReason> {
//!     client.wait(guard.as_async().run(async { println!("held") }))
//! }
//!
//! fn is_root(lock: &blocking::Mutex) -> bool {
//!     let lock: &lockkeeper::Mutex = lock.as_async();
//!     lock.path().is_root()
//! }
//! ```

mod admin;
mod client;
mod discovery;
mod election;
mod forward;
mod group;
mod guard;
mod locks;
mod names;
mod once;
mod runtime;
mod transaction;
mod values;
mod watch;

use lockkeeper_client::{Error, ZnodePath};

use crate::exposure::Exposure;

pub use crate::blocking::admin::{inspect, revoke};
pub use crate::blocking::client::Client;
pub use crate::blocking::discovery::{DirectoryChanges, Registration, ServiceDirectory};
pub use crate::blocking::election::{Election, ElectionBuilder, Leaders};
pub use crate::blocking::group::{Group, MemberChanges, Members, Membership};
pub use crate::blocking::guard::Guard;
pub use crate::blocking::locks::{
    Builder, ExclusiveNode, ExclusiveNodeBuilder, Lock, Locks, MultiLock, MultiLockBuilder, Mutex,
    MutexBuilder, ReentrantMutex, ReentrantMutexBuilder, RwLock, RwLockBuilder, Semaphore,
    SemaphoreBuilder,
};
pub use crate::blocking::names::Names;
pub use crate::blocking::once::{Once, OnceRun};
pub use crate::blocking::transaction::Transaction;
pub use crate::blocking::values::{
    Counter, Editions, IdBlocks, Notify, Publication, Shared, ValueChanges,
};
pub use crate::blocking::watch::{CacheChanges, Presence, TreeCache, TtlPresence};

/// As [`crate::exposures`].
///
/// # Errors
/// As [`crate::exposures`].
pub fn exposures(client: &Client, lock: &ZnodePath) -> Result<Vec<Exposure>, Error> {
    client.wait(crate::exposure::exposures(client.as_async(), lock))
}

#[cfg(test)]
mod tests {
    /// What the async side offers, and what is here.
    const ASYNC: &[&str] = &[
        include_str!("../admin/inspect.rs"),
        include_str!("../admin/revoke.rs"),
        include_str!("../discovery/directory.rs"),
        include_str!("../discovery/registration.rs"),
        include_str!("../election/leaders.rs"),
        include_str!("../election/mod.rs"),
        include_str!("../exposure.rs"),
        include_str!("../group/members.rs"),
        include_str!("../group/membership.rs"),
        include_str!("../group/mod.rs"),
        include_str!("../guard/mod.rs"),
        include_str!("../locks/exclusive_node.rs"),
        include_str!("../locks/multi_lock/guard.rs"),
        include_str!("../locks/multi_lock/mod.rs"),
        include_str!("../locks/mutex.rs"),
        include_str!("../locks/reentrant_mutex.rs"),
        include_str!("../locks/registry.rs"),
        include_str!("../locks/rw_lock/mod.rs"),
        include_str!("../locks/rw_lock/upgrade.rs"),
        include_str!("../locks/rw_lock/write_guard.rs"),
        include_str!("../locks/semaphore/guard.rs"),
        include_str!("../locks/semaphore/mod.rs"),
        include_str!("../names/mod.rs"),
        include_str!("../watch/presence.rs"),
        include_str!("../watch/tree_cache.rs"),
        include_str!("../watch/ttl_presence.rs"),
        include_str!("../values/changes.rs"),
        include_str!("../values/counter.rs"),
        include_str!("../values/editions.rs"),
        include_str!("../values/id_blocks.rs"),
        include_str!("../values/notify.rs"),
        include_str!("../values/publication.rs"),
        include_str!("../values/shared.rs"),
    ];
    const BLOCKING: &[&str] = &[
        include_str!("admin.rs"),
        include_str!("discovery.rs"),
        include_str!("election.rs"),
        include_str!("group.rs"),
        include_str!("guard.rs"),
        include_str!("locks.rs"),
        include_str!("mod.rs"),
        include_str!("names.rs"),
        include_str!("watch.rs"),
        include_str!("values.rs"),
    ];

    /// Downgrades, upgrades, numbers of permits and more were missing. A name is enough to be found
    /// here; that each does what it says is for the contract tests.
    ///
    /// Seen to fail without `Guard::downgrade`.
    #[test]
    fn nothing_is_missing_here() {
        let words = |text: &str| -> Vec<String> {
            text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect()
        };
        let is_code = |line: &&str| !line.trim().starts_with("//");
        let code = |text: &str| -> String {
            let lines = text.lines().take_while(|line| *line != "#[cfg(test)]");
            lines.filter(is_code).map(|line| line.to_owned() + "\n").collect()
        };
        let here: Vec<_> = BLOCKING.iter().flat_map(|text| words(&code(text))).collect();
        // A thread cannot be stopped when its lock is lost.
        let not_here = ["run", "run_through", "lead"];
        let mut found = 0;
        for text in ASYNC {
            for rest in text.split("pub async fn ").skip(1) {
                let name = words(rest).swap_remove(0);
                assert!(not_here.contains(&&*name) || here.contains(&name), "{name} is missing");
                found += 1;
            }
        }
        assert!(found > 40, "{found}");
    }
}

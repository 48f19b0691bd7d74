//! Locks: a lock for any key. [`Names`](crate::Names) encodes names in the same way as this file encodes keys.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};

use lockkeeper_client::{Client, Error, ZnodePath, present};

use crate::error::BuildError;
use crate::locks::mutex::{Mutex, MutexBuilder};
use crate::profile::DIGITS;

/// The longest name of a node, in bytes. It leaves room for the rest of a request that servers accept.
const MAX_NAME_BYTES: usize = 64 * 1024;

/// How many unused handles are kept by default.
const DEFAULT_IDLE_HANDLES: usize = 1024;

/// Configures each lock.
type Configure = dyn Fn(MutexBuilder) -> MutexBuilder + Send + Sync;

/// A lock for each key, below one path. Cheap to clone; clones share their handles.
///
/// # Guarantees
///
/// - Any text can be a key.
/// - Equal keys are the same lock. In this process they are one handle, which all tasks share.
/// - A handle in use is never dropped.
///
/// # Not guaranteed
///
/// Keys are not secret: they are readable in the names of the znodes.
///
/// # Znodes
///
/// Those of [`Mutex`], in `<prefix>/<name>`. The name is the key in UTF-8. Bytes that
/// a path cannot contain, or that make the name look like another kind of node, are written as `%` and two hexadecimal
/// digits. `<prefix>` and `<prefix>/<name>` are container nodes, which servers delete when they are
/// empty.
///
/// # Cost
///
/// A handle is free. Its use costs the same as a [`Mutex`]. The first use of a key costs 2 more round
/// trips, which create its node.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::Locks;
///
/// let orders = Locks::new(&client, "/locks/orders")?;
/// let guard = orders.get("2026/07/Zürich 🔒")?.acquire().await?;
/// assert!(orders.get("2026/07/Zürich 🔒")?.try_acquire().await?.is_none());
/// assert!(orders.get("2026/07/Genève")?.try_acquire().await?.is_some());
/// assert!(orders.keys().await?.contains(&"2026/07/Zürich 🔒".to_owned()));
/// guard.release().await?;
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Locks {
    client: Client,
    prefix: ZnodePath,
    configure: Arc<Configure>,
    handles: Arc<StdMutex<Handles>>,
}

#[derive(Debug)]
struct Handles {
    by_key: HashMap<String, Handle>,
    /// How often a handle was requested.
    asked: u64,
    idle: usize,
    /// The number of handles at which unused handles are searched for again.
    search_at: usize,
}

#[derive(Debug)]
struct Handle {
    lock: Mutex,
    last_asked: u64,
}

impl Locks {
    /// The locks below a path such as `/locks/orders`. No I/O.
    ///
    /// # Errors
    /// If the path is not valid as a parent of locks.
    pub fn new(client: &Client, prefix: &str) -> Result<Self, BuildError> {
        Self::with(client, prefix, |lock| lock)
    }

    /// Like [`Locks::new`], with options for each lock. No I/O.
    ///
    /// # Errors
    /// Same as [`Locks::new`].
    pub fn with(
        client: &Client,
        prefix: &str,
        configure: impl Fn(MutexBuilder) -> MutexBuilder + Send + Sync + 'static,
    ) -> Result<Self, BuildError> {
        let prefix = BuildError::check_base(client, prefix)?;
        let handles =
            Handles { by_key: HashMap::new(), asked: 0, idle: DEFAULT_IDLE_HANDLES, search_at: 0 };
        let (client, configure) = (client.clone(), Arc::new(configure));
        Ok(Self { client, prefix, configure, handles: Arc::new(StdMutex::new(handles)) })
    }

    /// Sets how many unused handles are kept, for their `linger` and because creating a handle
    /// takes time. Default: 1024.
    #[must_use]
    pub fn keep_idle(self, handles: usize) -> Self {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).idle = handles;
        self
    }

    /// The lock of a key. No I/O.
    ///
    /// # Errors
    /// If the key is longer than servers accept.
    pub fn get(&self, key: &str) -> Result<Mutex, BuildError> {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.asked += 1;
        let last_asked = handles.asked;
        if let Some(handle) = handles.by_key.get_mut(key) {
            handle.last_asked = last_asked;
            return Ok(handle.lock.clone());
        }
        let builder = Mutex::builder(&self.client, self.path(key)?.as_str());
        let lock = (self.configure)(builder).build()?;
        handles.make_room();
        handles.by_key.insert(key.to_owned(), Handle { lock: lock.clone(), last_asked });
        Ok(lock)
    }

    /// The keys that have a node: those in use, and those whose empty node the servers have not deleted yet.
    /// Costs one round trip.
    ///
    /// # Errors
    /// If the request fails.
    ///
    /// # Session loss
    /// Fails like any [`Reply`](lockkeeper_client::Reply).
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn keys(&self) -> Result<Vec<String>, Error> {
        keys_below(&self.client, &self.prefix).await
    }

    /// The path of a key's lock.
    ///
    /// # Errors
    /// If the key is longer than servers accept.
    pub fn path(&self, key: &str) -> Result<ZnodePath, BuildError> {
        node_of(&self.prefix, key)
    }
}

lockkeeper_client::impl_debug!(Locks, self => prefix: self.prefix);

impl Handles {
    /// Drops unused handles if there are too many, the least recently requested ones first. It drops several at
    /// once, and searches again only when the number has grown by a quarter, because all remaining handles
    /// may be in use.
    fn make_room(&mut self) {
        if self.by_key.len() < self.idle.max(self.search_at) {
            return;
        }
        let idle = self.by_key.iter().filter(|(_, handle)| !handle.lock.is_shared());
        let mut idle: Vec<_> = idle.map(|(key, handle)| (handle.last_asked, key.clone())).collect();
        idle.sort();
        let excess = (idle.len() + 1).saturating_sub(self.idle - self.idle / 4);
        for (_, key) in idle.into_iter().take(excess) {
            self.by_key.remove(&key);
        }
        self.search_at = self.by_key.len() + self.by_key.len() / 4;
    }
}

/// The keys that have a node below `prefix`.
pub(crate) async fn keys_below(client: &Client, prefix: &ZnodePath) -> Result<Vec<String>, Error> {
    let (names, _) = present(client.children(prefix).await)?.unwrap_or_default();
    Ok(names.iter().filter_map(|name| key_of(name)).collect())
}

/// The node of a key, below `prefix`.
///
/// # Errors
/// If the key is longer than servers accept.
pub fn node_of(prefix: &ZnodePath, key: &str) -> Result<ZnodePath, BuildError> {
    let name = name_of(key);
    if name.len() > MAX_NAME_BYTES {
        return Err(BuildError::KeyTooLong { bytes: name.len(), most: MAX_NAME_BYTES });
    }
    Ok(prefix.child(&name)?)
}

/// Encodes a key as the name of a node.
fn name_of(key: &str) -> String {
    if key.is_empty() {
        return "%".to_owned();
    }

    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@+=,~".contains(&byte);
    let relative = key == "." || key == "..";
    let taken = looks_taken(key);

    let mut name = String::with_capacity(key.len());
    for (index, byte) in key.bytes().enumerate() {
        let is_last = index + 1 == key.len();
        if plain(byte) && !relative && !(taken && is_last) {
            name.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(name, "%{byte:02X}");
        }
    }
    name
}

/// Whether a name would look like that of a contender, which ends with a number, or like that of a
/// mark of a lock, which ends with two underscores.
fn looks_taken(key: &str) -> bool {
    let digits = key.bytes().rev().take_while(u8::is_ascii_digit).count();
    digits >= DIGITS || key.ends_with("__")
}

/// Decodes the key from the name of a node; `None` if the name is not an encoded key.
pub fn key_of(name: &str) -> Option<String> {
    if name == "%" {
        return Some(String::new());
    }

    let mut key = Vec::with_capacity(name.len());
    let mut bytes = name.bytes();
    while let Some(byte) = bytes.next() {
        key.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }

    // Each key has exactly one valid encoding.
    String::from_utf8(key).ok().filter(|key| name_of(key) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_key_has_a_name_that_can_be_read_back() {
        let long = "ä".repeat(5_000);
        let keys = [
            "",
            "orders",
            "/",
            ".",
            "..",
            "...",
            "a/b",
            "%",
            "%25",
            "a%2Fb",
            "\0",
            "\n\u{7f}\u{80}",
            "\u{d7ff}\u{e000}\u{f8ff}\u{fffd}",
            "🔒",
            "\u{10ffff}",
            "a b",
            "é",
            "zookeeper",
            &long,
            "x-lock-0000000001",
            "12345678901",
            "orders-__delay__",
            "__",
        ];
        let prefix = ZnodePath::new("/locks").unwrap();
        let mut names: Vec<_> = keys.iter().map(|key| name_of(key)).collect();
        for (key, name) in keys.iter().zip(&names) {
            assert!(prefix.child(name).is_ok(), "{key:?} -> {name:?}");
            assert_eq!(key_of(name).as_deref(), Some(*key), "{name:?}");
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), keys.len(), "no two have one name");
    }

    #[test]
    fn a_name_is_never_that_of_a_contender_or_of_a_mark() {
        use crate::profile::{Kind, Profile};
        let kinds = [Kind::Exclusive, Kind::Read, Kind::Write, Kind::Lease, Kind::Permits(0)];
        for key in ["x-lock-0000000001", "x__lock__0000000001", "a-1-permits-0000000001"] {
            for profile in [Profile::Curator, Profile::Kazoo] {
                assert_eq!(profile.parse(&name_of(key), &kinds), None, "{key}");
            }
        }
        assert!(!name_of("orders-__delay__").ends_with("__"));
    }

    #[test]
    fn other_names_are_no_keys() {
        for name in ["%2", "%zz", "%41", "a/b", "%C3", "x-lock-0000000001", "%00%", "é"] {
            assert_eq!(key_of(name), None, "{name}");
        }
    }
}

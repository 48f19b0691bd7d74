//! The addresses of named servers, and the order in which they are tried.
//!
//! A name may stand for several servers, or for one server with several addresses, and the order of a
//! lookup's result is often the same each time. So each attempt starts with a different address: the first
//! one may accept connections without answering, or may not answer at all.
//!
//! A lookup may take longer than a connection attempt (an unreachable name server costs 5 s by default). So
//! lookups run in parallel to the attempts. There is at most one per name, because a lookup cannot be
//! cancelled. While it is slow, and when it fails, the addresses of the last successful lookup are tried.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long an attempt waits for a lookup while addresses from an earlier one are known.
const LOOKUP_WAIT: Duration = Duration::from_millis(500);

/// Looks up a name.
type Lookup = fn(String) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// The result of a lookup. An `io::Error` cannot be cloned for several receivers.
type Found = Result<Vec<IpAddr>, (io::ErrorKind, String)>;

/// The lookups of all names so far.
#[derive(Clone)]
pub(crate) struct Addresses {
    lookup: Lookup,
    names: Arc<Mutex<HashMap<String, Name>>>,
}

#[derive(Debug, Default)]
struct Name {
    /// The result of the last successful lookup.
    found: Vec<IpAddr>,
    /// The number of attempts so far.
    attempts: usize,
    /// The lookup in progress, unless its runtime has ended.
    under_way: Option<watch::Receiver<Option<Found>>>,
}

impl Default for Addresses {
    fn default() -> Self {
        Self::with(|name| {
            Box::pin(async move {
                let found = tokio::net::lookup_host((name, 0)).await?;
                Ok(found.map(|address| address.ip()).collect())
            })
        })
    }
}

lockkeeper_wire::impl_debug!(Addresses, self => names: self.names);

impl Addresses {
    fn with(lookup: Lookup) -> Self {
        Self { lookup, names: Arc::default() }
    }

    /// Connects to this address, or to the first address of the name that accepts a connection.
    pub(crate) async fn connect(
        &self,
        name: &str,
        port: u16,
        address: Option<IpAddr>,
    ) -> io::Result<TcpStream> {
        let addresses = match address {
            Some(address) => vec![address],
            None => self.of(name).await?,
        };
        let addresses: Vec<_> = addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
        let stream = TcpStream::connect(addresses.as_slice()).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// The addresses of a name, in the order in which to try them.
    pub(crate) async fn of(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        if let Ok(address) = name.parse() {
            return Ok(vec![address]);
        }
        let (known, attempt, mut lookup) = self.begin(name);

        let found = async { lookup.wait_for(Option::is_some).await.ok().and_then(|it| it.clone()) };
        let found = match known.is_empty() {
            true => found.await,
            false => timeout(LOOKUP_WAIT, found).await.ok().flatten(),
        };
        let mut addresses = match found {
            Some(Ok(addresses)) if !addresses.is_empty() => addresses,
            _ if !known.is_empty() => known,
            Some(Err((kind, why))) => return Err(io::Error::new(kind, why)),
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    "the host name has no address",
                ));
            }
        };

        let first = attempt % addresses.len();
        addresses.rotate_left(first);
        Ok(addresses)
    }

    /// Counts an attempt, and starts a lookup unless one is in progress. Returns the known addresses, the
    /// number of earlier attempts, and the receiver of the lookup's result.
    fn begin(&self, text: &str) -> (Vec<IpAddr>, usize, watch::Receiver<Option<Found>>) {
        let mut names = self.names();
        let name = names.entry(text.to_owned()).or_default();
        let attempt = name.attempts;
        name.attempts = attempt.wrapping_add(1);

        let under_way = name.under_way.take().filter(|lookup| lookup.has_changed().is_ok());
        let lookup = under_way.unwrap_or_else(|| self.look_up(text));
        name.under_way = Some(lookup.clone());
        (name.found.clone(), attempt, lookup)
    }

    fn look_up(&self, text: &str) -> watch::Receiver<Option<Found>> {
        let (sender, lookup) = watch::channel(None);
        let (all, text) = (self.clone(), text.to_owned());
        tokio::spawn(async move {
            let found = (all.lookup)(text.clone()).await;
            let found = found.map_err(|error| (error.kind(), error.to_string()));

            let mut names = all.names();
            let name = names.entry(text).or_default();
            name.under_way = None;
            if let Ok(addresses) = &found {
                name.found.clone_from(addresses);
            }
            sender.send_replace(Some(found));
        });
        lookup
    }

    fn names(&self) -> MutexGuard<'_, HashMap<String, Name>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const ALL: [IpAddr; 3] = [address(1), address(2), address(3)];

    const fn address(last: u8) -> IpAddr {
        IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, last))
    }

    /// Only the first address was ever tried, as long as it accepted connections or did not answer.
    #[tokio::test]
    async fn each_attempt_begins_with_another_address() {
        let addresses = Addresses::with(|_| Box::pin(async { Ok(ALL.to_vec()) }));
        let mut begun = Vec::new();
        for _ in 0..4 {
            let order = addresses.of("servers").await.unwrap();
            assert_eq!(order.len(), 3, "the others are tried after it");
            begun.push(order[0]);
        }
        assert_eq!(begun, [ALL[0], ALL[1], ALL[2], ALL[0]]);
        assert_eq!(addresses.of("127.0.0.3").await.unwrap(), [address(3)]);
    }

    /// Each attempt started a new lookup, which took 5 s, longer than the attempt, so its result was never
    /// used.
    #[tokio::test(start_paused = true)]
    async fn a_lookup_may_take_longer_than_an_attempt() {
        static LOOKUPS: AtomicUsize = AtomicUsize::new(0);
        let addresses = Addresses::with(|_| {
            LOOKUPS.fetch_add(1, Ordering::Relaxed);
            Box::pin(async {
                tokio::time::sleep(Duration::from_millis(5_010)).await;
                Ok(ALL.to_vec())
            })
        });

        let limit = Duration::from_secs(5);
        assert!(timeout(limit, addresses.of("servers")).await.is_err(), "the first attempt");
        assert!(
            timeout(limit, addresses.of("servers")).await.unwrap().is_ok(),
            "the second attempt"
        );
        assert_eq!(LOOKUPS.load(Ordering::Relaxed), 1);

        let known = timeout(limit, addresses.of("servers")).await.unwrap();
        assert!(known.is_ok(), "the last result is tried during the next lookup");
        assert_eq!(LOOKUPS.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_lookup_that_fails_leaves_what_was_found_last() {
        static FAILS: AtomicUsize = AtomicUsize::new(1);
        let addresses = Addresses::with(|_| {
            Box::pin(async {
                match FAILS.fetch_xor(1, Ordering::Relaxed) {
                    0 => Ok(ALL.to_vec()),
                    _ => Err(io::Error::new(io::ErrorKind::NotFound, "no such name")),
                }
            })
        });

        let failed = addresses.of("servers").await.unwrap_err();
        assert_eq!(failed.to_string(), "no such name");
        assert_eq!(addresses.of("servers").await.unwrap()[0], ALL[1]);
        assert_eq!(addresses.of("servers").await.unwrap()[0], ALL[2], "from the last lookup");
    }

    /// The runtime of a lookup may end before the lookup does.
    #[test]
    fn a_lookup_whose_runtime_has_ended_is_begun_again() {
        static LOOKUPS: AtomicUsize = AtomicUsize::new(0);
        let addresses = Addresses::with(|_| {
            Box::pin(async {
                match LOOKUPS.fetch_add(1, Ordering::Relaxed) {
                    0 => std::future::pending().await,
                    _ => Ok(ALL.to_vec()),
                }
            })
        });
        let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();

        runtime().block_on(async {
            addresses.begin("servers");
            tokio::task::yield_now().await;
        });
        assert!(runtime().block_on(addresses.of("servers")).is_ok());
    }
}

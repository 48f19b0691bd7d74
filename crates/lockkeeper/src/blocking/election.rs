//! Elections whose methods wait.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_client::{DefaultAcl, ZnodePath};

use crate::blocking::client::Client;
use crate::blocking::forward::{guards, options, same, waits, waits_for_end, waits_mut};
use crate::blocking::guard::Guard;
use crate::blocking::runtime::Runtime;
use crate::election::{self, ElectionLayout, Leader, Leadership};
use crate::error::{
    AcquireError, BuildError, EnsureError, ObserveError, ProclaimError, ReleaseError,
};

/// A [`crate::Election`] whose methods wait. What it guarantees and costs is described there. Cheap
/// to clone.
#[derive(Clone, Debug)]
pub struct Election {
    inner: election::Election,
    runtime: Arc<Runtime>,
}

/// As [`crate::ElectionBuilder`].
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `build`"]
pub struct ElectionBuilder {
    inner: election::ElectionBuilder,
    runtime: Arc<Runtime>,
}

impl ElectionBuilder {
    /// As [`crate::ElectionBuilder::build`]. No I/O.
    ///
    /// # Errors
    /// As [`crate::ElectionBuilder::build`].
    pub fn build(self) -> Result<Election, BuildError> {
        Ok(Election { inner: self.inner.build()?, runtime: self.runtime })
    }
}

options! { ElectionBuilder:
    id(id: impl Into<String>);
    layout(layout: ElectionLayout);
    grace(grace: Duration);
    acl(acl: &DefaultAcl);
}

impl Election {
    /// As [`crate::Election::new`]. No I/O.
    ///
    /// # Errors
    /// As [`crate::Election::new`].
    pub fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
        Self::builder(client, path).build()
    }

    /// The options of an election.
    pub fn builder(client: &Client, path: &str) -> ElectionBuilder {
        let inner = election::Election::builder(client.as_async(), path);
        ElectionBuilder { inner, runtime: Arc::clone(&client.runtime) }
    }

    /// The election for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &election::Election {
        &self.inner
    }

    /// Does work as the leader on this thread, and returns what comes of it, as [`crate::Election::lead`]
    /// does. But nothing stops the work from outside: before each of its steps, which must end before the
    /// deadline, it calls [`Guard::ensure`] or [`Guard::checkpoint`], and gives up with their error. Then
    /// leadership is given up if it is not lost, and this candidate stands for election again, from the
    /// start of the work. With a grace, [`Guard::checkpoint`] waits for the end of an outage.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let engine = lockkeeper_engine::Engine::builder().start().await.unwrap();
    /// # let servers = engine.connect_string();
    /// # tokio::task::spawn_blocking(move || {
    /// # let client = lockkeeper::blocking::Client::connect(&servers)?;
    /// use std::time::Duration;
    ///
    /// let election = lockkeeper::blocking::Election::new(&client, "/election/indexer")?;
    /// let done = election.lead(|leadership| {
    ///     for _step in 0..3 {
    ///         // One second for the next step; an outage of up to a minute is waited out.
    ///         leadership.checkpoint(Duration::from_secs(1), Duration::from_secs(60))?;
    ///     }
    ///     Ok("indexed")
    /// })?;
    /// assert_eq!(done, "indexed");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// # }).await.unwrap().unwrap();
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`crate::Election::lead`].
    pub fn lead<T>(
        &self,
        mut work: impl FnMut(&Guard<Leadership>) -> Result<T, EnsureError>,
    ) -> Result<T, AcquireError> {
        loop {
            let leadership = self.runtime.wait(self.inner.stand_through_grace())?;
            let leadership = Guard::new(leadership, &self.runtime);
            let worked = work(&leadership);

            // A release that is not confirmed goes on by itself.
            drop(leadership.resign());
            match worked {
                Ok(output) => return Ok(output),
                Err(error) => {
                    tracing::warn!(election = %self.path(), %error, "the work has to begin again");
                }
            }
            self.runtime.wait(election::pause());
        }
    }

    /// As [`crate::Election::observe`].
    ///
    /// # Errors
    /// As [`crate::Election::observe`].
    pub fn observe(&self) -> Result<Leaders, ObserveError> {
        let inner = self.runtime.wait(self.inner.observe())?;
        Ok(Leaders { inner, runtime: Arc::clone(&self.runtime) })
    }
}

guards! { Election => Leadership, AcquireError:
    campaign(); campaign_timeout(timeout: Duration); => Option: try_campaign();
}

same! { Election, "Election":
    path() -> &ZnodePath;
    id() -> &str;
}

waits! { Guard<Leadership>, "Leadership":
    proclaim(value: impl Into<String>) -> Result<(), ProclaimError>;
}

waits_for_end! { Guard<Leadership>, "Leadership": resign() -> Result<(), ReleaseError>; }

/// As [`crate::Leaders`].
#[derive(Debug)]
pub struct Leaders {
    // Dropped before the runtime, which ends its watches.
    inner: election::Leaders,
    runtime: Arc<Runtime>,
}

same! { Leaders, "Leaders": current() -> Option<&Leader>; }

waits_mut! { Leaders, "Leaders":
    #[expect(clippy::should_implement_trait, reason = "named as on the async side")]
    next() -> Result<Option<Leader>, ObserveError>;
}

//! Elections whose methods wait.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_client::{DefaultAcl, ZnodePath};

use crate::blocking::client::Client;
use crate::blocking::guard::Guard;
use crate::blocking::runtime::Runtime;
use crate::election::{self, ElectionLayout, Leader, Leadership};
use crate::error::{AcquireError, BuildError, ObserveError, ProclaimError, ReleaseError};

/// As [`crate::Election`], but for `lead`, which would have to stop a thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Election {
    election: election::Election,
    runtime: Arc<Runtime>,
}

/// As [`crate::ElectionBuilder`].
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `build`"]
pub struct ElectionBuilder {
    options: election::ElectionBuilder,
    runtime: Arc<Runtime>,
}

impl ElectionBuilder {
    fn map(
        self,
        change: impl FnOnce(election::ElectionBuilder) -> election::ElectionBuilder,
    ) -> Self {
        Self { options: change(self.options), runtime: self.runtime }
    }

    /// As [`crate::ElectionBuilder::id`].
    pub fn id(self, id: impl Into<String>) -> Self {
        self.map(|options| options.id(id))
    }

    /// As [`crate::ElectionBuilder::layout`].
    pub fn layout(self, layout: ElectionLayout) -> Self {
        self.map(|options| options.layout(layout))
    }

    /// As [`crate::ElectionBuilder::acl`].
    pub fn acl(self, acl: &DefaultAcl) -> Self {
        self.map(|options| options.acl(acl))
    }

    /// As [`crate::ElectionBuilder::build`]. No I/O.
    ///
    /// # Errors
    /// As [`crate::ElectionBuilder::build`].
    pub fn build(self) -> Result<Election, BuildError> {
        Ok(Election { election: self.options.build()?, runtime: self.runtime })
    }
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
        let options = election::Election::builder(client.as_async(), path);
        ElectionBuilder { options, runtime: Arc::clone(&client.runtime) }
    }

    /// The election for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &election::Election {
        &self.election
    }

    /// As [`crate::Election::path`].
    pub fn path(&self) -> &ZnodePath {
        self.election.path()
    }

    /// As [`crate::Election::id`].
    pub fn id(&self) -> &str {
        self.election.id()
    }

    /// As [`crate::Election::campaign`].
    ///
    /// # Errors
    /// As [`crate::Election::campaign`].
    pub fn campaign(&self) -> Result<Guard<Leadership>, AcquireError> {
        let leadership = self.runtime.wait(self.election.campaign())?;
        Ok(Guard::new(leadership, &self.runtime))
    }

    /// As [`crate::Election::campaign_timeout`].
    ///
    /// # Errors
    /// As [`crate::Election::campaign_timeout`].
    pub fn campaign_timeout(&self, timeout: Duration) -> Result<Guard<Leadership>, AcquireError> {
        let leadership = self.runtime.wait(self.election.campaign_timeout(timeout))?;
        Ok(Guard::new(leadership, &self.runtime))
    }

    /// As [`crate::Election::try_campaign`].
    ///
    /// # Errors
    /// As [`crate::Election::try_campaign`].
    pub fn try_campaign(&self) -> Result<Option<Guard<Leadership>>, AcquireError> {
        let leadership = self.runtime.wait(self.election.try_campaign())?;
        Ok(leadership.map(|leadership| Guard::new(leadership, &self.runtime)))
    }

    /// As [`crate::Election::observe`].
    ///
    /// # Errors
    /// As [`crate::Election::observe`].
    pub fn observe(&self) -> Result<Leaders, ObserveError> {
        let leaders = self.runtime.wait(self.election.observe())?;
        Ok(Leaders { leaders, runtime: Arc::clone(&self.runtime) })
    }
}

impl Guard<Leadership> {
    /// As [`crate::Leadership::proclaim`].
    ///
    /// # Errors
    /// As [`crate::Leadership::proclaim`].
    pub fn proclaim(&self, value: impl Into<String>) -> Result<(), ProclaimError> {
        self.runtime.wait(self.as_async().proclaim(value))
    }

    /// As [`crate::Leadership::resign`].
    ///
    /// # Errors
    /// As [`crate::Leadership::resign`].
    pub fn resign(self) -> Result<(), ReleaseError> {
        let (leadership, runtime) = self.into_parts();
        runtime.wait(leadership.resign())
    }
}

/// As [`crate::Leaders`].
#[derive(Debug)]
pub struct Leaders {
    // Dropped before the runtime, which ends its watches.
    leaders: election::Leaders,
    runtime: Arc<Runtime>,
}

impl Leaders {
    /// As [`crate::Leaders::current`].
    pub fn current(&self) -> Option<&Leader> {
        self.leaders.current()
    }

    /// As [`crate::Leaders::next`].
    ///
    /// # Errors
    /// As [`crate::Leaders::next`].
    #[expect(clippy::should_implement_trait, reason = "named as on the async side")]
    pub fn next(&mut self) -> Result<Option<Leader>, ObserveError> {
        self.runtime.wait(self.leaders.next())
    }
}

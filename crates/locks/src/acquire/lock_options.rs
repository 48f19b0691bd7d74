//! The options that all locks have, under the same names.

use bytes::Bytes;
use lockkeeper_client::Client;

use crate::acquire::queue_handle::QueueHandle;
use crate::contender::queue_settings::QueueSettings;
use crate::error::BuildError;
use crate::owner_info::OwnerInfo;
use crate::profile::{Kind, Profile};

/// The options that all locks have.
#[derive(Clone, Debug)]
pub(crate) struct LockOptions {
    pub(crate) client: Client,
    pub(crate) profile: Profile,
    pub(crate) labels: HolderLabels,
}

/// What the user of a lock says of its holder, for people.
#[derive(Clone, Debug, Default)]
pub(crate) struct HolderLabels {
    pub(crate) label: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) why: Option<String>,
}

impl HolderLabels {
    /// This process with what is said of it.
    pub(crate) fn owner(self) -> OwnerInfo {
        let Self { label, user, why } = self;
        let under = OwnerInfo::nodes_of_the_run();
        OwnerInfo { user, why, under, ..OwnerInfo::current(label) }
    }

    /// What a contender's node says of its owner: for kazoo, whose programs show it as the contender's
    /// identifier, the label alone if there is one.
    pub(crate) fn data(self, profile: Profile) -> Bytes {
        match (profile, self.label) {
            (Profile::Kazoo, Some(label)) => label.into(),
            (_, label) => Self { label, ..self }.owner().to_data(),
        }
    }
}

impl LockOptions {
    pub(crate) fn new(client: &Client) -> Self {
        Self {
            client: client.clone(),
            profile: Profile::default(),
            labels: HolderLabels::default(),
        }
    }

    pub(crate) fn queue_handle(
        self,
        path: &str,
        kinds: &'static [Kind],
    ) -> Result<QueueHandle, BuildError> {
        let settings =
            QueueSettings::new(BuildError::check(&self.client, path)?, self.profile, kinds);
        let data = self.labels.data(self.profile);
        Ok(QueueHandle::new(self.client, settings, data))
    }
}

/// Gives a builder that has a [`LockOptions`] these of its options.
macro_rules! lock_options {
    ($builder:ident $(<$lock:ident>)?: $($option:ident),*) => {
        impl $(<$lock>)? $builder $(<$lock>)? {
            $( $crate::acquire::lock_options::lock_option!($option); )*
        }
    };
}

macro_rules! lock_option {
    (profile) => {
        /// How contenders are named. Default: [`Profile::Curator`](crate::Profile::Curator).
        pub fn profile(mut self, profile: crate::profile::Profile) -> Self {
            self.options.profile = profile;
            self
        }
    };
    (acl) => {
        /// The access control list of the znodes of the lock, and of those that are missing above
        /// it. Default: that of the client; see [`DefaultAcl`](lockkeeper_client::DefaultAcl).
        pub fn acl(mut self, acl: &lockkeeper_client::DefaultAcl) -> Self {
            self.options.client = self.options.client.with_default_acl(acl);
            self
        }
    };
    (label) => {
        /// What the holder is called where the queue is shown to people.
        pub fn label(mut self, label: impl Into<String>) -> Self {
            self.options.labels.label = Some(label.into());
            self
        }
    };
    (user) => {
        /// The person for whom the lock is taken, where the queue is shown to people. An empty text is none,
        /// and a long one is cut after 1,024 bytes. With `Profile::Kazoo` and a label it is shown nowhere.
        pub fn user(mut self, user: impl Into<String>) -> Self {
            self.options.labels.user = $crate::owner_info::bounded(user);
            self
        }
    };
    (why) => {
        /// What the lock is taken for, where the queue is shown to people. An empty text is none, and a
        /// long one is cut after 1,024 bytes. With `Profile::Kazoo` and a label it is shown nowhere.
        pub fn why(mut self, why: impl Into<String>) -> Self {
            self.options.labels.why = $crate::owner_info::bounded(why);
            self
        }
    };
}

pub(crate) use {lock_option, lock_options};

//! The options that all locks share, under the same names.

use bytes::Bytes;
use lockkeeper_client::Client;

use crate::acquire::queue_handle::QueueHandle;
use crate::contender::queue_settings::QueueSettings;
use crate::error::BuildError;
use crate::owner_info::OwnerInfo;
use crate::profile::{Kind, Profile};

/// The options that all locks share.
#[derive(Clone, Debug)]
pub(crate) struct LockOptions {
    pub(crate) client: Client,
    pub(crate) profile: Profile,
    pub(crate) labels: HolderLabels,
}

/// The labels that describe the holder, for display.
#[derive(Clone, Debug, Default)]
pub(crate) struct HolderLabels {
    pub(crate) label: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) why: Option<String>,
}

impl HolderLabels {
    /// The description of this process with these labels.
    pub(crate) fn owner(self) -> OwnerInfo {
        let Self { label, user, why } = self;
        let under = OwnerInfo::nodes_of_the_run();
        OwnerInfo { user, why, under, ..OwnerInfo::current(label) }
    }

    /// The data of a contender's node. In kazoo's profile, a label is the whole data, because kazoo programs show it
    /// as the contender's identifier.
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

/// Gives a builder with an `options: LockOptions` field the methods of these options.
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
        /// The access control list of the lock's znodes and of missing parent znodes.
        /// Default: the client's; see [`DefaultAcl`](lockkeeper_client::DefaultAcl).
        pub fn acl(mut self, acl: &lockkeeper_client::DefaultAcl) -> Self {
            self.options.client = self.options.client.with_default_acl(acl);
            self
        }
    };
    (label) => {
        /// A label for the holder, shown where the queue is displayed.
        pub fn label(mut self, label: impl Into<String>) -> Self {
            self.options.labels.label = Some(label.into());
            self
        }
    };
    (user) => {
        /// The person for whom the lock is taken, shown where the queue is displayed. An empty text is ignored,
        /// and text beyond 1,024 bytes is cut off. With `Profile::Kazoo` and a label it is not stored.
        pub fn user(mut self, user: impl Into<String>) -> Self {
            self.options.labels.user = $crate::owner_info::bounded(user);
            self
        }
    };
    (why) => {
        /// Why the lock is taken, shown where the queue is displayed. An empty text is ignored, and text
        /// beyond 1,024 bytes is cut off. With `Profile::Kazoo` and a label it is not stored.
        pub fn why(mut self, why: impl Into<String>) -> Self {
            self.options.labels.why = $crate::owner_info::bounded(why);
            self
        }
    };
}

pub(crate) use {lock_option, lock_options};

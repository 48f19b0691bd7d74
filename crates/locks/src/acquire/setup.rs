//! The options that all locks have, under the same names.

use bytes::Bytes;
use lockkeeper_client::Client;

use crate::acquire::entrance::Entrance;
use crate::contender::terms::Terms;
use crate::error::BuildError;
use crate::owner_info::OwnerInfo;
use crate::profile::{Kind, Profile};

/// The options that all locks have.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) client: Client,
    pub(crate) profile: Profile,
    pub(crate) about: About,
}

/// What the user of a lock says of its holder, for people.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    pub(crate) label: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) why: Option<String>,
}

impl About {
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

impl Setup {
    pub(crate) fn new(client: &Client) -> Self {
        Self { client: client.clone(), profile: Profile::default(), about: About::default() }
    }

    pub(crate) fn entrance(
        self,
        path: &str,
        kinds: &'static [Kind],
    ) -> Result<Entrance, BuildError> {
        let terms = Terms::new(BuildError::check(&self.client, path)?, self.profile, kinds);
        let data = self.about.data(self.profile);
        Ok(Entrance::new(self.client, terms, data))
    }
}

/// Gives a builder that has a [`Setup`] these of its options.
macro_rules! setup_options {
    ($builder:ident $(<$lock:ident>)?: $($option:ident),*) => {
        impl $(<$lock>)? $builder $(<$lock>)? {
            $( $crate::acquire::setup::setup_option!($option); )*
        }
    };
}

macro_rules! setup_option {
    (profile) => {
        /// How contenders are named. Default: [`Profile::Curator`](crate::Profile::Curator).
        pub fn profile(mut self, profile: crate::profile::Profile) -> Self {
            self.setup.profile = profile;
            self
        }
    };
    (acl) => {
        /// The access control list of the znodes of the lock, and of those that are missing above
        /// it. Default: that of the client; see [`DefaultAcl`](lockkeeper_client::DefaultAcl).
        pub fn acl(mut self, acl: &lockkeeper_client::DefaultAcl) -> Self {
            self.setup.client = self.setup.client.with_default_acl(acl);
            self
        }
    };
    (label) => {
        /// What the holder is called where the queue is shown to people.
        pub fn label(mut self, label: impl Into<String>) -> Self {
            self.setup.about.label = Some(label.into());
            self
        }
    };
    (user) => {
        /// The person for whom the lock is taken, where the queue is shown to people. An empty text is none,
        /// and a long one is cut after 1,024 bytes. With `Profile::Kazoo` and a label it is shown nowhere.
        pub fn user(mut self, user: impl Into<String>) -> Self {
            self.setup.about.user = $crate::owner_info::bounded(user);
            self
        }
    };
    (why) => {
        /// What the lock is taken for, where the queue is shown to people. An empty text is none, and a
        /// long one is cut after 1,024 bytes. With `Profile::Kazoo` and a label it is shown nowhere.
        pub fn why(mut self, why: impl Into<String>) -> Self {
            self.setup.about.why = $crate::owner_info::bounded(why);
            self
        }
    };
}

pub(crate) use {setup_option, setup_options};

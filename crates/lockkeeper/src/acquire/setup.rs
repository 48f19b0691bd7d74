//! The options that all locks have, under the same names.

use lockkeeper_client::Client;

use crate::acquire::entrance::Entrance;
use crate::contender::terms::Terms;
use crate::error::BuildError;
use crate::profile::{Kind, Profile};

/// The options that all locks have.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) client: Client,
    pub(crate) profile: Profile,
    pub(crate) label: Option<String>,
}

impl Setup {
    pub(crate) fn new(client: &Client) -> Self {
        Self { client: client.clone(), profile: Profile::default(), label: None }
    }

    pub(crate) fn entrance(
        self,
        path: &str,
        kinds: &'static [Kind],
    ) -> Result<Entrance, BuildError> {
        let terms = Terms::new(BuildError::check(path)?, self.profile, kinds);
        let data = self.profile.data(self.label);
        Ok(Entrance { client: self.client, terms, data })
    }
}

/// Gives a builder that has a [`Setup`] these of its options.
macro_rules! setup_options {
    ($builder:ident: $($option:ident),*) => {
        impl $builder {
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
        /// it. Default: that of the client; see [`DefaultAcl`](crate::DefaultAcl).
        pub fn acl(mut self, acl: &lockkeeper_client::DefaultAcl) -> Self {
            self.setup.client = self.setup.client.with_default_acl(acl);
            self
        }
    };
    (label) => {
        /// What the holder is called where the queue is shown to people.
        pub fn label(mut self, label: impl Into<String>) -> Self {
            self.setup.label = Some(label.into());
            self
        }
    };
}

pub(crate) use {setup_option, setup_options};

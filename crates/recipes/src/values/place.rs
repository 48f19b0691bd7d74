//! The location of a value, and reading it.

use bytes::Bytes;
use lockkeeper_client::retry::retry_anywhere;
use lockkeeper_client::{Client, CreateMode, Error, Stat, TransactionError, ZnodePath, present};

use crate::exact::{DEFAULT_MARKERS, WriteError};
use crate::values::codec::Codec;
use crate::values::error::{ValueError, ValuePathError};
use crate::values::revision::{Revision, Versioned};

/// A node that holds a value.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) client: Client,
    pub(super) path: ZnodePath,
}

impl Place {
    pub(super) fn new(client: &Client, path: &str) -> Result<Self, ValuePathError> {
        Ok(Self { client: client.clone(), path: checked(client, path)? })
    }

    /// Reads the data and stat; `None` if the node is missing. Continues over lost connections and ended sessions.
    pub(super) async fn read(&self) -> Result<Option<(Bytes, Stat)>, ValueError> {
        loop {
            match present(self.client.data(&self.path).await) {
                Ok(found) => return Ok(found),
                Err(error) => self.again(error).await?,
            }
        }
    }

    /// Returns when a read may be repeated.
    pub(super) async fn again(&self, error: Error) -> Result<(), ValueError> {
        retry_anywhere(error).await.map_err(|error| ValueError::read(&self.path, error))
    }

    /// Returns when a write that was not applied, or that may be applied twice, may be repeated.
    pub(super) async fn again_to_write(&self, error: Error) -> Result<(), ValueError> {
        retry_anywhere(error).await.map_err(|error| {
            let error = TransactionError::Request(error);
            ValueError::write(&self.path, WriteError::NotApplied(error))
        })
    }

    /// Encodes a value for this node.
    pub(super) fn encode<T>(&self, codec: &impl Codec<T>, value: &T) -> Result<Bytes, ValueError> {
        codec.encode(value).map_err(|error| ValueError::Unencodable {
            path: self.path.clone(),
            reason: error.to_string(),
        })
    }

    /// Decodes the data of this node, with its revision.
    pub(super) fn decode<T>(
        &self,
        codec: &impl Codec<T>,
        (data, stat): (Bytes, Stat),
    ) -> Result<Versioned<T>, ValueError> {
        let revision = stat.into();
        match codec.decode(&data) {
            Ok(value) => Ok(Versioned { value, revision }),
            Err(error) => Err(self.undecodable(revision, error.to_string())),
        }
    }

    pub(super) fn undecodable(&self, revision: Revision, reason: String) -> ValueError {
        ValueError::Undecodable { path: self.path.clone(), revision, reason }
    }

    /// The path from the servers' root.
    pub(super) fn full_path(&self) -> String {
        self.path.below(self.client.chroot()).to_string()
    }

    /// Creates the missing parents of the node as containers, which are deleted after their last child.
    pub(super) async fn make_parents(&self) -> Result<(), ValueError> {
        let Some(parent) = self.path.parent() else { return Ok(()) };
        while let Err(error) = self.client.ensure(&parent, CreateMode::Container).await {
            self.again_to_write(error).await?;
        }
        Ok(())
    }
}

/// The path, if it is valid for a value.
pub(crate) fn checked(client: &Client, path: &str) -> Result<ZnodePath, ValuePathError> {
    let path = ZnodePath::new(path)?;
    if path.is_root() {
        return Err(ValuePathError::Root);
    }
    if client.is_servers_own(&path) {
        return Err(ValuePathError::Reserved(path));
    }
    Ok(path)
}

/// The node of a value and the directory of its outcome markers: options that all builders of values have.
#[derive(Clone, Debug)]
pub(super) struct PlaceOptions {
    pub(super) client: Client,
    pub(super) path: String,
    pub(super) markers: Option<String>,
}

impl PlaceOptions {
    pub(super) fn new(client: &Client, path: &str) -> Self {
        Self { client: client.clone(), path: path.to_owned(), markers: None }
    }

    /// The value's node, and the directory of the outcome markers.
    pub(super) fn build(&self) -> Result<(Place, ZnodePath), ValuePathError> {
        let place = Place::new(&self.client, &self.path)?;
        let markers = checked(&self.client, self.markers.as_deref().unwrap_or(DEFAULT_MARKERS))?;
        Ok((place, markers))
    }
}

/// Adds the [`PlaceOptions`] to a builder.
macro_rules! place_options {
    ($builder:ident $(<$($parameter:ident),*>)?) => {
        impl $(<$($parameter),*>)? $builder $(<$($parameter),*>)? {
            lockkeeper_client::setters! {
                /// Sets the access control list of the created nodes, including the outcome marker. Default: that
                /// of the client; see [`DefaultAcl`](lockkeeper_client::DefaultAcl).
                pub fn acl(self, acl: &lockkeeper_client::DefaultAcl) =>
                    self.place.client = self.place.client.with_default_acl(acl);

                /// Sets the directory of the outcome markers: a node below which this client may create others, and
                /// that no program lists or watches for other purposes. Default: `/lockkeeper-outcomes`. It is
                /// created if missing, as a container.
                pub fn markers(self, directory: &str) =>
                    self.place.markers = Some(directory.to_owned());
            }
        }
    };
}

pub(super) use place_options;

//! Service discovery: finding the instances of a service, and choosing among them.
//!
//! ```text
//!   registration    Registration: an instance that can be found while its program runs
//!   directory       ServiceDirectory: the instances of a service, kept up to date
//!   instances       the instances at one moment, and changes between two (pure)
//!   record          an instance as the JSON that Curator's programs write and read (pure)
//!   instance        Instance: the data of an instance (pure)
//!   uri_spec        UriSpec: URI templates of instances (pure)
//!   jackson         JSON as Jackson writes it (pure)
//!   pick/           choosing the instance for the next call
//! ```
//!
//! Znodes `<base>/<service>/<id>`, each with an instance as JSON: the layout of Curator's x-discovery. Fields that
//! Curator does not know (weight and zone) are in a separate key, which Curator's readers ignore.

mod directory;
mod instance;
mod instances;
mod jackson;
pub(crate) mod pick;
mod record;
mod registration;
mod uri_spec;

pub(crate) use pick::rendezvous;

pub use directory::{DirectoryChanges, DirectoryUpdate, ServiceDirectory, ServiceDirectoryBuilder};
pub use instance::{Instance, Payload, ServiceType};
pub use instances::{InstanceChange, Instances, ListedInstance, Unreadable};
pub use registration::{RegisterError, Registration};
pub use uri_spec::{UriPart, UriSpec, UriSpecError};

//! What a follower keeps, and what it began with.

use std::path::Path;

use bytes::Bytes;

use crate::values::codec::Codec;
use crate::values::last_good::{LastGood, LastGoodError};
use crate::values::place::Place;
use crate::values::revision::{Revision, Versioned};

/// The file of a follower, if it has one.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    file: Option<LastGood>,
    /// Which state was restored, and its bytes, until the servers have said what there is.
    pub(super) restored: Option<(Revision, Bytes)>,
}

impl Keeping {
    /// Keeps good values in a file from now on. Makes the one that is there the `latest`, if the follower
    /// has told nothing yet; says whether it did.
    pub(super) async fn begin<T>(
        &mut self,
        file: &Path,
        place: &Place,
        codec: &impl Codec<T>,
        latest: &mut Option<Versioned<T>>,
        is_first: bool,
    ) -> Result<bool, LastGoodError> {
        let decode = |data: &Bytes| match codec.decode(data) {
            Ok(value) => Ok((value, data.clone())),
            Err(error) => Err(error.to_string()),
        };
        let (keeper, found) = LastGood::open(file, place.full_path(), decode).await;
        self.file = keeper;

        let Some((revision, (value, data))) = found?.filter(|_| is_first) else { return Ok(false) };
        self.restored = Some((revision, data));
        *latest = Some(Versioned { value, revision });
        Ok(true)
    }

    /// The servers have said what there is. Whether it is what was restored: the same revision may be that
    /// of another value, of servers that were wiped since.
    pub(super) fn settle(&mut self, found: Option<(Revision, &[u8])>) -> bool {
        self.restored.take().is_some_and(|(revision, data)| found == Some((revision, &data[..])))
    }

    /// Keeps a value, in the background.
    pub(super) fn keep(&self, revision: Revision, data: impl FnOnce() -> Bytes) {
        if let Some(file) = &self.file {
            file.keep(revision, data());
        }
    }

    /// Waits until everything is kept that there was to keep so far.
    pub(super) async fn kept(&self) -> Result<(), LastGoodError> {
        match &self.file {
            Some(file) => file.kept().await,
            None => Ok(()),
        }
    }
}

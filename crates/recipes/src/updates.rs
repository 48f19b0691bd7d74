//! Sources of changes as streams.

use lockkeeper_client::Updates;

use crate::discovery::{DirectoryChanges, DirectoryUpdate};
use crate::group::{GroupError, GroupUpdate, MemberChanges};
use crate::values::{Codec, Editions, ValueChange, ValueChanges, ValueError};
use crate::watch::{CacheChanges, CacheError, CacheUpdate};

/// Each calls the type's own `next`.
macro_rules! updates {
    ($(($($generics:tt)*) $type:ty: $update:ty, $error:ty;)*) => {$(
        impl<$($generics)*> Updates for $type {
            type Update = $update;
            type Error = $error;

            async fn next_update(&mut self) -> Result<$update, $error> {
                self.next().await
            }
        }
    )*};
}

updates! {
    () CacheChanges: CacheUpdate, CacheError;
    () DirectoryChanges: DirectoryUpdate, CacheError;
    () MemberChanges: GroupUpdate, GroupError;
    (T: Clone + Send + Sync + 'static, C: Codec<T> + 'static)
        ValueChanges<T, C>: ValueChange<T>, ValueError;
    (T: Clone + Send + Sync + 'static, C: Codec<T> + 'static)
        Editions<T, C>: ValueChange<T>, ValueError;
}

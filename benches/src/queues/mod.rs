//! Items that are put, taken and recorded as done.
//!
//! As many are on their way at any time in each system: whoever puts one waits until it is done. So a consumer
//! always has something to take, and what is measured is the work that items make, and not the waiting for them.

mod bare;
mod items;
pub(crate) mod ours;
mod postgres;
mod redis;

pub(crate) use self::bare::measure as measure_bare;
pub(crate) use self::items::Consumers;
pub(crate) use self::ours::measure as measure_ours;
pub(crate) use self::postgres::measure as measure_postgres;
pub(crate) use self::redis::measure as measure_redis;

//! The interfaces for operators: four-letter words, metrics, health.

pub(crate) mod four_letter;
mod host;
pub(crate) mod http;
mod prometheus;

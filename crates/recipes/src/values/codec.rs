//! How a value is written as bytes.

use std::error::Error as StdError;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why a value and its bytes do not fit.
pub type CodecError = Box<dyn StdError + Send + Sync>;

/// How values of a type are written as bytes, and read.
pub trait Codec<T>: Send + Sync {
    /// The bytes of a value.
    ///
    /// # Errors
    /// If it cannot be written.
    fn encode(&self, value: &T) -> Result<Bytes, CodecError>;

    /// The value of some bytes, which anybody may have written.
    ///
    /// # Errors
    /// If they are no such value.
    fn decode(&self, data: &[u8]) -> Result<T, CodecError>;
}

/// JSON, for whatever serde can write and read. JSON has no infinite numbers, and none for "not a
/// number": they become null. A value that cannot be read back is refused; in an `Option`, such a number is
/// read back as `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json;

impl<T: Serialize + DeserializeOwned> Codec<T> for Json {
    fn encode(&self, value: &T) -> Result<Bytes, CodecError> {
        let data = serde_json::to_vec(value)?;
        serde_json::from_slice::<T>(&data)
            .map_err(|error| format!("it cannot be read back from JSON: {error}"))?;
        Ok(data.into())
    }

    fn decode(&self, data: &[u8]) -> Result<T, CodecError> {
        Ok(serde_json::from_slice(data)?)
    }
}

/// The bytes themselves, as Curator's `SharedValue` has them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Raw;

impl Codec<Bytes> for Raw {
    fn encode(&self, value: &Bytes) -> Result<Bytes, CodecError> {
        Ok(value.clone())
    }

    fn decode(&self, data: &[u8]) -> Result<Bytes, CodecError> {
        Ok(Bytes::copy_from_slice(data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_json_does_not_have_are_refused() {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let reason = Json.encode(&("a".to_owned(), [1.0, number])).unwrap_err().to_string();
            assert!(reason.contains("read back"), "{reason}");
        }
        assert_eq!(&Json.encode(&vec![Some(1.5), None]).unwrap()[..], b"[1.5,null]");
    }
}

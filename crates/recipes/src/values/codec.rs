//! Encoding values as bytes.

use std::error::Error as StdError;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::values::finite::FiniteCheck;

/// Why a value cannot be encoded or decoded.
pub type CodecError = Box<dyn StdError + Send + Sync>;

/// Encodes values of a type as bytes, and decodes them.
pub trait Codec<T>: Send + Sync {
    /// Encodes a value.
    ///
    /// # Errors
    /// If the value cannot be encoded.
    fn encode(&self, value: &T) -> Result<Bytes, CodecError>;

    /// Decodes a value. The bytes may come from any program.
    ///
    /// # Errors
    /// If the bytes are not such a value.
    fn decode(&self, data: &[u8]) -> Result<T, CodecError>;
}

/// JSON, for all types that serde supports. JSON has neither infinities nor NaN: a value that contains one is
/// refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json;

impl<T: Serialize + DeserializeOwned> Codec<T> for Json {
    fn encode(&self, value: &T) -> Result<Bytes, CodecError> {
        // It would be written as null, and read as something else.
        value.serialize(FiniteCheck)?;
        Ok(serde_json::to_vec(value)?.into())
    }

    fn decode(&self, data: &[u8]) -> Result<T, CodecError> {
        Ok(serde_json::from_slice(data)?)
    }
}

/// The bytes themselves, as in Curator's `SharedValue`.
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
    use std::collections::BTreeMap;

    use super::*;

    fn encoded<T: Serialize + DeserializeOwned>(value: T) -> Result<String, String> {
        let data = Json.encode(&value).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(data.to_vec()).unwrap())
    }

    #[derive(Serialize, serde::Deserialize)]
    enum Limit {
        Unit,
        One(f64),
        Two(f32, Option<f64>),
        Named { each: BTreeMap<String, Vec<f64>> },
    }

    #[test]
    fn numbers_that_json_does_not_have_are_refused() {
        let named =
            |number| Limit::Named { each: BTreeMap::from([("a".into(), vec![1.0, number])]) };
        for refused in [
            encoded(f64::NAN),
            encoded(f32::INFINITY),
            encoded(Some(f64::NEG_INFINITY)),
            encoded(Limit::One(f64::NAN)),
            encoded(Limit::Two(1.0, Some(f64::NAN))),
            encoded(named(f64::INFINITY)),
            encoded((1, "a".to_owned(), [f64::NAN])),
        ] {
            let reason = refused.unwrap_err();
            assert!(reason.contains("JSON has no number"), "{reason}");
        }
        assert_eq!(encoded(1.5).unwrap(), "1.5");
        assert_eq!(encoded(None::<f64>).unwrap(), "null");
        assert_eq!(encoded(Limit::Unit).unwrap(), "\"Unit\"");
        assert_eq!(encoded(Limit::Two(1.0, None)).unwrap(), "{\"Two\":[1.0,null]}");
        assert_eq!(encoded(named(2.0)).unwrap(), "{\"Named\":{\"each\":{\"a\":[1.0,2.0]}}}");
    }
}

//! An instance as JSON, as Curator's programs write and read it.
//!
//! Curator's default writer leaves out `enabled`, which means true; the other one writes it. Its reader ignores
//! keys that it does not know, such as that of our weight and zone.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::discovery::instance::{Instance, Payload, ServiceType};
use crate::discovery::jackson;
use crate::discovery::uri_spec::UriSpec;
use crate::values::CodecError;

/// The keys in Curator's order, and then ours.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    name: &'a str,
    id: &'a str,
    address: Option<&'a str>,
    port: Option<u16>,
    ssl_port: Option<u16>,
    payload: Option<&'a RawValue>,
    #[serde(rename = "registrationTimeUTC")]
    registration_time_utc: i64,
    service_type: TypeName,
    uri_spec: Option<&'a UriSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lockkeeper: Option<WrittenLockkeeperFields<'a>>,
}

#[derive(Serialize)]
struct WrittenLockkeeperFields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<&'a str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredInstance<'a> {
    #[serde(default)]
    name: String,
    #[serde(default)]
    id: String,
    address: Option<String>,
    port: Option<u16>,
    ssl_port: Option<u16>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    #[serde(rename = "registrationTimeUTC", default)]
    registration_time_utc: i64,
    service_type: Option<TypeName>,
    uri_spec: Option<UriSpec>,
    enabled: Option<bool>,
    lockkeeper: Option<LockkeeperFields>,
}

/// Fields that Curator does not know. Keys of later versions are ignored.
#[derive(Default, Deserialize)]
struct LockkeeperFields {
    weight: Option<u32>,
    zone: Option<String>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE", remote = "ServiceType")]
enum TypeNames {
    Dynamic,
    DynamicSequential,
    Static,
    Permanent,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct TypeName(#[serde(with = "TypeNames")] ServiceType);

impl Instance {
    /// Its JSON, exactly as Curator's `JsonInstanceSerializer` writes it; with `enabled` only if it is false, and
    /// with `lockkeeper` only if it has a zone, or another weight than 1.
    pub fn to_json(&self) -> Vec<u8> {
        let weight = (self.weight != 1).then_some(self.weight);
        let zone = self.zone.as_deref();
        let ours = WrittenLockkeeperFields { weight, zone };

        let written = Written {
            name: &self.service,
            id: &self.id,
            address: self.address.as_deref(),
            port: self.port,
            ssl_port: self.ssl_port,
            payload: self.payload.as_ref().map(Payload::raw),
            registration_time_utc: self.registration_time_utc,
            service_type: TypeName(self.service_type),
            uri_spec: self.uri_spec.as_ref(),
            enabled: (!self.is_enabled).then_some(false),
            lockkeeper: (weight.is_some() || zone.is_some()).then_some(ours),
        };

        let json = jackson::write(&written);
        // Only a map with keys that are not text cannot be written.
        debug_assert!(json.is_ok(), "{json:?}");
        json.unwrap_or_default()
    }

    /// Parses the JSON of an instance, from any writer.
    ///
    /// # Errors
    /// If it is not the JSON of an instance.
    pub fn from_json(json: &[u8]) -> Result<Self, CodecError> {
        let found: StoredInstance<'_> = serde_json::from_slice(json)?;
        let ours = found.lockkeeper.unwrap_or_default();

        Ok(Self {
            service: found.name,
            id: found.id,
            address: found.address,
            port: found.port,
            ssl_port: found.ssl_port,
            payload: found.payload.map(Payload::from_raw),
            registration_time_utc: found.registration_time_utc,
            service_type: found.service_type.map(|name| name.0).unwrap_or_default(),
            uri_spec: found.uri_spec,
            is_enabled: found.enabled.unwrap_or(true),
            weight: ours.weight.unwrap_or(1),
            zone: ours.zone,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &[u8]) -> Result<Instance, CodecError> {
        Instance::from_json(json)
    }

    const PLAIN: &str = r#"{"name":"web","id":"7","address":"10.0.0.7","port":80,"sslPort":null,"payload":null,"registrationTimeUTC":1700000000123,"serviceType":"DYNAMIC","uriSpec":null}"#;

    fn plain() -> Instance {
        let mut instance = Instance::new("web", "7").address("10.0.0.7").port(80);
        instance.registration_time_utc = 1_700_000_000_123;
        instance
    }

    fn written(instance: &Instance) -> String {
        String::from_utf8(instance.to_json()).unwrap()
    }

    #[test]
    fn what_curator_knows_is_written_as_curator_does() {
        assert_eq!(written(&plain()), PLAIN);
        assert_eq!(read(PLAIN.as_bytes()).unwrap(), plain());
        let mut disabled = plain();
        disabled.is_enabled = false;
        let json = PLAIN.replace("null}", r#"null,"enabled":false}"#);
        assert_eq!(written(&disabled), json);
        assert_eq!(read(json.as_bytes()).unwrap(), disabled);
    }

    #[test]
    fn what_curator_does_not_know_is_in_a_key_of_its_own() {
        for (instance, ours) in [
            (plain().weight(3), r#"{"weight":3}"#),
            (plain().zone("b"), r#"{"zone":"b"}"#),
            (plain().weight(0).zone("b"), r#"{"weight":0,"zone":"b"}"#),
        ] {
            let json = PLAIN.replace("null}", &format!(r#"null,"lockkeeper":{ours}}}"#));
            assert_eq!(written(&instance), json);
            assert_eq!(read(json.as_bytes()).unwrap(), instance);
            let later = json.replace("lockkeeper\":{", "lockkeeper\":{\"later\":1,");
            assert_eq!(read(later.as_bytes()).unwrap(), instance);
        }
    }

    /// As Jackson 2.14 writes them.
    #[test]
    fn text_is_escaped_as_jackson_does() {
        let id = "q\"\\/\u{8}\t\n\u{c}\r\u{1}\u{1f}\u{7f}\u{85}\u{2028}é😀<>&'";
        let json =
            "\"q\\\"\\\\/\\b\\t\\n\\f\\r\\u0001\\u001F\u{7f}\u{85}\u{2028}é\\uD83D\\uDE00<>&'\"";
        let instance = Instance::new("web", id);
        assert!(written(&instance).contains(&format!("\"id\":{json},")), "{}", written(&instance));
        assert_eq!(read(&instance.to_json()).unwrap(), instance);
        assert_eq!(Payload::new(id).unwrap().json(), json);
    }

    #[test]
    fn a_payload_is_kept_to_the_byte() {
        let payload =
            r#"{"@class":"java.util.HashMap","z": 1.0E10,"a":123456789012345678901234567890}"#;
        let json = PLAIN.replace("\"payload\":null", &format!("\"payload\":{payload}"));
        let instance = read(json.as_bytes()).unwrap();
        assert_eq!(instance.payload.as_ref().map(Payload::json), Some(payload));
        assert_eq!(written(&instance), json);
    }

    /// As Curator's reader does.
    #[test]
    fn what_is_missing_has_a_default() {
        let instance = read(b"{}").unwrap();
        assert_eq!(instance, Instance::new("", ""));
        let nulls =
            br#"{"uriSpec":{"parts":[{"value":"x","more":1}]},"serviceType":null,"x":[{}]}"#;
        let spec = read(nulls).unwrap().uri_spec.unwrap();
        assert_eq!(spec.to_string(), "x");
        for name in ["STATIC", "PERMANENT", "DYNAMIC_SEQUENTIAL", "DYNAMIC"] {
            let json = format!(r#"{{"serviceType":"{name}"}}"#);
            let again = written(&read(json.as_bytes()).unwrap());
            assert!(again.contains(&json[1..json.len() - 1]), "{again}");
        }
        assert!(read(br#"{"serviceType":"OTHER"}"#).is_err());
    }
}

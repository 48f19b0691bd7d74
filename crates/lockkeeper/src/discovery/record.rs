//! An instance as the JSON that Curator's programs write and read.
//!
//! Curator's default writer leaves out `enabled`, which means true; the other one writes it. Its reader
//! passes over keys that it does not know, which is where our weight and zone are. Text is escaped as
//! Jackson escapes it.

use std::io;

use serde::{Deserialize, Serialize};
use serde_json::ser::{CharEscape, Formatter, Serializer};
use serde_json::value::RawValue;

use crate::discovery::instance::{Instance, Payload, ServiceType};
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
    lockkeeper: Option<OursWritten<'a>>,
}

#[derive(Serialize)]
struct OursWritten<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<&'a str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Found<'a> {
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
    lockkeeper: Option<Ours>,
}

/// What Curator does not know. Keys that a later version adds are read over.
#[derive(Default, Deserialize)]
struct Ours {
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

pub(super) fn write(instance: &Instance) -> Vec<u8> {
    let weight = (instance.weight != 1).then_some(instance.weight);
    let zone = instance.zone.as_deref();
    let ours = OursWritten { weight, zone };
    let written = Written {
        name: &instance.service,
        id: &instance.id,
        address: instance.address.as_deref(),
        port: instance.port,
        ssl_port: instance.ssl_port,
        payload: instance.payload.as_ref().map(Payload::raw),
        registration_time_utc: instance.registration_time_utc,
        service_type: TypeName(instance.service_type),
        uri_spec: instance.uri_spec.as_ref(),
        enabled: (!instance.is_enabled).then_some(false),
        lockkeeper: (weight.is_some() || zone.is_some()).then_some(ours),
    };
    let mut json = Vec::new();
    // Only a map without text as its keys can fail, and a writer that does.
    let result = written.serialize(&mut Serializer::with_formatter(&mut json, Jackson));
    debug_assert!(result.is_ok(), "{result:?}");
    json
}

/// A value as JSON, as Jackson would write it.
pub(super) fn text(value: &(impl Serialize + ?Sized)) -> Result<String, CodecError> {
    let mut json = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut json, Jackson))?;
    Ok(String::from_utf8(json)?)
}

pub(super) fn read(json: &[u8]) -> Result<Instance, CodecError> {
    let found: Found<'_> = serde_json::from_slice(json)?;
    let ours = found.lockkeeper.unwrap_or_default();
    Ok(Instance {
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

/// Escapes text as Jackson does when it writes bytes: control characters with large hexadecimal digits,
/// and what needs two of Java's characters as these two.
struct Jackson;

impl Formatter for Jackson {
    fn write_char_escape<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        match escape {
            CharEscape::Quote => writer.write_all(br#"\""#),
            CharEscape::ReverseSolidus => writer.write_all(br"\\"),
            CharEscape::Solidus => writer.write_all(br"\/"),
            CharEscape::Backspace => writer.write_all(br"\b"),
            CharEscape::FormFeed => writer.write_all(br"\f"),
            CharEscape::LineFeed => writer.write_all(br"\n"),
            CharEscape::CarriageReturn => writer.write_all(br"\r"),
            CharEscape::Tab => writer.write_all(br"\t"),
            CharEscape::AsciiControl(byte) => write!(writer, "\\u{byte:04X}"),
        }
    }

    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let is_long = |letter: char| letter.len_utf16() > 1;
        let mut rest = fragment;
        while let Some(at) = rest.find(is_long) {
            writer.write_all(&rest.as_bytes()[..at])?;
            let mut letters = rest[at..].chars();
            let mut both = [0; 2];
            for half in letters.next().unwrap_or_default().encode_utf16(&mut both) {
                write!(writer, "\\u{half:04X}")?;
            }
            rest = letters.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = r#"{"name":"web","id":"7","address":"10.0.0.7","port":80,"sslPort":null,"payload":null,"registrationTimeUTC":1700000000123,"serviceType":"DYNAMIC","uriSpec":null}"#;

    fn plain() -> Instance {
        let mut instance = Instance::new("web", "7").address("10.0.0.7").port(80);
        instance.registration_time_utc = 1_700_000_000_123;
        instance
    }

    fn written(instance: &Instance) -> String {
        String::from_utf8(write(instance)).unwrap()
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
        assert_eq!(read(&write(&instance)).unwrap(), instance);
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

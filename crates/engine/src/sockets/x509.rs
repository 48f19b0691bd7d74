//! The name in a certificate, as ZooKeeper spells it in ACLs of the scheme `x509`.
//!
//! That is RFC 2253 as Java prints it: `CN=alice,OU=Locks,O=Example`, the innermost part first. The certificate has
//! been verified before, but its contents are not trusted to be well-formed.

use der::asn1::ObjectIdentifier;
use der::{AnyRef, Reader, SliceReader, Tag, Tagged};

/// Keywords of the attributes that Java knows for RFC 2253; all others are shown by number.
const KEYWORDS: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];

/// The subject of a certificate in DER; `None` if it cannot be read.
pub(crate) fn subject(certificate: &[u8]) -> Option<String> {
    read_subject(certificate).ok()
}

fn read_subject(certificate: &[u8]) -> der::Result<String> {
    let mut outer = SliceReader::new(certificate)?;
    let mut certificate = contents(&mut outer, Tag::Sequence)?;
    let mut body = contents(&mut certificate, Tag::Sequence)?;

    // The version, unless it is the first.
    if Tag::peek(&body)?.is_context_specific() {
        body.decode::<AnyRef<'_>>()?;
    }
    // The number, the algorithm, the issuer, the validity.
    for _ in 0..4 {
        body.decode::<AnyRef<'_>>()?;
    }
    name(contents(&mut body, Tag::Sequence)?)
}

/// Reads the contents of the next value, which must be of this kind.
fn contents<'a>(reader: &mut SliceReader<'a>, tag: Tag) -> der::Result<SliceReader<'a>> {
    let value: AnyRef<'a> = reader.decode()?;
    value.tag().assert_eq(tag)?;
    SliceReader::new(value.value())
}

fn name(mut sequence: SliceReader<'_>) -> der::Result<String> {
    let mut parts = Vec::new();
    while !sequence.is_finished() {
        parts.push(part(contents(&mut sequence, Tag::Set)?)?);
    }
    parts.reverse();
    Ok(parts.join(","))
}

/// One part of the name: usually one attribute, otherwise several with plus signs between.
fn part(mut set: SliceReader<'_>) -> der::Result<String> {
    let mut attributes = Vec::new();
    while !set.is_finished() {
        attributes.push(attribute(contents(&mut set, Tag::Sequence)?)?);
    }
    Ok(attributes.join("+"))
}

fn attribute(mut pair: SliceReader<'_>) -> der::Result<String> {
    let kind = pair.decode::<ObjectIdentifier>()?.to_string();
    let whole = pair.clone().read_slice(pair.remaining_len())?;
    let value: AnyRef<'_> = pair.decode()?;

    let keyword = KEYWORDS.iter().find(|(number, _)| *number == kind);
    let text = std::str::from_utf8(value.value()).ok().filter(|_| is_utf8(value.tag()));
    Ok(match (keyword, text) {
        (Some((_, keyword)), Some(text)) => format!("{keyword}={}", escape(text)),
        (Some((_, keyword)), None) => format!("{keyword}=#{}", hex(whole)),
        (None, _) => format!("{kind}=#{}", hex(whole)),
    })
}

/// Whether the bytes of a text of this kind are UTF-8.
fn is_utf8(tag: Tag) -> bool {
    matches!(tag, Tag::Utf8String | Tag::PrintableString | Tag::NumericString | Tag::Ia5String)
}

fn escape(text: &str) -> String {
    let last = text.chars().count().saturating_sub(1);
    let mut escaped = String::with_capacity(text.len());
    for (index, c) in text.chars().enumerate() {
        let special = matches!(c, ',' | '+' | '"' | '\\' | '<' | '>' | ';')
            || (c == '#' && index == 0)
            || (c == ' ' && (index == 0 || index == last));
        if special {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};

    fn certificate(parts: &[(DnType, DnValue)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in parts {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_innermost_part_comes_first() {
        let utf8 = |text: &str| DnValue::Utf8String(text.to_owned());
        let der = certificate(&[
            (DnType::OrganizationName, utf8("Example, Inc. ")),
            (DnType::OrganizationalUnitName, utf8("#1 <locks>")),
            (DnType::CommonName, utf8("alice")),
            (DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]), utf8("a@b")),
        ]);
        let expected =
            "1.2.840.113549.1.9.1=#0c03614062,CN=alice,OU=\\#1 \\<locks\\>,O=Example\\, Inc.\\ ";
        assert_eq!(subject(&der).as_deref(), Some(expected));
        assert_eq!(subject(&certificate(&[])).as_deref(), Some(""));
    }

    #[test]
    fn what_is_cut_off_or_garbled_is_none_and_never_a_panic() {
        let name = DnValue::Utf8String("alice".to_owned());
        let der = certificate(&[(DnType::CommonName, name)]);
        for cut in 0..der.len() {
            subject(&der[..cut]);
        }
        for index in 0..der.len() {
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut garbled = der.clone();
                garbled[index] = byte;
                subject(&garbled);
            }
        }
        assert_eq!(subject(b""), None);
    }
}

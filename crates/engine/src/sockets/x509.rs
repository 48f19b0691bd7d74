//! The name in a certificate, as ZooKeeper spells it in ACLs of the scheme `x509`.
//!
//! That is RFC 2253 as Java prints it: `CN=alice,OU=Locks,O=Example`, the innermost part first.
//! The certificate has been verified before; still, nothing in it is trusted to be well-formed.

use std::fmt::Write;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const EXPLICIT_VERSION: u8 = 0xa0;
const INTEGER: u8 = 0x02;
/// The kinds of text whose bytes are UTF-8: its own, printable, numeric, and IA5.
const UTF8_TEXTS: [u8; 4] = [0x0c, 0x13, 0x12, 0x16];

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
    let mut outer = Der(certificate);
    let mut certificate = outer.expect(SEQUENCE)?;
    let mut body = certificate.expect(SEQUENCE)?;
    body.skip_if(EXPLICIT_VERSION)?;
    body.expect(INTEGER)?;
    // The algorithm, the issuer, the validity.
    for _ in 0..3 {
        body.expect(SEQUENCE)?;
    }
    name(body.expect(SEQUENCE)?)
}

fn name(mut sequence: Der<'_>) -> Option<String> {
    let mut parts = Vec::new();
    while !sequence.is_empty() {
        parts.push(part(sequence.expect(SET)?)?);
    }
    parts.reverse();
    Some(parts.join(","))
}

/// One part of the name: mostly one attribute, several with plus signs between.
fn part(mut set: Der<'_>) -> Option<String> {
    let mut attributes = Vec::new();
    while !set.is_empty() {
        attributes.push(attribute(set.expect(SEQUENCE)?)?);
    }
    Some(attributes.join("+"))
}

fn attribute(mut pair: Der<'_>) -> Option<String> {
    let kind = dotted(pair.expect(OBJECT_IDENTIFIER)?.0)?;
    let whole = pair.0;
    let (tag, value) = pair.next()?;
    let keyword = KEYWORDS.iter().find(|(number, _)| *number == kind);
    let text = std::str::from_utf8(value.0).ok().filter(|_| UTF8_TEXTS.contains(&tag));
    Some(match (keyword, text) {
        (Some((_, keyword)), Some(text)) => format!("{keyword}={}", escape(text)),
        (Some((_, keyword)), None) => format!("{keyword}=#{}", hex(whole)),
        (None, _) => format!("{kind}=#{}", hex(whole)),
    })
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
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// An object identifier as numbers with dots.
fn dotted(bytes: &[u8]) -> Option<String> {
    let mut arcs = Vec::new();
    let mut arc: u64 = 0;
    for byte in bytes {
        arc = arc.checked_mul(128)?.checked_add(u64::from(byte & 0x7f))?;
        if byte & 0x80 == 0 {
            arcs.push(std::mem::take(&mut arc));
        }
    }
    // The first number holds two arcs, of which the first is at most 2.
    let first = *arcs.first()?;
    let root = (first / 40).min(2);
    let mut text = format!("{root}.{}", first - root * 40);
    for arc in &arcs[1..] {
        let _ = write!(text, ".{arc}");
    }
    Some(text)
}

/// Unread bytes in the distinguished encoding: a tag, a length, that many bytes.
#[derive(Clone, Copy)]
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    fn next(&mut self) -> Option<(u8, Der<'a>)> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let len = if first < 0x80 {
            usize::from(first)
        } else {
            // A certificate has no part whose length needs more than three bytes.
            let bytes = usize::from(first & 0x7f);
            if bytes > 3 || bytes > rest.len() {
                return None;
            }
            let (len, after) = rest.split_at(bytes);
            rest = after;
            len.iter().fold(0, |len, byte| len << 8 | usize::from(*byte))
        };
        let (content, after) = rest.split_at_checked(len)?;
        self.0 = after;
        Some((tag, Der(content)))
    }

    fn expect(&mut self, tag: u8) -> Option<Der<'a>> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }

    fn skip_if(&mut self, tag: u8) -> Option<()> {
        if self.0.first() == Some(&tag) {
            self.next()?;
        }
        Some(())
    }
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

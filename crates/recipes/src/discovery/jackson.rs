//! JSON as written by Jackson, which Curator uses.

use std::io;

use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, Serializer};

/// Encodes a value as JSON.
pub(super) fn write(value: &(impl Serialize + ?Sized)) -> Result<Vec<u8>, serde_json::Error> {
    let mut json = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut json, Jackson))?;
    Ok(json)
}

/// Escapes text as Jackson does when it writes bytes: control characters with uppercase hexadecimal digits, and
/// characters outside of the basic plane as two surrogates.
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

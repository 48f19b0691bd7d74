//! Text that any client may have written, as it is put into a page: bounded, and with nothing in it that acts.

use std::fmt::Write;

/// How many characters of a path, a name or a remark are shown.
pub(super) const LONG: usize = 160;

/// The longest path that is linked: a longer one does not fit into a request.
pub(super) const LONGEST_LINK: usize = 2_000;

/// The text with its control and direction characters spelled out, and at most so many characters of it.
pub(super) fn visible(text: &str, most: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(4 * most));
    for (count, c) in text.chars().enumerate() {
        if count == most {
            shown.push('…');
            break;
        }
        match c {
            '\0'..='\x1f' => {
                shown.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'))
            }
            '\x7f' => shown.push('␡'),
            _ if is_hidden(c) => {
                let _ = write!(shown, "⟨U+{:04X}⟩", u32::from(c));
            }
            _ => shown.push(c),
        }
    }
    shown
}

/// Whether a character is not seen, but changes how others are.
fn is_hidden(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_invisible = matches!(
        c,
        '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200d}' | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{2064}'
            | '\u{206a}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    c.is_control() || turns || is_invisible
}

/// A path with its middle left out, if it is long: its last part is what people look for.
pub(super) fn path(path: &str) -> String {
    let length = path.chars().count();
    if length <= LONG {
        return visible(path, LONG);
    }
    let head: String = path.chars().take(LONG / 2).collect();
    let tail: String = path.chars().skip(length - LONG / 2).collect();
    format!("{}…{}", visible(&head, LONG), visible(&tail, LONG))
}

/// A text as a value in the query of a link.
pub(super) fn query(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(byte));
            }
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// A whole number with its thousands apart: `12,345`.
pub(super) fn number(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 lock`, `2,000 locks`.
pub(super) fn count(of: usize, what: &str) -> String {
    let plural = if of == 1 { "" } else { "s" };
    format!("{} {what}{plural}", number(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_is_spelled_out() {
        assert_eq!(visible("a\u{202e}b\0\n\x7f", 99), "a⟨U+202E⟩b␀␊␡");
        assert_eq!(
            visible("x\u{200b}\u{feff}\u{e0041}\u{85}", 99),
            "x⟨U+200B⟩⟨U+FEFF⟩⟨U+E0041⟩⟨U+0085⟩"
        );
        assert_eq!(visible("ä 漢 🔒 <b>", 99), "ä 漢 🔒 <b>");
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(visible("abcdef", 3), "abc…");
        let long = path(&format!("/{}/end", "x".repeat(10_000)));
        assert!(long.chars().count() <= LONG + 1 && long.ends_with("/end"), "{long}");
    }

    #[test]
    fn values_of_links_are_encoded() {
        assert_eq!(query("/a b&c=d#é\""), "/a%20b%26c%3Dd%23%C3%A9%22");
    }

    #[test]
    fn numbers_are_read_at_a_glance() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            (count(1, "lock"), count(2_000, "lock")),
            ("1 lock".into(), "2,000 locks".into())
        );
    }
}

//! A codec for numbers of which some are encoded as long values.

use bytes::Bytes;
use lockkeeper::{Codec, CodecError};

/// The size of a part of a value where values are long, in bytes.
pub(super) const PART: usize = 64;

/// One in this many numbers is encoded as a long value.
const LONG_EACH: u64 = 3;

/// The largest excess of a long value over the size of a part.
const LONGEST: u64 = 4 * PART as u64;

/// Encodes a number, followed for some numbers by a text that is derived from the number: decoding any other text
/// fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct Padded {
    /// Whether there are long values.
    pub(super) has_long: bool,
}

impl Padded {
    /// Whether a number is encoded as a long value.
    pub(super) fn is_long(self, number: u64) -> bool {
        self.text(number).len() > PART
    }

    fn text(self, number: u64) -> String {
        let mut random = fastrand::Rng::with_seed(number);
        let mut text = number.to_string();
        if self.has_long && random.u64(0..LONG_EACH) == 0 {
            let length = PART + 1 + usize::try_from(random.u64(0..LONGEST)).unwrap_or_default();
            text.push(' ');
            text.extend(std::iter::repeat_with(|| random.alphanumeric()).take(length - text.len()));
        }
        text
    }
}

impl Codec<u64> for Padded {
    fn encode(&self, number: &u64) -> Result<Bytes, CodecError> {
        Ok(self.text(*number).into())
    }

    fn decode(&self, data: &[u8]) -> Result<u64, CodecError> {
        let text = std::str::from_utf8(data)?;
        let number = text.split(' ').next().unwrap_or_default().parse()?;
        match self.text(number) == text {
            true => Ok(number),
            false => Err(format!("not a value that was put: {text}").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_only_as_it_was_put() {
        let padded = Padded { has_long: true };
        let texts = (0..100).map(|number| (number, padded.text(number)));
        let (long, short): (Vec<_>, Vec<_>) = texts.partition(|(_, text)| text.len() > PART);
        assert!(long.len() > 10 && short.len() > 40, "{}", long.len());
        for (number, text) in long.iter().chain(&short) {
            assert_eq!(padded.decode(text.as_bytes()).unwrap(), *number);
            assert_eq!(Padded { has_long: false }.text(*number), number.to_string());
        }
        for (_, text) in &long {
            assert!(padded.decode(&text.as_bytes()[..text.len() - 1]).is_err());
            assert!(padded.decode(text.replacen(' ', " x", 1).as_bytes()).is_err());
        }
    }
}

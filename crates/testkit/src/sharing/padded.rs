//! Numbers as values, of which some are long.

use bytes::Bytes;
use lockkeeper::{Codec, CodecError};

/// How long a part of a value is where values are long, in bytes.
pub(super) const PART: usize = 64;

/// Of so many numbers, one is written as a long value.
const LONG_EACH: u64 = 3;

/// By how much a long value is longer than a part, at most.
const LONGEST: u64 = 4 * PART as u64;

/// Writes a number and, after some, a text that follows from it: whoever reads another one has read a wrong value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Padded {
    /// Whether there are long values at all.
    pub(super) has_long: bool,
}

impl Padded {
    /// Whether a number is written as a long value.
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
            false => Err(format!("another value than was put: {text}").into()),
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

//! Jute, ZooKeeper's serialisation: big-endian integers, and length-prefixed buffers and vectors.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::DecodeError;

/// The encoded length of a null buffer, string or list.
const NULL: i32 = -1;

/// A value that can be encoded in a message and decoded from one.
pub trait Record: Sized {
    /// Appends the value to `out`.
    fn encode(&self, out: &mut BytesMut);

    /// Takes the value from the front of `input`.
    ///
    /// # Errors
    /// If the bytes end early or do not form such a value.
    fn decode(input: &mut Decoder) -> Result<Self, DecodeError>;
}

/// The unread part of one frame.
///
/// Byte buffers are taken out as slices of the frame, without a copy.
#[derive(Clone, Debug)]
pub struct Decoder {
    rest: Bytes,
}

impl Decoder {
    /// Starts at the front of `frame`.
    pub fn new(frame: Bytes) -> Self {
        Self { rest: frame }
    }

    /// The number of unread bytes.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Takes `len` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if fewer are left.
    pub fn take(&mut self, len: usize) -> Result<Bytes, DecodeError> {
        if len > self.rest.len() {
            return Err(DecodeError::Truncated);
        }
        Ok(self.rest.split_to(len))
    }

    /// Skips `expected` if it comes next. Returns whether it did.
    pub(crate) fn skip(&mut self, expected: &[u8]) -> bool {
        let is_next = self.rest.starts_with(expected);
        if is_next {
            self.rest.advance(expected.len());
        }
        is_next
    }

    /// Takes a length or count. A null length (-1) is returned as 0.
    ///
    /// # Errors
    /// If the bytes end early, or the number is below -1.
    pub fn take_len(&mut self) -> Result<usize, DecodeError> {
        self.take_nullable_len().map(Option::unwrap_or_default)
    }

    fn take_nullable_len(&mut self) -> Result<Option<usize>, DecodeError> {
        match i32::decode(self)? {
            NULL => Ok(None),
            len => match usize::try_from(len) {
                Ok(len) => Ok(Some(len)),
                Err(_) => Err(DecodeError::NegativeLength(len)),
            },
        }
    }
}

impl Record for i32 {
    fn encode(&self, out: &mut BytesMut) {
        out.put_i32(*self);
    }

    fn decode(input: &mut Decoder) -> Result<Self, DecodeError> {
        input.rest.try_get_i32().map_err(|_| DecodeError::Truncated)
    }
}

impl Record for i64 {
    fn encode(&self, out: &mut BytesMut) {
        out.put_i64(*self);
    }

    fn decode(input: &mut Decoder) -> Result<Self, DecodeError> {
        input.rest.try_get_i64().map_err(|_| DecodeError::Truncated)
    }
}

impl Record for bool {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u8(u8::from(*self));
    }

    fn decode(input: &mut Decoder) -> Result<Self, DecodeError> {
        let byte = input.rest.try_get_u8().map_err(|_| DecodeError::Truncated)?;
        Ok(byte != 0)
    }
}

/// The last field of a message, which some versions leave out.
impl Record for Option<bool> {
    fn encode(&self, out: &mut BytesMut) {
        if let Some(flag) = self {
            flag.encode(out);
        }
    }

    fn decode(input: &mut Decoder) -> Result<Self, DecodeError> {
        match input.remaining() {
            0 => Ok(None),
            _ => bool::decode(input).map(Some),
        }
    }
}

/// A null buffer decodes as an empty one, for messages in which the two mean the same.
impl Record for Bytes {
    fn encode(&self, out: &mut BytesMut) {
        put_len(out, self.len());
        out.put_slice(self);
    }

    fn decode(input: &mut Decoder) -> Result<Self, DecodeError> {
        let len = input.take_len()?;
        input.take(len)
    }
}

/// A buffer that may be null.
impl Record for Option<Bytes> {
    fn encode(&self, out: &mut BytesMut) {
        match self {
            Some(bytes) => bytes.encode(out),
            None => NULL.encode(out),
        }
    }

    fn decode(input: &mut Decoder) -> Result<Self, DecodeError> {
        match input.take_nullable_len()? {
            Some(len) => input.take(len).map(Some),
            None => Ok(None),
        }
    }
}

impl Record for String {
    fn encode(&self, out: &mut BytesMut) {
        put_text(out, self);
    }

    fn decode(input: &mut Decoder) -> Result<Self, DecodeError> {
        let len = input.take_len()?;
        let bytes = input.rest.get(..len).ok_or(DecodeError::Truncated)?;
        let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::InvalidUtf8)?.to_owned();
        input.rest.advance(len);
        Ok(text)
    }
}

impl<T: Record> Record for Vec<T> {
    fn encode(&self, out: &mut BytesMut) {
        put_list(out, self);
    }

    fn decode(input: &mut Decoder) -> Result<Self, DecodeError> {
        let count = input.take_len()?;
        // Each item takes at least one byte, so a larger count is invalid. The vector grows with the bytes
        // that are really there, never by the announced count.
        if count > input.remaining() {
            return Err(DecodeError::Truncated);
        }
        // Most lists are short, and the capacity adds up in a request with many lists.
        let mut items = Vec::with_capacity(count.min(4));
        for _ in 0..count {
            items.push(T::decode(input)?);
        }
        Ok(items)
    }
}

/// Appends the same bytes as a [`String`] with this text.
pub(crate) fn put_text(out: &mut BytesMut, text: &str) {
    put_len(out, text.len());
    out.put_slice(text.as_bytes());
}

/// Appends the same bytes as a [`Vec`] with these items.
pub(crate) fn put_list<T: Record>(out: &mut BytesMut, items: &[T]) {
    put_len(out, items.len());
    for item in items {
        item.encode(out);
    }
}

/// Callers never encode a field of 2 GiB: frames are limited to about a megabyte.
fn put_len(out: &mut BytesMut, len: usize) {
    out.put_i32(i32::try_from(len).expect("a field shorter than 2 GiB"));
}

/// Implements [`Record`] for a struct whose fields are encoded in the given order. The field of a tuple
/// struct is `0`.
macro_rules! record {
    ($name:ident { $($field:tt),* $(,)? }) => {
        impl $crate::codec::Record for $name {
            fn encode(&self, out: &mut bytes::BytesMut) {
                $( $crate::codec::Record::encode(&self.$field, out); )*
            }

            fn decode(
                input: &mut $crate::codec::Decoder,
            ) -> Result<Self, $crate::error::DecodeError> {
                Ok(Self { $( $field: $crate::codec::Record::decode(input)?, )* })
            }
        }
    };
}
pub(crate) use record;

/// The encoded form of a value.
#[cfg(test)]
pub(crate) fn encoded(value: &impl Record) -> Bytes {
    let mut out = BytesMut::new();
    value.encode(&mut out);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_count_is_refused_before_anything_is_allocated() {
        let mut out = BytesMut::new();
        out.put_i32(i32::MAX);
        out.put_i32(0);
        let result = Vec::<String>::decode(&mut Decoder::new(out.freeze()));
        assert_eq!(result, Err(DecodeError::Truncated));
    }

    #[test]
    fn null_buffers_and_vectors_are_empty() {
        let null = Bytes::from_static(&[0xff; 4]);
        assert_eq!(Bytes::decode(&mut Decoder::new(null.clone())), Ok(Bytes::new()));
        assert_eq!(Vec::<i32>::decode(&mut Decoder::new(null)), Ok(Vec::new()));
    }

    #[test]
    fn a_negative_length_is_an_error() {
        let bytes = Bytes::from_static(&[0xff, 0xff, 0xff, 0xfe]);
        assert_eq!(Bytes::decode(&mut Decoder::new(bytes)), Err(DecodeError::NegativeLength(-2)));
    }
}

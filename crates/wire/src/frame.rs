//! Frames: a four-byte length, then that many bytes.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The largest frame that ZooKeeper accepts by default (`jute.maxbuffer`), in bytes.
pub const MAX_FRAME: usize = 1_048_575;

/// The length of a frame is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A length below 0.
    #[error("a frame of {0} bytes: the peer does not speak the ZooKeeper protocol")]
    Negative(i32),
    /// A length above the limit.
    #[error("a frame of {len} bytes is over the limit of {max}")]
    TooLong {
        /// The announced length, in bytes.
        len: usize,
        /// The limit, in bytes.
        max: usize,
    },
}

/// Takes the first complete frame from `buffer`, or returns `None` if it has not fully arrived.
///
/// Memory is never reserved by an announced length alone.
///
/// # Errors
/// If the announced length is negative or above `max`. The rest of the stream is then unusable.
pub fn split_frame(buffer: &mut BytesMut, max: usize) -> Result<Option<Bytes>, FrameError> {
    let Some(prefix) = buffer.first_chunk::<4>() else {
        return Ok(None);
    };
    let announced = i32::from_be_bytes(*prefix);
    let len = usize::try_from(announced).map_err(|_| FrameError::Negative(announced))?;
    if len > max {
        return Err(FrameError::TooLong { len, max });
    }
    if buffer.len() < 4 + len {
        return Ok(None);
    }
    buffer.advance(4);
    Ok(Some(buffer.split_to(len).freeze()))
}

/// Appends a frame whose content `content` writes. Returns the length of the content in bytes.
pub fn write_frame(out: &mut BytesMut, content: impl FnOnce(&mut BytesMut)) -> usize {
    let start = out.len();
    out.put_i32(0);
    content(out);
    let len = out.len() - start - 4;
    let prefix = i32::try_from(len).expect("a frame shorter than 2 GiB");
    out[start..start + 4].copy_from_slice(&prefix.to_be_bytes());
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in() {
        let mut buffer = BytesMut::new();
        assert_eq!(write_frame(&mut buffer, |out| out.put_slice(b"abc")), 3);
        write_frame(&mut buffer, |_| {});
        let whole = buffer.clone();
        for cut in 0..7 {
            let mut part = BytesMut::from(&whole[..cut]);
            assert_eq!(split_frame(&mut part, 10), Ok(None));
            assert_eq!(part.len(), cut, "an incomplete frame stays in the buffer");
        }
        assert_eq!(split_frame(&mut buffer, 10), Ok(Some(Bytes::from_static(b"abc"))));
        assert_eq!(split_frame(&mut buffer, 10), Ok(Some(Bytes::new())));
        assert_eq!(split_frame(&mut buffer, 10), Ok(None));
    }

    #[test]
    fn impossible_lengths_are_errors_at_once() {
        let mut negative = BytesMut::from(&[0xff_u8; 4][..]);
        assert_eq!(split_frame(&mut negative, 10), Err(FrameError::Negative(-1)));
        let mut long = BytesMut::from(&[0, 0, 0, 11][..]);
        assert_eq!(split_frame(&mut long, 10), Err(FrameError::TooLong { len: 11, max: 10 }));
    }
}

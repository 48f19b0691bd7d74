//! Bytes that a socket has not accepted yet.

use std::collections::VecDeque;
use std::io;

use bytes::{Buf, Bytes, BytesMut};

/// A piece that grew beyond this for a large reply is shrunk once no more than this is left.
const KEPT_BUFFER: usize = 8 * 1024;
/// The length up to which bytes are appended to a piece. Longer data becomes a piece of its own.
const PIECE: usize = 64 * 1024;

/// In pieces, each of which frees its memory when it has been sent.
#[derive(Default)]
pub(crate) struct Unsent {
    /// Only the last piece may be empty, if it is the only one.
    pieces: VecDeque<BytesMut>,
    len: usize,
}

impl Unsent {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn push(&mut self, bytes: Bytes) {
        self.len += bytes.len();
        match self.pieces.back_mut() {
            // A long one is kept as it is: a copy would need the same memory again.
            Some(last) if last.is_empty() && bytes.len() > KEPT_BUFFER => *last = bytes.into(),
            Some(last) if last.len() + bytes.len() <= PIECE => last.extend_from_slice(&bytes),
            _ => self.pieces.push_back(bytes.into()),
        }
    }

    /// Passes the bytes in order to `send` while they are accepted; returns how many were.
    pub(crate) fn send(
        &mut self,
        mut take: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let before = self.len;
        while let Some(piece) = self.pieces.front_mut().filter(|piece| !piece.is_empty()) {
            match take(piece) {
                Ok(count) => {
                    piece.advance(count);
                    self.len -= count;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
            if piece.is_empty() && self.pieces.len() > 1 {
                self.pieces.pop_front();
            }
        }

        if let Some(piece) = self.pieces.front_mut() {
            give_room_back(piece);
        }
        Ok(before - self.len)
    }
}

/// Frees the memory of a large reply of which little or nothing is left to send.
fn give_room_back(piece: &mut BytesMut) {
    // Not by its capacity, which does not include the space of the bytes that were sent.
    if piece.len() <= KEPT_BUFFER && piece.try_reclaim(KEPT_BUFFER + 1) {
        *piece = BytesMut::from(&piece[..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: a client that read all but the last byte of a long reply kept the memory of all of it, and one byte was
    /// counted. Seen to fail with a check of the capacity.
    #[test]
    fn the_room_of_a_long_reply_goes_when_little_of_it_is_left() {
        for left in [0, 1, KEPT_BUFFER] {
            let mut piece = BytesMut::from(&vec![7; 1024 * 1024][..]);
            piece.advance(piece.len() - left);
            give_room_back(&mut piece);
            assert_eq!(piece, vec![7; left]);
            assert!(!piece.try_reclaim(1), "there is room for more than {left} bytes");
        }
    }

    #[test]
    fn a_small_buffer_is_kept() {
        let mut unsent = Unsent::default();
        unsent.push(Bytes::from_static(b"sent"));
        let place = unsent.pieces[0].as_ptr();
        unsent.send(|bytes| Ok(bytes.len())).unwrap();
        unsent.push(Bytes::from_static(b"more"));
        assert_eq!((unsent.pieces[0].as_ptr(), unsent.len()), (place, 4));
    }

    #[test]
    fn what_is_sent_is_what_was_pushed_in_order_and_leaves_nothing_behind() {
        let mut unsent = Unsent::default();
        let (mut expected, mut sent) = (Vec::new(), Vec::new());
        for (byte, len) in
            [3, KEPT_BUFFER + 1, 5, PIECE, 1, 2 * PIECE, PIECE - 1, 1].iter().enumerate()
        {
            let piece = vec![byte as u8; *len];
            expected.extend_from_slice(&piece);
            unsent.push(piece.into());
        }
        assert_eq!(unsent.len(), expected.len());
        let mut room = 0;
        while !unsent.is_empty() {
            // A thousand bytes at a time, and then a full socket.
            room += 1_000;
            let count = unsent.send(|bytes| match room {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                _ => {
                    let count = bytes.len().min(room);
                    sent.extend_from_slice(&bytes[..count]);
                    room -= count;
                    Ok(count)
                }
            });
            assert!(count.unwrap() <= 1_000);
        }
        assert_eq!(sent, expected);
        assert_eq!(unsent.pieces.len(), 1);
    }
}

//! Long `setWatches` requests, handled in portions.
//!
//! A frame can contain some 80,000 paths, and setting all watches at once would block all clients. So the
//! request is handled in portions: the same frame is handled next on its connection for the next portion.
//! Clients with many watches also send several such requests. The reply follows the last portion.

use bytes::Bytes;
use lockkeeper_wire::{
    DecodeError, Decoder, OpCode, Record as _, RequestHeader, SetWatchesRequest, Zxid,
};

use crate::watches;

/// The number of watches that are set at once.
pub(crate) const PORTION: usize = 4096;

/// The minimum length of a frame with more paths than that: each path has a length field.
const MIN_LONG_FRAME: usize = 4 * PORTION;

/// A long request that is partly handled. Its frame is parsed once before its first portion, and once by all
/// portions together.
pub(crate) struct Rearming {
    pub(crate) xid: i32,
    relative_zxid: Zxid,
    /// In the order of the request: the number of remaining paths of each list, and where they begin.
    lists: Vec<(usize, Decoder)>,
    pub(crate) left: Left,
}

/// The number of remaining paths and their memory use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) count: usize,
    pub(crate) weight: usize,
}

impl Rearming {
    /// A `setWatches` with more paths than one portion. `None` for all other frames, and for an invalid one,
    /// so that none of its watches is set.
    pub(crate) fn begin(frame: &Bytes) -> Option<Self> {
        if frame.len() < MIN_LONG_FRAME {
            return None;
        }
        let mut input = Decoder::new(frame.clone());
        let header = RequestHeader::decode(&mut input).ok()?;
        let lists = match OpCode::from_code(header.op) {
            Some(OpCode::SetWatches) => SetWatchesRequest::LISTS_V1,
            Some(OpCode::SetWatches2) => SetWatchesRequest::LISTS,
            _ => return None,
        };
        let begun = Self::look_through(header.xid, lists, &mut input).ok()?;
        (begun.left.count > PORTION).then_some(begun)
    }

    fn look_through(xid: i32, count: usize, input: &mut Decoder) -> Result<Self, DecodeError> {
        let relative_zxid = Zxid::decode(input)?;
        let (mut lists, mut left) = (Vec::with_capacity(count), Left::default());
        for _ in 0..count {
            let paths = input.take_len()?;
            lists.push((paths, input.clone()));
            for _ in 0..paths {
                left.weight += weight(input)?;
            }
            left.count += paths;
        }
        Ok(Self { xid, relative_zxid, lists, left })
    }

    /// Takes the next portion.
    pub(crate) fn next_portion(&mut self) -> Result<SetWatchesRequest, DecodeError> {
        let relative_zxid = self.relative_zxid;
        let mut portion = SetWatchesRequest { relative_zxid, ..Default::default() };

        let mut room = PORTION;
        for ((left, input), taken) in self.lists.iter_mut().zip(portion.lists_mut()) {
            let now = room.min(*left);
            room -= now;
            *left -= now;
            self.left.count -= now;

            for _ in 0..now {
                let path = String::decode(input)?;
                self.left.weight -= watches::weight(&path);
                taken.push(path);
            }
        }
        Ok(portion)
    }
}

/// Skips a string without copying it, and returns its memory use.
fn weight(input: &mut Decoder) -> Result<usize, DecodeError> {
    #[cfg(test)]
    tests::PARSED.set(tests::PARSED.get() + 1);
    let bytes = Bytes::decode(input)?;
    let path = std::str::from_utf8(&bytes).map_err(|_| DecodeError::InvalidUtf8)?;
    Ok(watches::weight(path))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use bytes::BytesMut;
    use lockkeeper_wire::Request;

    use super::*;

    thread_local! {
        /// The number of paths that were parsed before the first portion.
        pub(super) static PARSED: Cell<usize> = const { Cell::new(0) };
    }

    fn paths(prefix: &str, count: usize) -> Vec<String> {
        (0..count).map(|n| format!("/{prefix}-{n}")).collect()
    }

    fn frame(request: &Request) -> Bytes {
        let mut frame = BytesMut::new();
        request.encode(-8, &mut frame);
        frame.freeze()
    }

    /// All paths of a request, each with the number of its list.
    fn all(request: &SetWatchesRequest) -> Vec<(usize, String)> {
        let numbered = request.lists().into_iter().enumerate();
        numbered.flat_map(|(n, list)| list.iter().map(move |path| (n, path.clone()))).collect()
    }

    #[test]
    fn the_portions_have_all_paths_in_their_order() {
        let plain = SetWatchesRequest {
            relative_zxid: Zxid(7),
            data: paths("d", PORTION + 7),
            exist: paths("e", 5),
            child: paths("c", 2 * PORTION),
            ..Default::default()
        };
        let mut persistent = plain.clone();
        persistent.persistent_recursive = paths("r", 9_000);
        for request in [Request::SetWatches(plain.clone()), Request::SetWatches2(persistent)] {
            let (Request::SetWatches(whole) | Request::SetWatches2(whole)) = &request else {
                panic!()
            };
            let all_paths = all(whole);
            let weight = |paths: &[(usize, String)]| {
                paths.iter().map(|(_, path)| watches::weight(path)).sum::<usize>()
            };
            let mut rearming = Rearming::begin(&frame(&request)).expect("a long one");
            let mut seen = Vec::new();
            while rearming.left.count > 0 {
                let portion = rearming.next_portion().expect("readable");
                assert_eq!(portion.relative_zxid, whole.relative_zxid);
                seen.extend(all(&portion));
                let rest = &all_paths[seen.len()..];
                assert!(rest.is_empty() || seen.len() % PORTION == 0);
                assert_eq!(rearming.left, Left { count: rest.len(), weight: weight(rest) });
            }
            assert!(seen == all_paths);
        }
    }

    /// Each portion copied and validated the rest of the frame: with a frame of 64 MB, each of some thousand
    /// portions blocked all clients for a fraction of a second. Fails with that implementation.
    #[test]
    fn all_portions_together_look_once_at_a_path() {
        const PORTIONS: usize = 40;
        let exist = paths("e", PORTIONS * PORTION);
        let request = SetWatchesRequest { exist, ..Default::default() };
        PARSED.set(0);
        let mut rearming = Rearming::begin(&frame(&Request::SetWatches(request))).expect("long");
        let mut portions = 0;
        while rearming.left.count > 0 {
            rearming.next_portion().expect("readable");
            portions += 1;
        }
        assert_eq!((portions, PARSED.get()), (PORTIONS, PORTIONS * PORTION));
    }

    #[test]
    fn what_is_short_damaged_or_another_request_is_left_as_it_is() {
        let request = |count| SetWatchesRequest { exist: paths("e", count), ..Default::default() };
        assert!(Rearming::begin(&frame(&Request::SetWatches(request(PORTION)))).is_none());
        let whole = frame(&Request::SetWatches(request(PORTION + 1)));
        assert!(Rearming::begin(&whole).is_some());
        assert!(Rearming::begin(&whole.slice(..whole.len() - 1)).is_none(), "cut short");
        let mut wrong = BytesMut::from(&whole[..]);
        // The last byte of the last path, which is not in the first portion.
        let last = wrong.len() - 5;
        wrong[last] = 0xff;
        assert!(Rearming::begin(&wrong.freeze()).is_none(), "no UTF-8");
        let mut data = BytesMut::from(&whole[..]);
        data[4..8].copy_from_slice(&OpCode::SetData.code().to_be_bytes());
        assert!(Rearming::begin(&data.freeze()).is_none(), "another request");
    }
}

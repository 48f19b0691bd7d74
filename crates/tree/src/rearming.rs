//! Long `setWatches` requests, cut into portions.
//!
//! A frame has room for some 80,000 paths, and everyone would wait until all are armed. So a portion
//! is handled, and what is left is a shorter frame of the same request, which comes next on its
//! connection. Clients that have many watches send several such requests themselves. The reply
//! follows the last portion.

use bytes::{BufMut as _, Bytes, BytesMut};
use lockkeeper_wire::{
    DecodeError, Decoder, OpCode, Record as _, RequestHeader, SetWatchesRequest, Zxid,
};

use crate::watches;

/// How many paths are armed at once.
pub(crate) const PORTION: usize = 4096;

/// The shortest frame that can have more paths than that: each has a length.
const SHORTEST: usize = 4 * PORTION;

/// The first portion of a long request.
pub(crate) struct Portion {
    pub(crate) xid: i32,
    pub(crate) request: SetWatchesRequest,
    pub(crate) rest: Rest,
}

/// What follows a portion.
#[derive(Default)]
pub(crate) struct Rest {
    /// A frame of the same request.
    pub(crate) frame: Bytes,
    /// How many paths it has.
    pub(crate) count: usize,
    /// What they weigh.
    pub(crate) weight: usize,
}

/// The first portion of a `setWatches` that has more paths than one; `None` for all other frames, and
/// for one that is damaged anywhere, so that none of it is armed.
pub(crate) fn first_portion(frame: &Bytes) -> Option<Portion> {
    if frame.len() < SHORTEST {
        return None;
    }
    let mut input = Decoder::new(frame.clone());
    let header = RequestHeader::decode(&mut input).ok()?;
    let lists = match OpCode::from_code(header.op) {
        Some(OpCode::SetWatches) => 3,
        Some(OpCode::SetWatches2) => 5,
        _ => return None,
    };
    let portion = cut(header, lists, &mut input).ok()?;
    (portion.rest.count > 0).then_some(portion)
}

fn cut(header: RequestHeader, lists: usize, input: &mut Decoder) -> Result<Portion, DecodeError> {
    let relative_zxid = Zxid::decode(input)?;
    let mut taken: [Vec<String>; 5] = Default::default();
    let mut rest = Rest::default();
    let mut frame = BytesMut::new();
    header.encode(&mut frame);
    relative_zxid.encode(&mut frame);

    let mut room = PORTION;
    for list in &mut taken[..lists] {
        let count = count(input)?;
        let now = count.min(room);
        room -= now;
        for _ in 0..now {
            list.push(String::decode(input)?);
        }
        let left = input.clone();
        for _ in now..count {
            rest.weight += weight(input)?;
        }
        rest.count += count - now;
        // No longer than what was received.
        frame.put_i32((count - now) as i32);
        frame.put_slice(&left.clone().take(left.remaining() - input.remaining())?);
    }

    rest.frame = frame.freeze();
    let [data, exist, child, persistent, persistent_recursive] = taken;
    let request =
        SetWatchesRequest { relative_zxid, data, exist, child, persistent, persistent_recursive };
    Ok(Portion { xid: header.xid, request, rest })
}

/// The length of a list; null is as good as empty.
fn count(input: &mut Decoder) -> Result<usize, DecodeError> {
    match i32::decode(input)? {
        -1 => Ok(0),
        count => usize::try_from(count).map_err(|_| DecodeError::NegativeLength(count)),
    }
}

/// Reads a text, whose copy nobody needs, and gives its weight.
fn weight(input: &mut Decoder) -> Result<usize, DecodeError> {
    let bytes = Bytes::decode(input)?;
    let path = std::str::from_utf8(&bytes).map_err(|_| DecodeError::InvalidUtf8)?;
    Ok(watches::weight(path))
}

#[cfg(test)]
mod tests {
    use lockkeeper_wire::Request;

    use super::*;

    fn paths(prefix: &str, count: usize) -> Vec<String> {
        (0..count).map(|n| format!("/{prefix}-{n}")).collect()
    }

    fn frame(request: &Request) -> Bytes {
        let mut frame = BytesMut::new();
        request.encode(-8, &mut frame);
        frame.freeze()
    }

    fn decoded(frame: Bytes) -> Request {
        let mut input = Decoder::new(frame);
        let header = RequestHeader::decode(&mut input).unwrap();
        let request = Request::decode(header.op, &mut input).unwrap();
        assert_eq!((header.xid, input.remaining()), (-8, 0));
        request
    }

    /// All paths of a request, each with the number of its list.
    fn all(request: &SetWatchesRequest) -> Vec<(usize, String)> {
        let SetWatchesRequest { data, exist, child, persistent, persistent_recursive, .. } =
            request;
        let lists = [data, exist, child, persistent, persistent_recursive];
        let numbered = lists.into_iter().enumerate();
        numbered.flat_map(|(n, list)| list.iter().map(move |path| (n, path.clone()))).collect()
    }

    #[test]
    fn the_portions_have_all_paths_in_their_order() {
        let (relative_zxid, persistent, persistent_recursive) = (Zxid(7), vec![], vec![]);
        let (data, exist, child) =
            (paths("d", PORTION + 7), paths("e", 5), paths("c", 2 * PORTION));
        let plain = SetWatchesRequest {
            relative_zxid,
            data,
            exist,
            child,
            persistent,
            persistent_recursive,
        };
        let mut persistent = plain.clone();
        persistent.persistent_recursive = paths("r", 9_000);
        for request in [Request::SetWatches(plain.clone()), Request::SetWatches2(persistent)] {
            let (Request::SetWatches(whole) | Request::SetWatches2(whole)) = &request else {
                panic!()
            };
            let (mut rest, mut seen) = (frame(&request), Vec::new());
            let mut left = all(whole).len();
            while let Some(portion) = first_portion(&rest) {
                assert_eq!(portion.request.relative_zxid, whole.relative_zxid);
                let now = all(&portion.request);
                assert_eq!(now.len(), PORTION);
                seen.extend(now);
                left -= PORTION;
                let weight: usize =
                    all(whole)[seen.len()..].iter().map(|(_, path)| watches::weight(path)).sum();
                assert_eq!((portion.rest.count, portion.rest.weight), (left, weight));
                rest = portion.rest.frame;
            }
            let (Request::SetWatches(last) | Request::SetWatches2(last)) = decoded(rest) else {
                panic!("another request")
            };
            seen.extend(all(&last));
            assert!(seen == all(whole));
        }
    }

    #[test]
    fn what_is_short_damaged_or_another_request_is_left_as_it_is() {
        let request = |count| SetWatchesRequest { exist: paths("e", count), ..Default::default() };
        assert!(first_portion(&frame(&Request::SetWatches(request(PORTION)))).is_none());
        let whole = frame(&Request::SetWatches(request(PORTION + 1)));
        assert!(first_portion(&whole).is_some());
        assert!(first_portion(&whole.slice(..whole.len() - 1)).is_none(), "cut short");
        let mut wrong = BytesMut::from(&whole[..]);
        // The last byte of the last path, which the first portion does not have.
        let last = wrong.len() - 5;
        wrong[last] = 0xff;
        assert!(first_portion(&wrong.freeze()).is_none(), "no UTF-8");
        let mut data = BytesMut::from(&whole[..]);
        data[4..8].copy_from_slice(&OpCode::SetData.code().to_be_bytes());
        assert!(first_portion(&data.freeze()).is_none(), "another request");
    }
}

//! The encoded lengths of the parts of a reply, to compute the length of a reply before it is built.

use lockkeeper_wire::{MultiHeader, ReplyHeader, Sequence, Stat};

/// A length, a count or a number.
pub(crate) const LEN: usize = size_of::<i32>();
/// A node's stat.
pub(crate) const STAT: usize = Stat::LENGTH;
/// The header before every body.
pub(crate) const REPLY_HEADER: usize = ReplyHeader::LENGTH;
/// The header before every result of a `multi` or `multiRead`, and after the last one.
pub(crate) const ITEM_HEADER: usize = MultiHeader::LENGTH;
/// The digits of a sequence number.
pub(crate) const SEQUENCE: usize = Sequence::LENGTH;

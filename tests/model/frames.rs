//! Frames, each kept once.

use std::collections::HashMap;

use bytes::Bytes;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FrameId(u32);

/// All frames that were ever sent, without their length prefixes.
#[derive(Default)]
pub(crate) struct Frames {
    all: Vec<Bytes>,
    ids: HashMap<Bytes, FrameId>,
}

impl Frames {
    pub(crate) fn id(&mut self, frame: Bytes) -> FrameId {
        if let Some(id) = self.ids.get(&frame) {
            return *id;
        }
        // Its own memory, not a part of a buffer.
        let frame = Bytes::copy_from_slice(&frame);
        let id = FrameId(u32::try_from(self.all.len()).expect("fewer than memory has room for"));
        self.all.push(frame.clone());
        self.ids.insert(frame, id);
        id
    }

    pub(crate) fn bytes(&self, id: FrameId) -> &Bytes {
        &self.all[id.0 as usize]
    }
}

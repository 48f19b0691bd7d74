//! The disk space of this machine's engine.

use serde::{Deserialize, Serialize};

/// In bytes. The field names are stable: `local status --json` prints them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DiskSpace {
    disk_free: u64,
    /// How much must stay free. With less free space, the engine rejects changes.
    disk_reserve: u64,
}

impl DiskSpace {
    /// From the result of [`Engine::disk_room`](lockkeeper_engine::Engine::disk_room).
    pub(super) fn new((disk_free, disk_reserve): (u64, u64)) -> Self {
        Self { disk_free, disk_reserve }
    }

    /// The line for `local status`.
    pub(super) fn describe(self) -> String {
        let Self { disk_free, disk_reserve } = self;
        let (free, reserve) = (disk_free >> 20, disk_reserve >> 20);
        if disk_free >= disk_reserve {
            return format!("{free} MiB free on the disk");
        }
        let refused = match disk_free < disk_reserve / 2 {
            true => "every change but deletes",
            false => "every change but deletes and small ephemeral znodes",
        };
        format!(
            "disk full: {free} MiB are free, and {reserve} MiB must stay free; {refused} is rejected \
             until there is more space"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_room_is_full() {
        let room = |free: u64| DiskSpace::new((free << 20, 256 << 20));
        let line = |free: u64| room(free).describe();
        assert_eq!(line(300), "300 MiB free on the disk");
        assert!(
            line(200).starts_with("disk full: 200 MiB are free, and 256 MiB must"),
            "{}",
            line(200)
        );
        assert!(line(200).contains("small ephemeral") && !line(100).contains("ephemeral"));
    }
}

//! How much room this machine's engine has on its disk, as its four-letter word `mntr` says.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

/// How long the answer may take.
const LIMIT: Duration = Duration::from_secs(2);

/// The longest answer, in bytes.
const LONGEST: u64 = 64 * 1024;

/// In bytes. The names are stable: `local status --json` prints them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Room {
    disk_free: u64,
    /// What is kept free: with less, changes are refused.
    disk_reserve: u64,
}

impl Room {
    /// Asks the engine at this socket; `None` if it does not say, or keeps nothing on a disk.
    pub(super) fn ask(socket: &Path) -> Option<Self> {
        Self::read(&mntr(socket).ok()?)
    }

    fn read(text: &str) -> Option<Self> {
        let number = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
            value?.parse().ok()
        };
        let room =
            Self { disk_free: number("zk_disk_free")?, disk_reserve: number("zk_disk_reserve")? };
        Some(room).filter(|room| room.disk_reserve > 0)
    }

    /// The line of `local status` about it.
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
            "disk full: {free} MiB are free, and {reserve} MiB have to stay free; {refused} is refused \
             until there is more"
        )
    }
}

fn mntr(socket: &Path) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.write_all(b"mntr")?;
    let mut text = String::new();
    stream.take(LONGEST).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_room_is_full() {
        let room = |free: u64| {
            let (free, reserve) = (free << 20, 256_u64 << 20);
            Room::read(&format!(
                "zk_version\tx\nzk_disk_free\t{free}\nzk_disk_reserve\t{reserve}\n"
            ))
        };
        let line = |free: u64| room(free).unwrap().describe();
        assert_eq!(line(300), "300 MiB free on the disk");
        assert!(
            line(200).starts_with("disk full: 200 MiB are free, and 256 MiB have"),
            "{}",
            line(200)
        );
        assert!(line(200).contains("small ephemeral") && !line(100).contains("ephemeral"));
        assert_eq!(Room::read("mntr is not executed because it is not in the whitelist.\n"), None);
        assert_eq!(Room::read("zk_disk_free\t0\nzk_disk_reserve\t0\n"), None, "in memory");
    }
}

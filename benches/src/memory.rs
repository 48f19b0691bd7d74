//! The memory of a process.

use std::fs;

use anyhow::{Context, Result};

/// What of a process is in memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Pages of files, nearly all of them the program's own: the kernel shares them among processes,
    /// drops them when it needs room, and reads them again.
    pub(crate) mapped: u64,
    /// Pages that only this process has: heap and stacks.
    pub(crate) private: u64,
}

impl Memory {
    pub(crate) fn of(id: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{id}/status"))?;
        Self::read(&status).with_context(|| format!("process {id} has no memory"))
    }

    fn read(status: &str) -> Option<Self> {
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
        };
        let mapped = bytes("RssFile:")? + bytes("RssShmem:")?;
        Some(Self { mapped, private: bytes("RssAnon:")? })
    }

    /// All of it.
    pub(crate) fn resident(self) -> u64 {
        self.mapped + self.private
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_all_that_is_resident() {
        let status = "VmRSS:\t    1720 kB\nRssAnon:\t     116 kB\nRssFile:\t    1504 kB\n\
                      RssShmem:\t     100 kB\n";
        let memory = Memory::read(status).unwrap();
        assert_eq!(memory, Memory { mapped: 1604 * 1024, private: 116 * 1024 });
        assert_eq!(memory.resident(), 1720 * 1024);
        // A process that has ended and was not waited for.
        assert_eq!(Memory::read("State:\tZ (zombie)\n"), None);
    }
}

//! The memory that this process can use, and the shares of it that an engine uses.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use crate::files::read_kernel_file;

/// The assumed memory if the system does not report it.
const ASSUMED_MEMORY: u64 = 1024 * 1024 * 1024;

/// One in this many of the remaining addresses holds data.
const ADDRESSES_PER_BYTE: u64 = 3;

/// The least memory that is assumed: an engine could not work with less.
const MIN_MEMORY: u64 = 64 * 1024 * 1024;

/// A quarter of the memory, for waiting data and watches: with twice as much for the tree, a quarter remains for the
/// allocator, the embedding program, and the system.
pub(crate) fn default_budget() -> usize {
    share(available() / 4)
}

/// Half of the memory, for the data of the tree.
pub(crate) fn default_data_budget() -> usize {
    share(available() / 2)
}

fn share(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The memory of the machine, or the smallest of the limits of the process and of its control groups, in bytes.
pub(crate) fn available() -> u64 {
    let machine =
        read_kernel_file("/proc/meminfo").ok().and_then(|text| kilobytes_of(&text, "MemTotal:"));
    let groups = read_kernel_file("/proc/self/cgroup").unwrap_or_default();
    let groups = limit_files(&groups).into_iter().filter_map(|file| read_limit(&file));
    groups
        .chain(machine)
        .chain(limits_of_addresses())
        .min()
        .unwrap_or(ASSUMED_MEMORY)
        .max(MIN_MEMORY)
}

/// The memory that the limits of this process leave: the limit of all its addresses (`ulimit -v`), and that of its data
/// (`ulimit -d`).
fn limits_of_addresses() -> impl Iterator<Item = u64> {
    let status = read_kernel_file("/proc/self/status").unwrap_or_default();
    let [all, data] =
        ["VmSize:", "VmData:"].map(|name| kilobytes_of(&status, name).unwrap_or_default());
    let all = getrlimit(Resource::As).current.map(|limit| usable(limit, all.saturating_sub(data)));
    let data = getrlimit(Resource::Data).current.map(|limit| usable(limit, 0));
    all.into_iter().chain(data)
}

/// The usable memory within a limit of addresses: a third of the addresses that the process's code and tables leave.
/// The allocator reserves addresses in large blocks, keeps those that have become free, and cannot use them for larger
/// objects.
fn usable(addresses: u64, others: u64) -> u64 {
    addresses.saturating_sub(others) / ADDRESSES_PER_BYTE
}

/// The value of a line such as `MemTotal:  24737844 kB`, in bytes.
fn kilobytes_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The files that may contain a limit: those of the process's group and of all groups around it. In a container, the
/// group's path is one of the machine and does not exist, and the container's own files are at the top.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            list if list.split(',').any(|controller| controller == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };

        let root = Path::new(root);
        let own = root.join(group.trim_start_matches('/'));
        let inside = own.ancestors().take_while(|dir| dir.starts_with(root));
        files.extend(inside.map(|dir| dir.join(name)));
    }
    files
}

/// The number in such a file; `None` for no limit, which version 2 writes as `max` and version 1 as a number near the
/// maximum.
fn read_limit(file: &Path) -> Option<u64> {
    read_kernel_file(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_the_machine_is_read() {
        let text = "MemTotal:       24737844 kB\nMemFree:         3137144 kB\n";
        assert_eq!(kilobytes_of(text, "MemTotal:"), Some(24_737_844 * 1024));
        assert_eq!(kilobytes_of("MemFree: 1 kB\n", "MemTotal:"), None);
        assert!(available() >= MIN_MEMORY);
    }

    #[test]
    fn a_third_of_the_addresses_is_for_data() {
        assert_eq!(usable(4 << 30, 1 << 30), 1 << 30);
        assert_eq!(usable(1 << 20, 1 << 30), 0);
    }

    #[test]
    fn groups_of_both_versions_are_looked_at_up_to_the_top() {
        let files = |groups: &str| -> Vec<String> {
            limit_files(groups).iter().map(|file| file.display().to_string()).collect()
        };
        let expected = [
            "/sys/fs/cgroup/system.slice/engine/memory.max",
            "/sys/fs/cgroup/system.slice/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(files("0::/system.slice/engine\n"), expected);
        let expected = [
            "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        ];
        assert_eq!(files("11:cpu,cpuacct:/a\n4:memory:/docker\n1:name=systemd:/b\n"), expected);
    }

    #[test]
    fn limits_are_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let limit = |text: &str| {
            let file = dir.path().join("memory.max");
            std::fs::write(&file, text).unwrap();
            read_limit(&file)
        };
        assert_eq!(limit("536870912\n"), Some(512 * 1024 * 1024));
        assert_eq!(limit("max\n"), None);
        assert_eq!(read_limit(&dir.path().join("missing")), None);
    }
}

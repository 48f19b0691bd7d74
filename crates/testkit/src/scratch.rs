//! Temporary folders whose owner can be told from their name, so that what a killed test process
//! left behind is swept by a later one.

use std::fs;
use std::io;
use std::path::Path;
use std::process;
use std::sync::Once;
use std::time::Duration;

use tempfile::TempDir;

const PREFIX: &str = "lockkeeper-test-";

/// Also spares the folders of processes that this one cannot see (a container that shares the
/// temporary folder): no suite runs for so long.
const OLD: Duration = Duration::from_secs(2 * 60 * 60);

/// A new folder, removed on drop.
pub(crate) fn folder() -> io::Result<TempDir> {
    static SWEEP: Once = Once::new();
    SWEEP.call_once(sweep);
    tempfile::Builder::new()
        .prefix(&format!("{PREFIX}{}-", process::id()))
        .tempdir()
}

fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_str().is_some_and(is_orphan) && is_old(&entry) {
            // Somebody else may be sweeping it too.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_orphan(name: &str) -> bool {
    let owner = name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.split('-').next());
    owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
}

fn is_old(entry: &fs::DirEntry) -> bool {
    let modified = entry.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > OLD))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_belongs_to_its_process_and_goes_with_its_handle() {
        let folder = folder().unwrap();
        let path = folder.path().to_owned();
        assert!(!is_orphan(path.file_name().unwrap().to_str().unwrap()));
        assert!(
            is_orphan("lockkeeper-test-4194999-abc"),
            "no Linux process has so high an id"
        );
        assert!(!is_orphan("somebody-elses-folder"));
        drop(folder);
        assert!(!path.exists());
    }
}

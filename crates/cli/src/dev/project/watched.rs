//! Files whose changes matter.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Files, with the time of the last change that was seen; `None` if a file did not exist.
#[derive(Default)]
pub(super) struct Watched(BTreeMap<PathBuf, Option<SystemTime>>);

impl Watched {
    /// Returns true if a file has changed, appeared or disappeared since it was seen.
    pub(super) fn have_changed(&self) -> bool {
        self.0.iter().any(|(file, seen)| last_change(file) != *seen)
    }

    /// Sees the files as they are. Called before a build, so that a change during it is not missed.
    pub(super) fn look(&mut self) {
        for (file, seen) in &mut self.0 {
            *seen = last_change(file);
        }
    }

    /// Watches these files, from which a build that began at `started` was made. Those that were
    /// watched before stay as they were seen.
    pub(super) fn replace(&mut self, files: Vec<PathBuf>, started: SystemTime) {
        let now = SystemTime::now();
        let seen = |file: &PathBuf| match self.0.get(file) {
            Some(seen) => *seen,
            // A new file that changed during the build is built once more.
            None => last_change(file).filter(|time| !(started..=now).contains(time)),
        };
        self.0 = files.into_iter().map(|file| (file.clone(), seen(&file))).collect();
    }

    /// Also watches the folders of the files. Called after a build that failed: it may lack a file
    /// that does not exist yet.
    pub(super) fn add_folders(&mut self) {
        let folders: Vec<_> = self.0.keys().filter_map(|file| file.parent()).collect();
        let folders: Vec<_> = folders.into_iter().map(Path::to_owned).collect();
        for folder in folders {
            let seen = last_change(&folder);
            self.0.entry(folder).or_insert(seen);
        }
    }
}

fn last_change(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|file| file.modified()).ok()
}

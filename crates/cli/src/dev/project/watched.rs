//! Files whose changes matter.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The most files of a folder that are looked at.
const MAX_FILES: usize = 10_000;

/// After how many builds in a row that change a file it counts as made by them.
const MADE_BY_BUILDS: u32 = 4;

/// The files that a binary was built from, as they were seen.
#[derive(Default)]
pub(super) struct Watched {
    /// The time of the last change; `None` if the file did not exist.
    files: BTreeMap<PathBuf, Option<SystemTime>>,
    /// Files that changed during the last build, perhaps because the build has made them, each with
    /// the number of builds in a row and its digest.
    changed_by_build: BTreeMap<PathBuf, (u32, Option<u64>)>,
    /// After a build that failed: folders, since it may lack a file that does not exist yet.
    folders: Folders,
}

/// The names of the sources in folders.
pub(super) type Folders = BTreeMap<PathBuf, BTreeSet<OsString>>;

impl Watched {
    /// Returns true if a file has changed, appeared or disappeared since it was seen.
    pub(super) fn have_changed(&self) -> bool {
        self.files.iter().any(|(file, seen)| last_change(file) != *seen)
            || self.folders.iter().any(|(folder, seen)| source_names(folder) != *seen)
    }

    /// Sees the files as they are before a build, so that changes during it are not missed. Returns
    /// their folders, for [`keep`](Self::keep).
    pub(super) fn look(&mut self) -> Folders {
        for (file, seen) in &mut self.files {
            *seen = last_change(file);
        }
        let folders: BTreeSet<_> = self.files.keys().filter_map(|file| file.parent()).collect();
        folders.into_iter().map(|folder| (folder.to_owned(), source_names(folder))).collect()
    }

    /// Watches these files, from which a build that began at `started` was made.
    ///
    /// A file that changed during the build counts as changed: perhaps a person has saved it. It
    /// counts as seen if it changed during the build before, too, to the same content, or during
    /// [`MADE_BY_BUILDS`] builds in a row: then the builds have made it.
    pub(super) fn replace(&mut self, files: Vec<PathBuf>, started: SystemTime) {
        let (now, mut changed_by_build) = (SystemTime::now(), BTreeMap::new());
        let mut look = |file: &PathBuf| {
            let changed = last_change(file);
            let before = match self.files.get(file) {
                Some(seen) => *seen,
                None => changed.filter(|time| !(started..=now).contains(time)),
            };
            if before == changed || file.ends_with("Cargo.lock") {
                return changed;
            }
            let (builds, last) = self.changed_by_build.get(file).copied().unwrap_or_default();
            let digest = digest(file);
            changed_by_build.insert(file.clone(), (builds + 1, digest));
            let is_same = builds > 0 && digest == last;
            if is_same || builds + 1 >= MADE_BY_BUILDS { changed } else { before }
        };
        let files = files.into_iter().map(|file| (file.clone(), look(&file))).collect();
        *self = Self { files, changed_by_build, folders: Folders::new() };
    }

    /// Watches the same files, and these folders, after a build that began at `started` and failed.
    pub(super) fn keep(&mut self, folders: Folders, started: SystemTime) {
        self.replace(self.files.keys().cloned().collect(), started);
        self.folders = folders;
    }
}

/// Returns a digest of the content of a file; `None` for a folder, or an unreadable file.
fn digest(file: &Path) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    fs::read(file).ok()?.hash(&mut hasher);
    Some(hasher.finish())
}

/// Returns the time of the last change of a file, or of any file in a folder.
fn last_change(path: &Path) -> Option<SystemTime> {
    let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    let mut last = changed(path)?;
    let (mut folders, mut rest) = (vec![path.to_owned()], MAX_FILES);
    while let Some(folder) = folders.pop().filter(|folder| folder.is_dir()) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten().take(rest) {
            rest -= 1;
            last = changed(&entry.path()).map_or(last, |time| last.max(time));
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    Some(last)
}

/// Returns the names of the sources and manifests in a folder.
fn source_names(folder: &Path) -> BTreeSet<OsString> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    let is_source = |name: &OsString| {
        Path::new(name)
            .extension()
            .is_some_and(|extension| extension == "rs" || extension == "toml")
    };
    names.filter(is_source).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mrtr_testkit::TempFolder;

    use super::*;

    struct Folder(TempFolder);

    impl Folder {
        fn new(name: &str) -> Self {
            Self(TempFolder::new(name))
        }

        /// Writes a file that was last changed this many seconds ago.
        fn write(&self, name: &str, seconds_ago: u64) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, "").unwrap();
            let time = SystemTime::now() - Duration::from_secs(seconds_ago);
            fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            path
        }
    }

    fn started(seconds_ago: u64) -> SystemTime {
        SystemTime::now() - Duration::from_secs(seconds_ago)
    }

    #[test]
    fn change_during_a_build_counts_once() {
        let folder = Folder::new("during-a-build");
        let mut watched = Watched::default();
        let made = folder.write("made.rs", 50);
        let files = vec![made.clone(), folder.write("main.rs", 100), folder.0.join("missing")];
        // Each build changes the file.
        watched.look();
        watched.replace(files.clone(), started(60));
        assert!(watched.have_changed(), "it may have been the user");
        watched.look();
        folder.write("made.rs", 30);
        watched.replace(files.clone(), started(40));
        assert!(!watched.have_changed(), "it was the build");
        folder.write("made.rs", 20);
        assert!(watched.have_changed());
        watched.look();
        watched.replace(files, started(10));
        assert!(!watched.have_changed());
    }

    /// Saved while a build ran, and again while the next one ran.
    #[test]
    fn save_during_two_builds_counts() {
        let folder = Folder::new("during-two-builds");
        let mut watched = Watched::default();
        let path = folder.write("main.rs", 100);
        watched.replace(vec![path.clone()], started(90));
        let mut build = |content: &str, seconds_ago: u64| {
            watched.look();
            fs::write(&path, content).unwrap();
            let time = SystemTime::now() - Duration::from_secs(seconds_ago);
            fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            watched.replace(vec![path.clone()], started(seconds_ago + 5));
            watched.have_changed()
        };
        assert!(build("one", 80));
        assert!(build("two", 70));
        assert!(!build("two", 60), "a generated file");
        // A generated file with another content each time does not build forever.
        let changes = [50, 40, 30, 20].map(|ago| build(&ago.to_string(), ago));
        assert!(!changes.last().unwrap(), "{changes:?}");
    }

    #[test]
    fn failed_build_waits_for_a_change_or_a_new_source() {
        let folder = Folder::new("failed-build");
        let mut watched = Watched::default();
        let main = folder.write("main.rs", 100);
        watched.replace(vec![main], started(50));
        let folders = watched.look();
        // The file is created while the build runs, and again after it.
        for name in ["first.rs", "second.rs"] {
            let folders = if name == "first.rs" { folders.clone() } else { watched.look() };
            folder.write("report.txt", 0);
            watched.keep(folders, started(10));
            assert!(!watched.have_changed(), "{name}");
            folder.write(name, 0);
            assert!(watched.have_changed(), "{name}");
        }
    }

    /// Its build script writes a file before the compiler finds an error.
    #[test]
    fn failed_build_that_changes_a_file_is_not_repeated_forever() {
        let folder = Folder::new("failing-generator");
        let mut watched = Watched::default();
        let made = folder.write("made.rs", 100);
        watched.replace(vec![made], started(50));
        let mut build = |seconds_ago: u64| {
            let folders = watched.look();
            folder.write("made.rs", seconds_ago);
            watched.keep(folders, started(seconds_ago + 5));
            watched.have_changed()
        };
        assert!(build(40), "it may have been the user");
        assert!(!build(30), "it was the build");
    }

    #[test]
    fn folder_is_changed_by_a_file_in_it() {
        let folder = Folder::new("folder");
        fs::create_dir_all(folder.0.join("a/b")).unwrap();
        let mut watched = Watched::default();
        watched.replace(vec![folder.0.to_path_buf()], started(0));
        watched.look();
        assert!(!watched.have_changed());
        let file = folder.write("a/b/1.sql", 0);
        let later = SystemTime::now() + Duration::from_secs(10);
        fs::File::options().write(true).open(file).unwrap().set_modified(later).unwrap();
        assert!(watched.have_changed());
    }
}

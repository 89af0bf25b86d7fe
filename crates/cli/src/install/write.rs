//! Files that are replaced as a whole.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Returns the content of a file; `None` if there is none.
pub(super) fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces the content of a file that still is `before`. Other programs see the old content or the
/// new one.
pub(super) fn replace(path: &Path, before: Option<&str>, after: &str) -> io::Result<()> {
    // The file that a link leads to is replaced, not the link.
    let target = if before.is_some() { fs::canonicalize(path)? } else { path.to_owned() };
    let old = fs::metadata(&target).ok();
    if old.is_none() && fs::symlink_metadata(&target).is_ok() {
        return Err(io::Error::other("it is a link to a file that does not exist"));
    }
    if old.as_ref().is_some_and(|old| old.permissions().readonly()) {
        return Err(io::Error::other("it is read-only"));
    }
    let folder = match target.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    fs::create_dir_all(&folder)?;
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let temporary = folder.join(format!(".{name}.{}", std::process::id()));
    // Only the user can read a new file: entries may have secrets.
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&temporary)?;
    let replaced = fill(&file, old.as_ref(), after).and_then(|()| {
        if read(path)?.as_deref() != before {
            return Err(io::Error::other("another program has changed it meanwhile"));
        }
        fs::rename(&temporary, &target)
    });
    if replaced.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    replaced
}

/// Writes a file, with the owner and the permissions of the one that it replaces.
fn fill(mut file: &File, old: Option<&Metadata>, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    if let Some(old) = old {
        #[cfg(unix)]
        {
            use std::os::unix::fs::{MetadataExt as _, fchown};

            let new = file.metadata()?;
            if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
                fchown(file, Some(old.uid()), Some(old.gid()))?;
            }
        }
        file.set_permissions(old.permissions())?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_file_is_not_replaced() {
        let folder = std::env::temp_dir().join(format!("mrtr-write-{}", std::process::id()));
        let file = folder.join("config.json");
        assert!(replace(&file, None, "first").is_ok());
        // Another program has written it since it was read.
        for read_before in [None, Some("other")] {
            assert!(replace(&file, read_before, "second").is_err());
            assert_eq!(read(&file).ok().flatten().as_deref(), Some("first"));
        }
        let held = File::open(&file);
        assert!(replace(&file, Some("first"), "second").is_ok());
        // Those who were reading the old content get the rest of it.
        #[cfg(unix)]
        assert_eq!(held.and_then(io::read_to_string).ok().as_deref(), Some("first"));
        #[cfg(not(unix))]
        drop(held);
        assert_eq!(read(&file).ok().flatten().as_deref(), Some("second"));
        let left = fs::read_dir(&folder).map_or(0, Iterator::count);
        assert!(fs::remove_dir_all(&folder).is_ok());
        assert_eq!(left, 1);
    }
}

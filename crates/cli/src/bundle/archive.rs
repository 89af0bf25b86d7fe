//! The ZIP archive of a bundle.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Cursor, Read as _, Write as _};
use std::path::Path;

use mrtr::schema::json::Validated;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

/// The file that describes a bundle.
const MANIFEST: &str = "manifest.json";

/// The first bytes of a ZIP archive.
const ZIP: [u8; 4] = *b"PK\x03\x04";

/// The longest manifest that is read.
const MAX_MANIFEST: u64 = 1 << 20;

/// The longest bundle that is read.
const MAX_BUNDLE: u64 = 1 << 30;

/// A bundle in a file.
#[derive(Debug)]
pub(crate) struct Bundle {
    /// The digest of the file, in hexadecimal.
    pub(crate) sha256: String,
    pub(crate) manifest: Value,
}

impl Bundle {
    /// Reads a bundle.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_BUNDLE + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BUNDLE {
            return Err(io::Error::other("it is longer than 1 GiB"));
        }
        let sha256 = sha256(&bytes);
        let mut archive = ZipArchive::new(Cursor::new(bytes))?;
        let mut manifest = Vec::new();
        let file = archive.by_name(MANIFEST);
        let file =
            file.map_err(|_| io::Error::other(format!("no bundle: it has no {MANIFEST}")))?;
        file.take(MAX_MANIFEST + 1).read_to_end(&mut manifest)?;
        if manifest.len() as u64 > MAX_MANIFEST {
            return Err(io::Error::other(format!("{MANIFEST} is longer than 1 MiB")));
        }
        let manifest = serde_json::from_slice(&manifest)
            .and_then(|Validated| serde_json::from_slice(&manifest))
            .map_err(|error| io::Error::other(format!("{MANIFEST}: {error}")))?;
        Ok(Self { sha256, manifest })
    }
}

/// Checks that a bundle can be written to a file: that its name ends with `.mcpb`, and that it does
/// not exist, or is a bundle.
pub(super) fn check_target(path: &Path) -> io::Result<()> {
    if path.extension().is_none_or(|extension| extension != "mcpb") {
        return Err(io::Error::other("the name of a bundle ends with .mcpb"));
    }
    let mut head = [0; ZIP.len()];
    match File::open(path).and_then(|mut file| file.read_exact(&mut head)) {
        Ok(()) if head == ZIP => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| *folder != Path::new(""));
            fs::metadata(folder.unwrap_or(Path::new("."))).map(|_| ())
        }
        _ => Err(io::Error::other("it exists, and is no bundle")),
    }
}

/// Writes a bundle, and returns its digest. A file that exists is replaced as a whole.
///
/// The same content gives the same bytes.
pub(super) fn write(
    path: &Path,
    manifest: &Value,
    name: &str,
    binary: &[u8],
) -> io::Result<String> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default();
    archive.start_file(MANIFEST, options.unix_permissions(0o644))?;
    archive.write_all(format!("{manifest:#}\n").as_bytes())?;
    archive.start_file(format!("server/{name}"), options.unix_permissions(0o755))?;
    archive.write_all(binary)?;
    let bytes = archive.finish()?.into_inner();
    let file_name = path.file_name().ok_or_else(|| io::Error::other("it has no file name"))?;
    let temporary = format!(".{}.{}", file_name.to_string_lossy(), std::process::id());
    let temporary = path.with_file_name(temporary);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
    let written = file
        .write_all(&bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    Ok(sha256(&bytes))
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

//! A Rust compiler for other systems.
//!
//! If the current toolchain has the target's standard library (`rustup target add TARGET`), it is
//! used. Otherwise Debian's compiler is unpacked below `target/xtask`, and cargo builds the standard
//! library from Debian's source package. The current toolchain is not changed.

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::run::{output, run, scratch, target};

pub const WASM: &str = "wasm32-unknown-unknown";

/// The systems, and the target of each.
pub const SYSTEMS: [(&str, &str); 3] =
    [("wasm", WASM), ("windows", "x86_64-pc-windows-gnu"), ("macos", "aarch64-apple-darwin")];

/// The compiler, its own standard library, the source of it, and the program that makes import
/// libraries of Windows, which the standard library needs since Rust 1.96.
const PACKAGES: [&str; 4] =
    ["rustc-web", "libstd-rust-web-dev", "rust-web-src", "binutils-mingw-w64-x86-64"];
/// That program, below the folder.
const DLLTOOL: &str = "usr/bin/x86_64-w64-mingw32-dlltool";
/// The linker, of the compiler's version of LLVM.
const LINKER: &str = "lld";

/// What the targets are built with.
pub enum CrossRust {
    /// The compiler in use has the targets' standard libraries.
    Installed,
    /// Debian's compiler, unpacked in this folder.
    Debian(PathBuf),
}

impl CrossRust {
    /// Returns a compiler for the targets, or `None` if Debian's is not unpacked yet.
    pub fn find(targets: &[&str]) -> Result<Option<Self>> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let sysroot = output(Command::new(rustc).args(["--print", "sysroot"]))?;
        let installed = Path::new(sysroot.trim()).join("lib/rustlib");
        if targets.iter().all(|target| installed.join(target).is_dir()) {
            return Ok(Some(Self::Installed));
        }
        Ok(is_unpacked().then(|| Self::Debian(home())))
    }

    /// Makes a cargo command use the compiler.
    pub fn apply(&self, command: &mut Command) {
        let Self::Debian(home) = self else { return };
        command.env("RUSTC", home.join("usr/bin/rustc")).env("LD_LIBRARY_PATH", libraries(home));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::split_paths(&path).chain([home.join("usr/bin")]);
        if let Ok(path) = std::env::join_paths(path) {
            command.env("PATH", path);
        }
        // Cargo builds standard libraries only with unstable options.
        command.env("RUSTC_BOOTSTRAP", "1").arg("-Zbuild-std=std,panic_abort");
    }

    /// Returns the linker for WebAssembly, or `None` if the compiler brings it.
    pub fn wasm_linker(&self) -> Result<Option<PathBuf>> {
        match self {
            Self::Installed => Ok(None),
            Self::Debian(home) => {
                let major = llvm_version(home)?;
                Ok(Some(home.join(format!("usr/lib/llvm-{major}/bin/wasm-ld"))))
            }
        }
    }
}

fn home() -> PathBuf {
    target().join("xtask/cross-rust")
}

/// Returns true if Debian's compiler is unpacked, with all that it needs.
fn is_unpacked() -> bool {
    home().join("complete").is_file() && home().join(DLLTOOL).is_file()
}

/// Returns true if there is a compiler for all systems.
pub fn is_present() -> bool {
    CrossRust::find(&SYSTEMS.map(|(_, target)| target)).is_ok_and(|found| found.is_some())
}

/// The command that makes Debian's compiler unnecessary, to show to the user.
pub const ALTERNATIVE: &str = "rustup target add TARGET";

/// Downloads and unpacks Debian's compiler. Needs root, for the lock of the package manager.
pub fn unpack() -> Result {
    let home = scratch("cross-rust")?;
    download_and_unpack(&home, &PACKAGES)?;
    let linker = format!("{LINKER}-{}", llvm_version(&home)?);
    download_and_unpack(&home, &[&linker])?;
    let linker = CrossRust::Debian(home.clone()).wasm_linker()?.unwrap_or_default();
    if !linker.is_file() {
        return Err(format!("the packages have no {}", linker.display()).into());
    }
    fs::write(home.join("complete"), [])?;
    Ok(())
}

fn download_and_unpack(home: &Path, packages: &[&str]) -> Result {
    let archives = home.join("archives");
    fs::create_dir_all(archives.join("partial"))?;
    let mut download = Command::new("apt-get");
    // Packages are also downloaded if they are installed.
    download.args(["install", "--download-only", "--reinstall", "--no-install-recommends"]);
    download.args(["-y", "-qq"]);
    download.arg(format!("-oDir::Cache::archives={}", archives.display()));
    run(download.args(["-oAPT::Sandbox::User=root"]).args(packages))?;
    for file in fs::read_dir(&archives)? {
        let file = file?.path();
        if file.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg").arg("-x").arg(&file).arg(home))?;
            fs::remove_file(file)?;
        }
    }
    Ok(())
}

/// Returns the major version of the compiler's LLVM.
fn llvm_version(home: &Path) -> Result<String> {
    let mut rustc = Command::new(home.join("usr/bin/rustc"));
    let about = output(rustc.arg("-vV").env("LD_LIBRARY_PATH", libraries(home)))?;
    let version = about.lines().find_map(|line| line.strip_prefix("LLVM version: "));
    let major = version.and_then(|version| version.split('.').next());
    Ok(major.ok_or("rustc does not say its version of LLVM")?.to_owned())
}

fn libraries(home: &Path) -> PathBuf {
    home.join(format!("usr/lib/{ARCH}-linux-gnu"))
}

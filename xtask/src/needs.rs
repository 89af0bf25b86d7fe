//! Programs and packages that commands need besides a Rust toolchain, git and a C compiler, and
//! their installation.
//!
//! Debian packages are installed with apt-get as root. Everything else is installed below
//! `target/xtask`. With `MRTR_NO_INSTALL=1`, nothing is installed.

use std::env::consts::{ARCH, OS};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use crate::Result;
use crate::cross_rust;
use crate::package::{compiler, is_release, published};
use crate::run::{cargo, output, root, scratch, shown, target};

/// The Node.js that is downloaded if the system has none, or one older than [`OLDEST_NODE`].
const NODE: &str = "24.21.0";
/// The oldest major version that the conformance suite runs on.
const OLDEST_NODE: u32 = 22;

/// A program or package that a command needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// A program in the path, and the Debian package that contains it.
    Program(&'static str, &'static str),
    /// A component of the Rust toolchain, and its cargo subcommand.
    Component(&'static str, &'static str),
    /// A program from crates.io, and its version.
    Tool(&'static str, &'static str),
    /// Python 3.10 or newer that can make virtual environments.
    Python,
    /// The packages of `interop/{name}/requirements.txt`.
    PythonPackages(&'static str),
    Node,
    /// The server of PostgreSQL, which Debian keeps out of the path.
    Postgres,
    /// The packages of `interop/{name}/package-lock.json`.
    NpmPackages(&'static str),
    /// Debian's Rust compiler, for targets that the compiler in use does not have.
    CrossRust,
    /// The minimum Rust version of the workspace as the compiler in use.
    MinimumRust,
}

pub const NPM: Need = Need::Program("npm", "npm");
pub const REDIS: Need = Need::Program("redis-server", "redis-server");
pub const NGINX: Need = Need::Program("nginx", "nginx");
pub const HAPROXY: Need = Need::Program("haproxy", "haproxy");
pub const CHROMIUM: Need = Need::Program("chromium", "chromium");
pub const VALGRIND: Need = Need::Program("valgrind", "valgrind");
pub const SH: Need = Need::Program("sh", "dash");
pub const SED: Need = Need::Program("sed", "sed");
/// Runs a program in a terminal.
pub const SCRIPT: Need = Need::Program("script", "bsdutils");
pub const KILL: Need = Need::Program("kill", "procps");
pub const RUSTFMT: Need = Need::Component("rustfmt", "fmt");
pub const CLIPPY: Need = Need::Component("clippy", "clippy");
pub const CARGO_DENY: Need = Need::Tool("cargo-deny", "0.20.2");
pub const CARGO_FUZZ: Need = Need::Tool("cargo-fuzz", "0.13.2");
pub const CARGO_MUTANTS: Need = Need::Tool("cargo-mutants", "27.1.0");

/// The state of a need on this machine.
#[derive(PartialEq, Eq, Debug)]
pub enum Status {
    Present,
    /// It can be installed, by this command.
    Obtainable(String),
    /// It cannot be installed by the xtask. The text is a command that installs it.
    Missing(String),
}

/// Installs missing needs, or fails with the command that installs them.
pub fn require(needs: &[Need]) -> Result {
    for need in needs {
        match need.status() {
            Status::Present => {}
            Status::Obtainable(_) => need.install()?,
            Status::Missing(command) => {
                return Err(format!("missing: {}; get it with: {command}", need.name()).into());
            }
        }
    }
    Ok(())
}

/// Returns true if programs may be installed and packages downloaded.
pub fn may_install() -> bool {
    std::env::var_os("MRTR_NO_INSTALL").is_none_or(|value| value.is_empty() || value == "0")
}

/// Returns the path of a program in `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

pub fn is_installed(program: &str) -> bool {
    find_program(program).is_some()
}

impl Need {
    pub fn name(self) -> String {
        match self {
            Self::Program(name, _) | Self::Component(name, _) => name.to_owned(),
            Self::Tool(name, version) => format!("{name} {version}"),
            Self::Python => "python3 with venv".to_owned(),
            Self::PythonPackages(name) => format!("Python packages of interop/{name}"),
            Self::Node => format!("Node.js {OLDEST_NODE}"),
            Self::Postgres => "PostgreSQL".to_owned(),
            Self::NpmPackages(name) => format!("npm packages of interop/{name}"),
            Self::CrossRust => "a Rust compiler for other targets".to_owned(),
            Self::MinimumRust => "the minimum Rust version".to_owned(),
        }
    }

    /// Returns the command that installs it.
    fn command(self) -> String {
        match self {
            Self::Program(_, package) => format!("apt-get install {package}"),
            Self::Component(name, _) => format!("rustup component add {name}"),
            Self::Tool(name, version) => format!("cargo install {name}@{version} --locked"),
            Self::Python => "apt-get install python3 python3-venv".to_owned(),
            Self::PythonPackages(name) => {
                format!("pip install -r interop/{name}/requirements.txt")
            }
            Self::Node => format!("npm install {}", node_package()),
            Self::Postgres => "apt-get install postgresql".to_owned(),
            Self::NpmPackages(name) => format!("npm ci, in a copy of interop/{name}"),
            Self::CrossRust => cross_rust::ALTERNATIVE.to_owned(),
            Self::MinimumRust => "rustup override set VERSION".to_owned(),
        }
    }

    /// Returns the needs of the installation.
    fn prerequisites(self) -> &'static [Self] {
        match self {
            Self::PythonPackages(_) => &[Self::Python],
            Self::Node | Self::NpmPackages(_) => &[NPM],
            _ => &[],
        }
    }

    pub fn status(self) -> Status {
        if self.is_present() {
            return Status::Present;
        }
        for prerequisite in self.prerequisites() {
            if let missing @ Status::Missing(_) = prerequisite.status() {
                return missing;
            }
        }
        let command = self.command();
        let installer = match self {
            Self::Program(..) | Self::Python | Self::Postgres | Self::CrossRust => {
                is_root() && is_installed("apt-get")
            }
            Self::Component(..) => is_installed("rustup"),
            Self::MinimumRust => false,
            _ => true,
        };
        if may_install() && installer { Status::Obtainable(command) } else { self.missing() }
    }

    /// Returns the status "missing", with the command for a user to run.
    pub fn missing(self) -> Status {
        let command = match self {
            Self::Program(..)
            | Self::Python
            | Self::Postgres
            | Self::Component(..)
            | Self::CrossRust
            | Self::MinimumRust => self.command(),
            // It is expected in a folder that only the xtask writes.
            _ if may_install() => "cargo xtask test".to_owned(),
            _ => "env -u MRTR_NO_INSTALL cargo xtask test".to_owned(),
        };
        Status::Missing(command)
    }

    fn is_present(self) -> bool {
        let succeeds = |command: &mut Command| {
            let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        match self {
            Self::Program(name, _) => is_installed(name),
            Self::Component(_, command) => succeeds(&mut cargo(&[command, "--version"])),
            Self::Tool(name, version) => tool(name, version).is_file(),
            Self::Python => {
                let can = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))";
                succeeds(Command::new("python3").args(["-c", can]))
            }
            Self::Node => node().is_some(),
            Self::Postgres => has_postgres(),
            Self::CrossRust => cross_rust::is_present(),
            // The part that needs it reports the error.
            Self::MinimumRust => is_minimum_rust().unwrap_or(true),
            Self::PythonPackages(_) | Self::NpmPackages(_) => {
                let lock = self.lock().and_then(|(file, _)| fs::read(root().join(file)).ok());
                let installed =
                    self.lock().and_then(|(_, home)| fs::read(home.join("installed")).ok());
                lock.is_some() && lock == installed
            }
        }
    }

    /// Returns the file that lists the packages, and the folder into which they are installed.
    fn lock(self) -> Option<(String, PathBuf)> {
        let home = |name| target().join("xtask").join(name);
        match self {
            Self::PythonPackages(name) => {
                Some((format!("interop/{name}/requirements.txt"), home(name)))
            }
            Self::NpmPackages(name) => {
                Some((format!("interop/{name}/package-lock.json"), home(name)))
            }
            _ => None,
        }
    }

    /// Installs it, after its prerequisites.
    pub fn install(self) -> Result {
        require(self.prerequisites())?;
        match self {
            Self::Program(_, package) => apt_get(&[package])?,
            Self::Python => apt_get(&["python3", "python3-venv"])?,
            Self::Postgres => apt_get(&["postgresql"])?,
            Self::CrossRust => {
                apt_get_update();
                cross_rust::unpack()?;
            }
            Self::Component(name, _) => {
                run_installer(Command::new("rustup").args(["component", "add", name]))?;
            }
            Self::Tool(name, version) => {
                let home = scratch("tools")?.join(format!("{name}-{version}"));
                // An optimized build takes several times as long, and the tool runs only once.
                let mut install = cargo(&["install", "--quiet", "--debug", "--locked", name]);
                install.args(["--version", version, "--root"]).arg(home);
                // Its build must not be mixed with our own builds.
                run_installer(install.env_remove("CARGO_TARGET_DIR"))?;
            }
            Self::Node => {
                let home = scratch(&format!("node-{NODE}"))?;
                let mut install = npm();
                install.args(["install", "--prefix"]).arg(&home);
                run_installer(install.args(["--no-save", "--loglevel=error", &node_package()]))?;
            }
            Self::PythonPackages(name) => self.install_packages(|home| {
                run_installer(Command::new("python3").args(["-m", "venv", "--clear"]).arg(home))?;
                let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
                let list = root().join("interop").join(name).join("requirements.txt");
                run_installer(Command::new(home.join("bin/python")).args(pip).arg(list))
            })?,
            Self::NpmPackages(name) => self.install_packages(|home| {
                for file in ["package.json", "package-lock.json"] {
                    fs::copy(root().join("interop").join(name).join(file), home.join(file))?;
                }
                let ci = ["ci", "--ignore-scripts", "--loglevel=error"];
                run_installer(npm().args(ci).current_dir(home))
            })?,
            Self::MinimumRust => {}
        }
        if self.is_present() {
            return Ok(());
        }
        Err(format!("{} is still missing after `{}`", self.name(), self.command()).into())
    }

    /// Installs packages, and records the list that they were installed from.
    fn install_packages(self, install: impl FnOnce(&PathBuf) -> Result) -> Result {
        let (list, home) = self.lock().ok_or("nothing to install from")?;
        fs::create_dir_all(&home)?;
        install(&home)?;
        fs::copy(root().join(list), home.join("installed"))?;
        Ok(())
    }
}

fn is_minimum_rust() -> Result<bool> {
    let minimum = published()?.first().map(|one| one.rust_version.clone()).unwrap_or_default();
    Ok(is_release(&compiler()?.0, &minimum))
}

fn has_postgres() -> bool {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    is_installed("postgres")
        || versions.into_iter().any(|version| version.path().join("bin/postgres").is_file())
}

/// Returns the path of a tool from crates.io.
pub fn tool(name: &str, version: &str) -> PathBuf {
    target().join("xtask/tools").join(format!("{name}-{version}")).join("bin").join(name)
}

/// Returns a recent Node.js: the system's, or the downloaded one.
pub fn node() -> Option<PathBuf> {
    let version =
        find_program("node").and_then(|node| output(Command::new(node).arg("--version")).ok());
    let major = version.as_deref().and_then(|version| {
        version.trim().trim_start_matches('v').split('.').next()?.parse::<u32>().ok()
    });
    if major >= Some(OLDEST_NODE) {
        return Some("node".into());
    }
    let modules = target().join("xtask").join(format!("node-{NODE}/node_modules"));
    let package = node_package();
    let (name, _) = package.split_once('@')?;
    Some(modules.join(name).join("bin/node")).filter(|node| node.is_file())
}

/// Returns the npm package with the binaries of Node.js for this machine.
fn node_package() -> String {
    let os = match OS {
        "macos" => "darwin",
        "windows" => "win",
        other => other,
    };
    let arch = if ARCH == "aarch64" { "arm64" } else { "x64" };
    format!("node-{os}-{arch}@{NODE}")
}

/// Runs an installer. Prints only the first line of an error.
fn run_installer(command: &mut Command) -> Result {
    let started = Instant::now();
    println!("  $ {}", shown(command));
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        println!("    ({:.1} s)", started.elapsed().as_secs_f64());
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let first = text.lines().find(|line| line.to_lowercase().contains("err")).unwrap_or_default();
    Err(format!("{} ended with {}: {}", shown(command), output.status, first.trim()).into())
}

fn npm() -> Command {
    let mut npm = Command::new("npm");
    npm.env("NPM_CONFIG_UPDATE_NOTIFIER", "false")
        .env("NPM_CONFIG_FUND", "false")
        .env("NPM_CONFIG_AUDIT", "false");
    npm
}

fn apt_get(packages: &[&str]) -> Result {
    apt_get_update();
    let mut install = Command::new("apt-get");
    // Servers are installed, and not started.
    install.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    run_installer(install.args(["install", "-y", "-qq"]).args(packages))
}

/// Updates the lists of packages, once. If this fails, the existing lists may suffice.
fn apt_get_update() {
    static UPDATED: OnceLock<bool> = OnceLock::new();
    UPDATED.get_or_init(|| run_installer(Command::new("apt-get").args(["update", "-qq"])).is_ok());
}

#[cfg(unix)]
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

#[cfg(not(unix))]
fn is_root() -> bool {
    false
}

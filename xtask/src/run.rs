//! Functions that run other programs.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{env, thread};

use crate::Result;

/// The root of the workspace.
///
/// `cargo run` says where it is. The path of the build can be that of another clone, which shares
/// the target directory, or the one before the clone was moved.
pub fn root() -> PathBuf {
    let package =
        env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}

/// The target directory.
pub fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Returns a folder below `target/xtask`, and creates it if it is missing.
pub fn scratch(name: &str) -> Result<PathBuf> {
    let path = target().join("xtask").join(name);
    std::fs::create_dir_all(&path)?;
    Ok(path)
}

pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Number of lines of a failed command that its error repeats.
const LAST_LINES: usize = 20;

/// Prints a command and runs it. Fails if the command fails.
///
/// If the output goes to a log, the error repeats the last lines of the command: tools that show
/// logs often leave out the middle.
pub fn run(command: &mut Command) -> Result {
    let started = Instant::now();
    println!("\n$ {}", shown(command));
    let done = if io::stdout().is_terminal() {
        command.status().map(|status| (status, String::new()))
    } else {
        run_logged(command)
    };
    let (status, last) = done.map_err(|e| format!("{}: {e}", shown(command)))?;
    if !status.success() {
        return Err(format!("{} ended with {status}{last}", shown(command)).into());
    }
    println!("  ({:.1} s)", started.elapsed().as_secs_f64());
    Ok(())
}

/// Runs a command, and prints what it prints. Returns its last lines, too, each after a line break.
fn run_logged(command: &mut Command) -> io::Result<(ExitStatus, String)> {
    let (output, input) = io::pipe()?;
    let mut child = command.stdout(input.try_clone()?).stderr(input).spawn()?;
    // The command holds the pipe open, too.
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(io::Result::ok) {
            let mut stdout = io::stdout().lock();
            let _ = stdout.write_all(&line).and_then(|()| stdout.write_all(b"\n"));
            let _ = sender.send(line);
        }
    });
    let status = child.wait()?;
    let mut last = VecDeque::new();
    // A process that the command has left behind may hold the pipe open.
    let end = Instant::now() + Duration::from_secs(1);
    while let Ok(line) = lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(format!("\n    {}", String::from_utf8_lossy(&line)));
    }
    Ok((status, last.into_iter().collect()))
}

/// Returns the standard output of a command that succeeds.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("{}: {e}", shown(command)))?;
    if !output.status.success() {
        return Err(format!("{} ended with {}", shown(command), output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns a command as a line, with paths relative to the root of the workspace.
pub fn shown(command: &Command) -> String {
    let root = format!("{}/", root().display());
    let ours = |text: &std::ffi::OsStr| text.to_string_lossy().replace(&root, "");
    let program = ours(command.get_program());
    let name = if Path::new(&program).is_absolute() { program.rsplit('/').next() } else { None };
    let name = name.unwrap_or(&program).to_owned();
    std::iter::once(name).chain(command.get_args().map(ours)).collect::<Vec<_>>().join(" ")
}

/// Builds the binaries and examples of the workspace, and returns their folder.
///
/// They have all features, as in the tests: dependencies with other features would be compiled a
/// second time.
pub fn build() -> Result<PathBuf> {
    let all = ["build", "--quiet", "--workspace", "--all-features", "--bins", "--examples"];
    run(&mut cargo(&all))?;
    Ok(target().join("debug"))
}

/// Builds the programs that check guarantees with many inputs, optimized, and returns their folder.
/// They are built together, so that dependencies are compiled once.
pub fn optimized() -> Result<PathBuf> {
    let mut build = cargo(&["build", "--quiet", "--profile", OPTIMIZED, "--bins"]);
    for package in ["mrtr-chaos", "mrtr-model", "mrtr-testkit"] {
        build.args(["--package", package]);
    }
    run(&mut build)?;
    Ok(target().join(OPTIMIZED))
}

/// The profile for programs that are optimized, but not measured.
pub const OPTIMIZED: &str = "optimized";

/// Builds the programs of a package outside of the workspace, optimized, and returns their folder.
pub fn release(package: &str) -> Result<PathBuf> {
    let home = scratch("release")?;
    let manifest = format!("--manifest-path={package}/Cargo.toml");
    let mut build = cargo(&["build", "--quiet", "--locked", "--release", "--bins", &manifest]);
    run(build.env("CARGO_TARGET_DIR", &home))?;
    Ok(home.join("release"))
}

/// A process that ends when this value is dropped.
pub struct Server {
    child: Child,
    pub port: u16,
}

impl Server {
    /// Starts a server that prints `listening PORT` on its first line.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let port = line.trim().strip_prefix("listening ").and_then(|port| port.parse().ok());
        let mut server = Self { child, port: 0 };
        server.port =
            port.ok_or_else(|| format!("the server printed {line:?}, expected `listening PORT`"))?;
        Ok(server)
    }

    /// Starts a server that listens on the port in `PORT`, and waits until it listens.
    pub fn start_on(command: &mut Command, port: u16) -> Result<Self> {
        let child = command.env("PORT", port.to_string()).stdin(Stdio::null()).spawn()?;
        let mut server = Self { child, port };
        let started = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = server.child.try_wait()? {
                return Err(format!("the server ended with {status}").into());
            }
            if started.elapsed().as_secs() > 30 {
                return Err("the server does not listen after 30 s".into());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a port that is currently free.
pub fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

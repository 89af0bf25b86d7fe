//! The load balancer: nginx or HAProxy, with the configuration of the deployment guide and other
//! addresses.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;
use tokio::process::{Child, Command};

use crate::{Result, signal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Nginx,
    Haproxy,
}

impl std::str::FromStr for Kind {
    type Err = ();

    fn from_str(name: &str) -> std::result::Result<Self, ()> {
        match name {
            "nginx" => Ok(Self::Nginx),
            "haproxy" => Ok(Self::Haproxy),
            _ => Err(()),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Balancer {
    kind: Kind,
    template: String,
    dir: PathBuf,
    pub(crate) port: u16,
    replicas: Vec<u16>,
    child: Child,
}

/// A request in the load balancer's log.
#[derive(Debug)]
pub(crate) struct Served {
    /// Seconds since 1970.
    pub(crate) at: f64,
    pub(crate) status: i32,
}

impl Balancer {
    pub(crate) fn start(
        kind: Kind,
        conf: &Path,
        dir: &Path,
        port: u16,
        replicas: &[u16],
    ) -> Result<Self> {
        let template = fs::read_to_string(conf).map_err(|e| format!("{}: {e}", conf.display()))?;
        let path = dir.join("balancer.conf");
        fs::write(&path, configuration(kind, &template, dir, port, replicas, &[])?)?;
        let mut command = match kind {
            Kind::Nginx => {
                let mut nginx = Command::new("nginx");
                nginx.arg("-p").arg(dir).arg("-c").arg(&path).args(["-g", "daemon off;"]);
                nginx.arg("-e").arg(dir.join("error.log")).stdout(Stdio::null());
                nginx
            }
            Kind::Haproxy => {
                let mut haproxy = Command::new("haproxy");
                haproxy
                    .arg("-db")
                    .arg("-f")
                    .arg(&path)
                    .stdout(fs::File::create(dir.join("access.log"))?);
                haproxy
            }
        };
        let errors = fs::File::create(dir.join("balancer.stderr"))?;
        let child = command.stdin(Stdio::null()).stderr(errors).spawn();
        let child = child.map_err(|error| {
            format!("cannot start {kind:?} ({error}): install it, for example with `apt-get install nginx haproxy`")
        })?;
        Ok(Self { kind, template, dir: dir.to_owned(), port, replicas: replicas.to_vec(), child })
    }

    /// Returns true if the load balancer does not poll replicas for readiness, so that its
    /// configuration must be updated.
    pub(crate) fn needs_readiness(&self) -> bool {
        self.kind == Kind::Nginx
    }

    /// Sends requests to ready replicas only.
    pub(crate) fn set_ready(&self, ready: &[bool]) -> Result {
        let text =
            configuration(self.kind, &self.template, &self.dir, self.port, &self.replicas, ready)?;
        // The load balancer reads the whole file, so the file is replaced as a whole.
        fs::write(self.dir.join("next.conf"), text)?;
        fs::rename(self.dir.join("next.conf"), self.dir.join("balancer.conf"))?;
        signal(&self.child, Signal::HUP)
    }

    pub(crate) async fn stop(mut self) -> Result {
        signal(&self.child, Signal::TERM)?;
        self.child.wait().await?;
        Ok(())
    }

    /// Returns the requests in the access log.
    pub(crate) fn log(dir: &Path) -> Result<Vec<Served>> {
        let text = fs::read_to_string(dir.join("access.log"))?;
        Ok(text.lines().filter_map(line).collect())
    }
}

/// Killed, nginx would leave its workers behind.
impl Drop for Balancer {
    fn drop(&mut self) {
        // After `stop`, it has no process id any more.
        let _ = signal(&self.child, Signal::TERM);
    }
}

/// Parses a line `time status …`. Lines about anything else than requests return `None`.
fn line(line: &str) -> Option<Served> {
    let mut parts = line.split(' ');
    Some(Served { at: parts.next()?.parse().ok()?, status: parts.next()?.parse().ok()? })
}

/// Counts requests by status, as text.
pub(crate) fn statuses<'a>(served: impl Iterator<Item = &'a Served>) -> String {
    let mut counts = BTreeMap::<i32, u32>::new();
    served.for_each(|served| *counts.entry(served.status).or_default() += 1);
    let mut text = String::new();
    for (status, count) in counts {
        let _ = write!(text, "{}{count} × {status}", if text.is_empty() { "" } else { ", " });
    }
    text
}

/// Returns the configuration of the guide for these ports, without the retries that would hide
/// failures. Lines for more replicas than there are are left out.
fn configuration(
    kind: Kind,
    template: &str,
    dir: &Path,
    port: u16,
    replicas: &[u16],
    ready: &[bool],
) -> Result<String> {
    let mut text = String::new();
    let mut left = replicas.iter().enumerate();
    let local = Ipv4Addr::LOCALHOST;
    let dir = dir.display();
    for line in template.lines() {
        let indent: String = line.chars().take_while(|c| *c == ' ').collect();
        let mut words = line.split_whitespace();
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let new = match (kind, first, second) {
            (Kind::Nginx, "pid", _) => format!("pid {dir}/nginx.pid;"),
            (Kind::Nginx, "error_log", _) => format!("error_log {dir}/error.log warn;"),
            (Kind::Nginx, "access_log", _) => {
                let mut logs = format!("access_log {dir}/access.log rounds;");
                for what in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
                    let _ = write!(logs, "\n{indent}{what}_temp_path {dir}/temp-{what};");
                }
                logs
            }
            (Kind::Nginx, "worker_processes", _) => "worker_processes 1;".to_owned(),
            // Without persistent connections, a reload cannot close one at the moment it is used.
            (Kind::Nginx, "listen", _) => {
                format!("listen {local}:{port};\n{indent}keepalive_timeout 0;")
            }
            (Kind::Nginx, "proxy_next_upstream", _) => "proxy_next_upstream off;".to_owned(),
            (Kind::Nginx, "server", address) if address != "{" => {
                let Some((at, replica)) = left.next() else { continue };
                let down = if ready.get(at) == Some(&false) { " down" } else { "" };
                format!("server {local}:{replica} max_fails=0{down};")
            }
            (Kind::Haproxy, "bind", _) => format!("bind {local}:{port}"),
            (Kind::Haproxy, "retries", _) => "retries 0".to_owned(),
            (Kind::Haproxy, "option", "redispatch") => continue,
            (Kind::Haproxy, "server", name) => {
                let Some((_, replica)) = left.next() else { continue };
                format!("server {name} {local}:{replica}")
            }
            _ => line.trim_start().to_owned(),
        };
        let _ = writeln!(text, "{indent}{new}");
    }
    if left.next().is_some() {
        return Err("the configuration of the guide has fewer replicas than the fleet".into());
    }
    Ok(text)
}

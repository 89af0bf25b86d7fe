//! A plan of the parts that can run on this machine, and of the programs that are installed for
//! them.

use std::fmt;

use super::parts::Part;
use crate::Result;
use crate::needs::{Need, Status, is_installed, may_install};

pub struct Plan {
    parts: Vec<&'static Part>,
    /// All needs of the parts, each once.
    needs: Vec<(Need, Status)>,
}

impl Plan {
    /// Checks the needs of the parts. Without `install`, missing needs count as missing even if
    /// they can be installed.
    pub fn new(parts: Vec<&'static Part>, install: bool) -> Self {
        let mut needs: Vec<(Need, Status)> = Vec::new();
        for need in parts.iter().flat_map(|part| part.needs) {
            if needs.iter().any(|(known, _)| known == need) {
                continue;
            }
            let status = match need.status() {
                Status::Obtainable(_) if !install => need.missing(),
                status => status,
            };
            needs.push((*need, status));
        }
        Self { parts, needs }
    }

    /// Installs needs that can be installed. Tries each twice, since servers and networks fail.
    pub fn install(mut self) -> Result<Self> {
        for (need, status) in &mut self.needs {
            if let Status::Obtainable(_) = status {
                let installed = need.install().or_else(|error| {
                    println!("    cannot install {}: {error}; trying once more", need.name());
                    need.install()
                });
                installed.map_err(|error| {
                    let name = need.name();
                    format!(
                        "cannot install {name}: {error}; with MRTR_NO_INSTALL=1, the parts that \
                         need it are left out"
                    )
                })?;
                *status = Status::Present;
            }
        }
        Ok(self)
    }

    /// Returns the parts, each with the reason if it cannot run.
    pub fn into_parts(self) -> Vec<(&'static Part, Option<String>)> {
        self.parts.iter().map(|part| (*part, self.missing(part))).collect()
    }

    /// Returns the missing needs of a part, and the commands that install them.
    fn missing(&self, part: &Part) -> Option<String> {
        let (mut names, mut packages, mut commands) = (Vec::new(), String::new(), Vec::new());
        for (need, status) in &self.needs {
            let (Status::Missing(command), true) = (status, part.needs.contains(need)) else {
                continue;
            };
            names.push(need.name());
            match command.strip_prefix(APT_GET) {
                Some(package) if !packages.contains(package) => packages.push_str(package),
                None if !commands.contains(command) => commands.push(command.clone()),
                _ => {}
            }
        }
        if !packages.is_empty() {
            commands.insert(0, format!("{APT_GET}{packages}"));
        }
        let [names, commands] = [names.join(", "), commands.join(" && ")];
        (!names.is_empty()).then(|| format!("missing {names}; to install: {commands}"))
    }
}

/// The beginning of commands that are joined into one.
const APT_GET: &str = "apt-get install";

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<38}status", "need")?;
        for (need, status) in &self.needs {
            let name = need.name();
            let status = match status {
                Status::Present => "present".to_owned(),
                Status::Obtainable(command) => format!("will be installed: {command}"),
                Status::Missing(command) => format!("missing; get it with: {command}"),
            };
            writeln!(f, "{name:<38}{status}")?;
        }
        if !may_install() {
            writeln!(f, "nothing will be installed: MRTR_NO_INSTALL is set")?;
        }
        if !is_installed("cc") {
            writeln!(f, "missing C compiler, which building needs: apt-get install gcc libc6-dev")?;
        }
        let missing = |part: &&'static Part| Some((part.name, self.missing(part)?));
        let left_out: Vec<_> = self.parts.iter().filter_map(missing).collect();
        writeln!(
            f,
            "\n{} of {} parts will run",
            self.parts.len() - left_out.len(),
            self.parts.len()
        )?;
        for (name, missing) in left_out {
            writeln!(f, "left out: {name} ({missing})")?;
        }
        Ok(())
    }
}

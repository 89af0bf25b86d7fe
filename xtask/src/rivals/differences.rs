//! The recorded differences of other SDKs, `conformance/rivals.toml`.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};

use super::probes;
use crate::Result;
use crate::run::root;

pub const FILE: &str = "conformance/rivals.toml";

const HEAD: &str = "\
# Requests to which the servers of other SDKs, each as its SDK ships it, do not answer as the specification requires.
# `cargo xtask rivals` compares this file with their responses; `--write` updates all but `observed`.
# A request with a level of MUST NOT is an input request that the client cannot answer. The fixtures on Python and rmcp
# send it without a look at the capabilities, which is left to their SDK, as it is to ours.

";

/// The content of the file.
#[derive(Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Differences {
    /// The version of each SDK.
    pub versions: BTreeMap<String, String>,
    /// Handwritten notes from the interop runs, on the client or the wire.
    pub observed: Vec<String>,
    #[serde(rename = "difference")]
    pub requests: Vec<Difference>,
}

/// A request to which the response of at least one SDK violates the requirement.
#[derive(Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// The id in the ledger.
    pub requirement: String,
    pub request: String,
    /// Short descriptions of the SDKs' responses that differ.
    pub answers: BTreeMap<String, String>,
}

impl Differences {
    pub fn read() -> Result<Self> {
        let text = fs::read_to_string(root().join(FILE))?;
        toml::from_str(&text).map_err(|error| format!("{FILE}: {error}").into())
    }

    pub fn write(&self) -> Result {
        fs::write(root().join(FILE), self.render()?)?;
        Ok(())
    }

    fn render(&self) -> Result<String> {
        Ok(format!("{HEAD}{}", toml::to_string_pretty(self)?))
    }

    /// Summarizes the number of differing responses by SDK, in one paragraph.
    pub fn summary(&self) -> String {
        let count = |name: &String| {
            self.requests.iter().filter(|one| one.answers.contains_key(name)).count()
        };
        let counts = self.versions.iter();
        let counts = counts.map(|(name, version)| format!("{name} {version}: {}", count(name)));
        format!(
            "`cargo xtask rivals` sends {} requests to our server and to the servers of other SDKs, and fails unless ours \
             meets the requirement each time.\nResponses of other SDKs that differ from the specification: {}\n\
             ([`{FILE}`](../{FILE}) lists them).",
            probes::all().count(),
            counts.collect::<Vec<_>>().join(", "),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{Differences, FILE};
    use crate::requirements;
    use crate::run::root;

    #[test]
    fn the_file_is_as_the_command_writes_it() {
        let text = std::fs::read_to_string(root().join(FILE)).unwrap();
        let read = Differences::read().unwrap();
        assert!(text == read.render().unwrap(), "{}", read.render().unwrap());
        let ids = requirements::ids().unwrap();
        assert!(read.requests.iter().all(|one| ids.contains(&one.requirement)));
    }
}

//! The legacy revisions, and how they differ.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A protocol revision that begins with an `initialize` handshake.
///
/// Revision 2024-11-05 is not among them: its HTTP transport is another one. Its clients get a
/// counter-offer in the handshake.
///
/// ```
/// use mrtr_legacy::LegacyVersion;
///
/// assert_eq!(LegacyVersion::from_name("2025-06-18"), Some(LegacyVersion::V2025_06_18));
/// assert_eq!(LegacyVersion::negotiate("2024-11-05"), LegacyVersion::V2025_11_25);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum LegacyVersion {
    /// Revision 2025-03-26: streamable HTTP, JSON-RPC batches.
    #[serde(rename = "2025-03-26")]
    V2025_03_26,
    /// Revision 2025-06-18: forms, structured results, the header `MCP-Protocol-Version`.
    #[serde(rename = "2025-06-18")]
    V2025_06_18,
    /// Revision 2025-11-25: URL elicitation, sampling with tools, streams that clients poll.
    #[serde(rename = "2025-11-25")]
    V2025_11_25,
}

impl LegacyVersion {
    /// All legacy revisions, the latest first.
    pub const ALL: [Self; 3] = [Self::V2025_11_25, Self::V2025_06_18, Self::V2025_03_26];

    /// The latest legacy revision.
    pub const LATEST: Self = Self::V2025_11_25;

    /// Returns the names of all legacy revisions.
    #[cfg(feature = "server")]
    pub(crate) fn names() -> [&'static str; 3] {
        Self::ALL.map(Self::as_str)
    }

    /// Returns the revision with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == name)
    }

    /// Returns the name, such as `2025-11-25`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
        }
    }

    /// Returns the version that a server answers `initialize` with: the requested one if it is
    /// known, and otherwise the latest (2025-11-25, basic: lifecycle, "Version Negotiation").
    pub fn negotiate(requested: &str) -> Self {
        Self::from_name(requested).unwrap_or(Self::LATEST)
    }

    /// Returns true if a message may be a JSON array of messages.
    pub fn has_batches(self) -> bool {
        self == Self::V2025_03_26
    }

    /// Returns true if results may contain links to resources.
    pub fn has_resource_links(self) -> bool {
        self >= Self::V2025_06_18
    }

    /// Returns true if forms exist.
    pub fn has_elicitation(self) -> bool {
        self >= Self::V2025_06_18
    }

    /// Returns true if URL elicitation, sampling with tools, and every kind of form field exist.
    pub fn has_url_elicitation(self) -> bool {
        self >= Self::V2025_11_25
    }

    /// Returns true if a stream begins with an empty event that has an id, from which the client
    /// resumes. Clients of older revisions cannot read such an event.
    pub fn has_priming_events(self) -> bool {
        self >= Self::V2025_11_25
    }
}

impl fmt::Display for LegacyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

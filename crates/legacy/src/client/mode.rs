//! The choice of a revision.

/// The revisions that a client speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RevisionMode {
    /// The current revision if the server has it, and otherwise a legacy one. The first request is
    /// preceded by `server/discover`, which tells them apart.
    #[default]
    Auto,
    /// The current revision only. Nothing precedes the first request.
    Current,
    /// Legacy revisions only. The first request is preceded by `initialize`.
    Legacy,
}

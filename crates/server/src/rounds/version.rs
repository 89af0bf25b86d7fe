//! Handler versions, of which several may run side by side during an upgrade.

/// The version of the handler that wrote a state, and the oldest version compatible with it.
///
/// If several versions wrote to one state, it is their [merge](Version::merge).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) number: u32,
    /// The oldest version that can resume journals of this one, and whose journals this one can
    /// resume.
    pub(crate) since: u32,
}

/// The way in which a handler treats a journal that another version wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compatibility {
    /// It resumes the call; entries are matched by key.
    Resume,
    /// It starts the call over with an empty journal.
    Restart,
    /// It refuses the state: the version that wrote it is too new.
    Refuse,
}

impl Version {
    /// Returns how this version treats a journal that `other` wrote.
    ///
    /// Of two incompatible versions, only the newer restarts the call: if both did, a call that
    /// alternates between them would never end.
    pub(crate) fn compatibility_with(self, other: Self) -> Compatibility {
        if other.number < self.since {
            Compatibility::Restart
        } else if self.number < other.since {
            Compatibility::Refuse
        } else {
            Compatibility::Resume
        }
    }

    /// Merges two versions for a state with entries of both: a version that is incompatible with
    /// one of them is incompatible with the merge.
    pub(crate) fn merge(self, other: Self) -> Self {
        Self { number: self.number.min(other.number), since: self.since.max(other.since) }
    }
}

//! Versions of a handler, of which several may run side by side.

/// Which version wrote a state (or the first of several that did), and which versions can go on from it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) number: u32,
    /// The first version that goes on from the journals of this one, and from whose journals this one goes on.
    pub(crate) since: u32,
}

/// What becomes of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compatibility {
    /// By key.
    Resume,
    /// As if nothing had been learned.
    Restart,
    /// It was written by a version that is too new.
    Refuse,
}

impl Version {
    /// What this version does with a journal that `other` wrote. Of two versions that cannot go on from each other, it is
    /// the newer that starts over: if both did, a flow that goes to and fro between them would never end.
    pub(crate) fn compatibility_with(self, other: Self) -> Compatibility {
        if other.number < self.since {
            Compatibility::Restart
        } else if self.number < other.since {
            Compatibility::Refuse
        } else {
            Compatibility::Resume
        }
    }

    /// What a state says in which the work of both is. Who cannot go on from one of them cannot from this.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { number: self.number.min(other.number), since: self.since.max(other.since) }
    }
}

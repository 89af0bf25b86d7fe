//! What is explored: the number of replicas and of faults, and the handler.

/// A part of the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Step(u8),
    /// Asks all questions at once.
    Ask,
}

/// The limits of an exploration. Each limit counts a whole history.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// The replicas.
    pub replicas: usize,
    /// The questions, 1 or 2. The client answers the first one twice.
    pub questions: u8,
    /// True if the handler asks before its second step, and not after it.
    pub asks_early: bool,
    /// True if the client may cancel the task.
    pub cancels: bool,
    /// The crashes of replicas.
    pub crashes: u8,
    /// The replicas that are suspended for longer than their lease, and then go on.
    pub zombies: u8,
    /// The operations that are performed and reported as failed.
    pub lost_replies: u8,
    /// The writes that are performed after they were reported as failed, at any later time.
    pub late_writes: u8,
    /// The times that a lease runs out although its holder is alive.
    pub expiries: u8,
    /// The runs that a replica releases because it shuts down.
    pub releases: u8,
    /// The restorations of the store from a backup. After one, entries may be lost, and only the
    /// rules about leases and about gaps hold.
    pub restores: u8,
}

impl Scale {
    /// Returns two replicas and no faults.
    pub const fn calm() -> Self {
        Self {
            replicas: 2,
            questions: 1,
            asks_early: true,
            cancels: false,
            crashes: 0,
            zombies: 0,
            lost_replies: 0,
            late_writes: 0,
            expiries: 0,
            releases: 0,
            restores: 0,
        }
    }

    pub(crate) const fn handler(&self) -> [Part; 3] {
        if self.asks_early {
            [Part::Step(0), Part::Ask, Part::Step(1)]
        } else {
            [Part::Step(0), Part::Step(1), Part::Ask]
        }
    }
}

/// A mistake that the check must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Writes are performed without a look at the lease.
    NoLeaseCheck,
    /// A claim takes answers into an epoch in progress.
    AnswersInMidEpoch,
    /// A run that ends to wait forgets answers that have come since its claim.
    WaitsForgetsAnswers,
    /// An answer makes a task due although it is held.
    AnswerWakesHeldTask,
    /// The last answer to a question stands.
    LastAnswerStands,
    /// Leases are numbered, and a restored store repeats the numbers.
    NumberedLeases,
    /// The verdict of a write does not tell of a cancellation.
    VerdictHidesCancel,
    /// A step is complete before its result is committed.
    ActsBeforeCommit,
    /// A replica begins a step after it was told of a cancellation.
    StepAfterCancel,
    /// A write that was reported as failed is performed after a later one.
    LateWrites,
    /// A write is performed although entries before it are missing.
    AcceptsGaps,
    /// A claim of an epoch in progress forgets answers that have come since its beginning.
    ClaimForgetsAnswers,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 12] = [
        Self::NoLeaseCheck,
        Self::AnswersInMidEpoch,
        Self::WaitsForgetsAnswers,
        Self::AnswerWakesHeldTask,
        Self::LastAnswerStands,
        Self::NumberedLeases,
        Self::VerdictHidesCancel,
        Self::ActsBeforeCommit,
        Self::StepAfterCancel,
        Self::LateWrites,
        Self::AcceptsGaps,
        Self::ClaimForgetsAnswers,
    ];
}

//! The state of the model.

use mrtr_server::tasks::{LeaseId, TaskWrite};

use crate::history::History;
use crate::run::Run;
use crate::scale::Scale;
use crate::store::{LEASE, Store, lease_of};

/// The store, and the run that held the task.
type Backup = (Store, Option<(u8, LeaseId)>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) store: Store,
    /// The runs, in the order of their claims. Each has a replica of its own: replicas are alike.
    pub(crate) runs: Vec<Run>,
    /// A write that was given up, and may still be performed.
    pub(crate) late: Option<Attempt>,
    pub(crate) posts: Vec<Post>,
    pub(crate) backup: Option<Box<Backup>>,
    pub(crate) left: Left,
    pub(crate) history: History,
}

/// An attempt of a write.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    pub(crate) run: u8,
    pub(crate) number: u8,
    pub(crate) write: TaskWrite,
}

/// An answer that the client is going to send.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Post {
    pub(crate) question: u8,
    pub(crate) value: u8,
    pub(crate) progress: PostProgress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PostProgress {
    /// The question was not read yet.
    Planned,
    /// The replica that received the answer has found the question outstanding.
    Sending,
    Done,
}

/// What may still happen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Left {
    pub(crate) crashes: u8,
    pub(crate) zombies: u8,
    pub(crate) lost_replies: u8,
    pub(crate) late_writes: u8,
    pub(crate) expiries: u8,
    pub(crate) releases: u8,
    pub(crate) restores: u8,
}

impl State {
    /// The states at the creation of a task: the replica that created it holds it, or has crashed.
    pub(crate) fn initial(scale: &Scale) -> Vec<Self> {
        let post = |question, value| Post { question, value, progress: PostProgress::Planned };
        let mut posts = vec![post(0, 1), post(0, 2)];
        posts.extend((1..scale.questions).map(|question| post(question, 1)));
        let left = Left {
            crashes: scale.crashes,
            zombies: scale.zombies,
            lost_replies: scale.lost_replies,
            late_writes: scale.late_writes,
            expiries: scale.expiries,
            releases: scale.releases,
            restores: scale.restores,
        };
        let first = lease_of(0);
        let crashed = Self {
            store: Store::new(),
            runs: Vec::new(),
            late: None,
            posts,
            backup: None,
            left,
            history: History::new(first),
        };
        vec![Self { runs: vec![Run::first(first, LEASE)], ..crashed.clone() }, crashed]
    }

    /// Returns true if a replica holds the task that knows its time.
    pub(crate) fn is_held_alive(&self) -> bool {
        let Some((holder, _)) = self.history.holder else { return false };
        self.runs
            .iter()
            .any(|run| run.number == holder && !run.is_zombie && run.until > self.store.now)
    }

    /// Leaves out what no longer matters once the task has ended, so that states are alike.
    pub(crate) fn simplify(&mut self) {
        if self.store.is_open() || self.left.restores > 0 {
            return;
        }
        self.left = Left::default();
        for post in &mut self.posts {
            if post.progress == PostProgress::Planned {
                post.progress = PostProgress::Done;
            }
        }
    }
}

//! Groups jobs that come while earlier ones are under way.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, ready};

use mrtr_server::tasks::{TaskKey, TaskStoreError};
use tokio::sync::oneshot;

use super::connect::DatabaseError;
use super::pool::lock;

/// Maximum number of jobs in a group, and of their bytes. A group has at least one job.
const MAX_JOBS: usize = 128;
const MAX_BYTES: usize = 4 << 20;

/// Something to do for one task.
pub(super) trait Job: Clone + Send + 'static {
    type Output: Send + 'static;

    fn key(&self) -> TaskKey;

    fn size(&self) -> usize;
}

/// A future with one result per job.
type Running<T> = Pin<Box<dyn Future<Output = Result<Vec<T>, TaskStoreError>> + Send>>;

/// Executes a group of jobs, at most one per task.
type Execute<J> = dyn Fn(Vec<J>) -> Running<<J as Job>::Output> + Send + Sync;

/// A queue of jobs. As many groups as allowed are under way at a time.
pub(super) struct Group<J: Job>(Arc<Inner<J>>);

struct Inner<J: Job> {
    queue: Mutex<Queue<J>>,
    max_running: usize,
    execute: Box<Execute<J>>,
}

struct Queue<J: Job> {
    waiting: VecDeque<Waiting<J>>,
    /// The number of runners.
    running: usize,
    /// The number of those that are about to take the next job.
    ready: usize,
}

struct Waiting<J: Job> {
    job: J,
    reply: oneshot::Sender<Result<J::Output, TaskStoreError>>,
}

impl<J: Job> Group<J> {
    pub(super) fn new(
        max_running: usize,
        execute: impl Fn(Vec<J>) -> Running<J::Output> + Send + Sync + 'static,
    ) -> Self {
        let queue = Mutex::new(Queue { waiting: VecDeque::new(), running: 0, ready: 0 });
        Self(Arc::new(Inner { queue, max_running, execute: Box::new(execute) }))
    }

    /// Adds a job, and waits for its result. Dropping the future withdraws the job, unless it is
    /// under way together with others whose callers wait.
    pub(super) async fn add(&self, job: J) -> Result<J::Output, TaskStoreError> {
        let (reply, result) = oneshot::channel();
        self.0.start(Waiting { job, reply });
        let gone = |error| Err(TaskStoreError::Unavailable(Box::new(error)));
        result.await.unwrap_or_else(gone)
    }
}

impl<J: Job> Inner<J> {
    fn start(self: &Arc<Self>, waiting: Waiting<J>) {
        let needs_runner = {
            let mut queue = lock(&self.queue);
            queue.waiting.push_back(waiting);
            let is_taken = queue.ready > 0 && queue.waiting.len() == 1;
            let needs_runner = !is_taken && queue.running < self.max_running;
            queue.running += usize::from(needs_runner);
            needs_runner
        };
        // Not under the lock: a runtime that is shutting down drops the runner at once, and that
        // locks the queue.
        if needs_runner {
            let inner = Arc::clone(self);
            tokio::spawn(run(Runner { inner, is_counted: true, is_ready: false }));
        }
    }
}

impl<J: Job> Queue<J> {
    /// Takes the next group. A second job of a task stays for the next one.
    fn take(&mut self) -> Vec<Waiting<J>> {
        let (mut group, mut later) = (Vec::<Waiting<J>>::new(), VecDeque::new());
        let mut bytes = 0;
        while group.len() < MAX_JOBS
            && let Some(next) = self.waiting.pop_front()
        {
            if next.reply.is_closed() {
                // Nobody waits for it any more, and its lease may be over.
                continue;
            }
            bytes += next.job.size();
            if bytes > MAX_BYTES && !group.is_empty() {
                later.push_back(next);
                break;
            }
            let key = next.job.key();
            if group.iter().any(|other| other.job.key() == key) {
                later.push_back(next);
            } else {
                group.push(next);
            }
        }
        later.append(&mut self.waiting);
        self.waiting = later;
        group
    }
}

/// Counts as running until it is finished, or dropped.
struct Runner<J: Job> {
    inner: Arc<Inner<J>>,
    is_counted: bool,
    is_ready: bool,
}

impl<J: Job> Runner<J> {
    /// Takes the next group, or stops counting.
    fn next(&mut self) -> Option<Vec<Waiting<J>>> {
        let mut queue = lock(&self.inner.queue);
        let group = queue.take();
        queue.ready -= usize::from(std::mem::take(&mut self.is_ready));
        if group.is_empty() {
            // Under the same lock: a job that comes later needs another runner.
            queue.running -= 1;
            self.is_counted = false;
            return None;
        }
        Some(group)
    }

    /// Tells that this runner takes the next job.
    fn get_ready(&mut self) {
        self.is_ready = true;
        lock(&self.inner.queue).ready += 1;
    }

    /// Executes a group, and each job alone if the database refuses the group.
    async fn execute(&self, mut group: Vec<Waiting<J>>) {
        let Some(executed) = self.unless_abandoned(&mut group).await else { return };
        let error = match executed {
            Ok(outputs) => {
                for (waiting, output) in group.into_iter().zip(outputs) {
                    waiting.reply(Ok(output));
                }
                return;
            }
            Err(error) => error,
        };
        let is_alone = group.len() == 1;
        for mut waiting in group {
            if waiting.reply.is_closed() {
                continue;
            }
            if is_alone || !is_refused(&error) {
                waiting.reply(Err(copy(&error)));
                continue;
            }
            let alone = self.unless_abandoned(std::slice::from_mut(&mut waiting)).await;
            let Some(alone) = alone else { continue };
            let output = alone.and_then(|outputs| {
                let none = || TaskStoreError::Unavailable("a job has no result".into());
                outputs.into_iter().next().ok_or_else(none)
            });
            waiting.reply(output);
        }
    }

    /// Executes jobs, unless all of their callers have given up: the connection may be dead, and
    /// they try again with another one.
    async fn unless_abandoned(
        &self,
        group: &mut [Waiting<J>],
    ) -> Option<Result<Vec<J::Output>, TaskStoreError>> {
        let mut executed =
            (self.inner.execute)(group.iter().map(|waiting| waiting.job.clone()).collect());
        poll_fn(|cx| {
            if let Poll::Ready(executed) = executed.as_mut().poll(cx) {
                return Poll::Ready(Some(executed));
            }
            for waiting in &mut *group {
                ready!(waiting.reply.poll_closed(cx));
            }
            Poll::Ready(None)
        })
        .await
    }
}

impl<J: Job> Drop for Runner<J> {
    fn drop(&mut self) {
        let mut queue = lock(&self.inner.queue);
        queue.running -= usize::from(self.is_counted);
        queue.ready -= usize::from(self.is_ready);
    }
}

impl<J: Job> Waiting<J> {
    fn reply(self, result: Result<J::Output, TaskStoreError>) {
        // Sending fails if the caller has given up.
        let _ = self.reply.send(result);
    }
}

/// Executes groups until the queue is empty.
async fn run<J: Job>(mut runner: Runner<J>) {
    let mut was_alone = false;
    loop {
        if was_alone {
            // Probably the same task adds the next job.
            runner.get_ready();
            let_others_run().await;
        } else {
            // Tasks that were woken together add their jobs together, some of them after a while.
            tokio::task::yield_now().await;
        }
        let Some(group) = runner.next() else { return };
        was_alone = group.len() == 1;
        runner.execute(group).await;
    }
}

/// Lets the tasks run that were woken before. Unlike [`tokio::task::yield_now`], this does not look
/// for events, which takes a system call.
async fn let_others_run() {
    let mut have_run = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut have_run, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Returns true if the database has rejected a statement.
fn is_refused(error: &TaskStoreError) -> bool {
    let TaskStoreError::Unavailable(source) = error else { return false };
    source.downcast_ref::<DatabaseError>().is_some_and(DatabaseError::is_refusal)
}

/// Copies the error of a group for one of its jobs.
fn copy(error: &TaskStoreError) -> TaskStoreError {
    match error {
        TaskStoreError::Full => TaskStoreError::Full,
        TaskStoreError::Unavailable(source) => {
            TaskStoreError::Unavailable(source.to_string().into())
        }
        other => TaskStoreError::Unavailable(other.to_string().into()),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[derive(Clone)]
    struct Large {
        task: u8,
        hangs: bool,
    }

    impl Job for Large {
        type Output = u8;

        fn key(&self) -> TaskKey {
            TaskKey([self.task; 32])
        }

        fn size(&self) -> usize {
            MAX_BYTES
        }
    }

    /// Dropping the runtime drops the runner of the job.
    #[test]
    fn a_job_that_is_added_while_the_runtime_shuts_down_fails() {
        struct AddsAtTheEnd(Arc<Group<Large>>);

        impl Drop for AddsAtTheEnd {
            fn drop(&mut self) {
                let (reply, mut result) = oneshot::channel();
                self.0.0.start(Waiting { job: Large { task: 1, hangs: false }, reply });
                assert!(result.try_recv().is_err());
            }
        }

        let (done, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let group = Arc::new(Group::new(1, |_: Vec<Large>| Box::pin(pending())));
            let adds = AddsAtTheEnd(Arc::clone(&group));
            runtime.block_on(async {
                tokio::spawn(async move {
                    let _adds = adds;
                    pending::<()>().await;
                });
                tokio::task::yield_now().await;
            });
            drop(runtime);
            done.send(lock(&group.0.queue).running).unwrap();
        });
        assert_eq!(ended.recv_timeout(Duration::from_secs(30)), Ok(0));
    }

    /// The runner of the first job takes the second one, and not the third one with it.
    #[tokio::test(start_paused = true)]
    async fn a_job_that_hangs_does_not_keep_the_next_one_waiting() {
        let group = Group::new(2, |jobs: Vec<Large>| {
            Box::pin(async move {
                if jobs.iter().any(|job| job.hangs) {
                    pending::<()>().await;
                }
                Ok(jobs.iter().map(|job| job.task).collect())
            })
        });
        // A task of the runtime, so that it runs before the runner takes the next group.
        let third = tokio::spawn(async move {
            let add = async |task, hangs| group.add(Large { task, hangs }).await.ok();
            assert_eq!(add(1, false).await, Some(1));
            tokio::select! {
                biased;
                _ = add(2, true) => None,
                third = add(3, false) => third,
            }
        });
        assert_eq!(timeout(Duration::from_mins(1), third).await.unwrap().unwrap(), Some(3));
    }
}

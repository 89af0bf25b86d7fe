//! The contract of task stores, as a test.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a store that fails has to fail its test"
)]

mod answers;
mod bench;
mod claims;
mod concurrency;
mod journal;
mod lifecycle;
mod random;

use std::sync::Arc;
use std::time::Duration;

use bench::Bench;

use crate::tasks::TaskStore;

/// The timeout of one check.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Tests a [`TaskStore`] against its contract.
///
/// `connect` is called several times, and every call has to return a handle to the same store, as
/// the replicas of a server have. It may contain other tasks. Tasks of this test are left behind.
/// They expire within two hours, except for two small ones, which never expire.
///
/// Needs a multi-threaded runtime of tokio, so that operations of a store that never waits run at
/// the same time, too: `#[tokio::test(flavor = "multi_thread", worker_threads = 4)]`. Takes a few
/// seconds with a store that commits in a millisecond.
///
/// ```
/// # tokio::runtime::Builder::new_multi_thread().enable_time().build()?.block_on(async {
/// use std::sync::Arc;
///
/// use mrtr_server::tasks::MemoryTaskStore;
/// use mrtr_server::testing::task_store_contract;
///
/// let store = Arc::new(MemoryTaskStore::new(10_000));
/// task_store_contract(async || Arc::clone(&store)).await;
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Panics
///
/// If the runtime is not multi-threaded, or an operation fails, takes too long, or does not do what
/// [`TaskRow`](crate::tasks::row::TaskRow) does.
pub async fn task_store_contract<S: TaskStore>(connect: impl AsyncFn() -> S) {
    assert_eq!(
        tokio::runtime::Handle::current().runtime_flavor(),
        tokio::runtime::RuntimeFlavor::MultiThread,
        "the contract is tested on a multi-threaded runtime"
    );
    let (one, other) = (Arc::new(connect().await), Arc::new(connect().await));
    let mut run = [0; 8];
    assert!(getrandom::fill(&mut run).is_ok(), "the operating system has no random numbers");
    let bench = |name: &'static str| Bench::new(name, run, Arc::clone(&one), Arc::clone(&other));
    macro_rules! check {
        ($($module:ident: $($check:ident),+;)+) => {$($({
            let name = stringify!($check);
            let done = tokio::time::timeout(TIMEOUT, $module::$check(&bench(name))).await;
            assert!(done.is_ok(), "{name}: no end within {TIMEOUT:?}");
        })+)+};
    }
    check! {
        lifecycle: a_task_is_created_once, a_task_has_its_times, an_end_is_final,
            an_ended_task_is_kept, a_task_expires, cancellation_reaches_its_holder,
            cancellation_of_a_waiting_task_is_immediate,
            cancellation_after_the_lease_needs_no_claim, cancellation_outlives_a_crash;
        journal: a_position_replaces_the_rest, a_foreign_lease_writes_nothing,
            a_gap_is_refused, every_part_of_a_write_counts, the_journal_takes_any_bytes;
        answers: the_first_answer_stands, an_answer_wakes_a_waiting_task,
            an_answer_does_not_take_a_held_task, an_answer_never_delays,
            answers_wait_for_an_epoch, answers_of_ended_tasks_are_ignored;
        claims: due_tasks_come_in_order, a_claim_has_a_limit, a_claim_needs_the_handler,
            a_claim_needs_the_service, a_lease_runs_out, a_lease_is_renewed,
            attempts_count_without_progress, a_release_takes_its_time;
        concurrency: claimers_share_the_tasks, no_wake_up_is_lost, a_claim_takes_in_all_answers,
            a_late_holder_writes_nothing;
        random: operations_agree_with_the_row;
    }
}

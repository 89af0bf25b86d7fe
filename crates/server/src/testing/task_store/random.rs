//! Random operations, compared with the definition of a task.

use std::collections::BTreeMap;
use std::time::Duration;

use super::bench::{Bench, HOUR, handler};
use crate::tasks::row::TaskRow;
use crate::tasks::{
    Claim, Created, HeldTask, Lease, LeaseId, NewTask, RunEnd, StoredStatus, TaskKey, TaskRecord,
    TaskStore, TaskWrite, UnixMillis,
};

/// The number of sequences, and of operations in each.
const SEQUENCES: u64 = 40;
const OPERATIONS: usize = 40;

/// The time in the model. It stands still: leases last longer than the test, and what is due is due
/// at once.
const NOW: UnixMillis = UnixMillis(0);

pub(super) async fn operations_agree_with_the_row<S: TaskStore>(bench: &Bench<S>) {
    for seed in 0..SEQUENCES {
        let mut sequence = Sequence {
            bench,
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            service: format!("{} {seed}", bench.service),
            tasks: Vec::new(),
            rows: BTreeMap::new(),
            leases: vec![bench.lease(HOUR).id],
            history: Vec::new(),
        };
        for _ in 0..3 {
            sequence.add_task();
        }
        for _ in 0..OPERATIONS {
            sequence.step().await;
        }
    }
}

struct Sequence<'a, S> {
    bench: &'a Bench<S>,
    random: Random,
    service: String,
    tasks: Vec<NewTask>,
    rows: BTreeMap<TaskKey, TaskRow>,
    /// All leases that were ever given.
    leases: Vec<LeaseId>,
    /// The operations so far, for the message of a failure.
    history: Vec<String>,
}

impl<S: TaskStore> Sequence<'_, S> {
    fn add_task(&mut self) {
        let mut task = self.bench.new_task();
        task.service.clone_from(&self.service);
        task.handler = handler(self.random.small(3), self.random.small(2));
        task.entries = self.values();
        self.tasks.push(task);
    }

    /// Returns a few random values.
    fn values(&mut self) -> Vec<Vec<u8>> {
        (0..self.random.below(3)).map(|_| self.value()).collect()
    }

    fn value(&mut self) -> Vec<u8> {
        self.random.next().to_le_bytes().to_vec()
    }

    fn store(&mut self) -> &S {
        if self.random.below(2) == 0 { &self.bench.one } else { &self.bench.other }
    }

    async fn step(&mut self) {
        let task = self.tasks.get(self.random.below(self.tasks.len())).unwrap().clone();
        let key = task.key;
        match self.random.below(10) {
            0 => self.create(task).await,
            1 | 2 => self.answer(key).await,
            3 if self.random.below(4) == 0 => self.cancel(key).await,
            3 | 4 => self.claim().await,
            _ => self.write(key).await,
        }
        let record = self.store().read(key).await.unwrap();
        let expected = self.rows.get(&key).map(|row| shown(&row.record()));
        assert_eq!(record.as_ref().map(shown), expected, "{}", self.told());
    }

    fn told(&self) -> String {
        format!("after:\n{}", self.history.join("\n"))
    }

    async fn create(&mut self, task: NewTask) {
        let lease = Lease { id: self.lease(), time: HOUR };
        self.history.push(format!("create {:?} with {:?}", task.key, lease.id));
        let created = self.store().create(task.clone(), lease).await.unwrap();
        let is_new = match self.rows.get(&task.key) {
            Some(row) => row.is_held_with(lease.id),
            None => {
                self.rows.insert(task.key, TaskRow::create(task, lease, NOW));
                true
            }
        };
        assert_eq!(matches!(created, Created::New(_)), is_new, "{}", self.told());
    }

    /// Returns a new lease, or one that was given before.
    fn lease(&mut self) -> LeaseId {
        if self.random.below(3) == 0 {
            let lease = self.bench.lease(HOUR).id;
            self.leases.push(lease);
        }
        // The newest are the most interesting.
        let back = self.random.below(3).min(self.leases.len() - 1);
        *self.leases.iter().rev().nth(back).unwrap()
    }

    async fn answer(&mut self, key: TaskKey) {
        let mut answers = Vec::new();
        for _ in 0..=self.random.below(2) {
            answers.push((format!("q{}", self.random.below(6)), self.value()));
        }
        self.history.push(format!("answer {key:?}: {answers:?}"));
        self.store().answer(key, answers.clone()).await.unwrap();
        if let Some(row) = self.rows.get_mut(&key) {
            row.answer(answers, NOW);
        }
    }

    async fn cancel(&mut self, key: TaskKey) {
        self.history.push(format!("cancel {key:?}"));
        self.store().cancel(key).await.unwrap();
        if let Some(row) = self.rows.get_mut(&key) {
            row.cancel(NOW);
        }
    }

    async fn claim(&mut self) {
        let lease = Lease { id: self.bench.lease(HOUR).id, time: HOUR };
        self.leases.push(lease.id);
        let handlers: Box<[_]> = [handler(self.random.small(3), 1)].into();
        self.history.push(format!("claim with {:?} for {handlers:?}", lease.id));
        let claim = Claim {
            service: self.service.clone(),
            handlers: handlers.clone().into(),
            lease,
            limit: 100,
        };
        let held = self.store().claim(claim).await.unwrap();
        let held: BTreeMap<_, _> = held.iter().map(|task| (task.key, parts(task))).collect();
        let claim = |(key, row): (&TaskKey, &mut TaskRow)| row.claim(*key, &handlers, lease, NOW);
        let expected: Vec<_> = self.rows.iter_mut().filter_map(claim).collect();
        let expected: BTreeMap<_, _> =
            expected.iter().map(|task| (task.key, parts(task))).collect();
        assert_eq!(held, expected, "{}", self.told());
    }

    async fn write(&mut self, key: TaskKey) {
        let held = self.leases.iter().rev().copied();
        let held = held.filter(|id| self.rows.get(&key).is_some_and(|row| row.is_held_with(*id)));
        let held: Option<LeaseId> = held.into_iter().next();
        let lease = match held.filter(|_| self.random.below(8) > 0) {
            Some(lease) => lease,
            None => self.lease(),
        };
        let mut write = TaskWrite::new(key, lease);
        if self.random.below(3) > 0 {
            write.position = Some(self.random.below(5));
            write.entries = self.values();
        }
        if self.random.below(5) == 0 {
            write.view = Some(self.value());
        }
        if self.random.below(5) == 0 {
            write.renew = Some(2 * HOUR);
        }
        if self.random.below(5) == 0 {
            write.handler = Some(handler(self.random.small(3), self.random.small(3)));
        }
        write.end = match self.random.below(16) {
            0..=3 => Some(RunEnd::Waits),
            4..=5 => Some(RunEnd::Released(Duration::ZERO)),
            6 => Some(RunEnd::Released(HOUR)),
            7 => Some(RunEnd::Ended(StoredStatus::Completed)),
            _ => None,
        };
        self.history.push(format!("{write:?}"));
        let verdict = self.store().write(write.clone()).await.unwrap();
        let row = self.rows.get_mut(&key);
        let expected = row.map_or(crate::tasks::Verdict::Lost, |row| row.write(write, NOW));
        assert_eq!(verdict, expected, "{}", self.told());
    }
}

/// The parts of a record that do not depend on the clock.
fn shown(record: &TaskRecord) -> impl PartialEq + std::fmt::Debug + use<> {
    let TaskRecord { handler, status, view, answered, .. } = record.clone();
    (handler, status, view, answered)
}

/// The parts of a claimed task, for comparison.
fn parts(task: &HeldTask) -> impl PartialEq + std::fmt::Debug + use<> {
    let HeldTask { key: _, handler, epoch, attempts, call, view, entries, answers } = task.clone();
    (handler, (epoch, attempts), (call, view), entries, answers)
}

/// A generator of numbers that depend on the seed only (xorshift64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number less than `limit`.
    fn below(&mut self, limit: usize) -> usize {
        let number = (self.next() >> 11) % u64::try_from(limit).unwrap();
        usize::try_from(number).unwrap()
    }

    /// Returns a number from 1 to `limit`.
    fn small(&mut self, limit: usize) -> u32 {
        u32::try_from(self.below(limit)).unwrap() + 1
    }
}

//! Tasks for tests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mrtr_server::tasks::{
    Claim, Created, Lease, LeaseId, NewTask, TaskHandler, TaskKey, TaskStore, TaskWrite, Verdict,
};

pub(crate) const HOUR: Duration = Duration::from_hours(1);

pub(crate) fn lease() -> Lease {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut id = [0; 16];
    id[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    Lease { id: LeaseId(id), time: HOUR }
}

pub(crate) fn task(id: &str) -> NewTask {
    NewTask {
        key: TaskKey::of(id),
        service: "service".to_owned(),
        handler: TaskHandler { tool: "tool".to_owned(), version: 1, min_version: 1 },
        ttl: Some(HOUR),
        retention: HOUR,
        call: b"call".to_vec(),
        view: b"view".to_vec(),
        entries: Vec::new(),
    }
}

/// Creates a task and holds it.
pub(crate) async fn create(store: &impl TaskStore, task: NewTask) -> (TaskKey, LeaseId) {
    let (key, lease) = (task.key, lease());
    let created = store.create(task, lease).await.unwrap();
    assert!(matches!(created, Created::New(_)));
    (key, lease.id)
}

pub(crate) fn claim() -> Claim {
    let handlers = [TaskHandler { tool: "tool".to_owned(), version: 1, min_version: 1 }].into();
    Claim { service: "service".to_owned(), handlers, lease: lease(), limit: 1_000 }
}

pub(crate) fn append(key: TaskKey, lease: LeaseId, position: usize) -> TaskWrite {
    let entries = vec![position.to_string().into_bytes()];
    TaskWrite { position: Some(position), entries, ..TaskWrite::new(key, lease) }
}

pub(crate) const KEPT: Verdict = Verdict::Kept { cancel: false };

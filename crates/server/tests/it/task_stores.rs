//! The contract of task stores, with the store in memory.

use std::sync::Arc;

use mrtr_server::tasks::MemoryTaskStore;
use mrtr_server::testing::task_store_contract;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_task_store_keeps_the_contract() {
    let store = Arc::new(MemoryTaskStore::new(100_000));
    task_store_contract(async || Arc::clone(&store)).await;
}

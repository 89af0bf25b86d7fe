//! Replies of the scripts as values.

use std::fmt::Write as _;

use mrtr_server::tasks::{
    HeldTask, StoredAnswer, StoredStatus, TaskHandler, TaskKey, TaskRecord, TaskStoreError,
};

use crate::millis::unix_millis;

/// Writes a key in hexadecimal.
pub(super) fn id(key: TaskKey) -> String {
    let mut id = String::with_capacity(64);
    for byte in key.0 {
        // Writing to a string does not fail.
        let _ = write!(id, "{byte:02x}");
    }
    id
}

/// Reads a key.
pub(super) fn key(id: &[u8]) -> Option<TaskKey> {
    let mut key = [0; 32];
    let (pairs, []) = id.as_chunks::<2>() else { return None };
    if pairs.len() != key.len() {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(pairs) {
        *byte = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(TaskKey(key))
}

pub(super) fn malformed(script: &str) -> TaskStoreError {
    TaskStoreError::Unavailable(format!("the reply to the script {script} is malformed").into())
}

/// Reads a record. `None` if there are no fields.
pub(super) fn record(
    fields: impl Iterator<Item = Vec<u8>>,
) -> Result<Option<TaskRecord>, TaskStoreError> {
    let mut fields = fields.peekable();
    if fields.peek().is_none() {
        return Ok(None);
    }
    record_of(&mut fields).map(Some).ok_or_else(|| malformed("read"))
}

fn record_of(fields: &mut impl Iterator<Item = Vec<u8>>) -> Option<TaskRecord> {
    let handler = handler(fields)?;
    let status = match text(fields)?.as_str() {
        "0" => StoredStatus::Open,
        "1" => StoredStatus::Completed,
        "2" => StoredStatus::Failed,
        _ => StoredStatus::Cancelled,
    };
    let (created, updated) = (number(fields)?, number(fields)?);
    let expires = text(fields)?;
    let view = fields.next()?;
    let _lease = fields.next()?;
    let answer_bytes = number(fields)?;
    let mut answered: Vec<String> = Vec::new();
    while let Some(question) = text(fields) {
        answered.push(question);
    }
    answered.sort();
    Some(TaskRecord {
        handler,
        status,
        created: unix_millis(created),
        updated: unix_millis(updated),
        expires: if expires.is_empty() { None } else { Some(unix_millis(expires.parse().ok()?)) },
        view,
        answered,
        answer_bytes,
    })
}

/// Reads a task that was claimed.
pub(super) fn held_task(fields: Vec<Vec<u8>>) -> Result<HeldTask, TaskStoreError> {
    held_task_of(&mut fields.into_iter()).ok_or_else(|| malformed("claim"))
}

fn held_task_of(fields: &mut impl Iterator<Item = Vec<u8>>) -> Option<HeldTask> {
    let key = key(&fields.next()?)?;
    let handler = handler(fields)?;
    let (epoch, attempts) = (number(fields)?, number(fields)?);
    let (call, view) = (fields.next()?, fields.next()?);
    let length = number(fields)?;
    let entries: Vec<_> = fields.take(length).collect();
    let mut answers = Vec::new();
    while let Some(question) = text(fields) {
        let epoch = number(fields)?;
        answers.push(StoredAnswer { question, epoch, answer: fields.next()? });
    }
    answers.sort_by(|a, b| (a.epoch, &a.question).cmp(&(b.epoch, &b.question)));
    Some(HeldTask { key, handler, epoch, attempts, call, view, entries, answers })
}

fn handler(fields: &mut impl Iterator<Item = Vec<u8>>) -> Option<TaskHandler> {
    let tool = text(fields)?;
    Some(TaskHandler { tool, version: number(fields)?, min_version: number(fields)? })
}

fn text(fields: &mut impl Iterator<Item = Vec<u8>>) -> Option<String> {
    String::from_utf8(fields.next()?).ok()
}

fn number<T: std::str::FromStr>(fields: &mut impl Iterator<Item = Vec<u8>>) -> Option<T> {
    text(fields)?.parse().ok()
}

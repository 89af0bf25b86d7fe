//! The connections of one replica to PostgreSQL, which pass through this process so that they can
//! be cut and held.
//!
//! A link knows enough of PostgreSQL's protocol to cut a connection after the server has committed,
//! and before the replica learns of it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::{fs, io};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, watch};

use super::faults::{Faults, Kind};
use super::record::now;
use crate::{Result, lock};

/// The name that PostgreSQL gives to its socket.
pub(crate) const SOCKET: &str = ".s.PGSQL.5432";

/// Returns the folder of the socket to which a replica connects.
pub(crate) fn folder(sockets: &Path, port: u16) -> PathBuf {
    sockets.join(port.to_string())
}

/// A connection that is to be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The next commit is performed, and its response does not arrive.
    Response,
    /// The next commit does not arrive completely.
    Request,
    /// After this number of bytes of requests.
    Bytes(usize),
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) port: u16,
    to: PathBuf,
    armed: Mutex<Option<Cut>>,
    held: watch::Sender<bool>,
    pub(crate) counts: Counts,
    faults: Arc<Faults>,
}

/// The number of cuts that took place.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) responses: AtomicU32,
    pub(crate) requests: AtomicU32,
    pub(crate) bytes: AtomicU32,
}

impl Link {
    /// Begins to accept connections. `to` is the socket of the server.
    pub(crate) fn start(
        sockets: &Path,
        port: u16,
        to: PathBuf,
        faults: &Arc<Faults>,
    ) -> Result<Arc<Self>> {
        let folder = folder(sockets, port);
        fs::create_dir_all(&folder)?;
        let listener = UnixListener::bind(folder.join(SOCKET))?;
        let (armed, held) = (Mutex::new(None), watch::Sender::new(false));
        let (counts, faults) = (Counts::default(), Arc::clone(faults));
        let link = Arc::new(Self { port, to, armed, held, counts, faults });
        let accepting = Arc::clone(&link);
        tokio::spawn(async move {
            while let Ok((replica, _)) = listener.accept().await {
                let link = Arc::clone(&accepting);
                // The end of a connection is no error.
                tokio::spawn(async move { drop(link.pass(replica).await) });
            }
        });
        Ok(link)
    }

    /// Cuts the next connection on which this can happen.
    pub(crate) fn arm(&self, cut: Cut) {
        *lock(&self.armed) = Some(cut);
    }

    /// Passes nothing on in either direction, or everything that has arrived since.
    pub(crate) fn hold(&self, is_held: bool) {
        self.held.send_replace(is_held);
    }

    /// Takes the armed cut, if it is one of those.
    fn take(&self, is_wanted: impl FnOnce(Cut) -> bool) -> Option<Cut> {
        lock(&self.armed).take_if(|cut| is_wanted(*cut))
    }

    fn count(&self, counter: &AtomicU32) {
        counter.fetch_add(1, Ordering::Relaxed);
        self.faults.add(Kind::Cut, Some(self.port), now(), now());
    }

    async fn pass(self: Arc<Self>, replica: UnixStream) -> io::Result<()> {
        let server = UnixStream::connect(&self.to).await?;
        let (from_replica, to_replica) = replica.into_split();
        let (from_server, to_server) = server.into_split();
        let state = State::default();
        tokio::select! {
            ended = self.requests(from_replica, to_server, &state) => ended,
            ended = self.responses(from_server, to_replica, &state) => ended,
        }
    }

    /// Passes on what the replica sends. Ends when the connection is to be cut.
    async fn requests(
        &self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        state: &State,
    ) -> io::Result<()> {
        let mut requests = Requests::default();
        let mut held = self.held.subscribe();
        let mut buffer = vec![0; 64 * 1024];
        let mut left = None;
        loop {
            let length = from.read(&mut buffer).await?;
            if length == 0 {
                return Ok(());
            }
            // The sender is in `self`.
            let _ = held.wait_for(|held| !held).await;
            let bytes = buffer.get(..length).unwrap_or_default();
            if let (None, Some(Cut::Bytes(count))) =
                (left, self.take(|cut| matches!(cut, Cut::Bytes(_))))
            {
                left = Some(count);
            }
            if let Some(count) = left {
                if count < length {
                    to.write_all(bytes.get(..count).unwrap_or_default()).await?;
                    self.count(&self.counts.bytes);
                    return Ok(());
                }
                left = Some(count - length);
            }
            let commit = requests.read(bytes);
            state.expected.store(requests.replies, Ordering::SeqCst);
            if let Some(commit) = commit {
                match self.take(|cut| !matches!(cut, Cut::Bytes(_))) {
                    Some(Cut::Request) => {
                        let end = usize::midpoint(commit.start, commit.end);
                        to.write_all(bytes.get(..end).unwrap_or_default()).await?;
                        self.count(&self.counts.requests);
                        return Ok(());
                    }
                    Some(_) => {
                        state.is_cut.store(true, Ordering::SeqCst);
                        to.write_all(bytes.get(..commit.end).unwrap_or_default()).await?;
                        state.expected.store(commit.replies, Ordering::SeqCst);
                        // Perhaps the replies have all come.
                        state.cut.notified().await;
                        self.count(&self.counts.responses);
                        return Ok(());
                    }
                    None => {}
                }
            }
            to.write_all(bytes).await?;
        }
    }

    /// Passes on what the server sends, up to the point from which on the replica gets nothing.
    async fn responses(
        &self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        state: &State,
    ) -> io::Result<()> {
        let mut messages = Messages { is_typed: true, ..Messages::default() };
        let mut held = self.held.subscribe();
        let mut buffer = vec![0; 64 * 1024];
        let mut replies = 0;
        loop {
            let length = from.read(&mut buffer).await?;
            if length == 0 {
                return Ok(());
            }
            let bytes = buffer.get(..length).unwrap_or_default();
            messages.read(bytes, |kind, _, _| replies += u64::from(kind == b'Z'));
            if state.is_cut.load(Ordering::SeqCst) {
                // The first `ReadyForQuery` is that of the beginning of the session.
                if replies > state.expected.load(Ordering::SeqCst) {
                    state.cut.notify_one();
                }
                continue;
            }
            let _ = held.wait_for(|held| !held).await;
            to.write_all(bytes).await?;
        }
    }
}

/// What the two directions of a connection have in common.
#[derive(Debug, Default)]
struct State {
    /// True if the replica gets no more responses.
    is_cut: AtomicBool,
    /// The number of replies that the requests get.
    expected: AtomicU64,
    cut: Notify,
}

/// Splits one direction of a connection into messages.
#[derive(Debug, Default)]
struct Messages {
    /// The bytes of the message that has not arrived completely.
    partial: Vec<u8>,
    /// False before the startup message, which has no type.
    is_typed: bool,
}

impl Messages {
    /// Calls `each` with the type, the content, and the end of each message that is complete, as
    /// a position in `bytes`.
    fn read(&mut self, bytes: &[u8], mut each: impl FnMut(u8, &[u8], usize)) {
        let before = self.partial.len();
        self.partial.extend_from_slice(bytes);
        let mut begin = 0;
        loop {
            let rest = self.partial.get(begin..).unwrap_or_default();
            let head = usize::from(self.is_typed);
            let length = rest.get(head..head + 4).and_then(|four| four.try_into().ok());
            let Some(length) = length.map(|four| u32::from_be_bytes(four) as usize) else { break };
            let Some(message) = rest.get(..head + length) else { break };
            begin += head + length;
            let kind = if self.is_typed { message.first().copied().unwrap_or(0) } else { 0 };
            each(kind, message.get(head + 4..).unwrap_or_default(), begin - before.min(begin));
            self.is_typed = true;
        }
        self.partial.drain(..begin);
    }
}

/// The requests of a connection.
#[derive(Debug, Default)]
struct Requests {
    messages: Messages,
    /// A transaction was begun.
    is_in_transaction: bool,
    /// A statement was executed since the last `Sync`.
    has_executed: bool,
    /// The number of replies that end with `ReadyForQuery`.
    replies: u64,
}

/// A request that commits, in the bytes that were read.
#[derive(Debug, Clone, Copy)]
struct Commit {
    start: usize,
    end: usize,
    /// The number of replies up to its own.
    replies: u64,
}

impl Requests {
    /// Reads bytes, and returns the first commit that they complete.
    fn read(&mut self, bytes: &[u8]) -> Option<Commit> {
        let Self { messages, is_in_transaction, has_executed, replies } = self;
        let (mut found, mut last) = (None, 0);
        messages.read(bytes, |kind, content, end| {
            let commits = match kind {
                b'Q' => {
                    *replies += 1;
                    *is_in_transaction |= content.starts_with(b"BEGIN");
                    let commits = content.starts_with(b"COMMIT");
                    *is_in_transaction &= !commits;
                    commits
                }
                b'E' => {
                    *has_executed = true;
                    false
                }
                b'S' => {
                    *replies += 1;
                    std::mem::take(has_executed) && !*is_in_transaction
                }
                _ => false,
            };
            if commits && found.is_none() {
                found = Some(Commit { start: last, end, replies: *replies });
            }
            last = end;
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len() + 4).unwrap().to_be_bytes();
        [&[kind], &length[..], content].concat()
    }

    #[test]
    fn a_commit_is_found_however_its_bytes_arrive() {
        let startup = message(0, b"\0\x03\0\0user\0postgres\0\0").split_off(1);
        let (execute, sync) = (message(b'E', b"\0\0\0\0\0"), message(b'S', b""));
        let begun = [startup, message(b'Q', b"BEGIN\0"), execute, sync].concat();
        let commit = message(b'Q', b"COMMIT\0");
        let all = [&begun[..], &commit].concat();
        for cut in 0..all.len() {
            let (mut requests, (one, two)) = (Requests::default(), all.split_at(cut));
            assert!(requests.read(one).is_none(), "before {cut}");
            let found = requests.read(two).unwrap();
            assert_eq!((found.end, found.replies), (two.len(), 3));
        }
        // Without a transaction, a statement commits with its `Sync`.
        let mut requests = Requests::default();
        requests.messages.is_typed = true;
        let statement = [message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat();
        assert_eq!(requests.read(&statement).unwrap().end, statement.len());
        assert!(requests.read(&message(b'S', b"")).is_none());
    }
}

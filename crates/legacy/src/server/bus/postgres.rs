//! A bus in PostgreSQL.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Socket};

use super::{BusError, ReplicaBus};

/// The timeout of a connection attempt.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The pause between two attempts to restore the connection.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest name of a channel in bytes: PostgreSQL cuts longer ones.
const MAX_CHANNEL: usize = 63;

/// How many messages wait to be received.
const QUEUE: usize = 256;

/// The longest piece of a message in bytes. A payload of `NOTIFY` is shorter than 8,000 bytes.
const PIECE: usize = 7_900;

/// The most pieces of a message: 8 MB.
const MAX_PIECES: usize = 1_024;

/// A [`ReplicaBus`] in PostgreSQL, by `NOTIFY` and `LISTEN`.
///
/// It needs no table. `LISTEN` needs a session of its own, so connect to the server and not to a
/// pooler in transaction mode. Messages that do not fit into one notification (8,000 bytes) are
/// sent in several.
///
/// PostgreSQL keeps no messages for those who do not listen: what is published while the connection
/// of a replica is broken does not reach it. Broken connections are restored within about 25 s.
pub struct PostgresBus {
    channel: String,
    /// `None` while the connection is broken.
    client: watch::Receiver<Option<Arc<Client>>>,
    messages: Mutex<mpsc::Receiver<String>>,
    task: AbortHandle,
}

impl PostgresBus {
    /// Connects to the server. Replicas of a service have the same `channel`, and other services
    /// another one. [`tokio_postgres::NoTls`] connects without TLS.
    ///
    /// Dropping the future cancels the attempt.
    ///
    /// # Errors
    ///
    /// If the connection fails or takes longer than 5 s, or if the channel does not have 1 to 63
    /// bytes.
    pub async fn connect<T>(
        mut config: Config,
        tls: T,
        channel: impl Into<String>,
    ) -> Result<Self, BusError>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as tokio_postgres::tls::TlsConnect<Socket>>::Future: Send,
    {
        let channel = channel.into();
        if channel.is_empty() || channel.len() > MAX_CHANNEL {
            let why = format!("the channel {channel:?} does not have 1 to {MAX_CHANNEL} bytes");
            return Err(BusError::new(why));
        }
        // A connection that broke silently is noticed within about 25 s.
        config.keepalives_idle(Duration::from_secs(15));
        config.keepalives_interval(Duration::from_secs(5)).keepalives_retries(2);
        config.tcp_user_timeout(Duration::from_secs(10)).connect_timeout(TIMEOUT);
        let (sender, messages) = mpsc::channel(QUEUE);
        let (client_of, client) = watch::channel(None);
        let mut open = Some(listen(&config, tls.clone(), &channel, &sender).await?);
        let name = channel.clone();
        let supervise = async move {
            loop {
                if let Some((client, ended)) = open.take() {
                    client_of.send_replace(Some(Arc::new(client)));
                    let _ = ended.await;
                    client_of.send_replace(None);
                }
                match listen(&config, tls.clone(), &name, &sender).await {
                    Ok(restored) => open = Some(restored),
                    Err(error) => {
                        tracing::warn!(target: "mrtr::legacy", %error, "listening failed");
                        sleep(PAUSE).await;
                    }
                }
            }
        };
        let task = tokio::spawn(supervise).abort_handle();
        Ok(Self { channel, client, messages: Mutex::new(messages), task })
    }
}

type Listening = (Client, tokio::task::JoinHandle<()>);

/// Opens a connection that listens, and the task that reads it.
async fn listen<T>(
    config: &Config,
    tls: T,
    channel: &str,
    messages: &mpsc::Sender<String>,
) -> Result<Listening, BusError>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let listening = async {
        let (client, connection) = config.connect(tls).await?;
        let reading = tokio::spawn(read(connection, messages.clone()));
        let quoted = channel.replace('"', "\"\"");
        client.batch_execute(&format!("LISTEN \"{quoted}\"")).await?;
        Ok::<_, tokio_postgres::Error>((client, reading))
    };
    timeout(TIMEOUT, listening).await.map_err(BusError::new)?.map_err(BusError::new)
}

/// Reads a connection to its end: when it breaks, or its client is dropped.
async fn read<S, T>(mut connection: Connection<S, T>, messages: mpsc::Sender<String>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let mut pieces = Pieces::default();
    loop {
        match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            Some(Ok(AsyncMessage::Notification(notification))) => {
                if let Some(message) = pieces.add(notification.payload())
                    && messages.send(message).await.is_err()
                {
                    return;
                }
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                tracing::warn!(target: "mrtr::legacy", %error, "the connection of the bus broke");
                return;
            }
            None => return,
        }
    }
}

impl ReplicaBus for PostgresBus {
    async fn publish(&self, message: String) -> Result<(), BusError> {
        let pieces = split(&message)?;
        let client = self.client.borrow().clone();
        let client = client.ok_or_else(|| BusError::new("the connection is broken"))?;
        // One statement, so the pieces arrive together.
        let notify = "SELECT pg_notify($1, piece) FROM unnest($2::text[]) AS piece";
        client.execute(notify, &[&self.channel, &pieces]).await.map_err(BusError::new)?;
        Ok(())
    }

    async fn receive(&self) -> String {
        match self.messages.lock().await.recv().await {
            Some(message) => message,
            // The runtime is shutting down.
            None => std::future::pending().await,
        }
    }
}

impl Drop for PostgresBus {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for PostgresBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBus").field("channel", &self.channel).finish_non_exhaustive()
    }
}

/// Splits a message into payloads: an id, the number of the piece, and how many there are.
fn split(message: &str) -> Result<Vec<String>, BusError> {
    let id = getrandom::u64().map_err(BusError::new)?;
    let bytes = message.as_bytes();
    let count = bytes.len().div_ceil(PIECE).max(1);
    if !message.is_ascii() || count > MAX_PIECES {
        return Err(BusError::new("a message is not ASCII text of at most 8 MB"));
    }
    let mut pieces = Vec::with_capacity(count);
    for (n, piece) in bytes.chunks(PIECE).enumerate() {
        pieces.push(format!("{id:016x} {n} {count} {}", String::from_utf8_lossy(piece)));
    }
    Ok(pieces)
}

/// The pieces of the message that is being received. Pieces of one message follow each other,
/// because they are of one transaction.
#[derive(Default)]
struct Pieces {
    id: String,
    next: usize,
    text: String,
}

impl Pieces {
    /// Adds a payload. Returns the message that it completes.
    fn add(&mut self, payload: &str) -> Option<String> {
        let mut parts = payload.splitn(4, ' ');
        let id = parts.next()?;
        let n: usize = parts.next()?.parse().ok()?;
        let count: usize = parts.next()?.parse().ok()?;
        if n == 0 {
            *self = Self { id: id.to_owned(), ..Self::default() };
        }
        if self.id != id || self.next != n || n >= count || count > MAX_PIECES {
            return None;
        }
        self.text.push_str(parts.next()?);
        self.next += 1;
        (self.next == count).then(|| std::mem::take(self).text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Anyone who may connect to the database can send them.
    #[test]
    fn pieces_beyond_their_number_are_not_kept() {
        let mut pieces = Pieces::default();
        for n in 0..3 {
            assert_eq!(pieces.add(&format!("x {n} 0 text")), None);
        }
        assert_eq!(pieces.text, "");
    }

    #[test]
    fn long_messages_are_put_together_and_incomplete_ones_are_dropped() {
        let mut pieces = Pieces::default();
        let mut add = |payloads: &[String]| {
            payloads.iter().filter_map(|payload| pieces.add(payload)).collect::<Vec<_>>()
        };
        let message = |length: usize| "abcdefg".chars().cycle().take(length).collect::<String>();
        for length in [1, PIECE, PIECE + 1, 3 * PIECE] {
            let payloads = split(&message(length)).unwrap();
            assert!(payloads.iter().all(|payload| payload.len() < 8_000));
            assert_eq!(add(&payloads), [message(length)]);
        }
        let long = split(&message(2 * PIECE)).unwrap();
        assert!(add(&long[..1]).is_empty());
        assert_eq!(add(&split("next").unwrap()), ["next"]);
        assert!(add(&long[1..]).is_empty());
        assert!(add(&["no piece".to_owned(), String::new()]).is_empty());
        assert!(split(&message(MAX_PIECES * PIECE + 1)).is_err());
    }
}

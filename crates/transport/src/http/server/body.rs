//! The body of a request: read, or thrown away.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use ::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use mrtr_schema::jsonrpc::ErrorObject;

use super::admission::Permit;
use super::endpoint::{Refused, RequestLimits, busy};

/// A refusal, and how much was read of a body whose rest is to be drained.
type Unread = (Box<Refused>, Option<usize>);

/// Reads the body, in bounded memory and time.
pub(super) async fn read<B>(
    limits: &RequestLimits,
    mut body: Pin<&mut B>,
    share: &mut Permit,
) -> Result<Bytes, Unread>
where
    B: Body<Data = Bytes>,
    B::Error: fmt::Display,
{
    if body.size_hint().lower() > limits.body as u64 {
        return Err((too_long(limits), Some(0)));
    }
    // A length that was only announced takes no memory.
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(0);
    // A short body has come with the head, in one piece: it needs no clock, and no copy.
    let first = poll_fn(|cx| Poll::Ready(body.as_mut().poll_frame(cx))).await;
    match first.map_err(broke_off) {
        Poll::Ready(Some(Ok(frame)))
            if body.is_end_stream()
                && frame
                    .data_ref()
                    .is_some_and(|data| data.len() <= limits.body && share.grow(data.len())) =>
        {
            Ok(frame.into_data().unwrap_or_default())
        }
        first => Box::pin(read_on(limits, body, first, announced, share)).await,
    }
}

/// Goes on after the first poll.
async fn read_on<B>(
    limits: &RequestLimits,
    mut body: Pin<&mut B>,
    first: Poll<Option<Result<Frame<Bytes>, Unread>>>,
    announced: usize,
    share: &mut Permit,
) -> Result<Bytes, Unread>
where
    B: Body<Data = Bytes>,
    B::Error: fmt::Display,
{
    let mut bytes = Bytes::new();
    let mut joined = Vec::new();
    let all = async {
        let mut first = match first {
            Poll::Ready(frame) => Some(frame),
            Poll::Pending => None,
        };
        loop {
            let frame = match first.take() {
                Some(frame) => frame,
                None => body.frame().await.map(|frame| frame.map_err(broke_off)),
            };
            let Some(frame) = frame.transpose()? else { return Ok(()) };
            if let Ok(data) = frame.into_data() {
                let read = bytes.len() + joined.len();
                if read + data.len() > limits.body {
                    return Err((too_long(limits), Some(read)));
                }
                if !share.grow(data.len()) {
                    return Err((busy(), Some(read)));
                }
                // One that comes in one piece need not be copied.
                if read == 0 {
                    bytes = data;
                    continue;
                }
                let least = read + data.len();
                if joined.capacity() < least {
                    joined.reserve_exact(room(least, announced, limits.body) - joined.len());
                }
                if joined.is_empty() {
                    joined.extend_from_slice(&std::mem::take(&mut bytes));
                }
                joined.extend_from_slice(&data);
            }
        }
    };
    match tokio::time::timeout(limits.body_time, all).await {
        Ok(read) => read.map(|()| if joined.is_empty() { bytes } else { joined.into() }),
        Err(_) => {
            let why = format!("the body took longer than {:?}", limits.body_time);
            let error = ErrorObject::invalid_request(why);
            Err((Refused::new(StatusCode::REQUEST_TIMEOUT, error), None))
        }
    }
}

/// Reads on and throws away, up to the limits. A client that waits for `100 Continue` has sent
/// nothing, and needs no draining.
pub(super) async fn drain<B>(
    limits: &RequestLimits,
    mut body: Pin<&mut B>,
    mut read: usize,
    headers: &HeaderMap,
) where
    B: Body<Data = Bytes>,
{
    if headers.contains_key(header::EXPECT) {
        return;
    }
    let rest = async {
        while read <= limits.drain {
            let Some(Ok(frame)) = body.frame().await else {
                break;
            };
            read += frame.data_ref().map_or(0, Bytes::len);
        }
    };
    // Whether it ended or time was up, the answer goes out now.
    let _ = tokio::time::timeout(limits.body_time, rest).await;
}

fn broke_off(error: impl fmt::Display) -> Unread {
    let why = format!("the body broke off: {error}");
    (Refused::new(StatusCode::BAD_REQUEST, ErrorObject::invalid_request(why)), None)
}

fn too_long(limits: &RequestLimits) -> Box<Refused> {
    let why = format!("the body is longer than {} bytes", limits.body);
    Refused::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorObject::invalid_request(why))
}

/// Half of how much room is made at least.
const LEAST_RESERVED: usize = 8 << 10;

/// How much room to make for a body of which so much is there: it grows by doubling, but not beyond what was announced, or may
/// come where nothing was.
fn room(least: usize, announced: usize, most: usize) -> usize {
    let whole = if announced == 0 { most } else { announced };
    whole.clamp(least, least.max(LEAST_RESERVED) * 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However a body comes, it is copied a few times at most.
    #[test]
    fn room_doubles_up_to_the_length() {
        const MOST: usize = 4 << 20;
        for (announced, length) in [(0, MOST), (MOST, MOST), (100_000, 100_000), (0, 10)] {
            let (mut made, mut times) = (0, 0);
            for read in 1..=length {
                if made < read {
                    (made, times) = (room(read, announced, MOST), times + 1);
                }
            }
            assert!(times <= 10, "{announced} announced, {length} came: {times} times");
            assert!(made <= 2 * length.max(LEAST_RESERVED) && made <= MOST);
        }
        assert_eq!(room(10, 1000, MOST), 1000);
    }
}

//! The body of a request: reading it within the limits, and discarding the rest of a rejected one.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use ::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;

use super::admission::Permit;
use super::limits::RequestLimits;
use super::rejection::Rejection;

/// A body that was not read to its end.
pub(super) struct BodyError {
    pub(super) rejection: Box<Rejection>,
    pub(super) rest: Rest,
}

/// What is to be done with the rest of a rejected body.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rest {
    /// It must not be read.
    Leave,
    /// Nothing was read. A client that waits for `100 Continue` has not sent the body.
    DiscardUnless100Continue,
    /// It is discarded, after this many bytes were read: the client is sending it.
    DiscardAfter(usize),
}

/// Reads the body in bounded memory and time.
pub(super) async fn read<B>(
    limits: &RequestLimits,
    mut body: Pin<&mut B>,
    permit: &mut Permit,
) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes>,
    B::Error: fmt::Display,
{
    if body.size_hint().lower() > limits.max_body_bytes as u64 {
        return Err(too_long(limits, Rest::DiscardUnless100Continue));
    }
    // A declared length reserves no memory by itself.
    let declared = usize::try_from(body.size_hint().lower()).unwrap_or(0);
    // Fast path: a short body has arrived with the head in one piece. It needs no timer and no
    // copy.
    let first = poll_fn(|cx| Poll::Ready(body.as_mut().poll_frame(cx))).await;
    match first.map_err(broken_off) {
        Poll::Ready(Some(Ok(frame)))
            if body.is_end_stream()
                && frame.data_ref().is_some_and(|data| {
                    data.len() <= limits.max_body_bytes && permit.try_reserve(data.len())
                }) =>
        {
            Ok(frame.into_data().unwrap_or_default())
        }
        first => Box::pin(read_frames(limits, body, first, declared, permit)).await,
    }
}

/// Reads a body of several frames, of which the first poll has returned `first`.
async fn read_frames<B>(
    limits: &RequestLimits,
    mut body: Pin<&mut B>,
    first: Poll<Option<Result<Frame<Bytes>, BodyError>>>,
    declared: usize,
    permit: &mut Permit,
) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes>,
    B::Error: fmt::Display,
{
    // A body that consists of one data frame stays in `whole` and is never copied.
    let mut whole = Bytes::new();
    let mut joined = Vec::new();
    let read_all = async {
        let mut first = match first {
            Poll::Ready(frame) => Some(frame),
            Poll::Pending => None,
        };
        loop {
            let frame = match first.take() {
                Some(frame) => frame,
                None => body.frame().await.map(|frame| frame.map_err(broken_off)),
            };
            let Some(frame) = frame.transpose()? else { return Ok(()) };
            // Trailers are ignored.
            let Ok(data) = frame.into_data() else { continue };
            let read = whole.len() + joined.len();
            let needed = read + data.len();
            if needed > limits.max_body_bytes {
                return Err(too_long(limits, Rest::DiscardAfter(read)));
            }
            if !permit.try_reserve(data.len()) {
                let rejection = Rejection::overloaded();
                return Err(BodyError { rejection, rest: Rest::DiscardAfter(read) });
            }
            if read == 0 {
                whole = data;
                continue;
            }
            if joined.capacity() < needed {
                let capacity = capacity_for(needed, declared, limits.max_body_bytes);
                joined.reserve_exact(capacity - joined.len());
            }
            if joined.is_empty() {
                joined.extend_from_slice(&std::mem::take(&mut whole));
            }
            joined.extend_from_slice(&data);
        }
    };
    match tokio::time::timeout(limits.body_timeout, read_all).await {
        Ok(read) => read.map(|()| if joined.is_empty() { whole } else { joined.into() }),
        Err(_) => {
            let message = format!("the body took longer than {:?}", limits.body_timeout);
            let rejection = Rejection::invalid(StatusCode::REQUEST_TIMEOUT, message);
            Err(BodyError { rejection, rest: Rest::Leave })
        }
    }
}

/// Reads the rest of a rejected body and discards it, up to the limits, so that a client that is
/// still writing gets the response.
pub(super) async fn discard<B>(
    limits: &RequestLimits,
    mut body: Pin<&mut B>,
    rest: Rest,
    headers: &HeaderMap,
) where
    B: Body<Data = Bytes>,
{
    let mut read = match rest {
        Rest::Leave => return,
        Rest::DiscardUnless100Continue if headers.contains_key(header::EXPECT) => return,
        Rest::DiscardUnless100Continue => 0,
        Rest::DiscardAfter(read) => read,
    };
    let rest = async {
        while read <= limits.max_discarded_bytes {
            let Some(Ok(frame)) = body.frame().await else {
                break;
            };
            read += frame.data_ref().map_or(0, Bytes::len);
        }
    };
    // The response is sent next, even if the body did not end in time.
    let _ = tokio::time::timeout(limits.body_timeout, rest).await;
}

fn broken_off(error: impl fmt::Display) -> BodyError {
    let message = format!("reading the body failed: {error}");
    let rejection = Rejection::invalid(StatusCode::BAD_REQUEST, message);
    BodyError { rejection, rest: Rest::Leave }
}

fn too_long(limits: &RequestLimits, rest: Rest) -> BodyError {
    let message = format!("the body is longer than {} bytes", limits.max_body_bytes);
    let rejection = Rejection::invalid(StatusCode::PAYLOAD_TOO_LARGE, message);
    BodyError { rejection, rest }
}

/// Half of the smallest capacity, in bytes: small bodies get their whole buffer at once.
const MIN_RESERVED: usize = 8 << 10;

/// Returns the capacity of the buffer for a body of which `needed` bytes have arrived. It doubles,
/// so that a body is copied a few times at most, up to the declared length or the limit: a client
/// cannot make the server allocate more than twice what it has sent.
fn capacity_for(needed: usize, declared: usize, max: usize) -> usize {
    let whole = if declared == 0 { max } else { declared };
    whole.clamp(needed, needed.max(MIN_RESERVED) * 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body is copied a few times at most, for any sizes of its frames.
    #[test]
    fn capacity_doubles_up_to_the_length() {
        const MAX: usize = 4 << 20;
        for (declared, length) in [(0, MAX), (MAX, MAX), (100_000, 100_000), (0, 10)] {
            let mut capacity = 0;
            let mut times = 0;
            for read in 1..=length {
                if capacity < read {
                    capacity = capacity_for(read, declared, MAX);
                    times += 1;
                }
            }
            assert!(times <= 10, "{declared} declared, {length} read: {times} times");
            assert!(capacity <= 2 * length.max(MIN_RESERVED) && capacity <= MAX);
        }
        assert_eq!(capacity_for(10, 1000, MAX), 1000);
    }
}

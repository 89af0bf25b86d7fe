//! A call over HTTP: a task that outlives the connection of its client for a while.

use std::pin::Pin;
use std::sync::Arc;

use mrtr_schema::RawJson;
use mrtr_schema::jsonrpc::{ErrorObject, Request, RequestId, Response};
use mrtr_transport::RequestHandler;

use super::call::{Call, Channel, Outgoing};
use super::context::Context;
use super::gateway::Gateway;
use super::session::Session;
use super::sessions::SessionRef;
use super::stream::{EventKind, Permit, Stream, StreamReader};

/// A call that is to be started.
pub(crate) struct NewCall {
    pub(crate) request: Request,
    /// The state of a call that another replica has begun.
    pub(crate) state: Option<String>,
    pub(crate) context: Context,
}

impl<H: RequestHandler> Gateway<H> {
    /// Creates a stream for this many calls. It holds the permit until the client has read it.
    pub(crate) fn new_stream(
        &self,
        session: &Session,
        calls: usize,
        permit: Permit,
    ) -> Arc<Stream> {
        let stream = Stream::new(self.new_id(), calls, permit);
        session.add_stream(&stream);
        stream
    }

    /// Starts a call, which answers on the stream.
    pub(crate) fn start_call(
        self: &Arc<Self>,
        session: &Arc<Session>,
        stream: &Arc<Stream>,
        call: NewCall,
    ) {
        let id = call.request.id.clone();
        let begun = session.begin_call(&id, Some(Arc::clone(stream)), |number| {
            let task = CallTask {
                gateway: Arc::clone(self),
                session: Arc::clone(session),
                stream: Arc::clone(stream),
                number,
                id: Some(id.clone()),
            };
            tokio::spawn(task.run(call)).abort_handle()
        });
        if let Err(why) = begun {
            push_response(stream, &Response::error(Some(id), ErrorObject::invalid_request(why)));
        }
    }
}

/// A call that runs. Dropping it before its end answers with an internal error.
struct CallTask<H: RequestHandler> {
    gateway: Arc<Gateway<H>>,
    session: Arc<Session>,
    stream: Arc<Stream>,
    number: u64,
    /// `None` once the call is answered.
    id: Option<RequestId>,
}

impl<H: RequestHandler> CallTask<H> {
    async fn run(mut self, NewCall { request, state, context }: NewCall) {
        let call = Call {
            gateway: &self.gateway,
            session: &self.session,
            channel: &StreamChannel {
                stream: Arc::clone(&self.stream),
                session: Arc::clone(&self.session),
            },
            context: &context,
        };
        let outcome = call.respond(&request, state).await;
        self.id = None;
        if self.session.end_call(&request.id, self.number) {
            push_response(&self.stream, &Response { id: Some(request.id), outcome });
        }
    }
}

impl<H: RequestHandler> Drop for CallTask<H> {
    fn drop(&mut self) {
        // The handler has panicked, unless the call was cancelled.
        if let Some(id) = self.id.take()
            && self.session.end_call(&id, self.number)
        {
            let error = ErrorObject::internal("Internal error");
            push_response(&self.stream, &Response::error(Some(id), error));
        }
    }
}

fn push_response(stream: &Stream, response: &Response<RawJson>) {
    stream.push(Some(response.to_json()), EventKind::Response, None);
}

/// A stream as the way to the client.
struct StreamChannel {
    stream: Arc<Stream>,
    session: Arc<Session>,
}

impl Channel for StreamChannel {
    fn send(&self, message: Outgoing) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        match message {
            Outgoing::Notification(notification) => {
                self.stream.push(Some(notification.to_json()), EventKind::Notification, None);
            }
            Outgoing::Request { request, resume } => {
                if let Ok(text) = RawJson::new(&request) {
                    self.stream.push(Some(text), EventKind::Request, resume);
                }
            }
        }
        Box::pin(std::future::ready(true))
    }

    fn is_resumable(&self) -> bool {
        self.stream.is_of_one_call()
    }

    fn hand_over(&self, place: Option<Arc<str>>) {
        if place.is_some() {
            self.stream.push(None, EventKind::Place, place);
        }
        self.session.give_up(&self.stream);
    }

    fn permit(&self) -> Option<Permit> {
        self.stream.permit()
    }
}

/// A reader for one connection. When the connection ends before the stream, the calls continue for
/// a while, in case the client resumes.
pub(crate) struct AttachedReader<H: RequestHandler> {
    pub(crate) reader: StreamReader,
    /// The response is an event stream, which the client can resume. JSON cannot be resumed.
    is_stream: bool,
    gateway: Arc<Gateway<H>>,
    session: SessionRef,
}

impl<H: RequestHandler> AttachedReader<H> {
    pub(crate) fn new(
        gateway: &Arc<Gateway<H>>,
        session: &SessionRef,
        reader: StreamReader,
    ) -> Self {
        Self { reader, is_stream: false, gateway: Arc::clone(gateway), session: session.clone() }
    }

    /// Marks the response as an event stream.
    pub(crate) fn set_stream(&mut self) {
        self.is_stream = true;
    }
}

impl<H: RequestHandler> Drop for AttachedReader<H> {
    fn drop(&mut self) {
        let stream = Arc::clone(self.reader.stream());
        let number = self.reader.number();
        if stream.has_reader_after(number) {
            return;
        }
        let gateway = Arc::clone(&self.gateway);
        let session = self.session.clone();
        let is_json = !self.is_stream && stream.is_complete();
        // A client that has everything may not have it: the last bytes may be lost on the way.
        // Streams are kept for that case as far as there is room.
        let is_kept = !is_json
            && (!stream.release_if_read(self.reader.position())
                || stream.retain(|| gateway.try_retain()));
        if !is_kept {
            session.remove_stream(stream.id());
            return;
        }
        // Without a runtime, the process is ending.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let kept = Arc::clone(&stream);
        let end = runtime.spawn(async move {
            tokio::time::sleep(gateway.options.resume_timeout).await;
            if !stream.has_reader_after(number) {
                stream.end();
                session.remove_stream(stream.id());
                session.cancel_calls_on(&stream);
            }
        });
        kept.set_end(end.abort_handle());
    }
}

//! The layer, and its settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_schema::method;
use mrtr_server::Principal;
use mrtr_server::middleware::{Next, Request, from_fn};
use mrtr_transport::too_many_requests;
use tower_layer::Layer;

use super::memory::MemoryRateLimitStore;
use super::store::{Decision, ErasedStore, Quota, RateLimitStore};

/// A layer that limits how many calls each caller may begin.
///
/// Around a tool, it limits the calls of that tool. Around a group, all its features share one
/// quota. Around the server, every request without a request state counts as a call, including
/// lists. Later rounds, requests about tasks, and completions, which users cause as they type, have
/// counters of their own: see [`rounds_per_call`](Self::rounds_per_call).
///
/// Clones share their counters, unless they are changed. A changed clone of a limit with a
/// [store](Self::store) keeps its name, and so the counters: set the store again, with another
/// name.
///
/// ```
/// use mrtr_middleware::RateLimit;
/// use mrtr_server::{Context, Server, Tool};
///
/// async fn order(_: Context) -> &'static str {
///     "Ordered"
/// }
///
/// let server = Server::builder("shop", "1.0.0")
///     .tool(Tool::new("order", "Orders", order).layer(RateLimit::per_minute(5)))
///     .layer(RateLimit::per_second(20).burst(100))
///     .require_principal()
///     .ephemeral_key()
///     .build()?;
/// # Ok::<(), mrtr_server::BuildError>(())
/// ```
#[derive(Clone)]
pub struct RateLimit(Arc<Limit>);

#[derive(Clone)]
struct Limit {
    quota: Quota,
    rounds_per_call: u32,
    key: Arc<dyn Fn(&Request) -> String + Send + Sync>,
    store: Arc<dyn ErasedStore>,
    /// The name of the limit in a shared store.
    name: String,
    is_shared: bool,
    denies_on_failure: bool,
}

impl RateLimit {
    /// Allows each caller `calls` in `period`, all of which may come at once. They refill evenly:
    /// with 60 in a minute, one per second. 0 counts as 1.
    pub fn new(calls: u32, period: Duration) -> Self {
        Self(Arc::new(Limit {
            quota: Quota::new(calls, period),
            rounds_per_call: 10,
            key: Arc::new(|request| caller(request.principal())),
            store: Arc::new(MemoryRateLimitStore::default()),
            name: String::new(),
            is_shared: false,
            denies_on_failure: false,
        }))
    }

    /// Allows each caller `calls` per second.
    pub fn per_second(calls: u32) -> Self {
        Self::new(calls, Duration::from_secs(1))
    }

    /// Allows each caller `calls` per minute.
    pub fn per_minute(calls: u32) -> Self {
        Self::new(calls, Duration::from_mins(1))
    }

    /// Allows each caller `calls` per hour.
    pub fn per_hour(calls: u32) -> Self {
        Self::new(calls, Duration::from_hours(1))
    }

    /// Sets how many calls may come at once. Default: all of the period. 0 counts as 1.
    pub fn burst(self, calls: u32) -> Self {
        self.with(|limit| limit.quota.burst = calls.max(1))
    }

    /// Sets how many later rounds are allowed for each call that may be begun. Default: 10, the
    /// number of input rounds that `mrtr-client` allows by default. 0 counts as 1. As many polls of
    /// tasks, other requests about tasks, and completions are allowed, each counted by itself.
    ///
    /// The limit applies to all calls of a caller together. It is needed because a client can
    /// repeat a round while its request state is valid, and each repetition runs the handler.
    pub fn rounds_per_call(self, rounds: u32) -> Self {
        self.with(|limit| limit.rounds_per_call = rounds)
    }

    /// Sets the key of a request. Requests with the same key share a quota. Default: the principal,
    /// by its issuer and subject. All anonymous callers together have one quota.
    ///
    /// Do not derive the key from values that a client controls, such as an arbitrary header: a
    /// client that changes its key gets a new quota.
    pub fn key(self, key: impl Fn(&Request) -> String + Send + Sync + 'static) -> Self {
        self.with(|limit| limit.key = Arc::new(key))
    }

    /// Sets the store of the counters. Default: a
    /// [`MemoryRateLimitStore`](super::MemoryRateLimitStore), with which each replica counts
    /// separately.
    ///
    /// Limits that share a store need different names.
    pub fn store(self, name: impl Into<String>, store: Arc<impl RateLimitStore>) -> Self {
        self.with(|limit| {
            limit.name = name.into();
            limit.is_shared = true;
            limit.store = store;
        })
    }

    /// Denies all requests with an internal error (-32603) while the store cannot be reached.
    /// Default: they are allowed, and a warning is logged.
    pub fn deny_on_failure(self) -> Self {
        self.with(|limit| limit.denies_on_failure = true)
    }

    fn with(mut self, change: impl FnOnce(&mut Limit)) -> Self {
        if Arc::get_mut(&mut self.0).is_none() && !self.0.is_shared {
            // A clone with other settings is another limit.
            let store = Arc::new(MemoryRateLimitStore::default());
            self.0 = Arc::new(Limit { store, ..Limit::clone(&self.0) });
        }
        change(Arc::make_mut(&mut self.0));
        self
    }
}

/// Returns the key of a caller. The length separates its parts, so that no two callers have the
/// same one. The client is not part of it: a person may register any number of them.
fn caller(principal: Option<&Principal>) -> String {
    let Some(principal) = principal else { return String::new() };
    let (issuer, subject) = (principal.issuer(), principal.subject());
    format!("{}:{issuer}{subject}", issuer.len())
}

impl Limit {
    /// Counts a request.
    async fn admit(&self, request: &Request) -> Result<(), ErrorObject> {
        let key = (self.key)(request);
        let repeated = self.quota.times(self.rounds_per_call);
        let (kind, quota) = match request.method() {
            method::COMPLETE => ("completion", repeated),
            method::TASKS_GET => ("poll", repeated),
            method::TASKS_UPDATE | method::TASKS_CANCEL => ("task", repeated),
            _ if request.is_first_round() => ("call", self.quota),
            _ => ("round", repeated),
        };
        let key = format!("{}:{kind}:{key}", self.name);
        match self.store.count(&key, quota).await {
            Ok(Decision::Allowed) => Ok(()),
            Ok(Decision::Denied { retry_after }) => {
                tracing::debug!(target: "mrtr::access", limit = self.name, "rate limit exceeded");
                Err(too_many_requests(retry_after))
            }
            Err(error) => {
                let (limit, error) = (&self.name, &error as &dyn std::error::Error);
                if self.denies_on_failure {
                    tracing::error!(
                        target: "mrtr::access",
                        limit, error, "cannot check the rate limit: the request is denied"
                    );
                    return Err(ErrorObject::internal("Internal error"));
                }
                tracing::warn!(
                    target: "mrtr::access",
                    limit, error, "cannot check the rate limit: the request is allowed"
                );
                Ok(())
            }
        }
    }
}

impl Layer<Next> for RateLimit {
    type Service = Next;

    fn layer(&self, next: Next) -> Next {
        let limit = Arc::clone(&self.0);
        let limited = from_fn(move |request: Request, next: Next| {
            let limit = Arc::clone(&limit);
            async move {
                limit.admit(&request).await?;
                next.run(request).await
            }
        });
        limited.layer(next)
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("quota", &self.0.quota).finish_non_exhaustive()
    }
}

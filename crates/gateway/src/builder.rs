//! The builder of gateways.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mrtr_client::{Client, Transport};
use mrtr_schema::tool::is_valid_name;
use mrtr_server::{BuildError, FeatureGroup, Prompt, Resource, ServerBuilder, Tool};
use tokio::sync::Notify;

use crate::gateway::Gateway;
use crate::task_ids::TaskIds;
use crate::task_updates::serve_task_updates;
use crate::tasks::serve_tasks;
use crate::upstream::{Shared, Upstream};

/// Builds a [`Gateway`]. Created by [`Gateway::builder`].
#[must_use = "call `build`"]
pub struct GatewayBuilder<T> {
    upstreams: Vec<(String, Client<T>)>,
    request_timeout: Duration,
    list_timeout: Duration,
    refresh_interval: Duration,
}

impl<T: Transport> Gateway<T> {
    /// Creates a builder without upstreams.
    pub fn builder() -> GatewayBuilder<T> {
        GatewayBuilder {
            upstreams: Vec::new(),
            request_timeout: Duration::from_mins(1),
            list_timeout: Duration::from_secs(10),
            refresh_interval: Duration::from_mins(1),
        }
    }
}

impl<T: Transport> GatewayBuilder<T> {
    /// Adds an upstream server.
    ///
    /// Its tools and prompts are named by `prefix`, `__` and their own name; with an empty prefix,
    /// by their own name. A name that begins with the longer prefix of another upstream is skipped,
    /// with a logged warning. Resources and templates keep their URIs: of two with the same URI,
    /// the one that was listed first is served. Lists have the features of the upstreams in the
    /// order in which these were added. A URI that templates of several upstreams match is for the
    /// first of these.
    ///
    /// A feature is skipped, too, if its definition has more than 64 KiB, or if all definitions of
    /// its kind have more than 2 MiB. With many upstreams, set
    /// [`ServerBuilder::page_size`](mrtr_server::ServerBuilder::page_size): clients limit the
    /// length of a page.
    ///
    /// The state of a call is valid for 30 days and any number of rounds. The upstream's own state
    /// in it has the limits of the upstream.
    ///
    /// Calls carry what the client itself is configured with, such as its credentials, and the
    /// capabilities of the caller except for URL mode and extensions other than tasks. The trace
    /// context, without its baggage, and requests for progress and log messages are forwarded, too.
    /// No token, header or principal of the caller reaches the upstream.
    pub fn upstream(mut self, prefix: impl Into<String>, client: Client<T>) -> Self {
        self.upstreams.push((prefix.into(), client));
        self
    }

    /// Sets the longest time for one round of a forwarded call, with the client's retries, and for
    /// one request about a task. Default: 1 min. After it, the request is cancelled and the caller
    /// gets an error; a subscription reads the task again later. The timeouts of the client and of
    /// its transport (default: 2 min) apply, too.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Sets the longest time that listing what one upstream offers may take. Default: 10 s.
    pub fn list_timeout(mut self, timeout: Duration) -> Self {
        self.list_timeout = timeout;
        self
    }

    /// Sets the time after which [`Gateway::run`] lists an upstream again that has reported no
    /// change. Lists that the upstream allows to cache for longer are taken from the client's
    /// cache. Default: 1 min.
    pub fn refresh_interval(mut self, interval: Duration) -> Self {
        self.refresh_interval = interval;
        self
    }

    /// Builds the gateway. `server` sets everything that does not come from upstream: the keys, the
    /// callers, and tools of the gateway's own.
    ///
    /// Nothing is sent yet: the server has what upstreams offer after [`Gateway::refresh`].
    ///
    /// # Errors
    ///
    /// As for [`ServerBuilder::build`], [`BuildError::Duplicate`] if two upstreams have the same
    /// prefix, and [`BuildError::ToolName`] if the name of a tool cannot begin with a prefix.
    pub fn build(self, server: ServerBuilder) -> Result<Gateway<T>, BuildError> {
        let mut server = server.updatable::<Tool>().updatable::<Prompt>().updatable::<Resource>();
        let changes = server.change_notifier();
        let prefixes: Vec<_> = self.upstreams.iter().map(|(prefix, _)| prefix.clone()).collect();
        for (at, prefix) in prefixes.iter().enumerate() {
            if prefixes.iter().take(at).any(|other| other == prefix) {
                let name = prefix.clone();
                return Err(BuildError::Duplicate { kind: "upstream prefix", name });
            }
            // The shortest name of a tool.
            let shortest = format!("{prefix}{}x", FeatureGroup::SEPARATOR);
            if !is_valid_name(&shortest) {
                return Err(BuildError::ToolName(shortest));
            }
        }
        let relisted = Arc::<Notify>::default();
        let ids = (!server.has_task_store()).then(TaskIds::default);
        let shared = Shared {
            request_timeout: self.request_timeout,
            tasks: ids.clone(),
            disabled: Arc::default(),
            ranks: Arc::default(),
            relisted: Arc::clone(&relisted),
        };
        let upstreams = self.upstreams.into_iter().enumerate().map(|(index, (prefix, client))| {
            let full = |prefix: &String| {
                if prefix.is_empty() {
                    String::new()
                } else {
                    format!("{prefix}{}", FeatureGroup::SEPARATOR)
                }
            };
            let own = full(&prefix);
            let foreign = prefixes.iter().map(full);
            let foreign =
                foreign.filter(|other| other.len() > own.len() && other.starts_with(&own));
            let (own, foreign) = (own.clone(), foreign.collect());
            Upstream::new(prefix, index, own, foreign, &client, shared.clone())
        });
        let upstreams: Arc<[_]> = upstreams.map(Arc::new).collect();
        if let Some(ids) = &ids {
            server = serve_tasks(server, &upstreams, ids);
            server = serve_task_updates(server, &upstreams, ids);
        }
        let server = server.build()?;
        if let Some(ids) = &ids {
            ids.set(server.sealer());
        }
        Ok(Gateway {
            server,
            changes,
            relisted,
            upstreams,
            list_timeout: self.list_timeout,
            refresh_interval: self.refresh_interval,
        })
    }
}

impl<T> fmt::Debug for GatewayBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefixes: Vec<_> = self.upstreams.iter().map(|(prefix, _)| prefix).collect();
        f.debug_struct("GatewayBuilder").field("upstreams", &prefixes).finish_non_exhaustive()
    }
}

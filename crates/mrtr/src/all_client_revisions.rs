//! Clients of servers of the current revision and of legacy ones.

use mrtr_legacy::{AnyRevisionChild, AnyRevisionClient, RevisionMode};
use mrtr_transport::http::HttpClient;
use mrtr_transport::stdio::ChildServer;

pub(crate) type AnyClient = AnyRevisionClient;

pub(crate) fn any_client(http: HttpClient) -> AnyClient {
    AnyRevisionClient::new(http, RevisionMode::Auto)
}

pub(crate) type AnyChild = AnyRevisionChild;

pub(crate) fn any_child(child: ChildServer) -> AnyChild {
    AnyRevisionChild::new(child, RevisionMode::Auto)
}

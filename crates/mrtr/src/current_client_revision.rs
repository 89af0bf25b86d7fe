//! Clients of servers of the current revision only.

use mrtr_transport::http::HttpClient;
use mrtr_transport::stdio::ChildServer;

pub(crate) type AnyClient = HttpClient;

pub(crate) fn any_client(http: HttpClient) -> AnyClient {
    http
}

pub(crate) type AnyChild = ChildServer;

pub(crate) fn any_child(child: ChildServer) -> AnyChild {
    child
}

//! Clients of servers of the current revision only.

use mrtr_transport::http::HttpClient;

pub(crate) type AnyClient = HttpClient;

pub(crate) fn any_client(http: HttpClient) -> AnyClient {
    http
}

//! Clients of servers of the current revision and of legacy ones.

use mrtr_legacy::{AnyRevisionClient, RevisionMode};
use mrtr_transport::http::HttpClient;

pub(crate) type AnyClient = AnyRevisionClient;

pub(crate) fn any_client(http: HttpClient) -> AnyClient {
    AnyRevisionClient::new(http, RevisionMode::Auto)
}

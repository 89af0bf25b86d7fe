//! The client that tokens were issued to.

use super::bound_issuer::BoundIssuer;
use super::options::Options;
use super::registration::{ClientRegistration, DynamicClient};
use super::session::StoredSession;
use crate::identifier::Issuer;

/// Returns the client that the tokens of a session were issued to, by `issuer`. It may have a
/// secret, so a client of another authorization server is not taken, although its ID is the same.
pub(super) fn client_of_tokens(
    options: &Options,
    session: &StoredSession,
    issuer: &Issuer,
    bound_issuer: &BoundIssuer,
) -> ClientRegistration {
    let id = session.client_id().unwrap_or_default();
    let is_of_issuer = |known: &Option<Issuer>| match known {
        Some(known) => known == issuer,
        None => bound_issuer.is(issuer),
    };
    let registered = options.registered.iter().filter(|(known, _)| is_of_issuer(known));
    let registered = registered.map(|(_, client)| client.clone());
    let known = session.clients.get(issuer.as_str()).map(DynamicClient::registration);
    let client = registered.chain(known).find(|client| client.id() == id);
    client.unwrap_or_else(|| ClientRegistration::public(id))
}

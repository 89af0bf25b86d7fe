//! What links and cookies carry, sealed for the user.

use mrtr_codec::encoding::{Decoder, Encoder};
use mrtr_codec::{Binding, Digest, OpenError, Principal, UnixSeconds, Validity, open, seal};

use super::connector::Inner;
use crate::client::random::Seed;

/// How long links and cookies are accepted, in seconds. The documentation of the module names it.
pub(super) const LIFETIME: u64 = 600;

/// The purposes of sealed texts. No request has such a method, so they are no request states.
const LINK: &str = "mrtr connect link";
const COOKIE: &str = "mrtr connect cookie";

/// A visit of a browser to the page, which its cookie carries.
pub(super) struct Visit {
    pub(super) client: Option<String>,
    pub(super) seed: Seed,
    link: Digest,
}

impl Visit {
    /// Creates a visit that begins with a link.
    pub(super) fn new(link: &str, client: Option<String>) -> Result<Self, getrandom::Error> {
        Ok(Self { client, seed: Seed::random()?, link: digest(link) })
    }

    /// Returns true if the visit began with this link.
    pub(super) fn is_of(&self, link: &str) -> bool {
        self.link == digest(link)
    }
}

/// Returns the user of a principal: without the OAuth client, which a browser does not have.
pub(super) fn user(principal: &Principal) -> Principal {
    Principal::new(principal.issuer(), principal.subject())
}

fn digest(link: &str) -> Digest {
    Digest::from_parts(&[link.as_bytes()])
}

impl Inner {
    fn binding<'a>(&'a self, user: &'a Principal, purpose: &'static str) -> Binding<'a> {
        Binding {
            principal: Some(user),
            proof_key: None,
            method: purpose,
            target: &self.id,
            arguments: Digest::from_parts(&[]),
        }
    }

    fn seal(&self, user: &Principal, purpose: &'static str, body: &[u8]) -> Option<String> {
        let validity = Validity::starting(UnixSeconds(self.now()), LIFETIME);
        seal(&*self.sealer, &self.binding(user, purpose), validity, body)
            .inspect_err(|error| tracing::error!(target: "mrtr::auth", %error, "sealing failed"))
            .ok()
    }

    fn open(
        &self,
        user: &Principal,
        purpose: &'static str,
        token: &str,
    ) -> Result<Vec<u8>, OpenError> {
        let binding = self.binding(user, purpose);
        let opened = open(&*self.sealer, token, &binding, UnixSeconds(self.now()))?;
        Ok(opened.body().to_vec())
    }

    /// Seals a link for a caller. It is encrypted, so it does not name the user.
    pub(super) fn seal_link(&self, caller: &Principal) -> Option<String> {
        let mut body = Encoder::new();
        body.option(caller.client().map(str::as_bytes));
        self.seal(&user(caller), LINK, &body.finish())
    }

    /// Opens the link of a user, and returns the OAuth client that asked.
    pub(super) fn open_link(
        &self,
        user: &Principal,
        link: &str,
    ) -> Result<Option<String>, OpenError> {
        let body = self.open(user, LINK, link)?;
        let client = Decoder::new(&body).optional_text();
        Ok(client.map_err(|_| OpenError::UnknownFormat)?.map(str::to_owned))
    }

    pub(super) fn seal_cookie(&self, user: &Principal, visit: &Visit) -> Option<String> {
        let mut body = Encoder::new();
        body.raw(visit.seed.bytes()).raw(visit.link.as_bytes());
        body.option(visit.client.as_ref().map(String::as_bytes));
        self.seal(user, COOKIE, &body.finish())
    }

    pub(super) fn open_cookie(&self, user: &Principal, cookie: &str) -> Result<Visit, OpenError> {
        let body = self.open(user, COOKIE, cookie)?;
        let mut input = Decoder::new(&body);
        let mut read = || {
            let seed = Seed::new(input.array()?);
            let link = Digest::from_bytes(input.array()?);
            let client = input.optional_text()?.map(str::to_owned);
            Ok::<_, mrtr_codec::encoding::DecodeError>(Visit { client, seed, link })
        };
        read().map_err(|_| OpenError::UnknownFormat)
    }
}

//! The state of a protected resource, and the check of a request.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, str};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Response, Uri};
use mrtr_codec::Principal;
use mrtr_transport::{GrantedScopes, ProofKey};

use super::challenge::Challenges;
use super::claims::{Claims, Confirmation, InvalidToken, LEEWAY};
use super::clock::Clock;
use super::credentials::{Credentials, MALFORMED, Scheme, is_well_formed, take_authorization};
use super::dpop::DpopState;
use super::flights::Flights;
use super::introspection;
use super::issuer::IssuerState;
use super::jws::{DecodedToken, Kind, MAX_TOKEN, MalformedToken};
use super::metadata_service::MetadataService;
use super::rejection::Refusal;
use super::scope_hierarchy::ScopeHierarchy;
use super::strict_json::Json;
use super::token_cache::{DigestKey, TokenCache, TokenDigest};
use crate::{ResourceId, Scopes};

/// For how long an outcome of a verification is used, in seconds.
#[derive(Clone, Copy)]
struct Ages {
    /// For new requests.
    kept: u64,
    /// For a stream of changes, which then ends, so that its client asks with its present token.
    stream: u64,
}

/// A JWT ends with its `exp`. A key that its issuer removes is used that much longer.
const JWT: Ages = Ages { kept: 60, stream: u64::MAX };
/// A positive response of an introspection endpoint.
const ACTIVE: Ages = Ages { kept: 30, stream: 300 };
/// The time for which a negative response is used, in seconds.
const REFUSED_AGE: u64 = 5;

/// The header with the next nonce for proofs (RFC 9449, section 8.1).
const NONCE: &str = "dpop-nonce";

/// A protected resource: the URL of an MCP server, and the issuers whose tokens it accepts
/// (RFC 9728; specification: authorization).
///
/// It is cheap to clone, and its clones share the keys and the verified tokens. See the
/// [module](super) for an example.
#[derive(Clone)]
pub struct ProtectedResource {
    state: Arc<State>,
}

pub(super) struct State {
    pub(super) id: ResourceId,
    pub(super) issuers: Vec<IssuerState>,
    pub(super) challenges: Challenges,
    pub(super) hierarchy: ScopeHierarchy,
    pub(super) dpop: Option<DpopState>,
    pub(super) metadata: MetadataService,
    /// The path and the query of the metadata.
    pub(super) metadata_path: String,
    pub(super) clock: Clock,
    pub(super) digest_key: DigestKey,
    pub(super) verified: TokenCache<Arc<VerifiedToken>>,
    /// Tokens that an introspection issuer does not vouch for.
    pub(super) refused: TokenCache<InvalidToken>,
    pub(super) introspections: Flights<Result<Arc<VerifiedToken>, Refusal>>,
}

/// A token that passed all checks but those of its proof.
pub(super) struct VerifiedToken {
    principal: Principal,
    scopes: Scopes,
    granted: GrantedScopes,
    confirmation: Option<Confirmation>,
    /// When streams of changes end, in seconds since 1970.
    ends: u64,
}

/// What is kept of a request that passed, for its response.
pub(super) struct Passed {
    scheme: Scheme,
    /// The next nonce for the client's proofs.
    nonce: Option<HeaderValue>,
    /// The time that is left to a stream of changes. `None`: no limit, or another request.
    pub(super) stream_time: Option<Duration>,
}

impl ProtectedResource {
    pub(super) fn new(state: State) -> Self {
        Self { state: Arc::new(state) }
    }

    /// Returns a service that answers with the metadata, for routers that mount it at
    /// [`metadata_path`](Self::metadata_path).
    pub fn metadata_service(&self) -> MetadataService {
        self.state.metadata.clone()
    }

    /// Returns the path of the metadata, such as `/.well-known/oauth-protected-resource/mcp`.
    pub fn metadata_path(&self) -> &str {
        self.state.metadata_path.split('?').next().unwrap_or_default()
    }

    /// Returns the identifier of the resource.
    pub fn id(&self) -> &ResourceId {
        &self.state.id
    }

    pub(super) fn is_for_metadata(&self, uri: &Uri) -> bool {
        let path = uri.path_and_query().map_or(uri.path(), |path| path.as_str());
        path == self.state.metadata_path
    }

    /// Checks a request. If it passes, then the extensions tell the caller, and the credentials are
    /// removed.
    ///
    /// # Errors
    ///
    /// With the response, if it does not.
    pub(super) async fn check(&self, head: &mut Parts) -> Result<Passed, Response<Bytes>> {
        let state = &*self.state;
        let reject = |refusal: Refusal, scheme| {
            refusal.log();
            let mut response = refusal.into_response(scheme, &state.challenges);
            if refusal == Refusal::NonceRequired
                && let Some(nonce) = state.dpop.as_ref().and_then(|d| d.nonce(state.clock.now()))
            {
                response.headers_mut().insert(NONCE, nonce);
            }
            response
        };
        let malformed = |rule| reject(Refusal::Malformed(rule), None);
        let value = take_authorization(&mut head.headers, &head.uri).map_err(malformed)?;
        let credentials = match value.as_ref().and_then(Credentials::parse) {
            Some(credentials) if state.accepts(credentials.scheme) => credentials,
            _ => return Err(reject(Refusal::NoCredentials, None)),
        };
        let scheme = credentials.scheme;
        let (token, nonce) =
            state.authorize(credentials, head).await.map_err(|r| reject(r, Some(scheme)))?;
        head.headers.remove("dpop");
        head.extensions.insert(token.principal.clone());
        head.extensions.insert(token.granted.clone());
        if let Some(Confirmation::Thumbprint(thumbprint)) = &token.confirmation {
            head.extensions.insert(ProofKey::new(thumbprint.as_str()));
        }
        let stream_time = (is_stream_of_changes(head) && token.ends != u64::MAX)
            .then(|| Duration::from_secs(token.ends.saturating_sub(state.clock.now())));
        Ok(Passed { scheme, nonce, stream_time })
    }

    /// Completes the response to a request that passed.
    pub(super) fn complete<B>(&self, passed: &Passed, response: &mut Response<B>) {
        let (status, headers) = (response.status(), response.headers_mut());
        self.state.challenges.complete_response(status, headers, passed.scheme);
        if let Some(nonce) = &passed.nonce {
            headers.insert(NONCE, nonce.clone());
        }
    }
}

impl fmt::Debug for ProtectedResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let issuers: Vec<_> = self.state.issuers.iter().map(IssuerState::issuer).collect();
        f.debug_struct("ProtectedResource")
            .field("id", &self.state.id)
            .field("issuers", &issuers)
            .finish_non_exhaustive()
    }
}

impl State {
    fn accepts(&self, scheme: Scheme) -> bool {
        scheme == Scheme::Bearer || self.dpop.is_some()
    }

    /// Verifies a token and its proof, and checks that it has the scopes that all requests need.
    /// Returns the token, and the next nonce for the client's proofs.
    async fn authorize(
        &self,
        credentials: Credentials<'_>,
        head: &Parts,
    ) -> Result<(Arc<VerifiedToken>, Option<HeaderValue>), Refusal> {
        let token = self.verify(credentials.token).await?;
        let mut nonce = None;
        match (&token.confirmation, credentials.scheme, &self.dpop) {
            (Some(Confirmation::Unsupported), ..) => return Err(InvalidToken::Confirmation.into()),
            (Some(Confirmation::Thumbprint(key)), Scheme::Dpop, Some(dpop)) => {
                nonce = dpop.check(head, credentials.token, key, self.clock.now())?;
            }
            (Some(Confirmation::Thumbprint(_)), ..) => return Err(InvalidToken::Bound.into()),
            (None, Scheme::Dpop, _) => return Err(InvalidToken::Unbound.into()),
            (None, Scheme::Bearer, Some(dpop)) if dpop.is_required() => {
                return Err(InvalidToken::Unbound.into());
            }
            (None, Scheme::Bearer, _) => {}
        }
        if !token.scopes.contains_all(&self.challenges.scopes) {
            return Err(Refusal::InsufficientScope);
        }
        Ok((token, nonce))
    }

    /// Verifies a token under its issuer, or remembers that it did lately.
    async fn verify(&self, token: &[u8]) -> Result<Arc<VerifiedToken>, Refusal> {
        if token.len() > MAX_TOKEN {
            return Err(InvalidToken::from(MalformedToken::TooLong).into());
        }
        let digest = self.digest_key.digest(token);
        let now = self.clock.now();
        if let Some(verified) = self.verified.get(&digest, now) {
            return Ok(verified);
        }
        if let Some(reason) = self.refused.get(&digest, now) {
            return Err(reason.into());
        }
        let malformed = Refusal::Malformed(MALFORMED);
        let text = str::from_utf8(token).map_err(|_| malformed)?;
        // A future is as large as the largest one in it, so the rare ones are boxed.
        match DecodedToken::decode(text) {
            Ok(decoded) => Box::pin(self.verify_jwt(digest, text, &decoded)).await,
            // The characters of a token are known to be right only if it is decoded.
            Err(_) if !is_well_formed(token) => Err(malformed),
            Err(error) if error.is_opaque() => {
                Box::pin(self.introspect(digest, self.ask_in_order(text))).await
            }
            Err(error) => Err(InvalidToken::from(error).into()),
        }
    }

    async fn verify_jwt(
        &self,
        digest: TokenDigest,
        text: &str,
        decoded: &DecodedToken<'_>,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        let (audience, clock) = (self.id.as_str(), &self.clock);
        let jwt = decoded.parse(Kind::AccessToken).map_err(InvalidToken::Malformed)?;
        // Not verified: it only chooses the issuer, under which everything is verified.
        let named = jwt.payload.get("iss").and_then(Json::as_str);
        let issuer = self.issuers.iter().find(|one| Some(one.issuer().as_str()) == named);
        let issuer = issuer.ok_or(InvalidToken::Issuer)?;
        match issuer {
            IssuerState::Jwt(state) => {
                let claims = state.verify(&jwt, audience, clock).await?;
                Ok(self.keep(digest, issuer, claims, JWT))
            }
            IssuerState::Introspection(state) => {
                let ask = async { Ok((issuer, state.check(text, audience, clock).await?)) };
                self.introspect(digest, ask).await
            }
        }
    }

    /// Introspects a token, once for all requests that have it at the same time.
    async fn introspect<'a>(
        &'a self,
        digest: TokenDigest,
        ask: impl Future<Output = Result<(&'a IssuerState, Claims), Refusal>>,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        let work = async {
            let outcome = ask.await;
            if let Err(Refusal::InvalidToken(reason)) = outcome {
                let now = self.clock.now();
                self.refused.insert(digest, reason, now, now.saturating_add(REFUSED_AGE));
            }
            let (issuer, claims) = outcome?;
            Ok(self.keep(digest, issuer, claims, ACTIVE))
        };
        self.introspections.join(digest, work).await
    }

    /// Asks the issuers about an opaque token.
    async fn ask_in_order(&self, token: &str) -> Result<(&IssuerState, Claims), Refusal> {
        let (audience, clock) = (self.id.as_str(), &self.clock);
        let mut outcome = Refusal::InvalidToken(InvalidToken::Opaque);
        for issuer in &self.issuers {
            let IssuerState::Introspection(state) = issuer else { continue };
            match state.check(token, audience, clock).await {
                Ok(claims) => return Ok((issuer, claims)),
                Err(refusal) if introspection::may_be_of_another(&refusal) => {
                    // An unreachable issuer may be the one that knows the token.
                    if outcome != Refusal::Unavailable {
                        outcome = refusal;
                    }
                }
                Err(refusal) => return Err(refusal),
            }
        }
        Err(outcome)
    }

    /// Remembers a verified token.
    fn keep(
        &self,
        digest: TokenDigest,
        issuer: &IssuerState,
        claims: Claims,
        ages: Ages,
    ) -> Arc<VerifiedToken> {
        let now = self.clock.now();
        let until = now.saturating_add(ages.kept).min(claims.expires.unwrap_or(u64::MAX));
        let ends = claims.expires.map_or(u64::MAX, |expires| expires.saturating_add(LEEWAY));
        let ends = ends.min(now.saturating_add(ages.stream));
        let verified = Arc::new(self.verified_token(issuer, claims, ends));
        self.verified.insert(digest, Arc::clone(&verified), now, until);
        verified
    }

    fn verified_token(&self, issuer: &IssuerState, claims: Claims, ends: u64) -> VerifiedToken {
        let mut principal = Principal::new(issuer.issuer().as_str(), claims.subject);
        if let Some(client) = claims.client {
            principal = principal.with_client(client);
        }
        let scopes = self.hierarchy.expand(claims.scopes);
        let granted = GrantedScopes::new(scopes.iter());
        VerifiedToken { principal, scopes, granted, confirmation: claims.confirmation, ends }
    }
}

/// Returns true if the response is a stream of changes, which may last longer than a token: of
/// `subscriptions/listen`, or of a session of legacy revisions.
fn is_stream_of_changes(head: &Parts) -> bool {
    let method = head.headers.get("mcp-method");
    head.method == Method::GET || method.is_some_and(|method| method == "subscriptions/listen")
}

/// Creates the service that answers with the metadata.
pub(super) fn metadata_service(
    metadata: &crate::metadata::ResourceMetadata,
) -> Result<MetadataService, serde_json::Error> {
    Ok(MetadataService::new(Bytes::from(serde_json::to_vec(metadata)?)))
}

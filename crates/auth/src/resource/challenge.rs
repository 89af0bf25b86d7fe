//! The challenges of a protected resource (RFC 6750, section 3; RFC 9728, section 5.1).

use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::credentials::Scheme;
use crate::Scopes;
use crate::www_authenticate::Challenge;

/// The parts that the challenges have in common.
#[derive(Debug)]
pub(super) struct Challenges {
    /// The place of the metadata.
    pub(super) metadata_url: String,
    /// The scopes that all requests need.
    pub(super) scopes: Scopes,
    /// The algorithms of `DPoP` proofs, if the resource accepts them.
    pub(super) dpop: Option<DpopChallenge>,
}

/// The part of the challenges that is about `DPoP` (RFC 9449, section 7.1).
#[derive(Debug)]
pub(super) struct DpopChallenge {
    /// The names of the algorithms, separated by spaces.
    pub(super) algorithms: String,
    pub(super) required: bool,
}

impl Challenges {
    /// Creates the challenges for a request without token. They have no `error` (RFC 6750, section
    /// 3.1).
    pub(super) fn without_error(&self) -> Vec<HeaderValue> {
        let schemes = match &self.dpop {
            None => [Scheme::Bearer].as_slice(),
            Some(dpop) if dpop.required => &[Scheme::Dpop],
            Some(_) => &[Scheme::Bearer, Scheme::Dpop],
        };
        let challenges =
            schemes.iter().map(|scheme| self.complete(self.start(*scheme), &self.scopes));
        challenges.map(|challenge| value(&challenge)).collect()
    }

    /// Creates the challenge for a request whose token came by `scheme`.
    pub(super) fn with_error(
        &self,
        scheme: Option<Scheme>,
        error: &str,
        description: &str,
    ) -> HeaderValue {
        let challenge = self
            .start(scheme.unwrap_or(Scheme::Bearer))
            .with_param("error", error)
            .with_param("error_description", description);
        value(&self.complete(challenge, &self.scopes))
    }

    /// Completes the challenges `insufficient_scope` of a response with 403: with the place of the
    /// metadata and the scopes that all requests need. So the client gets a token for the whole
    /// operation in one step (specification: authorization, runtime insufficient scope errors).
    ///
    /// Headers that are malformed stay as they are.
    pub(super) fn complete_response(
        &self,
        status: StatusCode,
        headers: &mut HeaderMap,
        scheme: Scheme,
    ) {
        if status != StatusCode::FORBIDDEN {
            return;
        }
        if let header::Entry::Occupied(mut entry) = headers.entry(header::WWW_AUTHENTICATE) {
            for field in entry.iter_mut() {
                let challenges = field.to_str().ok().and_then(|text| Challenge::parse(text).ok());
                let challenges = challenges.unwrap_or_default();
                if challenges.iter().any(is_step_up) {
                    let completed = challenges.into_iter().map(|challenge| {
                        if is_step_up(&challenge) {
                            self.step_up(&challenge, scheme)
                        } else {
                            challenge
                        }
                    });
                    let completed: Vec<_> = completed.map(|one| one.to_string()).collect();
                    if let Ok(value) = HeaderValue::try_from(completed.join(", ")) {
                        *field = value;
                    }
                }
            }
        }
    }

    fn step_up(&self, challenge: &Challenge, scheme: Scheme) -> Challenge {
        let scopes = challenge.param("scope").unwrap_or_default();
        let scopes = Scopes::parse(scopes).unwrap_or_default();
        let mut completed = self.start(scheme).with_param("error", "insufficient_scope");
        if let Some(description) = challenge.param("error_description") {
            completed = completed.with_param("error_description", description);
        }
        self.complete(completed, &self.scopes.clone().union(&scopes))
    }

    /// Creates a challenge of `scheme`, or of `DPoP` if no other is accepted.
    fn start(&self, scheme: Scheme) -> Challenge {
        match &self.dpop {
            Some(dpop) if dpop.required || scheme == Scheme::Dpop => {
                let challenge = Challenge::new(Scheme::Dpop.name());
                challenge.with_param("algs", dpop.algorithms.as_str())
            }
            _ => Challenge::new(scheme.name()),
        }
    }

    /// Adds the parameters that all challenges have.
    fn complete(&self, mut challenge: Challenge, scopes: &Scopes) -> Challenge {
        if !scopes.is_empty() {
            challenge = challenge.with_param("scope", scopes.to_string());
        }
        challenge.with_param("resource_metadata", self.metadata_url.as_str())
    }
}

fn is_step_up(challenge: &Challenge) -> bool {
    (challenge.is("Bearer") || challenge.is("DPoP"))
        && challenge.param("error") == Some("insufficient_scope")
}

/// Writes a challenge. Its written form is printable ASCII, which is always a header value.
fn value(challenge: &Challenge) -> HeaderValue {
    HeaderValue::try_from(challenge.to_string())
        .unwrap_or_else(|_| HeaderValue::from_static("Bearer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(status: u16, fields: &[&str], scheme: Scheme) -> Vec<String> {
        let challenges = Challenges {
            metadata_url: "https://a.example/m".to_owned(),
            scopes: Scopes::parse("base read").unwrap(),
            dpop: None,
        };
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(header::WWW_AUTHENTICATE, field.parse().unwrap());
        }
        let status = StatusCode::from_u16(status).unwrap();
        challenges.complete_response(status, &mut headers, scheme);
        let fields = headers.get_all(header::WWW_AUTHENTICATE).iter();
        fields.map(|field| field.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn challenges_for_scopes_are_completed() {
        let inner = r#"bearer error="insufficient_scope", scope="pay read", x="1""#;
        let expected = |scheme: &str| {
            format!(
                "{scheme} error=\"insufficient_scope\", scope=\"base read pay\", \
                 resource_metadata=\"https://a.example/m\""
            )
        };
        assert_eq!(completed(403, &[inner], Scheme::Bearer), [expected("Bearer")]);
        assert_eq!(completed(403, &[inner], Scheme::Dpop), [expected("DPoP")]);
        let several = format!("Basic realm=\"a\", {inner}");
        assert_eq!(
            completed(403, &["Negotiate abc==", &several], Scheme::Bearer),
            ["Negotiate abc==".to_owned(), format!("Basic realm=\"a\", {}", expected("Bearer"))]
        );
    }

    #[test]
    fn other_challenges_are_left_alone() {
        let inner = r#"Bearer error="insufficient_scope", scope="pay""#;
        for (status, field) in [
            (401, inner),
            (200, inner),
            (403, r#"Bearer error="invalid_token", scope="pay""#),
            (403, r#"Basic error="insufficient_scope""#),
            (403, r#"Bearer error="insufficient_scope"#),
        ] {
            assert_eq!(completed(status, &[field], Scheme::Bearer), [field]);
        }
        assert_eq!(completed(403, &[], Scheme::Bearer), Vec::<String>::new());
    }
}

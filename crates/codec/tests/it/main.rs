//! Integration tests: the guarantees of sealed tokens through the public interface.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod vectors;

use mrtr_codec::{
    Binding, Digest, KeyRing, MAX_TOKEN_LEN, OpenError, Principal, Seal as _, SealError, Secret,
    UnixSeconds, Validity, open, seal,
};
use proptest::prelude::*;

const NOW: UnixSeconds = UnixSeconds(1_785_196_800);

fn secret(first: u8) -> Secret {
    Secret::from_bytes(&(first..first + 32).collect::<Vec<_>>()).unwrap()
}

fn ring() -> KeyRing {
    KeyRing::builder("https://a.example/mcp").active(secret(0)).build().unwrap()
}

fn arguments(json: &str) -> Digest {
    Digest::from_json(Some(json)).unwrap()
}

fn binding(principal: Option<&Principal>) -> Binding<'_> {
    Binding {
        principal,
        proof_key: None,
        method: "tools/call",
        target: "book",
        arguments: arguments(r#"{"people":2}"#),
    }
}

fn sealed(binding: &Binding<'_>) -> String {
    seal(&ring(), binding, Validity::starting(NOW, 600), b"body").unwrap()
}

#[test]
fn tokens_with_a_flipped_bit_are_rejected() {
    let (ring, binding) = (ring(), binding(None));
    let token = sealed(&binding);
    for at in 0..token.len() {
        for bit in 0..8 {
            let mut bytes = token.clone().into_bytes();
            bytes[at] ^= 1 << bit;
            // A JSON string cannot contain bytes that are not UTF-8.
            let Ok(changed) = String::from_utf8(bytes) else {
                continue;
            };
            let error =
                open(&ring, &changed, &binding, NOW).expect_err("a token with a flipped bit");
            assert!(
                matches!(error, OpenError::Malformed | OpenError::UnknownKey | OpenError::Forged),
                "byte {at}, bit {bit}: {error}"
            );
        }
    }
}

/// For some lengths, the last base64 character has unused bits. They must be zero.
#[test]
fn only_the_canonical_base64url_of_a_token_opens() {
    let (ring, binding) = (ring(), binding(None));
    for length in 0..3 {
        let body = vec![7; length];
        let token = seal(&ring, &binding, Validity::starting(NOW, 600), &body).unwrap();
        for last in (b'A'..=b'Z').chain(b'a'..=b'z').chain(b'0'..=b'9').chain(*b"-_+/") {
            let changed = format!("{}{}", &token[..token.len() - 1], char::from(last));
            assert_eq!(open(&ring, &changed, &binding, NOW).is_ok(), changed == token, "{changed}");
        }
    }
}

#[test]
fn truncated_extended_and_spliced_tokens_are_rejected() {
    let (ring, binding) = (ring(), binding(None));
    let (token, other) = (sealed(&binding), sealed(&binding));
    for end in 0..token.len() {
        assert!(open(&ring, &token[..end], &binding, NOW).is_err(), "truncated to {end}");
        let spliced = [&token[..end], &other[end..]].concat();
        if spliced != token && spliced != other {
            assert!(open(&ring, &spliced, &binding, NOW).is_err(), "spliced at {end}");
        }
    }
    for tail in ["A", "AA", "AAAA", "=", "==", " ", "\n", ".", "-TAMPERED"] {
        assert!(open(&ring, &format!("{token}{tail}"), &binding, NOW).is_err(), "{tail:?}");
    }
}

#[test]
fn token_opens_only_for_its_principal_and_request() {
    let ring = ring();
    let alice = Principal::new("https://login.example", "alice");
    let others = [
        Principal::new("https://login.example", "bob"),
        Principal::new("https://other.example", "alice"),
        alice.clone().with_client("app"),
        alice.clone().with_client(""),
        Principal::new("https://login.example", ""),
    ];
    let home = binding(Some(&alice));
    let token = sealed(&home);
    let error = |binding: Binding<'_>| open(&ring, &token, &binding, NOW).unwrap_err();

    assert_eq!(open(&ring, &token, &home, NOW).unwrap().body(), b"body");
    for other in &others {
        assert_eq!(error(binding(Some(other))), OpenError::WrongPrincipal, "{other:?}");
    }
    assert_eq!(error(binding(None)), OpenError::WrongPrincipal);
    let anonymous = sealed(&binding(None));
    assert_eq!(open(&ring, &anonymous, &home, NOW).unwrap_err(), OpenError::WrongPrincipal);

    assert_eq!(error(Binding { method: "prompts/get", ..home }), OpenError::WrongMethod);
    assert_eq!(error(Binding { target: "pay", ..home }), OpenError::WrongTarget);
    let more = Binding { arguments: arguments(r#"{"people":3}"#), ..home };
    assert_eq!(error(more), OpenError::WrongArguments);
    let rewritten = Binding { arguments: arguments(r#" { "people" : 2.0 } "#), ..home };
    assert!(open(&ring, &token, &rewritten, NOW).is_ok());
}

#[test]
fn token_that_was_sealed_for_a_key_opens_with_that_key_only() {
    let ring = ring();
    let alice = Principal::new("https://login.example", "alice");
    for principal in [Some(&alice), None] {
        let with_key = |proof_key| Binding { proof_key, ..binding(principal) };
        let bound = sealed(&with_key(Some("k1")));
        assert!(open(&ring, &bound, &with_key(Some("k1")), NOW).is_ok());
        for other in [Some("k2"), Some(""), Some("k1 "), None] {
            let error = open(&ring, &bound, &with_key(other), NOW).unwrap_err();
            assert_eq!(error, OpenError::WrongKey, "{other:?}");
        }
        let unbound = sealed(&with_key(None));
        for key in [None, Some("k1"), Some("")] {
            assert!(open(&ring, &unbound, &with_key(key), NOW).is_ok(), "{key:?}");
        }
    }
    let bob = Principal::new("https://login.example", "bob");
    let token = sealed(&Binding { proof_key: Some("k1"), ..binding(Some(&alice)) });
    let stolen = Binding { proof_key: Some("k1"), ..binding(Some(&bob)) };
    assert_eq!(open(&ring, &token, &stolen, NOW).unwrap_err(), OpenError::WrongPrincipal);
}

#[test]
fn token_opens_only_during_its_validity() {
    let (ring, binding) = (ring(), binding(None));
    let token = sealed(&binding);
    let at = |seconds| open(&ring, &token, &binding, UnixSeconds(seconds)).map(|_| ());
    assert_eq!(at(NOW.0 + 599), Ok(()));
    assert_eq!(at(NOW.0 + 600), Err(OpenError::Expired));
    assert_eq!(at(u64::MAX), Err(OpenError::Expired));
    assert_eq!(at(NOW.0 - 60), Ok(()), "a replica's clock may be a minute behind");
    assert_eq!(at(NOW.0 - 61), Err(OpenError::NotYetValid));
    assert_eq!(at(0), Err(OpenError::NotYetValid));
    assert_eq!(Validity::starting(NOW, u64::MAX).expires, UnixSeconds(u64::MAX));
}

#[test]
fn principal_returns_its_issuer_subject_and_client() {
    let alice = Principal::new("https://login.example", "alice");
    assert_eq!((alice.issuer(), alice.subject()), ("https://login.example", "alice"));
    assert_eq!(alice.client(), None);
    assert_eq!(alice.with_client("app").client(), Some("app"));
}

/// One allocation holds the claims, which are encrypted and framed in place; the other is the
/// token.
#[test]
fn sealing_allocates_only_the_claims_and_the_token() {
    let ring = ring();
    let principal = Principal::new("https://login.example", "alice");
    let binding = binding(Some(&principal));
    let body = vec![7; 10_000];
    let mut token = String::new();
    let memory = allocation_counter::measure(|| {
        token = seal(&ring, &binding, Validity::starting(NOW, 600), &body).unwrap();
    });
    assert_eq!(memory.count_total, 2, "{memory:?}");
    let limit = body.len() + 512 + token.len();
    assert!(memory.bytes_total <= limit as u64, "{memory:?}");
}

#[test]
fn tokens_of_another_audience_or_secret_have_an_unknown_key() {
    let binding = binding(None);
    let token = sealed(&binding);
    for ring in [
        KeyRing::builder("https://b.example/mcp").active(secret(0)).build().unwrap(),
        KeyRing::builder("https://a.example/mcp").active(secret(1)).build().unwrap(),
        KeyRing::ephemeral().unwrap(),
    ] {
        assert_eq!(open(&ring, &token, &binding, NOW).unwrap_err(), OpenError::UnknownKey);
    }
}

#[test]
fn token_length_is_limited_for_sealing_and_opening() {
    let (ring, binding) = (ring(), binding(None));
    let validity = Validity::starting(NOW, 600);
    let big = vec![0; 64 * 1024];
    let token = seal(&ring, &binding, validity, &big).unwrap();
    assert_eq!(open(&ring, &token, &binding, NOW).unwrap().body(), big);
    // The body of the longest token, and a body that is one byte too long.
    let overhead = ring.open(&token).unwrap().len() - big.len();
    let longest = (MAX_TOKEN_LEN - 6) * 3 / 4 - 56 - overhead;
    assert!(seal(&ring, &binding, validity, &vec![0; longest + 1]).is_err());
    let token = seal(&ring, &binding, validity, &vec![0; longest]).unwrap();
    assert_eq!(token.len(), MAX_TOKEN_LEN);
    assert_eq!(open(&ring, &token, &binding, NOW).unwrap().body().len(), longest);
    assert_eq!(open(&ring, &format!("{token}A"), &binding, NOW).unwrap_err(), OpenError::TooLong);
    let huge = vec![0; MAX_TOKEN_LEN];
    let error = seal(&ring, &binding, validity, &huge).unwrap_err();
    assert!(matches!(error, SealError::TooLong(_)));
    // The messages state the limit in words.
    let limit = format!("{} KiB", MAX_TOKEN_LEN / 1024);
    assert!(error.to_string().ends_with(&limit), "{error}");
    assert!(OpenError::TooLong.to_string().ends_with(&limit));
    let long = format!("mrtr1.{}", "A".repeat(MAX_TOKEN_LEN));
    assert_eq!(open(&ring, &long, &binding, NOW).unwrap_err(), OpenError::TooLong);
}

#[test]
fn authentic_claims_in_another_format_are_rejected() {
    let ring = ring();
    for plaintext in [&b""[..], &[0], &[2, 0, 0], &[1], &[1, 0, 0, 2]] {
        let token = ring.seal(plaintext.to_vec()).unwrap();
        assert_eq!(open(&ring, &token, &binding(None), NOW).unwrap_err(), OpenError::UnknownFormat);
    }
}

/// The fields of a binding, from pools small enough that two bindings are often equal.
#[derive(Debug, Clone, PartialEq)]
struct Bound {
    principal: Option<Principal>,
    proof_key: Option<&'static str>,
    method: &'static str,
    target: &'static str,
    arguments: &'static str,
}

impl Bound {
    fn binding(&self) -> Binding<'_> {
        Binding {
            principal: self.principal.as_ref(),
            proof_key: self.proof_key,
            method: self.method,
            target: self.target,
            arguments: arguments(self.arguments),
        }
    }
}

fn bound() -> impl Strategy<Value = Bound> {
    use proptest::sample::select;
    // Adjacent fields must not be ambiguous: "a" and "bc" differ from "ab" and "c".
    let client = proptest::option::of(select(vec!["", "c"]));
    let principal = (select(vec!["a", "ab", ""]), select(vec!["bc", "c", ""]), client).prop_map(
        |(issuer, subject, client)| {
            let principal = Principal::new(issuer, subject);
            client.map_or(principal.clone(), |client| principal.with_client(client))
        },
    );
    let arguments = select(vec!["{}", r#"{"n":9007199254740993}"#, r#"{"n":9007199254740992}"#]);
    (
        proptest::option::weighted(0.8, principal),
        proptest::option::of(select(vec!["", "k", "ck"])),
        select(vec!["tools/call", "prompts/get"]),
        select(vec!["book", "boo", ""]),
        arguments,
    )
        .prop_map(|(principal, proof_key, method, target, arguments)| Bound {
            principal,
            proof_key,
            method,
            target,
            arguments,
        })
}

proptest! {
    #[test]
    fn sealed_state_opens_to_the_same_bytes(length in 0..=64 * 1024usize, first in any::<u8>(), subject in ".*", target in ".*") {
        let body: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap() ^ first).collect();
        let alice = Principal::new("i", subject);
        let binding = Binding { target: &target, ..binding(Some(&alice)) };
        let token = seal(&ring(), &binding, Validity::starting(NOW, 1), &body).unwrap();
        prop_assert!(token.starts_with("mrtr1."));
        let opened = open(&ring(), &token, &binding, NOW).unwrap();
        prop_assert_eq!(opened.body(), body);
    }

    #[test]
    fn token_opens_only_if_no_bound_field_has_changed(sealed in bound(), other in bound(), field in 0..6) {
        // At most one field is taken from another binding.
        let mut now = sealed.clone();
        match field {
            0 => now.principal = other.principal,
            1 => now.method = other.method,
            2 => now.target = other.target,
            3 => now.arguments = other.arguments,
            4 => now.proof_key = other.proof_key,
            _ => {}
        }
        let token = seal(&ring(), &sealed.binding(), Validity::starting(NOW, 600), b"body").unwrap();
        let opened = open(&ring(), &token, &now.binding(), NOW);
        // A caller may begin to prove a key.
        let is_same = sealed == now || sealed == Bound { proof_key: None, ..now.clone() };
        prop_assert_eq!(opened.is_ok(), is_same, "{:?}", opened.err());
    }

    #[test]
    fn arbitrary_text_is_rejected_without_panic(text in "(mrtr1\\.)?[A-Za-z0-9_-]{0,200}.{0,3}") {
        prop_assert!(open(&ring(), &text, &binding(None), NOW).is_err());
    }

    #[test]
    fn arbitrary_text_is_canonicalized_without_panic(text in "[\\[\\]{}:,\"\\\\u0-9eE+.d8-]{0,40}") {
        if let Ok(canonical) = mrtr_codec::canonical::canonicalize(&text) {
            prop_assert_eq!(mrtr_codec::canonical::canonicalize(&canonical), Ok(canonical));
        }
    }
}

#[test]
fn rejecting_a_token_allocates_at_most_its_length() {
    let (ring, binding) = (ring(), binding(None));
    let token = seal(&ring, &binding, Validity::starting(NOW, 600), &vec![7; 50_000]).unwrap();
    let forged = format!("{}AAAA", &token[..token.len() - 4]);
    let unknown = token.replacen("mrtr1.", "mrtr1.AAAA", 1);
    let long = format!("mrtr1.{}", "A".repeat(1 << 20));
    let malformed = format!("x{token}");
    for (text, error) in [
        (&forged, OpenError::Forged),
        (&unknown, OpenError::UnknownKey),
        (&long, OpenError::TooLong),
        (&malformed, OpenError::Malformed),
    ] {
        let mut outcome = None;
        let memory = allocation_counter::measure(|| {
            outcome = Some(open(&ring, text, &binding, NOW).map(|_| ()));
        });
        assert_eq!(outcome, Some(Err(error)));
        assert!(memory.bytes_max <= text.len() as u64, "{error}: {} bytes", memory.bytes_max);
    }
}

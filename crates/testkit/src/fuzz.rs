//! The bodies of the fuzz targets (`fuzz/`): properties that hold for any bytes. They also run as
//! ordinary tests, over the corpus and variations of it.

pub mod apps;
pub mod auth;
pub mod dialects;
pub mod legacy;
pub mod openapi;
pub mod protocol;

use std::sync::Mutex;

use mrtr_codec::canonical::canonicalize;
use mrtr_codec::hazmat::seal_with_nonce;
use mrtr_codec::{
    Binding, Digest, KeyRing, OpenError, Principal, Seal, SealError, Secret, UnixSeconds, Validity,
    open, seal,
};

/// Checks a property of any bytes. Panics if it does not hold.
pub type Body = fn(&[u8]);

/// The targets by name.
pub const TARGETS: [(&str, Body); 18] = [
    ("token", token),
    ("claims", claims),
    ("canonical", canonical),
    ("message", protocol::message),
    ("header", protocol::header),
    ("events", protocol::events),
    ("journal", protocol::journal),
    ("client", protocol::client),
    ("legacy", legacy::legacy),
    ("dialect_request", dialects::dialect_request),
    ("dialect_response", dialects::dialect_response),
    ("template", protocol::template),
    ("form", protocol::form),
    ("openapi", openapi::openapi),
    ("apps", apps::apps),
    ("challenge", auth::challenge),
    ("metadata", auth::metadata),
    ("access_token", auth::access_token),
];

/// Passes an input to a target.
///
/// # Panics
///
/// If there is no such target, or it finds a mistake.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|(target, _)| *target == name);
    assert!(target.is_some(), "there is no target {name}");
    if let Some((_, body)) = target {
        body(data);
    }
}

const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

/// Opens arbitrary tokens. The first byte selects the kind of input.
///
/// - 0: a token, as a peer sends it.
/// - 1: the bytes behind the prefix, before they are encoded.
/// - 2: the plaintext. It must be restored, and a token with any other character must not open.
///
/// # Panics
///
/// If a token opens that the ring did not seal, or a plaintext is not restored.
pub fn token(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    let ring = ring();
    let arguments = Digest::from_bytes([7; 32]);
    let binding = Binding {
        principal: None,
        proof_key: None,
        method: "tools/call",
        target: "book",
        arguments,
    };
    match mode % 3 {
        0 => {
            if let Ok(text) = std::str::from_utf8(rest) {
                assert_sealed_by_ring(&ring, text, &binding);
            }
        }
        1 => assert_sealed_by_ring(&ring, &format!("mrtr1.{}", base64url(rest)), &binding),
        _ => {
            let validity = Validity::starting(NOW, 600);
            let Ok(token) = seal(&ring, &binding, validity, rest) else {
                assert!(rest.len() > 90_000, "a short plaintext was not sealed");
                return;
            };
            let opened = open(&ring, &token, &binding, NOW).map(|opened| opened.body().to_vec());
            assert_eq!(opened.as_deref(), Ok(rest));
            let at = usize::from(rest.first().copied().unwrap_or_default()) % token.len();
            let other = token.chars().enumerate().map(|(n, c)| match c {
                _ if n != at => c,
                'A' => 'B',
                _ => 'A',
            });
            assert!(open(&ring, &other.collect::<String>(), &binding, NOW).is_err());
        }
    }
}

/// Asserts that a token which opens was sealed by the ring, and has no second encoding.
fn assert_sealed_by_ring(ring: &KeyRing, text: &str, binding: &Binding<'_>) {
    if let Ok(plaintext) = ring.open(text) {
        let nonce = unbase64url(text.strip_prefix("mrtr1.").unwrap_or_default());
        let nonce = nonce.get(16..40).and_then(|nonce| nonce.try_into().ok());
        let again = nonce.map(|nonce| seal_with_nonce(ring, &plaintext, &nonce));
        assert_eq!(again, Some(Ok(text.to_owned())));
    }
    // Must not panic. The token may be for another request.
    let _ = open(ring, text, binding, NOW);
}

/// Reads claims, as in a token. Claims that can be read have one encoding.
///
/// # Panics
///
/// If claims are accepted outside their validity, or are encoded differently.
pub fn claims(data: &[u8]) {
    let principal = Principal::new("i", "s");
    let with_client = Principal::new("i", "s").with_client("c");
    for principal in [None, Some(&principal), Some(&with_client)] {
        let arguments = Digest::from_bytes([7; 32]);
        let binding = Binding { principal, proof_key: None, method: "m", target: "t", arguments };
        let plain = Plain(Mutex::new(data.to_vec()));
        let Ok(opened) = open(&plain, "", &binding, NOW) else { continue };
        let (validity, body) = (opened.validity(), opened.body().to_vec());
        assert!(validity.expires > NOW && validity.issued.0 <= NOW.0 + 60);
        assert!(seal(&plain, &binding, validity, &body).is_ok());
        assert_eq!(*plain.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner), data);
    }
}

/// Canonicalizes text that may be JSON. The canonical form is JSON, is its own canonical form, and
/// has the same meaning.
///
/// # Panics
///
/// If that does not hold.
pub fn canonical(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(form) = canonicalize(text) else {
        assert!(Digest::from_json(Some(text)).is_err());
        return;
    };
    assert_eq!(canonicalize(&form).as_ref(), Ok(&form));
    let values = [text, &*form].map(serde_json::from_str::<serde_json::Value>);
    if let [Ok(before), Ok(after)] = &values {
        assert!(is_equal(before, after), "{text} and {form} differ");
    } else {
        assert!(exotic(text), "{text}");
    }
}

/// Compares two values. Numbers are equal if no double distinguishes them.
fn is_equal(one: &serde_json::Value, other: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Number, Object};
    match (one, other) {
        (Number(one), Number(other)) => one.as_f64() == other.as_f64(),
        (Array(one), Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_equal(one, other))
        }
        (Object(one), Object(other)) => {
            let has = |(name, one)| other.get(name).is_some_and(|other| is_equal(one, other));
            one.len() == other.len() && one.iter().all(has)
        }
        (one, other) => one == other,
    }
}

/// Returns true if our reader may accept the text and `serde_json` may not: integers beyond a
/// double, and a key that `serde_json` reserves.
fn exotic(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    digits > 2 || text.contains("$serde_json::private")
}

/// A sealer that neither encrypts nor authenticates.
struct Plain(Mutex<Vec<u8>>);

impl Seal for Plain {
    fn seal(&self, plaintext: Vec<u8>) -> Result<String, SealError> {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = plaintext;
        Ok(String::new())
    }

    fn open(&self, _: &str) -> Result<Vec<u8>, OpenError> {
        Ok(self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone())
    }
}

#[expect(clippy::unwrap_used, reason = "fixed inputs")]
fn ring() -> KeyRing {
    let secret = |first: u8| Secret::from_bytes(&(first..first + 32).collect::<Vec<_>>()).unwrap();
    KeyRing::builder("https://service.example/mcp")
        .active(secret(0))
        .retiring(secret(1))
        .build()
        .unwrap()
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A second implementation, which would reveal a mistake in the library.
fn base64url(bytes: &[u8]) -> String {
    let letter =
        |bits: u32| ALPHABET.get((bits & 63) as usize).map_or('?', |letter| char::from(*letter));
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let three = [0, 1, 2].map(|at| u32::from(chunk.get(at).copied().unwrap_or_default()));
        let [a, b, c] = three;
        let bits = a << 16 | b << 8 | c;
        let letters = [bits >> 18, bits >> 12, bits >> 6, bits].map(letter);
        out.extend(letters.iter().take(chunk.len() + 1));
    }
    out
}

fn unbase64url(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut bits, mut buffered) = (0u32, 0u32);
    for letter in text.bytes() {
        let value = ALPHABET.iter().position(|known| *known == letter).unwrap_or_default();
        bits = bits << 6 | u32::try_from(value).unwrap_or_default();
        buffered += 6;
        if buffered >= 8 {
            buffered -= 8;
            out.push(u8::try_from(bits >> buffered & 0xff).unwrap_or_default());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Runs every input of a target's corpus, whole and in variations: cut, doubled, and with one
    /// byte changed.
    fn holds(name: &str) {
        let body = |data: &[u8]| run(name, data);
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus");
        let mut inputs = 0;
        for file in std::fs::read_dir(format!("{corpus}/{name}")).unwrap() {
            let data = std::fs::read(file.unwrap().path()).unwrap();
            inputs += 1;
            body(&data);
            body(&[&data[..], &data].concat());
            // The step size varies, so that every part of the format is changed in some input.
            for at in (0..data.len()).step_by(1 + data.len() / 61) {
                body(&data[..at]);
                for bit in [0x01, 0x20, 0x80] {
                    let mut other = data.clone();
                    other[at] ^= bit;
                    body(&other);
                }
            }
        }
        assert!(inputs >= 10, "{name} has {inputs} inputs");
    }

    /// A test per target, so that they run at the same time.
    macro_rules! tests {
        ($($name:ident)*) => {
            $(
                #[test]
                fn $name() {
                    holds(stringify!($name));
                }
            )*

            #[test]
            fn every_target_has_a_test() {
                assert_eq!([$(stringify!($name)),*], TARGETS.map(|(name, _)| name));
            }

            /// The programs are not compiled by the tests.
            #[test]
            fn every_target_has_a_program() {
                let fuzz = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz");
                let read = |file: &str| std::fs::read_to_string(format!("{fuzz}/{file}")).unwrap();
                let manifest = read("Cargo.toml");
                let programs = manifest.split("[[bin]]\nname = \"").skip(1);
                let programs: BTreeSet<_> =
                    programs.filter_map(|rest| rest.split('"').next()).collect();
                assert_eq!(programs, BTreeSet::from([$(stringify!($name)),*]));
                for name in programs {
                    let program = read(&format!("fuzz_targets/{name}.rs"));
                    assert!(program.contains(&format!("fuzz::run({name:?}, data)")), "{program}");
                }
            }
        };
    }

    tests! {
        token claims canonical message header events journal client legacy dialect_request
        dialect_response template form openapi apps challenge metadata access_token
    }
}

//! The published test vectors of the token format (`docs/token-format.md`), and those of its
//! primitives.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mrtr_codec::canonical::canonicalize;
use mrtr_codec::hazmat::seal_with_nonce;
use mrtr_codec::{Binding, Digest, KeyRing, Principal, Secret, UnixSeconds, open};
use serde_json::Value;

fn read(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|d| char::from_digit(d.into(), 16))
        .collect()
}

#[test]
fn token_vectors_open_or_are_rejected_as_specified() {
    let vectors = read(include_str!("../../vectors/tokens.json"));
    let rejected = vectors.iter().filter(|vector| vector.get("refusal").is_some()).count();
    assert!(rejected >= 40 && vectors.len() - rejected >= 20, "{rejected} of {}", vectors.len());
    for vector in &vectors {
        let text = |place: &str| vector.pointer(place).and_then(Value::as_str);
        let name = text("/name").unwrap();
        let mut ring = KeyRing::builder(text("/audience").unwrap());
        for (at, secret) in vector["secrets"].as_array().unwrap().iter().enumerate() {
            let secret = Secret::from_base64url(secret.as_str().unwrap()).unwrap();
            ring = if at == 0 { ring.active(secret) } else { ring.staged(secret) };
        }
        let ring = ring.build().unwrap();
        let principal = text("/binding/principal/issuer").map(|issuer| {
            let principal = Principal::new(issuer, text("/binding/principal/subject").unwrap());
            match text("/binding/principal/client") {
                Some(client) => principal.with_client(client),
                None => principal,
            }
        });
        let binding = Binding {
            principal: principal.as_ref(),
            proof_key: text("/binding/proof_key"),
            method: text("/binding/method").unwrap(),
            target: text("/binding/target").unwrap(),
            arguments: Digest::from_json(text("/binding/arguments")).unwrap(),
        };
        let (token, now) = (text("/token").unwrap(), UnixSeconds(vector["now"].as_u64().unwrap()));
        match (open(&ring, token, &binding, now), text("/refusal")) {
            (Ok(opened), None) => {
                assert_eq!(hex(opened.body()), text("/body").unwrap(), "{name}");
                let times = (opened.validity().issued.0, opened.validity().expires.0);
                let expected = ["issued", "expires"].map(|at| vector[at].as_u64().unwrap());
                assert_eq!([times.0, times.1], expected, "{name}");
            }
            (Err(error), Some(reason)) => assert_eq!(error.reason(), reason, "{name}"),
            (outcome, _) => panic!("{name}: {outcome:?}"),
        }
    }
}

#[test]
fn each_rejection_reason_has_a_vector() {
    let vectors = read(include_str!("../../vectors/tokens.json"));
    for reason in [
        "malformed",
        "too_long",
        "unknown_key",
        "forged",
        "unknown_format",
        "expired",
        "not_yet_valid",
        "wrong_principal",
        "wrong_key",
        "wrong_method",
        "wrong_target",
        "wrong_arguments",
    ] {
        assert!(vectors.iter().any(|vector| vector["refusal"] == reason), "{reason}");
    }
}

#[test]
fn canonical_vectors_have_the_specified_form_and_digest() {
    let vectors = read(include_str!("../../vectors/canonical.json"));
    assert!(vectors.len() >= 60);
    for vector in &vectors {
        let text = vector["text"].as_str().unwrap();
        let expected = vector.get("canonical").and_then(Value::as_str);
        assert_eq!(canonicalize(text).ok().as_deref(), expected, "{text}");
        if expected.is_some() {
            let digest = Digest::from_json(Some(text)).unwrap();
            assert_eq!(hex(digest.as_bytes()), vector["digest"].as_str().unwrap(), "{text}");
        }
    }
}

/// The C2SP vectors that hash the ciphertexts of many random inputs.
#[test]
fn xaes_matches_the_accumulated_c2sp_vectors() {
    let expected = "e6b9edf2df6cec60c8cbd864e2211b597fb69a529160cd040d56c0c210081939";
    assert_eq!(accumulated(10_000), expected);
}

/// The same with all inputs. `cargo xtask vectors` runs it in a release build.
#[test]
#[ignore = "takes minutes in a debug build"]
fn xaes_matches_the_full_accumulated_c2sp_vectors() {
    let expected = "2163ae1445985a30b60585ee67daa55674df06901b890593e824b8a7c885ab15";
    assert_eq!(accumulated(1_000_000), expected);
}

/// Returns the hash of the ciphertexts of `inputs` pseudorandom inputs.
fn accumulated(inputs: u32) -> String {
    use shake::Shake128;
    use shake::digest::{ExtendableOutput, Update, XofReader};

    let mut source = Shake128::default().finalize_xof();
    let mut all = Shake128::default();
    for _ in 0..inputs {
        let mut key = [0; 32];
        source.read(&mut key);
        let mut nonce = [0; 24];
        source.read(&mut nonce);
        let mut random_bytes = || {
            let mut length = [0];
            source.read(&mut length);
            let mut bytes = vec![0; usize::from(length[0])];
            source.read(&mut bytes);
            bytes
        };
        let mut text = random_bytes();
        let aad = random_bytes();
        let plaintext = text.clone();
        let cipher = mrtr_codec::hazmat::Xaes256Gcm::new(&key);
        let tag = cipher.encrypt(&nonce, &aad, &mut text).unwrap();
        all.update(&text);
        all.update(&tag);
        text.extend_from_slice(&tag);
        assert_eq!(cipher.decrypt(&nonce, &aad, &mut text).unwrap(), plaintext);
    }
    let mut hash = [0; 32];
    all.finalize_xof().read(&mut hash);
    hex(&hash)
}

/// The first three test cases of RFC 5869, for HKDF-SHA-256.
#[test]
fn hkdf_matches_the_rfc_5869_vectors() {
    let bytes = |from: u8, to: u8| (from..=to).collect::<Vec<u8>>();
    for (ikm, salt, info, okm) in [
        (
            vec![0x0b; 22],
            bytes(0x00, 0x0c),
            bytes(0xf0, 0xf9),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
        ),
        (
            bytes(0x00, 0x4f),
            bytes(0x60, 0xaf),
            bytes(0xb0, 0xff),
            "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87",
        ),
        (
            vec![0x0b; 22],
            Vec::new(),
            Vec::new(),
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
        ),
    ] {
        let mut out = vec![0; okm.len() / 2];
        hkdf::Hkdf::<sha2::Sha256>::new(Some(&salt), &ikm).expand(&info, &mut out).unwrap();
        assert_eq!(hex(&out), okm);
    }
}

/// A token depends on its inputs only, so the vectors can be regenerated.
#[test]
fn sealing_with_the_nonce_of_a_vector_reproduces_its_token() {
    let vectors = read(include_str!("../../vectors/tokens.json"));
    let vector = vectors.iter().find(|vector| vector["name"] == "a body of 0 bytes").unwrap();
    let token = vector["token"].as_str().unwrap();
    let raw = URL_SAFE_NO_PAD.decode(token.strip_prefix("mrtr1.").unwrap()).unwrap();
    let secret = Secret::from_base64url(vector["secrets"][0].as_str().unwrap()).unwrap();
    let ring =
        KeyRing::builder(vector["audience"].as_str().unwrap()).active(secret).build().unwrap();
    let claims = mrtr_codec::Seal::open(&ring, token).unwrap();
    let nonce = raw[16..40].try_into().unwrap();
    assert_eq!(seal_with_nonce(&ring, &claims, &nonce).unwrap(), token);
}

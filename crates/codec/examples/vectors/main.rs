//! Generates the test vectors of the token format, and exchanges tokens with other implementations.
//!
//! - `vectors write DIRECTORY` writes `tokens.json` and `canonical.json`.
//! - `vectors mint COUNT` prints new tokens, one JSON object per line.
//! - `vectors check` reads such lines from another implementation, and opens their tokens.

#![expect(clippy::indexing_slicing, reason = "the generator fails by panicking")]

mod table;

use std::error::Error;
use std::io::BufRead;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use mrtr_codec::hazmat::seal_with_nonce;
use mrtr_codec::{Binding, Digest, KeyRing, Principal, Seal, Secret, UnixSeconds, Validity};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const NOW: u64 = 1_800_000_000;
const AUDIENCE: &str = "https://service.example/mcp";

fn main() -> Result {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["write", directory] => {
            let write = |name: &str, all: &[Value]| {
                let lines: Vec<_> = all.iter().map(|vector| format!("  {vector}")).collect();
                let text = format!("[\n{}\n]\n", lines.join(",\n"));
                std::fs::write(format!("{directory}/{name}.json"), text)
            };
            write("tokens", &table::tokens()?)?;
            write("canonical", &table::canonical())?;
            Ok(())
        }
        ["mint", count] => mint(count.parse()?),
        ["check"] => check(),
        _ => Err("usage: vectors write DIRECTORY | mint COUNT | check".into()),
    }
}

/// Returns 32 bytes that depend on the name only.
fn bytes(name: &str) -> [u8; 32] {
    Sha256::digest(name.as_bytes()).into()
}

fn nonce(name: &str) -> [u8; 24] {
    let mut nonce = [0; 24];
    nonce.copy_from_slice(&bytes(&format!("nonce {name}"))[..24]);
    nonce
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|d| char::from_digit(d.into(), 16))
        .collect()
}

fn ring(secrets: &[&str], audience: &str) -> Result<KeyRing> {
    let secret = |name: &&str| Secret::from_bytes(&bytes(name));
    let mut builder = KeyRing::builder(audience);
    for (at, name) in secrets.iter().enumerate() {
        builder =
            if at == 0 { builder.active(secret(name)?) } else { builder.retiring(secret(name)?) };
    }
    Ok(builder.build()?)
}

fn anonymous() -> Value {
    json!({ "principal": null, "method": "tools/call", "target": "book", "arguments": r#"{"people":2}"# })
}

fn alice() -> Value {
    let principal =
        json!({ "issuer": "https://login.example", "subject": "alice", "client": null });
    json!({ "principal": principal, "method": "tools/call", "target": "book", "arguments": r#"{"people":2}"# })
}

/// Adds the key that the caller proves. Bindings without one have no such member.
fn with_key(mut binding: Value, key: &str) -> Value {
    binding["proof_key"] = json!(key);
    binding
}

/// Replaces the value at the JSON pointer `place`.
fn with(mut binding: Value, place: &str, value: Value) -> Value {
    if let Some(at) = binding.pointer_mut(place) {
        *at = value;
    }
    binding
}

/// Seals `body` with the nonce of the vector's name.
fn seal(
    ring: &KeyRing,
    binding: &Value,
    times: (u64, u64),
    body: &[u8],
    name: &str,
) -> Result<String> {
    Ok(seal_with_nonce(ring, &claims(binding, times, body)?, &nonce(name))?)
}

/// Returns the encoded claims, from a sealer that does not encrypt.
fn claims(binding: &Value, (issued, expires): (u64, u64), body: &[u8]) -> Result<Vec<u8>> {
    struct PlainText;
    impl Seal for PlainText {
        fn seal(&self, plaintext: Vec<u8>) -> std::result::Result<String, mrtr_codec::SealError> {
            Ok(hex(&plaintext))
        }
        fn open(&self, _: &str) -> std::result::Result<Vec<u8>, mrtr_codec::OpenError> {
            Err(mrtr_codec::OpenError::Malformed)
        }
    }
    let validity = Validity { issued: UnixSeconds(issued), expires: UnixSeconds(expires) };
    let text =
        with_binding(binding, |binding| mrtr_codec::seal(&PlainText, binding, validity, body))??;
    (0..text.len()).step_by(2).map(|at| Ok(u8::from_str_radix(&text[at..at + 2], 16)?)).collect()
}

/// Calls `then` with the binding that `binding` describes.
fn with_binding<T>(binding: &Value, then: impl FnOnce(&Binding<'_>) -> T) -> Result<T> {
    let text = |place: &str| binding.pointer(place).and_then(Value::as_str);
    let principal = text("/principal/issuer").zip(text("/principal/subject"));
    let principal = principal.map(|(issuer, subject)| {
        let principal = Principal::new(issuer, subject);
        match text("/principal/client") {
            Some(client) => principal.with_client(client),
            None => principal,
        }
    });
    Ok(then(&Binding {
        principal: principal.as_ref(),
        proof_key: text("/proof_key"),
        method: text("/method").ok_or("no method")?,
        target: text("/target").ok_or("no target")?,
        arguments: Digest::from_json(text("/arguments"))?,
    }))
}

/// Returns the fields that all token vectors have.
fn vector(
    name: &str,
    secrets: &[&str],
    audience: &str,
    token: &str,
    binding: &Value,
    now: u64,
) -> Value {
    let secrets: Vec<_> = secrets.iter().map(|name| BASE64.encode(bytes(name))).collect();
    json!({ "name": name, "secrets": secrets, "audience": audience, "token": token, "binding": binding, "now": now })
}

/// Completes a vector whose token opens.
fn opens(mut vector: Value, (issued, expires): (u64, u64), body: &[u8]) -> Value {
    vector["issued"] = json!(issued);
    vector["expires"] = json!(expires);
    vector["body"] = json!(hex(body));
    vector
}

/// Completes a vector whose token is rejected.
fn rejected(mut vector: Value, refusal: &str) -> Value {
    vector["refusal"] = json!(refusal);
    vector
}

/// Prints new tokens with random nonces, each for another request.
fn mint(count: u32) -> Result {
    let ring = ring(&["one", "two"], AUDIENCE)?;
    for n in 0..count {
        let name = format!("fresh {n}");
        let body: Vec<u8> = bytes(&name).into_iter().cycle().take(n as usize * 7 % 300).collect();
        let binding = match n % 3 {
            0 => anonymous(),
            1 => with(alice(), "/arguments", json!(format!(r#"{{"n":{n}.5}}"#))),
            _ => with_key(alice(), &format!("key {n}")),
        };
        let times = (NOW + u64::from(n), NOW + 1000);
        let token = ring.seal(claims(&binding, times, &body)?)?;
        print(&opens(
            vector(&name, &["one", "two"], AUDIENCE, &token, &binding, NOW + u64::from(n)),
            times,
            &body,
        ));
    }
    Ok(())
}

/// Opens tokens of another implementation.
fn check() -> Result {
    let mut count = 0;
    for line in std::io::stdin().lock().lines() {
        let vector: Value = serde_json::from_str(&line?)?;
        let text = |place: &str| vector[place].as_str().unwrap_or_default();
        let mut builder = KeyRing::builder(text("audience"));
        for (at, secret) in vector["secrets"].as_array().into_iter().flatten().enumerate() {
            let secret = Secret::from_base64url(secret.as_str().unwrap_or_default())?;
            builder = if at == 0 { builder.active(secret) } else { builder.staged(secret) };
        }
        let ring = builder.build()?;
        let now = UnixSeconds(vector["now"].as_u64().unwrap_or_default());
        let opened = with_binding(&vector["binding"], |binding| {
            mrtr_codec::open(&ring, text("token"), binding, now)
        })??;
        if hex(opened.body()) != text("body") {
            return Err(format!("{}: the body differs", text("name")).into());
        }
        count += 1;
    }
    print(&json!({ "opened": count }));
    Ok(())
}

#[expect(clippy::print_stdout, reason = "this is the output of a program")]
fn print(value: &Value) {
    println!("{value}");
}

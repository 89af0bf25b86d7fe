//! Compares sealing and opening with the bare ciphers, and with the official SDK's token, which is
//! only signed.
//!
//! `cargo bench --manifest-path benches/Cargo.toml --bench sealing`

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes256Gcm, KeyInit};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use divan::{Bencher, black_box};
use mrtr_codec::{Binding, Digest, KeyRing, Principal, Secret, UnixSeconds, Validity, open, seal};
use rmcp::model::{RequestStateCodec, SealOptions};

const SIZES: [usize; 4] = [64, 256, 1024, 16 * 1024];
const KEY: [u8; 32] = *b"0123456789abcdef0123456789abcdef";
const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

fn main() {
    divan::main();
}

fn ring() -> KeyRing {
    let secret = Secret::from_bytes(&KEY).unwrap();
    KeyRing::builder("https://service.example/mcp").active(secret).build().unwrap()
}

/// Seals as a server does: bound to a caller and a request, for ten minutes.
#[divan::bench(args = SIZES)]
fn mrtr(bencher: Bencher, size: usize) {
    let (ring, body) = (ring(), vec![b'x'; size]);
    let principal = Principal::new("https://login.example", "alice");
    let arguments = Digest::from_json(Some(r#"{"people":2}"#)).unwrap();
    let binding = Binding {
        principal: Some(&principal),
        proof_key: None,
        method: "tools/call",
        target: "book",
        arguments,
    };
    bencher.bench(|| {
        let token = seal(&ring, &binding, Validity::starting(NOW, 600), black_box(&body)).unwrap();
        open(&ring, &token, &binding, NOW).unwrap().body().len()
    });
}

/// Signs with the same binding as associated data, and a time to live.
#[divan::bench(args = SIZES)]
fn rmcp_hmac(bencher: Bencher, size: usize) {
    let (codec, body) = (RequestStateCodec::try_new(KEY).unwrap(), vec![b'x'; size]);
    let arguments = Digest::from_json(Some(r#"{"people":2}"#)).unwrap();
    let context =
        [b"https://login.example\0alice\0tools/call\0book\0".as_slice(), arguments.as_bytes()]
            .concat();
    let ttl = std::time::Duration::from_secs(600);
    bencher.bench(|| {
        let options = SealOptions::new().associated_data(&context).ttl(ttl);
        let token = codec.seal_with(black_box(&body), &options);
        codec.open_with(&token, &context).unwrap().len()
    });
}

/// The cipher alone, in place, with a fixed nonce.
#[divan::bench(args = SIZES)]
fn raw_aes_gcm(bencher: Bencher, size: usize) {
    let cipher = Aes256Gcm::new((&KEY).into());
    let nonce = [7; 12].into();
    let mut body = vec![b'x'; size];
    bencher.bench_local(|| {
        let body = black_box(body.as_mut_slice());
        let tag = cipher.encrypt_inout_detached(&nonce, b"aad", body.into()).unwrap();
        cipher.decrypt_inout_detached(&nonce, b"aad", body.into(), &tag).unwrap();
    });
}

/// The cipher alone, in place, with a fixed nonce.
#[divan::bench(args = SIZES)]
fn raw_aws_lc(bencher: Bencher, size: usize) {
    let cipher = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &KEY).unwrap());
    let nonce = || Nonce::assume_unique_for_key([7; 12]);
    let mut body = vec![b'x'; size];
    bencher.bench_local(|| {
        let body = black_box(&mut body);
        let tag = cipher.seal_in_place_separate_tag(nonce(), Aad::from(b"aad"), body).unwrap();
        body.extend_from_slice(tag.as_ref());
        cipher.open_in_place(nonce(), Aad::from(b"aad"), body).unwrap();
        body.truncate(size);
    });
}

/// The system call for a nonce, which every token needs.
#[divan::bench]
fn nonce_from_the_system() -> [u8; 24] {
    let mut nonce = [0; 24];
    getrandom::fill(&mut nonce).unwrap();
    nonce
}

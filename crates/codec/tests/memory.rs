//! What is secret does not outlive its use: the process reads its own memory and looks.
//!
//! A binary of its own with one test, so that nothing else writes to that memory. What is looked for is never held in
//! memory as it is, or it would be found here.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;

use aes::Aes256;
use aes::cipher::{Block, BlockCipherEncrypt as _, KeyInit as _};
use hkdf::Hkdf;
use mrtr_codec::hazmat::seal_with_nonce;
use mrtr_codec::{KeyRing, Seal as _, Secret};
use sha2::Sha256;
use zeroize::{Zeroize as _, Zeroizing};

/// The bytes of the secret.
fn of_secret(at: usize) -> u8 {
    (u8::try_from(at).unwrap().wrapping_mul(37).wrapping_add(11)) ^ 0xa5
}

/// What stands in an array, but masked. Made outside, by an implementation of HKDF and XAES in another language.
fn unmasked(masked: &[u8; 16], at: usize) -> u8 {
    std::hint::black_box(masked)[at] ^ 0x5a
}

fn of_prk(at: usize) -> u8 {
    const PRK: [u8; 16] = [
        0x01, 0xfe, 0x55, 0xce, 0xef, 0x16, 0xcd, 0x96, 0x32, 0x16, 0x73, 0x44, 0x2e, 0xfa, 0x8b,
        0x2b,
    ];
    unmasked(&PRK, at)
}

fn of_ring_key(at: usize) -> u8 {
    const KEY: [u8; 16] = [
        0x1e, 0x21, 0x6b, 0xd6, 0x57, 0x00, 0x91, 0x52, 0xae, 0x59, 0x49, 0x6a, 0xb8, 0x50, 0x6a,
        0x49,
    ];
    unmasked(&KEY, at)
}

fn of_token_key(at: usize) -> u8 {
    const KEY: [u8; 16] = [
        0xb5, 0x3e, 0xa0, 0x52, 0x79, 0xac, 0x5a, 0x89, 0xca, 0x5b, 0x41, 0x89, 0xdf, 0x69, 0x1d,
        0xf7,
    ];
    unmasked(&KEY, at)
}

/// The 16 characters at the start of the secret in base64url.
fn of_text(at: usize) -> u8 {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bit = at * 6;
    let two = u16::from_be_bytes([of_secret(bit / 8), of_secret(bit / 8 + 1)]);
    ALPHABET[usize::from(two >> (10 - bit % 8) & 63)]
}

/// Whether 16 bytes that `needle` names one by one stand anywhere in memory that can be written.
fn is_in_memory(needle: fn(usize) -> u8) -> bool {
    let memory = File::open("/proc/self/mem").unwrap();
    let maps = BufReader::new(File::open("/proc/self/maps").unwrap());
    let ranges: Vec<(u64, u64)> = maps
        .lines()
        .map(Result::unwrap)
        .filter(|line| line.contains(" rw"))
        .map(|line| {
            let (from, rest) = line.split_once('-').unwrap();
            let (to, _) = rest.split_once(' ').unwrap();
            (u64::from_str_radix(from, 16).unwrap(), u64::from_str_radix(to, 16).unwrap())
        })
        .collect();
    let mut window = Zeroizing::new(vec![0; 1 << 16]);
    for (from, to) in ranges {
        // Windows overlap, so that nothing stands astride.
        for start in (from..to).step_by(window.len() - 16) {
            let length = window.len().min(usize::try_from(to - start).unwrap());
            window.zeroize();
            window.resize(1 << 16, 0);
            // Some mappings cannot be read, such as guard pages.
            let Ok(read) = memory.read_at(&mut window[..length], start) else { continue };
            let found = window[..read]
                .windows(16)
                .any(|bytes| bytes.iter().enumerate().all(|(at, byte)| *byte == needle(at)));
            if found {
                return true;
            }
        }
    }
    false
}

fn secret() -> Secret {
    let bytes: Zeroizing<Vec<u8>> = Zeroizing::new((0..32).map(of_secret).collect());
    Secret::from_bytes(&bytes).unwrap()
}

#[test]
fn nothing_secret_outlives_its_use() {
    // It finds what is there.
    let held = secret();
    assert!(is_in_memory(of_secret), "a secret that is held");
    let text = held.to_base64url();
    assert!(is_in_memory(of_text), "its text");
    drop(text);
    assert!(!is_in_memory(of_text), "its text, once dropped");
    drop(held);
    assert!(!is_in_memory(of_secret), "a secret, once dropped");

    // On a thread of its own, whose stack stays mapped.
    std::thread::spawn(|| {
        let ring = KeyRing::builder("a").active(secret()).build().unwrap();
        assert!(is_in_memory(of_ring_key), "the key of a ring, which has to be there");
        assert!(!is_in_memory(of_secret), "the secret, once there is a ring");
        assert!(!is_in_memory(of_prk), "what is between the secret and the key");
        let token = seal_with_nonce(&ring, b"a text", &[7; 24]).unwrap();
        assert!(!is_in_memory(of_token_key), "the key of a token, once it is sealed");
        assert_eq!(ring.open(&token).unwrap(), b"a text");
        assert!(!is_in_memory(of_token_key), "the key of a token, once it is opened");
    })
    .join()
    .unwrap();
    assert!(!is_in_memory(of_ring_key), "the key of a ring, once it is dropped");

    // Loaded from text.
    let ring = {
        let line = Zeroizing::new(format!("active {}", *secret().to_base64url()));
        KeyRing::from_text("a", &line).unwrap()
    };
    for (of, what) in
        [(of_secret as fn(usize) -> u8, "the secret"), (of_text, "its text"), (of_prk, "the PRK")]
    {
        assert!(!is_in_memory(of), "{what}, once a ring is loaded");
    }
    drop(ring);

    // What was looked for is what there was. This comes last: it leaves copies.
    let secret: Vec<u8> = (0..32).map(of_secret).collect();
    let (prk, hkdf) = Hkdf::<Sha256>::extract(Some(b"mrtr sealed state v1"), &secret);
    let mut key = [0; 32];
    hkdf.expand(b"key\0a", &mut key).unwrap();
    let cipher = Aes256::new(&key.into());
    let mut l = Block::<Aes256>::default();
    cipher.encrypt_block(&mut l);
    let l = u128::from_be_bytes(l.into());
    let k1 = (l << 1) ^ ((l >> 127) * 0x87);
    let first = [0, 1, b'X', 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7];
    let mut token_key = Block::<Aes256>::from((u128::from_be_bytes(first) ^ k1).to_be_bytes());
    cipher.encrypt_block(&mut token_key);
    for at in 0..16 {
        assert_eq!((prk[at], key[at]), (of_prk(at), of_ring_key(at)), "{at}");
        assert_eq!(token_key[at], of_token_key(at), "{at}");
    }
}

//! Searches the memory of its own process for secrets and keys that should have been wiped.
//!
//! This is a test binary with a single test, so that nothing else writes to that memory. The bytes
//! searched for are computed one at a time: an array of them would be found itself.

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

/// Returns a byte of the secret.
fn secret_byte(at: usize) -> u8 {
    (u8::try_from(at).unwrap().wrapping_mul(37).wrapping_add(11)) ^ 0xa5
}

/// Returns a byte of an array that is stored masked.
///
/// The arrays were computed with independent implementations of HKDF and XAES.
fn unmasked(masked: &[u8; 16], at: usize) -> u8 {
    std::hint::black_box(masked)[at] ^ 0x5a
}

/// Returns a byte of the pseudorandom key between the secret and the ring key.
fn prk_byte(at: usize) -> u8 {
    const PRK: [u8; 16] = [
        0x01, 0xfe, 0x55, 0xce, 0xef, 0x16, 0xcd, 0x96, 0x32, 0x16, 0x73, 0x44, 0x2e, 0xfa, 0x8b,
        0x2b,
    ];
    unmasked(&PRK, at)
}

/// Returns a byte of the ring key.
fn ring_key_byte(at: usize) -> u8 {
    const KEY: [u8; 16] = [
        0x1e, 0x21, 0x6b, 0xd6, 0x57, 0x00, 0x91, 0x52, 0xae, 0x59, 0x49, 0x6a, 0xb8, 0x50, 0x6a,
        0x49,
    ];
    unmasked(&KEY, at)
}

/// Returns a byte of the token key.
fn token_key_byte(at: usize) -> u8 {
    const KEY: [u8; 16] = [
        0xb5, 0x3e, 0xa0, 0x52, 0x79, 0xac, 0x5a, 0x89, 0xca, 0x5b, 0x41, 0x89, 0xdf, 0x69, 0x1d,
        0xf7,
    ];
    unmasked(&KEY, at)
}

/// Returns one of the first 16 characters of the secret in base64url.
fn base64url_byte(at: usize) -> u8 {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bit = at * 6;
    let two = u16::from_be_bytes([secret_byte(bit / 8), secret_byte(bit / 8 + 1)]);
    ALPHABET[usize::from(two >> (10 - bit % 8) & 63)]
}

/// Searches all writable memory for the 16 bytes that `needle` returns one at a time.
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
        // Windows overlap, so that a match cannot straddle two of them.
        for start in (from..to).step_by(window.len() - 16) {
            let length = window.len().min(usize::try_from(to - start).unwrap());
            window.zeroize();
            window.resize(1 << 16, 0);
            // Some mappings, such as guard pages, cannot be read.
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
    let bytes: Zeroizing<Vec<u8>> = Zeroizing::new((0..32).map(secret_byte).collect());
    Secret::from_bytes(&bytes).unwrap()
}

#[test]
fn secrets_and_keys_are_wiped_after_use() {
    // The search finds a secret that is held.
    let held = secret();
    assert!(is_in_memory(secret_byte), "a secret that is held was not found");
    let text = held.to_base64url();
    assert!(is_in_memory(base64url_byte), "text that is held was not found");
    drop(text);
    assert!(!is_in_memory(base64url_byte), "the text was found after its drop");
    drop(held);
    assert!(!is_in_memory(secret_byte), "the secret was found after its drop");

    // On another thread, whose stack stays mapped after its end.
    std::thread::spawn(|| {
        let ring = KeyRing::builder("a").active(secret()).build().unwrap();
        assert!(is_in_memory(ring_key_byte), "the ring key that is held was not found");
        assert!(!is_in_memory(secret_byte), "the secret was found after the derivation");
        assert!(!is_in_memory(prk_byte), "the pseudorandom key was found after the derivation");
        let token = seal_with_nonce(&ring, b"a text", &[7; 24]).unwrap();
        assert!(!is_in_memory(token_key_byte), "the token key was found after sealing");
        assert_eq!(ring.open(&token).unwrap(), b"a text");
        assert!(!is_in_memory(token_key_byte), "the token key was found after opening");
    })
    .join()
    .unwrap();
    assert!(!is_in_memory(ring_key_byte), "the ring key was found after its drop");

    // The same for a ring that is loaded from text.
    let ring = {
        let line = Zeroizing::new(format!("active {}", *secret().to_base64url()));
        KeyRing::from_text("a", &line).unwrap()
    };
    for (needle, name) in [
        (secret_byte as fn(usize) -> u8, "the secret"),
        (base64url_byte, "the text"),
        (prk_byte, "the pseudorandom key"),
    ] {
        assert!(!is_in_memory(needle), "{name} was found after loading a ring");
    }
    drop(ring);

    // The masked arrays are the keys of this ring. This is checked last, because it leaves copies.
    let secret: Vec<u8> = (0..32).map(secret_byte).collect();
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
        assert_eq!((prk[at], key[at]), (prk_byte(at), ring_key_byte(at)), "{at}");
        assert_eq!(token_key[at], token_key_byte(at), "{at}");
    }
}

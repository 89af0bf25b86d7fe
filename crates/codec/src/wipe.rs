//! Wipes the stack after functions that handled keys.

/// Overwrites the part of the stack that the functions called just before have used.
///
/// Ciphers leave copies there of the values they moved and of the round keys they expanded. The
/// depth of their frames depends on the cipher library, the optimization level and the processor:
/// with VAES, copies of round keys are wider. The sizes below are at least 1.5 times of what
/// `tests/memory.rs` needs, which searches the memory of its process for keys.
#[inline(never)]
#[cfg_attr(
    debug_assertions,
    expect(clippy::large_stack_arrays, reason = "the array has to be on the stack")
)]
pub(crate) fn wipe_stack() {
    const BYTES: usize = match (cfg!(debug_assertions), cfg!(feature = "aws-lc")) {
        (true, _) => 32 * 1024,
        (false, true) => 8 * 1024,
        (false, false) => 12 * 1024,
    };
    // `black_box` keeps the optimizer from removing the array as unused.
    std::hint::black_box(&mut [0u8; BYTES]);
}

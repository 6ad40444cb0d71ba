//! Inputs that nobody should send, for whatever reads what strangers send: seeds, edited at random, and what it costs to read each.
//!
//! A target is an ordinary test beside the reader that it tries (`rg headway_fuzz` finds them): it reads its seeds, everything in
//! `fuzz/corpus/<target>/`, and so many edited ones. None of them may panic, hold more than `MEMORY` or take longer than `PATIENCE`.
//! `HEADWAY_FUZZ_INPUTS` says how many (5,000 by default), `HEADWAY_FUZZ_SEED` which. Only tests may depend on this crate: it counts
//! what they allocate.

mod message;
mod target;
mod text;

#[cfg(test)]
mod tests;

pub use target::{Target, once};

use std::time::Duration;

/// Most that may be held while an input is read, beyond what was held before, bytes.
pub const MEMORY: u64 = 64 << 20;
/// Longest that reading an input may take of a processor, without optimisation.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// Longest input, bytes.
pub const LONGEST: usize = 64 << 10;

/// One edit: what, where, with what, and how much of it; each kind of input makes of the numbers what it likes.
#[derive(Clone, Copy, Debug)]
struct Edit {
    kind: u8,
    at: u32,
    with: u32,
    much: u32,
}

/// The one of these that a number stands for; there must be one.
fn choose<T>(of: &[T], number: u32) -> &T {
    &of[number as usize % of.len()]
}

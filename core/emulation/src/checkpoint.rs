//! How long training stands still to save, and how often a save fails. Saving is synchronous; the constants are our
//! choice.

use headway_goodput::parameters;
use headway_types::{ModelShape, NodeCount, Seconds};

use crate::random::Random;

/// Mixed-precision weights 2, master weights and two moments 12.
const BYTES_PER_PARAMETER: f64 = 14.0;
/// Bytes a node writes per second, and what the shared file system takes from all.
const WRITE_PER_NODE: f64 = 2e9;
const WRITE_SHARED: f64 = 40e9;
/// Gathering, renaming, syncing.
const FIXED: f64 = 1.0;
const SPREAD: f64 = 0.15;
/// Share of saves that fail at ordinary failure rates.
const FAILS: f64 = 0.002;

/// Bytes of a model's checkpoint.
#[must_use]
pub fn bytes(shape: &ModelShape) -> f64 {
    BYTES_PER_PARAMETER * parameters(shape)
}

/// Seconds one save takes.
pub fn duration(random: &mut Random, shape: &ModelShape, nodes: NodeCount) -> Seconds {
    Seconds(random.around(median_duration(shape, nodes).0, SPREAD))
}

/// Seconds that half of all saves take at most.
#[must_use]
pub fn median_duration(shape: &ModelShape, nodes: NodeCount) -> Seconds {
    let rate = (WRITE_PER_NODE * f64::from(nodes.0.max(1))).min(WRITE_SHARED);
    Seconds(FIXED + bytes(shape) / rate)
}

/// Whether one save fails. `failures`: times the ordinary rate.
pub fn fails(random: &mut Random, failures: f64) -> bool {
    random.chance((FAILS * failures).min(1.0))
}

#[cfg(test)]
mod tests {
    use headway_types::example::llama2_7b;

    use super::*;
    use crate::random::Seed;

    #[test]
    fn a_save_takes_as_long_as_its_bytes() {
        let save = |nodes| duration(&mut Random::new(Seed(2)), &llama2_7b(), NodeCount(nodes)).0;
        assert!((30.0..80.0).contains(&save(1)), "{}", save(1));
        assert!(save(8) < save(1) / 4.0);
        let failed = (0..100_000).filter(|world| fails(&mut Random::new(Seed(*world)), 1.0)).count();
        assert!((120..280).contains(&failed), "{failed}");
        assert!(!fails(&mut Random::new(Seed(1)), 0.0));
    }
}

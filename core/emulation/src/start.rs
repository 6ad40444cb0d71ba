//! How long a gang takes from its processes to its first step. Rendezvous grows with the number of ranks (as NCCLX
//! reports of large gangs), loading with what every node has to read. The constants are our choice.

use headway_types::{GpuCount, NodeCount, Seconds};

use crate::nature::Nature;
use crate::random::Random;

/// Interpreter, framework, CUDA context.
const IMPORT: f64 = 9.0;
/// Rendezvous: a fixed part, one per doubling of the ranks, and what is linear in them.
const RENDEZVOUS: (f64, f64, f64) = (1.0, 0.8, 0.004);
/// Bytes a node reads per second, and what the shared file system gives to all.
const READ_PER_NODE: f64 = 4e9;
const READ_SHARED: f64 = 80e9;
/// Compilation and warm-up before the first step, beyond the step itself.
const WARM_UP: f64 = 3.0;

/// Seconds by phase of one start, without the first step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Start {
    pub import: Seconds,
    pub rendezvous: Seconds,
    pub load: Seconds,
    pub warm_up: Seconds,
}

impl Start {
    /// Draws a start that reads `state` bytes.
    pub fn draw(random: &mut Random, nature: &Nature, ranks: GpuCount, nodes: NodeCount, state: f64) -> Self {
        let ranks = f64::from(ranks.0.max(1));
        let (fixed, doubling, linear) = RENDEZVOUS;
        let rate = (READ_PER_NODE * f64::from(nodes.0.max(1))).min(READ_SHARED);
        let mut about = |median: f64| Seconds(nature.starts * random.around(median, nature.start_spread));
        Self {
            import: about(IMPORT),
            rendezvous: about(fixed + doubling * libm::log2(ranks) + linear * ranks),
            load: about(state / rate),
            warm_up: about(WARM_UP),
        }
    }

    #[must_use]
    pub fn total(&self) -> Seconds {
        self.import + self.rendezvous + self.load + self.warm_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    #[test]
    fn larger_gangs_start_later_and_resuming_reads() {
        let start = |ranks, nodes, state| {
            Start::draw(&mut Random::new(Seed(4)), &Nature::GENTLE, GpuCount(ranks), NodeCount(nodes), state)
        };
        let totals: Vec<f64> = [8, 64, 512, 4096].map(|ranks| start(ranks, ranks / 8, 0.0).total().0).to_vec();
        assert!(totals.is_sorted(), "{totals:?}");
        assert_eq!(start(8, 1, 0.0).load, Seconds(0.0));
        assert!(start(8, 1, 1e11).load.0 > 15.0);
    }
}

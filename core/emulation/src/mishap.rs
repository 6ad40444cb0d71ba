//! What happens to nodes and to the gangs on them, at published rates.
//!
//! Rates are per node and day. Interruptions: 4.2 per 1,000 node-days, as in the StepFun trace (InfiniteHBD, SIGCOMM
//! 2025: 584 in 349 days on 400 nodes); Llama 3 405B saw 3.8 (arXiv 2407.21783, table 5), Meta's RSC-1 6.5 (arXiv
//! 2410.21680). Their kinds are shared out after the same Llama 3 table, rounded: GPUs and their memory about three in
//! five, other hardware, network and maintenance a quarter, software one in eight, communication watchdogs one in
//! fifty. How often a rank slows down for a while is our choice.

use headway_types::{Seconds, Timestamp, xid};

use crate::random::{Random, Seed};

const DAY: f64 = 86_400.0;

/// Mishaps per node and day, by kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MishapRates {
    pub gpu_break: f64,
    pub reboot: f64,
    pub crash: f64,
    pub hang: f64,
    pub straggler: f64,
}

impl Default for MishapRates {
    fn default() -> Self {
        let interruptions = 4.2e-3;
        Self {
            gpu_break: 0.61 * interruptions,
            reboot: 0.24 * interruptions,
            crash: 0.13 * interruptions,
            hang: 0.02 * interruptions,
            straggler: 2.0e-3,
        }
    }
}

/// Something that happens on one node. What it needs and does not find there (a gang) makes it pass without effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Mishap {
    /// One GPU is lost until it is repaired.
    GpuBreak { gpu: f64, cause: String, repair: Seconds },
    /// Everything on the node dies; it is back after this long, on a new boot.
    Reboot { down: Seconds },
    /// A process of one of its gangs exits with this code by a fault of its own.
    Crash { code: i32 },
    /// A gang stops stepping; its processes live and do not listen.
    Hang,
    /// One rank of a gang takes longer for a while.
    Straggler { rank: f64, factor: f64, lasts: Seconds },
}

/// XIDs of lost GPUs: the bus, the memory and the system processor of a GPU, each as likely as the others.
const XIDS: [u64; 3] = [79, 64, 119];

/// The stream of mishaps of a fleet.
#[derive(Clone, Debug)]
pub struct Mishaps {
    random: Random,
    rates: MishapRates,
    factor: f64,
    nodes: usize,
}

impl Mishaps {
    /// `factor`: times the published rates; 0 for a world without failures.
    #[must_use]
    pub fn new(seed: Seed, rates: MishapRates, factor: f64, nodes: usize) -> Self {
        Self { random: Random::new(seed.about(b"mishaps")), rates, factor, nodes }
    }

    /// The first mishap after `now`: when, to which node (by its number), and what.
    pub fn next(&mut self, now: Timestamp) -> Option<(Timestamp, usize, Mishap)> {
        let MishapRates { gpu_break, reboot, crash, hang, straggler } = self.rates;
        let total = gpu_break + reboot + crash + hang + straggler;
        let per_second = total * self.factor * self.nodes as f64 / DAY;
        if !(per_second.is_finite() && per_second > 0.0) {
            return None;
        }
        let random = &mut self.random;
        let at = now + Seconds(random.exponential(1.0 / per_second));
        let node = random.below(self.nodes);
        let drawn = random.between(0.0, total);
        let mishap = if drawn < gpu_break {
            let repair = Seconds(random.around(2.0 * 3_600.0, 0.7));
            let gpu = random.uniform();
            let cause =
                xid::fatal(XIDS[random.below(XIDS.len())]).expect("what is drawn is in the table of fatal errors");
            Mishap::GpuBreak { gpu, cause, repair }
        } else if drawn < gpu_break + reboot {
            Mishap::Reboot { down: Seconds(random.between(180.0, 900.0)) }
        } else if drawn < gpu_break + reboot + crash {
            Mishap::Crash { code: if random.chance(0.5) { 1 } else { 134 } }
        } else if drawn < gpu_break + reboot + crash + hang {
            Mishap::Hang
        } else {
            let (rank, factor) = (random.uniform(), random.between(1.3, 3.0));
            Mishap::Straggler { rank, factor, lasts: Seconds(random.between(600.0, 3_600.0)) }
        };
        Some((at, node, mishap))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Mishaps of 1,000 nodes over 1,000 days.
    fn history(factor: f64) -> Vec<(Timestamp, usize, Mishap)> {
        let mut mishaps = Mishaps::new(Seed(9), MishapRates::default(), factor, 1_000);
        let end = Timestamp(0) + Seconds(1_000.0 * DAY);
        let mut now = Timestamp(0);
        std::iter::from_fn(|| mishaps.next(now).inspect(|(at, ..)| now = *at))
            .take_while(|(at, ..)| *at < end)
            .collect()
    }

    #[test]
    fn interruptions_come_at_published_rates() {
        let history = history(1.0);
        let interruptions = history.iter().filter(|(_, _, mishap)| !matches!(mishap, Mishap::Straggler { .. })).count();
        assert!((3_900..4_500).contains(&interruptions), "{interruptions} in a million node-days");
        let lost = history.iter().filter(|(_, _, mishap)| matches!(mishap, Mishap::GpuBreak { .. })).count();
        assert!((0.55..0.67).contains(&(lost as f64 / interruptions as f64)));
    }

    #[test]
    fn a_gpu_is_lost_to_errors_that_an_agent_takes_for_fatal() {
        let causes: BTreeSet<String> = history(1.0)
            .into_iter()
            .filter_map(|(_, _, mishap)| match mishap {
                Mishap::GpuBreak { cause, .. } => Some(cause),
                _ => None,
            })
            .collect();
        assert_eq!(causes.len(), XIDS.len());
        for cause in causes {
            let number =
                cause.strip_prefix("XID ").and_then(|rest| rest.split_once(':')).map(|(number, _)| number.parse());
            assert_eq!(number.and_then(Result::ok).and_then(xid::fatal), Some(cause));
        }
    }

    #[test]
    fn a_world_without_failures_has_none_and_a_harsh_one_more() {
        assert!(history(0.0).is_empty());
        let (plain, harsh) = (history(1.0).len() as f64, history(10.0).len() as f64);
        assert!((harsh / plain / 10.0 - 1.0).abs() < 0.1);
    }
}

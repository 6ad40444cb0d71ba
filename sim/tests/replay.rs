//! A round as it was stored gives the plan as it was stored, byte for byte.
#![allow(clippy::unwrap_used)]

use headway_planner::{CurveCache, PlanInput, plan};
use headway_sim::{Scenario, simulate};

#[test]
fn a_stored_round_replays_to_the_same_bytes() {
    let mut seen = 0;
    for seed in [0, 7] {
        let scenario = Scenario { keep_rounds: true, ..Scenario::lifetime(seed) };
        let rounds = simulate(&scenario).unwrap().rounds;
        for (input, made) in rounds.iter().take(12) {
            let stored = serde_json::to_vec(input).unwrap();
            let read: PlanInput = serde_json::from_slice(&stored).unwrap();
            assert_eq!(serde_json::to_vec(&read).unwrap(), stored, "the round of plan {}", made.id);
            let again = plan(&read, &mut CurveCache::new()).unwrap();
            assert_eq!(serde_json::to_vec(&again).unwrap(), serde_json::to_vec(made).unwrap(), "plan {}", made.id);
            seen += 1;
        }
    }
    assert!(seen > 8, "{seen} rounds");
}

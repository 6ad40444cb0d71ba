#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn gpus_are_a_number_and_an_unmistakable_type() {
    let catalog = Catalog::built_in();
    assert_eq!(gpus("64xH100", catalog).unwrap(), (64, "H100-80G".to_owned()));
    assert_eq!(gpus("8xA100-40", catalog).unwrap(), (8, "A100-40G".to_owned()));
    assert!(gpus("8xA100", catalog).unwrap_err().message.contains("several"));
    for wrong in ["H100", "0xH100", "-1xH100", "9999999999xH100", "8xPotato", "8x", ""] {
        assert!(gpus(wrong, catalog).is_err(), "{wrong}");
    }
}

#[test]
fn a_configuration_is_named_by_what_is_unusual_about_it() {
    let strategy = Strategy { dp: 8, tp: 4, pp: 2, vpp: 2, micro_batches: 16, ..Strategy::single() };
    assert_eq!(describe(&strategy), "dp8 tp4 pp2 vpp2 mb1×16");
    let sharded = Strategy { sharding: Sharding::Parameters, recompute: Recompute::Full, ..Strategy::single() };
    assert_eq!(describe(&sharded), "dp1 tp1 pp1 mb1×1 zero3 recompute");
}

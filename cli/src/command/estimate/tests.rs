#![allow(clippy::unwrap_used)]

use headway_goodput::strategy::{Recompute, Sharding, Strategy};

use super::answer::describe;
use super::*;

#[test]
fn gpus_are_a_number_and_an_unmistakable_type() {
    let catalog = Catalog::built_in();
    let of = |count, gpu_type: &str| Wish { count, gpu_type: gpu_type.to_owned() };
    assert_eq!(wish("64xH100", catalog).unwrap(), of(Some(64), "H100-80G"));
    assert_eq!(wish("8xA100-40", catalog).unwrap(), of(Some(8), "A100-40G"));
    assert_eq!(wish("H100", catalog).unwrap(), of(None, "H100-80G"));
    assert!(wish("8xA100", catalog).unwrap_err().message.contains("several"));
    for wrong in ["0xH100", "-1xH100", "9999999999xH100", "8xPotato", "8x", ""] {
        assert!(wish(wrong, catalog).is_err(), "{wrong}");
    }
}

#[test]
fn a_configuration_is_named_by_what_is_unusual_about_it() {
    let strategy = Strategy { dp: 8, tp: 4, pp: 2, vpp: 2, micro_batches: 16, ..Strategy::single() };
    assert_eq!(describe(&strategy), "dp8 tp4 pp2 vpp2 mb1×16");
    let sharded = Strategy { sharding: Sharding::Parameters, recompute: Recompute::Full, ..Strategy::single() };
    assert_eq!(describe(&sharded), "dp1 tp1 pp1 mb1×1 zero3 recompute");
}

#[test]
fn tokens_may_be_written_short() {
    assert_eq!((tokens("15T"), tokens(" 300 G"), tokens("2e9")), (Ok(15e12), Ok(300e9), Ok(2e9)));
    for wrong in ["", "T", "-1G", "nan", "15X", "\u{3000}"] {
        assert!(tokens(wrong).is_err(), "{wrong}");
    }
}

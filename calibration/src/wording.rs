//! What sources call things: GPU types, endings, sharding, precision. Spelling varies from source to source; what no rule here knows is
//! said to be unknown, never guessed in silence.

use headway_goodput::catalog::{Catalog, Hardware};
use headway_goodput::strategy::{Precision, Sharding};

use crate::measurement::{Ending, Skip};

/// A GPU type found in the catalog.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    /// The catalog's name.
    pub name: String,
    pub hardware: Hardware,
    /// Whether the row names another build of the type, of which the catalog's usual one is taken.
    pub similar: bool,
}

/// Letters and digits, lower case: "NVIDIA H100-80GB HBM3" and "h100_80gb_hbm3" are the same. Makers' names say nothing.
fn plain(name: &str) -> String {
    let lower: String = name.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
    ["nvidia", "geforce", "tesla", "amd", "instinct"].iter().fold(lower, |name, maker| name.replace(maker, ""))
}

/// The catalog's entry of a GPU type: by name, by name however spelt, or the build of the same type with most in common.
pub(crate) fn gpu_type(name: &str, catalog: &Catalog) -> Option<Found> {
    let found = |known: &str, similar: bool| {
        let hardware = catalog.find(known)?;
        Some(Found { name: catalog.canonical(known)?.to_owned(), hardware, similar })
    };
    if let Some(exact) = found(name, false) {
        return Some(exact);
    }
    let wanted = plain(name);
    if let Some(same) = catalog.names().find(|known| plain(known) == wanted) {
        return found(same, false);
    }
    // "GH200" is no "H200": the type must stand at the beginning. The same memory decides, then the longest beginning in common.
    let model = |known: &str| known.split(['-', ' ']).map(plain).find(|part| part.len() > 1 && !part.ends_with('w'));
    catalog
        .names()
        .filter(|known| model(known).is_some_and(|model| model.len() >= 4 && wanted.starts_with(&model)))
        .max_by_key(|known| {
            let memory = known.rsplit(['-', ' ']).next().map(plain);
            let same_memory = memory.is_some_and(|memory| memory.ends_with('g') && wanted.contains(&memory));
            let known = plain(known);
            let shared = known.chars().zip(wanted.chars()).take_while(|(left, right)| left == right).count();
            (same_memory, shared, std::cmp::Reverse(known.len()))
        })
        .and_then(|known| found(known, true))
}

/// How a run ended.
pub(crate) fn ending(status: Option<&str>) -> Result<Ending, Skip> {
    let Some(status) = status else { return Ok(Ending::Ran) };
    match status.to_lowercase().as_str() {
        "ok" | "success" | "succeeded" | "completed" | "pass" => Ok(Ending::Ran),
        other if other.contains("oom") || other.contains("out of memory") || other.contains("out_of_memory") => {
            Ok(Ending::OutOfMemory)
        }
        _ => Err(Skip::Status(status.to_owned())),
    }
}

/// What data-parallel ranks share; `None` for a word that is not known.
pub(crate) fn sharding(mode: &str) -> Option<Sharding> {
    let mode: String = mode.to_lowercase().chars().filter(|letter| !"-_ ".contains(*letter)).collect();
    let group = mode.split_once("group").and_then(|(_, size)| size.parse().ok()).filter(|size| *size > 0);
    let names = |words: &[&str]| words.iter().any(|word| mode.contains(word));
    Some(if names(&["hsdp", "hybridshard"]) {
        Sharding::ParametersInNode
    } else if names(&["zero2", "shardgradop"]) {
        Sharding::Gradients
    } else if names(&["zero3", "fsdp", "fullshard"]) {
        Sharding::Parameters
    } else if names(&["zero1", "distopt", "distributedoptimizer"]) || mode == "zerodp" || mode == "zerooffload" {
        Sharding::Optimizer { group }
    } else if names(&["ddp", "zero0", "3d", "none", "dp"]) || mode.is_empty() || mode == "ga" || mode == "gc" {
        Sharding::None
    } else {
        return None;
    })
}

/// The number format of the matrix multiplications; `None` for one that is not known.
pub(crate) fn precision(name: &str) -> Option<Precision> {
    let name = name.to_lowercase();
    let names = |words: &[&str]| words.iter().any(|word| name.contains(word));
    Some(if names(&["fp4"]) {
        Precision::Fp4
    } else if names(&["fp8"]) {
        Precision::Fp8
    } else if names(&["bf16", "bfloat16"]) {
        Precision::Bf16
    } else if names(&["fp16", "float16", "half"]) {
        Precision::Fp16
    } else if names(&["fp32", "float32"]) {
        Precision::Fp32
    } else {
        return None;
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn found(name: &str) -> Option<(String, bool)> {
        gpu_type(name, Catalog::built_in()).map(|found| (found.name, found.similar))
    }

    #[test]
    fn a_gpu_type_is_found_however_it_is_spelt() {
        for name in ["H100-80", "h100-80g", "NVIDIA H100 80G"] {
            assert_eq!(found(name), Some(("H100-80G".into(), false)), "{name}");
        }
        assert_eq!(found("H100-96-500W"), Some(("500W-H100-96G".into(), false)));
        assert_eq!(found("nvidia geforce rtx 4090"), Some(("RTX 4090".into(), false)));
    }

    #[test]
    fn another_build_of_a_known_type_is_taken_for_the_usual_one_and_said() {
        assert_eq!(found("H100-64"), Some(("H100-80G".into(), true)));
        assert_eq!(found("A100-80GB-PCIe"), Some(("A100-80G".into(), true)));
        assert_eq!(found("A100-PCIE-40GB"), Some(("A100-40G".into(), true)));
        assert_eq!(found("MI300X-OAM"), Some(("MI300X".into(), true)));
    }

    #[test]
    fn an_unknown_gpu_type_is_not_taken_for_one_with_similar_letters() {
        for name in ["GH200", "Potato", "", "B", "TPU-v4", "H20"] {
            assert_eq!(found(name), None, "{name}");
        }
    }

    #[test]
    fn sharding_is_read_from_the_names_the_sources_use() {
        let some = |mode: &str| sharding(mode).unwrap();
        assert_eq!(some("ddp"), Sharding::None);
        assert_eq!(some("zero1-distopt"), Sharding::Optimizer { group: None });
        assert_eq!(some("zero1-group8"), Sharding::Optimizer { group: Some(8) });
        assert_eq!(some("fsdp-zero2"), Sharding::Gradients);
        assert_eq!(some("ZeRO-3"), Sharding::Parameters);
        assert_eq!(some("hsdp"), Sharding::ParametersInNode);
        assert_eq!(sharding("magic"), None);
    }

    #[test]
    fn number_formats_and_endings_are_read_in_any_case() {
        assert_eq!(precision("MXFP8"), Some(Precision::Fp8));
        assert_eq!(precision("BF16-mixed"), Some(Precision::Bf16));
        assert_eq!(precision("int3"), None);
        assert_eq!(ending(Some("OOM")), Ok(Ending::OutOfMemory));
        assert_eq!(ending(Some("partial")), Err(Skip::Status("partial".into())));
    }
}

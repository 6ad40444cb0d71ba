//! What an estimate rests on that no measurement has confirmed, or few have. It changes no estimate; it is said beside it, and widens its band.

use serde::{Deserialize, Serialize};

use crate::architecture::Architecture;
use crate::catalog::Catalog;
use crate::physics::Parameters;
use crate::strategy::{Offload, Precision, Schedule, Strategy};

/// A part of an estimate that rests on formulas and data sheets alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Caution {
    #[error("no complete measurement on this GPU family: matrix rates and links are nominal")]
    Hardware,
    #[error("no measured software named: constants are those of an average stack")]
    Software,
    #[error("mixture of experts: measured on one software, whose releases differ by half")]
    Experts,
    #[error("context parallelism: fitted on some ninety runs of three sources")]
    Context,
    #[error("host or disk offload: nominal rates")]
    Offload,
    #[error("schedule without measurements")]
    Schedule,
    #[error("4-bit numbers: fitted on eighteen runs")]
    FourBit,
    #[error("recurrent layers: nominal rates, no measurement")]
    Recurrent,
}

impl Caution {
    pub const ALL: [Caution; 8] = [
        Caution::Hardware,
        Caution::Software,
        Caution::Experts,
        Caution::Context,
        Caution::Offload,
        Caution::Schedule,
        Caution::FourBit,
        Caution::Recurrent,
    ];
}

/// Everything unconfirmed about an estimate.
#[must_use]
pub fn cautions(
    architecture: &Architecture,
    strategy: &Strategy,
    gpu_type: &str,
    catalog: &Catalog,
    parameters: &Parameters,
    stack: Option<&str>,
) -> Vec<Caution> {
    let measured = catalog.family(gpu_type).is_some_and(|family| parameters.family.contains_key(family));
    [
        (!measured, Caution::Hardware),
        (stack.is_none(), Caution::Software),
        (architecture.experts.is_some(), Caution::Experts),
        (strategy.cp > 1, Caution::Context),
        (strategy.offload != Offload::None, Caution::Offload),
        (strategy.schedule != Schedule::OneForwardOneBackward, Caution::Schedule),
        (strategy.precision == Precision::Fp4, Caution::FourBit),
        (architecture.kinds.is_some_and(|kinds| kinds.recurrent.is_some()), Caution::Recurrent),
    ]
    .into_iter()
    .filter_map(|(applies, caution)| applies.then_some(caution))
    .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::examples::llama3_8b;

    #[test]
    fn amd_and_context_parallelism_are_said_to_be_unconfirmed() {
        let of = |gpu, strategy, stack| {
            let architecture = Architecture::from(&llama3_8b());
            cautions(&architecture, &strategy, gpu, Catalog::built_in(), Parameters::built_in(), stack)
        };
        assert_eq!(of("H100-80G", Strategy::single(), Some("nemo")), []);
        let cp = Strategy { cp: 2, ..Strategy::single() };
        assert_eq!(of("MI300X", cp, None), [Caution::Hardware, Caution::Software, Caution::Context]);
    }
}

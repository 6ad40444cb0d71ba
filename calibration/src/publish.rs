//! A parameter set as the file that is committed: few digits, so that a fit on another machine gives the same file, and a line that
//! says where it comes from.

use headway_goodput::band::Measured;
use headway_goodput::physics::{FamilyFactors, Parameters};

/// Digits kept of each constant; measurements support three.
const DIGITS: i32 = 4;

const HEADER: &str = "\
# Constants of the step-time and memory formulas (docs/goodput.md), written by `headway model fit` from published measurements.
# `shared` holds for all; a GPU family and a software stack multiply some of them. A stack's factors stand on top of its parent's.
";

/// The file's text.
pub fn publish(parameters: &Parameters) -> Result<String, toml::ser::Error> {
    let mut rounded = parameters.clone();
    let names = headway_goodput::physics::Physics::NAMES;
    for name in names {
        if let Some(value) = rounded.shared.get_mut(name) {
            *value = round(*value);
        }
    }
    for factors in rounded.family.values_mut() {
        let FamilyFactors { matmul_share, fused_attention_share, link_share } = factors;
        for value in [matmul_share, fused_attention_share, link_share] {
            *value = round(*value);
        }
    }
    for deviation in rounded.deviation.values_mut() {
        (deviation.time, deviation.memory) = (round(deviation.time), round(deviation.memory));
    }
    for stack in rounded.stack.values_mut() {
        let Measured { time, memory } = &mut stack.deviation;
        (*time, *memory) = (time.map(round), memory.map(round));
    }
    for value in rounded.stack.values_mut().flat_map(|stack| stack.factors.values_mut()) {
        *value = round(*value);
    }
    Ok(format!("{HEADER}\n{}", toml::to_string(&rounded)?))
}

/// To so many significant decimal digits, by way of the text, so that the file shows no binary tail.
fn round(value: f64) -> f64 {
    let digits = usize::try_from(DIGITS - 1).unwrap_or(0);
    format!("{value:.digits$e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_published_is_read_back() {
        let text = publish(Parameters::built_in()).unwrap();
        let read = Parameters::parse(&text).unwrap();
        assert_eq!(publish(&read).unwrap(), text);
    }

    #[test]
    fn the_committed_file_is_as_published() {
        let text = publish(Parameters::built_in()).unwrap();
        assert_eq!(text, include_str!("../../core/goodput/src/physics.toml"));
    }

    #[test]
    fn numbers_keep_four_digits() {
        assert_eq!(round(0.000_123_456), 0.000_123_5);
        assert_eq!(round(123_456.0), 123_500.0);
    }
}

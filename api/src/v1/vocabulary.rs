//! From the vocabulary to the wire, where nothing but spelling differs: for REST and for rounds solved for others.

use headway_types as domain;
use headway_types::plan;

use super::{Alternative, Configuration, Layout, Limit, Prediction, Price, Reason, Relaxed, SolvedBy};

impl From<domain::Layout> for Layout {
    fn from(layout: domain::Layout) -> Self {
        Self { dp: layout.dp, tp: layout.tp, pp: layout.pp }
    }
}

/// The execution stands beside the layout.
impl From<&domain::Configuration> for Configuration {
    fn from(configuration: &domain::Configuration) -> Self {
        Self {
            layout: configuration.layout.into(),
            execution: configuration.layout.execution.unless_plain(),
            micro_batch_sequences: configuration.micro_batch.0,
            global_batch_sequences: configuration.global_batch.0,
        }
    }
}

impl From<&domain::Prediction> for Prediction {
    fn from(predicted: &domain::Prediction) -> Self {
        Self {
            step_time_seconds: predicted.step_time.0,
            throughput_tokens_per_second: predicted.throughput.0,
            efficiency: predicted.efficiency,
            goodput_tokens_per_second: predicted.goodput.0,
            speed_up: predicted.speed_up,
        }
    }
}

impl From<&plan::Alternative> for Alternative {
    fn from(choice: &plan::Alternative) -> Self {
        Self {
            gpus: choice.gpus.0,
            configuration: choice.configuration.as_ref().map(Into::into),
            speed_up: choice.speed_up,
        }
    }
}

impl From<&plan::Reason> for Reason {
    fn from(reason: &plan::Reason) -> Self {
        Self { code: reason.code.to_string(), binding: reason.binding, detail: reason.detail.clone() }
    }
}

impl From<&plan::Limit> for Limit {
    fn from(limit: &plan::Limit) -> Self {
        Self { of: limit.of.clone(), needed: limit.needed, left: limit.left, price: limit.price }
    }
}

impl From<&plan::Price> for Price {
    fn from(scarce: &plan::Price) -> Self {
        Self { of: scarce.of.clone(), price: scarce.price }
    }
}

impl From<&plan::SolvedBy> for SolvedBy {
    fn from(solver: &plan::SolvedBy) -> Self {
        Self { name: solver.name.clone(), version: solver.version.clone(), instead: solver.instead.clone() }
    }
}

impl From<&plan::Relaxed> for Relaxed {
    fn from(relaxed: &plan::Relaxed) -> Self {
        Self { rule: relaxed.rule.clone(), reason: relaxed.reason.clone() }
    }
}

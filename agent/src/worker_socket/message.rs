//! The lines of the worker protocol, version 1. Unknown types and fields are ignored, so either side may be newer.

use std::collections::BTreeMap;

use headway_node::WorkerOrder;
use headway_types::{
    Bytes, Capabilities, Configuration, Generation, JobId, NoiseSample, Seconds, Sequences, StepReport, Tokens,
};
use serde::{Deserialize, Serialize};

/// From a worker.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum WorkerLine {
    Hello(HelloLine),
    Step(StepLine),
    /// Seconds this rank worked rather than waited for others, over so many steps.
    Busy {
        steps: u32,
        busy_s: Seconds,
    },
    Checkpoint(CheckpointLine),
    Phases {
        phases: BTreeMap<String, Seconds>,
    },
    LossAnomaly {
        step: u64,
        /// Absent if it is no finite number.
        #[serde(default)]
        loss: Option<f64>,
        #[serde(default)]
        usual: Option<f64>,
    },
    Stopped {
        step: u64,
        samples_seen: Sequences,
    },
    Heartbeat,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Deserialize)]
pub(super) struct HelloLine {
    pub(super) job: JobId,
    pub(super) generation: Generation,
    pub(super) secret: String,
    pub(super) rank: u32,
    #[serde(default)]
    pub(super) capabilities: Option<Capabilities>,
}

#[derive(Debug, Deserialize)]
pub(super) struct StepLine {
    step: u64,
    steps: u32,
    samples_seen: Sequences,
    tokens: Tokens,
    duration_s: Seconds,
    configuration: Configuration,
    #[serde(default)]
    loss: Option<f64>,
    #[serde(default)]
    noise: Option<NoiseSample>,
    #[serde(default)]
    preconditioned: Option<NoiseSample>,
    /// Bytes.
    #[serde(default)]
    memory_peak: Option<Bytes>,
}

impl StepLine {
    pub(super) fn report(self, job: JobId, generation: Generation) -> StepReport {
        StepReport {
            job,
            generation,
            step: self.step,
            steps: self.steps,
            samples_seen: self.samples_seen,
            tokens: self.tokens,
            duration: self.duration_s,
            configuration: self.configuration,
            loss: self.loss,
            noise: self.noise,
            preconditioned: self.preconditioned,
            memory_peak: self.memory_peak,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct CheckpointLine {
    pub(super) step: u64,
    pub(super) samples_seen: Sequences,
    pub(super) path: String,
    pub(super) manifest_sha256: String,
    #[serde(default)]
    pub(super) duration_s: Seconds,
}

/// To a worker.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum AgentLine {
    Welcome,
    Configure { revision: u64, configuration: Configuration, lr_scale: f64 },
    Checkpoint,
    Stop { checkpoint: bool, grace_s: Seconds },
    Refused { reason: String },
}

impl AgentLine {
    pub(super) fn to_text(&self) -> String {
        let mut text = serde_json::to_string(self).expect("a line has only string keys");
        text.push('\n');
        text
    }
}

impl From<WorkerOrder> for AgentLine {
    fn from(order: WorkerOrder) -> Self {
        match order {
            WorkerOrder::Configure { revision, configuration, lr_scale } => {
                Self::Configure { revision, configuration, lr_scale }
            }
            WorkerOrder::Checkpoint => Self::Checkpoint,
            WorkerOrder::Stop { checkpoint, grace } => Self::Stop { checkpoint, grace_s: grace },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parse(text: &str) -> WorkerLine {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_documented_lines_are_understood() {
        let id = "00000000-0000-0000-0000-000000000001";
        let hello = format!(
            r#"{{"type":"hello","version":1,"job":"{id}","generation":3,"secret":"ab","rank":0,"pid":4711,"capabilities":{{"batch":"live","layout":"restart"}}}}"#
        );
        assert!(matches!(parse(&hello), WorkerLine::Hello(HelloLine { generation: Generation(3), .. })));
        let step = r#"{"type":"step","step":120,"steps":4,"samples_seen":7680,"tokens":65536,"duration_s":2.41,"configuration":{"layout":{"dp":4,"tp":1,"pp":1},"execution":{"sharding":"optimizer"},"micro_batch":4,"global_batch":16},"memory_peak":17179869184,"loss":2.317,"noise":{"small_sqr":0.81,"big_sqr":0.22,"small_batch":4.0,"big_batch":16.0}}"#;
        assert!(matches!(parse(step), WorkerLine::Step(StepLine { noise: Some(_), step: 120, .. })));
        assert!(matches!(parse(r#"{"type":"busy","steps":4,"busy_s":1.9}"#), WorkerLine::Busy { steps: 4, .. }));
        assert!(matches!(parse(r#"{"type":"heartbeat"}"#), WorkerLine::Heartbeat));
        assert!(matches!(parse(r#"{"type":"phases","phases":{"import":3.1}}"#), WorkerLine::Phases { .. }));
        let anomaly = parse(r#"{"type":"loss_anomaly","step":120,"usual":2.31}"#);
        assert!(matches!(anomaly, WorkerLine::LossAnomaly { step: 120, loss: None, usual: Some(_) }), "{anomaly:?}");
        assert!(matches!(
            parse(r#"{"type":"stopped","step":121,"samples_seen":7744}"#),
            WorkerLine::Stopped { step: 121, .. }
        ));
    }

    #[test]
    fn the_published_vectors_hold() {
        for text in include_str!("../../../docs/worker-protocol.jsonl").lines() {
            let vector: serde_json::Value = serde_json::from_str(text).unwrap();
            let (line, ignored) = (&vector["line"], vector["ignored"] == true);
            if vector["from"] == "worker" {
                let understood: WorkerLine = serde_json::from_value(line.clone()).unwrap();
                assert_eq!(matches!(understood, WorkerLine::Unknown), ignored, "{text}");
                continue;
            }
            let said = match line["type"].as_str().unwrap() {
                "welcome" => AgentLine::Welcome,
                "checkpoint" => AgentLine::Checkpoint,
                "refused" => AgentLine::Refused { reason: line["reason"].as_str().unwrap().into() },
                "stop" => AgentLine::Stop {
                    checkpoint: line["checkpoint"].as_bool().unwrap(),
                    grace_s: Seconds(line["grace_s"].as_f64().unwrap()),
                },
                _ => continue,
            };
            assert_eq!(&serde_json::to_value(said).unwrap(), line);
        }
    }

    #[test]
    fn a_newer_workers_words_are_ignored() {
        assert!(matches!(parse(r#"{"type":"telepathy","strength":9}"#), WorkerLine::Unknown));
    }

    #[test]
    fn orders_are_written_as_documented() {
        let stop = AgentLine::Stop { checkpoint: true, grace_s: Seconds(30.0) };
        assert_eq!(stop.to_text(), "{\"type\":\"stop\",\"checkpoint\":true,\"grace_s\":30.0}\n");
        assert_eq!(AgentLine::Welcome.to_text(), "{\"type\":\"welcome\"}\n");
    }
}

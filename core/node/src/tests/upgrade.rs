use headway_types::{GroupOutcome, GroupPhase};

use super::*;
use crate::NodeAction;

/// What the first agents wrote: no owners, no faults. One group runs, one has failed.
const FIRST: &str = r#"{
  "node": "00000000-0000-0000-0000-0000000003e8", "boot": "boot-1", "term": 4,
  "highest": {"00000000-0000-0000-0000-000000000001": 2, "00000000-0000-0000-0000-000000000002": 1},
  "groups": {
    "00000000-0000-0000-0000-000000000001": {"2": {
      "order": {"job": "00000000-0000-0000-0000-000000000001", "generation": 2, "job_name": "test",
        "run": {"per": "gpu", "command": {"shell": "true"}, "workdir": null, "env": {}},
        "placement": [{"node": "00000000-0000-0000-0000-0000000003e8", "gpus": ["a"]}],
        "nodes": [{"node": "00000000-0000-0000-0000-0000000003e8", "name": "n", "address": "127.0.0.1"}],
        "configuration": null, "lr_scale": 1.0, "lr_scaling": "none", "reference_batch": null,
        "checkpoint_dir": "/tmp/c", "checkpoint_every": 60.0, "resume": null, "grace": 20.0},
      "phase": {"phase": "running", "rendezvous_port": 29500,
        "members": [{"process": {"rank": 0, "pid": 77, "started": 5}, "exit": null}]},
      "declared": null, "greeted": true, "stopped": false, "change": null, "checkpoint": null}},
    "00000000-0000-0000-0000-000000000002": {"1": {
      "order": {"job": "00000000-0000-0000-0000-000000000002", "generation": 1, "job_name": "test",
        "run": {"per": "gpu", "command": {"shell": "true"}, "workdir": null, "env": {}},
        "placement": [{"node": "00000000-0000-0000-0000-0000000003e8", "gpus": ["b"]}],
        "nodes": [{"node": "00000000-0000-0000-0000-0000000003e8", "name": "n", "address": "127.0.0.1"}],
        "configuration": null, "lr_scale": 1.0, "lr_scaling": "none", "reference_batch": null,
        "checkpoint_dir": "/tmp/c", "checkpoint_every": 60.0, "resume": null, "grace": 20.0},
      "phase": {"phase": "ended", "outcome": {"outcome": "failed", "exit_code": 7, "message": "rank 0 exited"}},
      "declared": null, "greeted": true, "stopped": false, "change": null, "checkpoint": null}}
  }
}"#;

#[test]
fn a_new_agent_adopts_what_the_first_release_wrote_down() {
    let mut ledger: Ledger = serde_json::from_str(FIRST).unwrap();
    let outcome = ledger.handle(at(0), NodeEvent::Restarted { boot: BootId("boot-1".into()) });
    let [NodeAction::Adopt { order, processes }] = &outcome.actions[..] else { panic!("{:?}", outcome.actions) };
    assert_eq!((order.job, order.owner.as_str(), processes[0].pid), (job(1), "", 77));
    let failed = ledger.statuses().into_iter().find(|status| status.job == job(2)).unwrap();
    let GroupPhase::Ended { outcome: GroupOutcome::Failed { exit_code, .. } } = failed.phase else { panic!() };
    assert_eq!(exit_code, Some(7));
    let again: Ledger = serde_json::from_str(&serde_json::to_string(&ledger).unwrap()).unwrap();
    assert_eq!(again, ledger);
    let command = AgentCommand::Prepare { order: Box::new(super::order(2, 1, &["b"])) };
    let revived = ledger.handle(at(0), NodeEvent::Command { term: Term(4), serial: None, command });
    assert!(revived.actions.is_empty(), "the generations it had heard of stay fenced");
}

//! Scripts as people have them, from files: what each becomes, or why it is refused.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use headway_types::spec::RunPer;

use super::*;

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/submission/slurm/scripts")
}

fn translate_text(text: &str, left_out: &[String]) -> Result<Submission, Failure> {
    let directory = Path::new("/home/ada/proj");
    translate(&Script { text, source: "job.sh", name: "job", arguments: &[], directory }, left_out)
}

/// Describes how a job runs, or the reason of its refusal.
fn describe(translated: Result<Submission, Failure>) -> String {
    let checked = translated.and_then(|submission| submission.check());
    let specs = match checked {
        Ok(specs) => specs,
        Err(refused) => return refused.message,
    };
    let (spec, role) = (&specs[0], specs[0].role());
    let per = if role.run.per == RunPer::Gpu { "GPU" } else { "node" };
    let array = spec.array.as_ref().map_or(String::new(), |array| format!(", array {}", array.indices));
    let twice = match spec.limits.restartable {
        Some(false) => ", never twice",
        _ => "",
    };
    format!("{} GPUs, once per {per}{array}{twice}", role.gpus.min.0)
}

#[test]
fn each_script_becomes_a_job_or_is_refused_by_name() {
    let expected = BTreeMap::from([
        ("abbreviated_options", "8 GPUs, once per node"),
        ("array_chain", "1 GPUs, once per node, array 1-4"),
        ("first_node_address", "32 GPUs, once per node"),
        ("guarded_srun", "16 GPUs, once per node"),
        ("heterogeneous", "job.sh:5: heterogeneous jobs are not taken"),
        (
            "mpi_beside_srun",
            "job.sh:6: Slurm would start 8 processes with mpirun, and Headway would start 64: 8 in each of 8 runs of the \
             script",
        ),
        ("mpi_number_of_tasks", "job.sh:5: Slurm would start 4 processes with mpiexec, and Headway would start 1"),
        (
            "mpi_over_nodes",
            "job.sh:6: Slurm would start 16 processes with mpirun, and Headway would start 32: 16 in each of 2 runs of \
             the script",
        ),
        ("mpi_with_number", "8 GPUs, once per node"),
        ("mpi_without_number", "job.sh:6: Slurm would start 8 processes with mpirun, and Headway would start 1"),
        ("no_gpu_option", "job.sh: asks for no GPUs, and Headway's jobs have one at least"),
        ("no_requeue", "8 GPUs, once per node, never twice"),
        ("numeric_id", "2 GPUs, once per node"),
        ("one_task_per_gpu", "8 GPUs, once per GPU"),
        ("serial_part", "16 GPUs, once per node"),
        ("signal_and_requeue", "1 GPUs, once per node"),
        ("singleton", "job.sh:6: --dependency=singleton: Headway has no singletons: name the job that comes before"),
    ]);
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(scripts()).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        found.insert(name, describe(translate_text(&text, &[])));
    }
    let found: BTreeMap<&str, &str> = found.iter().map(|(name, what)| (name.as_str(), what.as_str())).collect();
    assert_eq!(found, expected);
}

#[test]
fn whoever_accepts_other_processes_gets_the_job_and_reads_both_numbers() {
    for (name, note) in [
        (
            "mpi_over_nodes",
            "line 6: Slurm would start 16 processes with mpirun, and Headway would start 32: 16 in each",
        ),
        ("mpi_without_number", "line 6: Slurm would start 8 processes with mpirun, and Headway would start 1"),
    ] {
        let text = std::fs::read_to_string(scripts().join(name).with_extension("sh")).unwrap();
        let taken = translate_text(&text, &["ntasks".into()]).unwrap();
        taken.check().unwrap();
        assert!(taken.notes.iter().any(|one| one.starts_with(note)), "{name}: {:?}", taken.notes);
    }
}

#[test]
fn a_number_that_only_the_script_knows_is_taken_for_one_run_and_refused_for_several() {
    let with = |nodes: u32| {
        let text = format!("#!/bin/sh\n#SBATCH --nodes={nodes} --gpus-per-node=8\nmpirun -np $WORLD ./a.out\n");
        describe(translate_text(&text, &[]))
    };
    assert_eq!(with(1), "8 GPUs, once per node");
    assert!(with(2).contains("Slurm would start $WORLD processes with mpirun, and Headway"), "{}", with(2));
}

#[test]
fn a_script_with_the_line_ends_of_dos_is_refused_as_slurm_does() {
    let text = std::fs::read_to_string(scripts().join("no_requeue.sh")).unwrap();
    let refused = translate_text(&text.replace('\n', "\r\n"), &[]).unwrap_err();
    assert_eq!(
        refused.message,
        "job.sh:1: the lines end as in DOS (\\r\\n), and the shell would read \\r as part of words"
    );
    assert!(refused.hint.unwrap().contains("dos2unix job.sh"));
    assert!(
        translate_text(&text.replace("row", "a\rb"), &[]).is_ok(),
        "a carriage return within a line is the script's"
    );
}

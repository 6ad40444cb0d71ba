//! Scripts as users have them, whole: what they become, and what is said of them.
#![allow(clippy::unwrap_used)]

use super::*;

fn translated(text: &str) -> Result<Submission, Failure> {
    let directory = Path::new("/home/ada/proj");
    translate(&Script { text, source: "job.sh", name: "job", arguments: &[], directory }, &[])
}

/// What a script becomes and what is said, as a person would see both.
fn told(text: &str) -> String {
    match translated(text) {
        Ok(of) => {
            let checked = of.check().map_or_else(|failure| format!("\n{failure}"), |_| String::new());
            let body = headway_api::yaml::write(&of.body).unwrap();
            format!("{body}---\n{}{checked}", of.notes.join("\n"))
        }
        Err(failure) => failure.to_string(),
    }
}

#[test]
fn a_multi_node_torchrun_script_becomes_a_rigid_job() {
    let script = "#!/bin/bash
#SBATCH --job-name=llama-8b
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=96
#SBATCH --mem=512G
#SBATCH --time=2-00:00:00
#SBATCH --partition=h100
#SBATCH --account=nlp
#SBATCH --output=logs/%x-%j.out
#SBATCH --error=logs/%x-%j.err
#SBATCH --mail-type=END,FAIL
#SBATCH --signal=B:USR1@120
#SBATCH --exclusive
#SBATCH --requeue

export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
nodes=$(scontrol show hostnames $SLURM_JOB_NODELIST)
srun torchrun --nnodes=$SLURM_NNODES --nproc-per-node=8 --node-rank=$SLURM_NODEID train.py --run '{\"a\": 1}'
";
    insta::assert_snapshot!(told(script));
}

#[test]
fn whether_a_script_may_run_twice_is_read_and_the_last_line_counts() {
    let script = |options: &str| format!("#!/bin/bash\n#SBATCH --nodes=1 --gpus-per-node=8 {options}\n./once.sh\n");
    for (options, restartable) in [
        ("", json!(null)),
        ("--no-requeue", json!(false)),
        ("--requeue", json!(true)),
        ("--requeue\n#SBATCH --no-requeue", json!(false)),
        ("--no-requeue\n#SBATCH --requeue", json!(true)),
    ] {
        let of = translated(&script(options)).unwrap();
        assert_eq!(of.body["limits"]["restartable"], restartable, "{options}");
        assert_eq!(of.body["limits"]["max_restarts"], json!(0), "{options}");
        of.check().unwrap();
    }
}

#[test]
fn a_script_with_one_task_per_gpu_runs_once_per_gpu() {
    let script = "#!/bin/bash -l
#SBATCH -J eval -N 2 --ntasks-per-node=4 --gres=gpu:a100:4 -t 90
#SBATCH --export=ALL,MODE=fast
#SBATCH -x node[01-02] --switches=1 --nice=100 --qos=long
srun python eval.py
";
    insta::assert_snapshot!(told(script));
}

#[test]
fn what_would_be_another_job_is_refused_with_the_way_out() {
    let with = |option: &str| told(&format!("#!/bin/sh\n#SBATCH --gpus=1\n#SBATCH {option}\ntrue\n"));
    let options = ["--array=0-15x4", "--dependency=singleton", "--begin=now+1hour", "-H", "--nodes=x", "--time=48h"];
    let more = [
        "--mem=lots",
        "--gres=gpu:a100:many",
        "--gpus-per-task=0",
        "--cpus-per-task=none",
        "--jobname=a",
        "-d afterok:a?afterany:b",
        "--dependency=after:a+5",
        "--dependency=aftercorr:a",
        "-d afterok",
    ];
    let all: Vec<String> =
        options.iter().chain(&more).map(|option| format!("{option}\n  → {}", with(option))).collect();
    insta::assert_snapshot!(all.join("\n"));
    assert!(told("#!/bin/sh\n#SBATCH --nodes=2\ntrue\n").contains("asks for no GPUs"));
}

#[test]
fn a_script_that_would_run_fewer_tasks_than_in_slurm_is_refused_with_both_numbers() {
    let with = |options: &str, body: &str| translated(&format!("#!/bin/sh\n#SBATCH {options}\n{body}\n"));
    for (options, body, slurm, headway) in [
        ("--nodes=1 --ntasks-per-node=2 --gpus-per-node=8", "srun python a.py", 2, 1),
        ("--ntasks=4 --gpus-per-task=8", "srun python a.py", 4, 1),
        ("--nodes=4 --ntasks-per-node=8 --gpus=4", "srun python a.py", 32, 4),
        ("--gpus=8", "srun -n 4 python a.py", 4, 1),
        ("--gpus=8 --ntasks-per-gpu=2", "srun python a.py", 16, 1),
        ("--nodes=2 --gpus-per-node=8", "srun -n 16 python a.py\nsrun --ntasks=3 true", 16, 2),
    ] {
        let refused = with(options, body).unwrap_err();
        let expected = format!("Slurm would start {slurm} tasks, and Headway would start {headway}");
        assert!(refused.message.ends_with(&expected), "{options}: {refused}");
        assert!(refused.message.starts_with("job.sh:"), "{refused}");
    }
}

#[test]
fn a_task_for_each_gpu_runs_once_per_gpu_however_that_is_said() {
    for options in [
        "--ntasks-per-node=8 --ntasks=8 --gpus-per-task=1",
        "--ntasks=8 --gpus=8",
        "--gpus=8 --ntasks-per-gpu=1",
        "--gpus=8 --gpus-per-task=1",
        "--nodes=8 --gpus-per-node=1",
        "--nodes=1 --ntasks-per-node=8 --gres=gpu:8",
    ] {
        let of = translated(&format!("#!/bin/sh\n#SBATCH {options}\nsrun python a.py\n")).unwrap();
        let role = of.check().unwrap()[0].role().clone();
        assert_eq!(role.run.per, headway_types::spec::RunPer::Gpu, "{options}");
        assert_eq!((role.gpus.min.0, role.run.env["SLURM_NTASKS"].as_str()), (8, "8"), "{options}");
    }
}

#[test]
fn mpirun_starts_its_ranks_itself_in_one_run_of_the_script() {
    for options in ["--nodes=1 --ntasks-per-node=8 --gpus-per-node=8", "--nodes=1 --gpus=8"] {
        let of = translated(&format!("#!/bin/sh\n#SBATCH {options}\nmpirun -np 8 python a.py\n")).unwrap();
        assert_eq!(of.check().unwrap()[0].role().run.per, headway_types::spec::RunPer::Node, "{options}");
    }
}

#[test]
fn what_a_task_needs_is_multiplied_by_the_tasks_of_a_node_and_never_by_those_of_the_job() {
    let with = |options: &str| {
        let of = translated(&format!("#!/bin/sh\n#SBATCH {options} --mem-per-cpu=1G\nsrun python a.py\n")).unwrap();
        let cpus = of.body["resources"]["per_node"]["cpus"].as_u64();
        let notes = of.notes.iter().filter(|note| note.contains("without --nodes")).count();
        (cpus, notes)
    };
    assert_eq!(with("--ntasks=64 --gpus-per-task=1 --cpus-per-task=8"), (None, 2));
    assert_eq!(with("--gpus=64 --ntasks=64 --cpus-per-gpu=8"), (None, 2));
    assert_eq!(with("--nodes=8 --ntasks=64 --gpus-per-task=1 --cpus-per-task=8"), (Some(64), 0));
    assert_eq!(with("--nodes=8 --gpus=64 --ntasks-per-node=8 --cpus-per-gpu=8"), (Some(64), 0));
    assert_eq!(with("--gpus=1 --cpus-per-gpu=8"), (Some(8), 0));
}

#[test]
fn fewer_tasks_are_taken_from_whoever_asks_for_them() {
    let script = "#!/bin/sh\n#SBATCH --gpus=8 --ntasks=4\nsrun torchrun a.py\n";
    let of = Script { text: script, source: "a.sh", name: "a", arguments: &[], directory: Path::new("/d") };
    let of = translate(&of, &["ntasks".into()]).unwrap();
    assert_eq!(of.notes[0], "line 2: Slurm would start 4 tasks; Headway starts 1, as you asked");
}

#[test]
fn a_dependency_becomes_the_jobs_that_come_before() {
    let script = "#!/bin/sh\n#SBATCH --gpus=1 -d afterok:prep:other,afternotok:x,afterany:y,after:z\ntrue\n";
    let of = translated(script).unwrap();
    let told: Vec<String> = of.check().unwrap()[0].after.iter().map(|one| format!("{} {}", one.job, one.on)).collect();
    assert_eq!(told, ["prep success", "other success", "x failure", "y any", "z start"]);
}

#[test]
fn an_array_becomes_one_and_its_elements_read_their_index() {
    let script = "#!/bin/sh\n#SBATCH --gpus=1 --array=0-15:5%2\npython train.py --seed $SLURM_ARRAY_TASK_ID\n";
    let of = translated(script).unwrap();
    let spec = &of.check().unwrap()[0];
    let array = spec.array.as_ref().unwrap();
    assert_eq!((array.indices.to_string().as_str(), array.parallel), ("0-15:5", Some(2)));
    let env = &spec.role().run.env;
    assert_eq!(
        (env["SLURM_ARRAY_TASK_ID"].as_str(), env["SLURM_JOB_NAME"].as_str()),
        ("{array_index}", "{array_name}")
    );
    assert!(of.notes.is_empty(), "{:?}", of.notes);
    let wrong = translated("#!/bin/sh\n#SBATCH --gpus=1\n#SBATCH --array=9-1\ntrue\n").unwrap().check().unwrap_err();
    assert!(wrong.message.starts_with("job.sh:3: array: 9-1 goes down"), "{wrong}");
}

#[test]
fn a_signal_becomes_a_notice() {
    let with = |signal: &str| {
        let of = translated(&format!("#!/bin/sh\n#SBATCH --gpus=1 --time=60 --signal={signal}\ntrue\n"))?;
        Ok::<_, Failure>(of.check().unwrap()[0].limits.signal.unwrap().to_string())
    };
    for (given, read) in [("B:USR1@120", "B:USR1@120s"), ("SIGTERM", "TERM@60s"), ("R:10@30", "USR1@30s")] {
        assert_eq!(with(given).unwrap(), read);
    }
    assert!(with("KILL@10").is_err() && with("USR1@soon").is_err());
}

#[test]
fn nodes_and_features_become_what_the_job_asks_of_its_nodes() {
    let script = "#!/bin/sh\n#SBATCH --gpus=1 -w n[1-2],n7 -C nvme&gen=4\ntrue\n";
    insta::assert_snapshot!(told(script));
    for choice in ["a100|h100", "[rack1*2]", "(a&b)", "!old"] {
        let script = format!("#!/bin/sh\n#SBATCH --gpus=1 --constraint={choice}\ntrue\n");
        let refused = translated(&script).unwrap_err();
        assert!(refused.message.starts_with("job.sh:2: --constraint takes features"), "{refused}");
    }
}

#[test]
fn whatever_a_script_gives_is_mapped_or_named() {
    let script = "#!/bin/sh\n#SBATCH --gpus=1 --array=1 --licenses=a --hint=nomultithread\ntrue\n";
    let directory = Path::new("/d");
    let of = Script { text: script, source: "a.sh", name: "a", arguments: &[], directory };
    let of = translate(&of, &["array".into()]).unwrap();
    let expected = [
        "line 2: --array is left out, as you asked",
        "line 2: --hint is left out: Headway has nothing like it",
        "line 2: --licenses is left out: Headway has nothing like it",
    ];
    assert_eq!(of.notes, expected);
}

#[test]
fn a_mistake_in_a_script_is_told_with_its_line() {
    let refused =
        translated("#!/bin/sh\n#SBATCH --gpus=1\n#SBATCH --time=9999-0\ntrue\n").unwrap().check().unwrap_err();
    assert!(refused.message.starts_with("job.sh:3: limits.time: "), "{refused}");
}

#[test]
fn the_scripts_of_the_page_run_without_a_word() {
    let page = include_str!("../../../../docs/from-slurm.md");
    let scripts = crate::documented::blocks(page, "bash");
    assert_eq!(scripts.len(), 2);
    for script in scripts {
        let of = translated(&script).unwrap();
        of.check().unwrap();
        let wrong: Vec<&String> = of.notes.iter().filter(|note| note.contains("is left out")).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

proptest::proptest! {
    #[test]
    fn any_script_is_taken_or_refused(
        options in proptest::collection::vec(
            ("-{0,2}(N|n|G|t|c|x|J|gpus|nodes|gres|mem|time|exclude|array|export)?[= :]?[0-9a-z:,@\\[\\]ü'\"=*-]{0,12}", "[ \n]"), 0..6,
        ),
        body in "(.{0,20}\n){0,3}",
    ) {
        let options: String = options.into_iter().map(|(option, end)| format!("#SBATCH {option}{end}")).collect();
        let read = translated(&format!("#!/bin/bash\n#SBATCH --gpus=1\n{options}\n{body}"));
        if let Ok(of) = read {
            // A value that the specification does not take is refused there, with its line.
            let _ = of.check();
        }
    }
}

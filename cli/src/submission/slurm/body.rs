//! The body of a script for Slurm: the command it becomes, the variables it reads, and what in it will not work.

use headway_api::spec;
use serde_json::{Map, Value, json};

use crate::failure::{Failure, Kind};

/// The kernel takes no longer argument (`MAX_ARG_STRLEN`), and its terminating zero counts.
const LONGEST: usize = 128 * 1024 - 1;
/// Shells, and how they tell the name of what they run.
const SHELLS: &[&str] = &["sh", "bash", "dash", "ksh", "zsh"];

/// The script as the argument of the interpreter that its first line names.
pub fn command(text: &str, name: &str, arguments: &[String], per_gpu: bool) -> Result<Value, Failure> {
    let first = text.lines().next().unwrap_or_default();
    let Some(interpreter) = first.strip_prefix("#!") else {
        let failure = Failure::new(Kind::Usage, "the first line names no interpreter");
        return Err(failure.hint("a script for Slurm begins with #!/bin/bash, or another interpreter"));
    };
    let mut words: Vec<String> = interpreter.split_whitespace().map(spec::literal).collect();
    // `#!/usr/bin/env -S bash -e` and the like: what runs is the first that is no option.
    let program = words.iter().rfind(|word| !word.starts_with('-')).cloned().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    let is_shell = SHELLS.contains(&program);
    let evaluate = match program {
        _ if is_shell => "-c",
        "perl" | "ruby" | "node" => "-e",
        python if python.starts_with("python") => "-c",
        other => {
            let failure = Failure::new(Kind::Usage, format!("scripts for {other} are not taken"));
            return Err(failure.hint("write a specification that runs it: docs/from-slurm.md"));
        }
    };
    let of_rank = "export SLURM_PROCID=\"$RANK\" SLURM_LOCALID=\"$LOCAL_RANK\"\n";
    let begin = if is_shell && per_gpu { of_rank } else { "" };
    let body = spec::literal(&format!("{begin}{text}"));
    if body.len() > LONGEST {
        let failure = Failure::new(Kind::Usage, format!("has {} bytes, and {LONGEST} are taken", body.len()));
        return Err(failure.hint("put its work into a file of its own and call that"));
    }
    words.extend([evaluate.to_owned(), body]);
    if is_shell {
        words.push(spec::literal(name));
    }
    words.extend(arguments.iter().map(|argument| spec::literal(argument)));
    Ok(json!(words))
}

/// What scripts read of what Slurm sets, filled in at each launch.
pub fn variables(per_gpu: bool, gpus: u32, cpus_per_task: Option<u32>, directory: &str) -> Map<String, Value> {
    let mut env = Map::new();
    let mut set = |name: &str, value: String| env.insert(name.to_owned(), json!(value));
    set("SLURM_JOB_ID", "{job_id}".into());
    set("SLURM_JOBID", "{job_id}".into());
    set("SLURM_JOB_NAME", "{job_name}".into());
    set("SLURM_NNODES", "{nnodes}".into());
    set("SLURM_JOB_NUM_NODES", "{nnodes}".into());
    set("SLURM_NODEID", "{node_rank}".into());
    set("SLURM_GPUS_ON_NODE", "{gpus_per_node}".into());
    set("SLURM_SUBMIT_DIR", spec::literal(directory));
    if per_gpu {
        set("SLURM_NTASKS", gpus.to_string());
        set("SLURM_NTASKS_PER_NODE", "{gpus_per_node}".into());
    } else {
        set("SLURM_NTASKS", "{nnodes}".into());
        set("SLURM_NTASKS_PER_NODE", "1".into());
        set("SLURM_PROCID", "{node_rank}".into());
        set("SLURM_LOCALID", "0".into());
    }
    if let Some(cpus) = cpus_per_task {
        set("SLURM_CPUS_PER_TASK", cpus.to_string());
    }
    env
}

/// Likewise of an array's elements.
pub fn array_variables() -> Map<String, Value> {
    let filled = [
        ("SLURM_JOB_NAME", "{array_name}"),
        ("SLURM_ARRAY_JOB_ID", "{array_id}"),
        ("SLURM_ARRAY_TASK_ID", "{array_index}"),
        ("SLURM_ARRAY_TASK_COUNT", "{array_count}"),
        ("SLURM_ARRAY_TASK_MIN", "{array_first}"),
        ("SLURM_ARRAY_TASK_MAX", "{array_last}"),
    ];
    filled.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect()
}

/// The first line, outside of comments, that has a word.
pub fn mentions(text: &str, word: &str) -> Option<usize> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == '/';
    let has = |line: &str| {
        let code = line.trim_start();
        !code.starts_with('#')
            && code
                .match_indices(word)
                .any(|(at, _)| !code[..at].ends_with(is_part) && !code[at + word.len()..].starts_with(is_part))
    };
    text.lines().position(has).map(|index| index + 1)
}

/// What a script relies on that is not there, with the way out. `array`: it is one.
pub fn warnings(text: &str, array: bool) -> Vec<String> {
    const TASK: &str = "SLURM_ARRAY_TASK_ID";
    const MISSING: &[(&str, &str)] = &[
        (
            "srun",
            "srun is not there: take it and its options away and leave the command; the script runs once on every node \
             already (once per GPU where it had a task for each)",
        ),
        ("mpirun", "mpirun finds no hosts: the script runs once on every node; torchrun needs no launcher"),
        ("scontrol", "scontrol is not there: MASTER_ADDR, MASTER_PORT, NNODES and NODE_RANK are set"),
        ("sbatch", "sbatch is not there: `headway submit` works from within a job that has a token"),
        ("SLURM_JOB_NODELIST", "SLURM_JOB_NODELIST is not set: MASTER_ADDR is the first node's address"),
        ("SLURM_NODELIST", "SLURM_NODELIST is not set: MASTER_ADDR is the first node's address"),
        (
            TASK,
            "SLURM_ARRAY_TASK_ID is not set, since this is no array: give --array 0-15, or --env SLURM_ARRAY_TASK_ID=N",
        ),
        ("SLURM_TMPDIR", "SLURM_TMPDIR is not set: make a directory below /tmp"),
    ];
    let warning = |(word, instead): &(&str, &str)| mentions(text, word).map(|line| format!("line {line}: {instead}"));
    MISSING.iter().filter(|(word, _)| !(array && *word == TASK)).filter_map(warning).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_interpreter_of_the_first_line_runs_the_script() {
        let told = |text: &str| command(text, "a.sh", &["{1}".to_owned()], false);
        let words = |text: &str| told(text).unwrap();
        let expected = json!(["/bin/bash", "-l", "-c", "#!/bin/bash -l\ntrue\n", "a.sh", "{{1}}"]);
        assert_eq!(words("#!/bin/bash -l\ntrue\n"), expected);
        assert_eq!(words("#!/usr/bin/env python3\n")[2], json!("-c"));
        assert_eq!(words("#!/bin/sh\nf() { echo ${A}; }\n")[2], json!("#!/bin/sh\nf() {{ echo ${A}; }}\n"));
        assert!(told("echo\n").is_err() && told("#!/usr/bin/tclsh\n").is_err());
        assert!(told(&format!("#!/bin/sh\n{}", "#".repeat(LONGEST))).is_err());
    }

    #[test]
    fn what_is_not_there_is_told_with_its_line() {
        let text = "#!/bin/bash\n# srun is mentioned\nmy-srun x\n  srun python a.py\nA=$(scontrol show hostnames)\n";
        let told = warnings(text, false);
        assert!(told[0].starts_with("line 4: srun is not there"), "{told:?}");
        assert!(told[1].starts_with("line 5: scontrol is not there"), "{told:?}");
        assert_eq!(told.len(), 2);
    }
}

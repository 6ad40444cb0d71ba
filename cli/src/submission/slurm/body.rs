//! The body of a script for Slurm: the command it becomes, the variables it reads, and what in it will not work.

use headway_api::spec;
use serde_json::{Map, Value, json};

use crate::failure::{Failure, Kind};
use crate::submission::sbatch;

/// The kernel takes no longer argument (`MAX_ARG_STRLEN`), and its terminating zero counts.
const LONGEST: usize = 128 * 1024 - 1;
/// Starts the tasks of a step.
const LAUNCHER: &str = "srun";
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

/// The places of a line of code that hold a word, none in a comment.
fn places_of<'a>(line: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == '/';
    let stands_alone =
        move |at: &usize| !line[..*at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part);
    let is_comment = line.trim_start().starts_with('#');
    line.match_indices(word).map(|(at, _)| at).filter(stands_alone).filter(move |_| !is_comment)
}

/// The first line, outside of comments, that has a word.
pub fn mentions(text: &str, word: &str) -> Option<usize> {
    text.lines().position(|line| places_of(line, word).next().is_some()).map(|index| index + 1)
}

/// The steps that a script starts with `srun`. Those of `mpirun` are in `mpi.rs`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Launches {
    steps: Vec<Step>,
}

/// The tasks that one call of a launcher asks for by options of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Step {
    line: usize,
    tasks: Option<u32>,
    tasks_per_node: Option<u32>,
    nodes: Option<u32>,
}

impl Launches {
    /// Reads the lines of a script. A number that a variable holds is not known, and counts as not given.
    pub fn from_script(text: &str) -> Self {
        let mut steps = Vec::new();
        for (index, line) in joined_lines(text) {
            for at in places_of(&line, LAUNCHER) {
                steps.push(Step::from_options(index + 1, &line[at + LAUNCHER.len()..]));
            }
        }
        Self { steps }
    }

    pub fn is_any(&self) -> bool {
        !self.steps.is_empty()
    }

    /// The most tasks of a step, with the line that asks for them. `of_job`: the tasks of a step without options of its own.
    pub fn most_tasks(&self, of_job: (usize, u32), nodes: Option<u32>) -> Option<(usize, u32)> {
        let tasks = |step: &Step| {
            let on_nodes = step.nodes.or(nodes).unwrap_or(1);
            let own = step.tasks.or(step.tasks_per_node.map(|count| count.saturating_mul(on_nodes))).or(step.nodes);
            own.map_or(of_job, |count| (step.line, count))
        };
        self.steps.iter().map(tasks).max_by_key(|(_, count)| *count)
    }
}

impl Step {
    fn from_options(line: usize, options: &str) -> Self {
        let mut step = Self { line, ..Self::default() };
        let mut words = options.split_whitespace().peekable();
        while let Some(word) = words.next_if(|word| word.starts_with('-')) {
            let (name, given) = split_option(word);
            let takes_next = given.is_none() && sbatch::takes_value(name);
            let value = given.or_else(|| words.next_if(|_| takes_next)).unwrap_or_default();
            match name {
                "-n" | "--ntasks" => step.tasks = value.parse().ok(),
                "--ntasks-per-node" => step.tasks_per_node = value.parse().ok(),
                "-N" | "--nodes" => step.nodes = value.parse().ok(),
                _ => {}
            }
        }
        step
    }
}

/// An option and its value, where the value is part of the word: `--ntasks=4`, `-n4`.
fn split_option(word: &str) -> (&str, Option<&str>) {
    if word.starts_with("--") {
        return word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
    }
    if word.len() <= 2 || !word.is_char_boundary(2) {
        return (word, None);
    }
    let (name, value) = word.split_at(2);
    (name, Some(value.trim_start_matches('=')))
}

/// The lines of a script with those that a backslash continues, each with the index of its first.
pub(super) fn joined_lines(text: &str) -> Vec<(usize, String)> {
    let mut joined: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (index, line) in text.lines().enumerate() {
        let part = line.strip_suffix('\\');
        match joined.last_mut().filter(|_| continues) {
            Some((_, begun)) => begun.push_str(part.unwrap_or(line)),
            None => joined.push((index, part.unwrap_or(line).to_owned())),
        }
        continues = part.is_some();
    }
    joined
}

/// What a script relies on that Slurm alone gives, with the way out. Slurm's programs may be installed all the same. `array`: it is one.
pub fn warnings(text: &str, array: bool) -> Vec<String> {
    const TASK: &str = "SLURM_ARRAY_TASK_ID";
    const MISSING: &[(&str, &str)] = &[
        (
            "srun",
            "srun knows nothing of this job: take it and its options away and leave the command; the script runs once on every node \
             already (once per GPU where it had a task for each)",
        ),
        ("mpirun", "mpirun is given no hosts: the script runs once on every node; torchrun needs no launcher"),
        ("mpiexec", "mpiexec is given no hosts: the script runs once on every node; torchrun needs no launcher"),
        ("scontrol", "scontrol knows nothing of this job: MASTER_ADDR, MASTER_PORT, NNODES and NODE_RANK are set"),
        (
            "sbatch",
            "sbatch submits to Slurm, if it is installed: `headway submit` works from within a job that has a token",
        ),
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
    fn a_step_has_the_tasks_of_its_own_options_or_those_of_the_job() {
        let most = |text: &str| Launches::from_script(text).most_tasks((2, 4), Some(4)).map(|(_, count)| count);
        assert_eq!(most("#!/bin/sh\n# srun -n 9\npython a.py --srun\n"), None);
        assert_eq!(most("srun a\n"), Some(4));
        assert_eq!(most("srun -w node1 -n 8 a -n 16\n"), Some(8));
        assert_eq!(most("srun --ntasks=2 a\nsrun -n3 a &\nsrun -N 1 a\n"), Some(3));
        assert_eq!(most("x=$(srun --nodes=1 --ntasks=1 hostname)\nsrun a"), Some(4), "the job's own are more");
        assert_eq!(most("srun --label \\\n  --ntasks-per-node 8 \\\n  a\n"), Some(32));
        assert_eq!(most("srun -n $N a\n"), Some(4), "what a variable holds is not known");
        assert_eq!(most("mpirun -np 16 a\n"), None, "it starts its ranks itself");
        assert_eq!(Launches::from_script("true\nsrun -n 9 a").most_tasks((2, 4), None), Some((2, 9)));
    }

    #[test]
    fn what_slurm_alone_gives_is_told_with_its_line() {
        let text = "#!/bin/bash\n# srun is mentioned\nmy-srun x\n  srun python a.py\nA=$(scontrol show hostnames)\n";
        let told = warnings(text, false);
        assert!(told[0].starts_with("line 4: srun knows nothing of this job"), "{told:?}");
        assert!(told[1].starts_with("line 5: scontrol knows nothing of this job"), "{told:?}");
        assert_eq!(told.len(), 2);
    }
}

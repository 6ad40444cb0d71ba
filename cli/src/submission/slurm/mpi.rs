//! Calls of `mpirun` and `mpiexec` in a script. Slurm has them start the tasks of the job on its nodes, also without a
//! number of their own. Headway gives them no hosts: each run of the script starts its own processes, which do not know
//! those of other runs. Reads text, runs nothing; a call that a here-document or a function hides is not found.

use super::body::joined_lines;

/// Programs that start the processes of an MPI program.
const LAUNCHERS: &[&str] = &["mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"];
/// Options that take no value.
const FLAGS: &[&str] = &[
    "allow-run-as-root",
    "display-allocation",
    "display-map",
    "genvall",
    "l",
    "nolocal",
    "nooversubscribe",
    "oversubscribe",
    "prepend-rank",
    "q",
    "quiet",
    "report-bindings",
    "tag-output",
    "timestamp-output",
    "use-hwthread-cpus",
    "v",
    "verbose",
];
/// Options that take two values.
const PAIRS: &[&str] = &["env", "genv", "gmca", "mca", "omca", "prtemca"];
/// Options with which nothing is started.
const QUESTIONS: &[&str] = &["V", "h", "help", "info", "version"];
/// Words before the name of a program that is looked up.
const LOOK_UPS: &[&str] = &["-v", "hash", "type", "which"];
/// Words that end a command.
const SEPARATORS: &[&str] = &["&", "&&", "|", "||", ";", ";;", "then", "do", "else", "{", "}"];
/// Slurm's variables of the tasks of a job, which here count runs of the script.
const TASK_COUNTS: &[&str] = &["SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE"];

/// Processes that one call starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Processes {
    /// As many as the job has tasks: the call names no number, or a variable of Slurm's.
    OfJob,
    Given(u32),
    PerNode(u32),
    /// A word of the script whose value is not known.
    Unread(String),
}

/// One call of a launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MpiCall {
    pub line: usize,
    pub launcher: &'static str,
    pub processes: Processes,
}

impl MpiCall {
    /// Finds the calls of a script, also those by a variable that holds the launcher.
    pub fn find_all(text: &str) -> Vec<Self> {
        // As a word of the script, and the launcher that it is.
        let mut variables: Vec<(String, &'static str)> = Vec::new();
        let mut calls = Vec::new();
        for (index, line) in joined_lines(text) {
            let words: Vec<&str> = line.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
            if let Some((name, launcher)) = read_assignment(&words) {
                variables.extend([format!("${name}"), format!("${{{name}}}")].map(|word| (word, launcher)));
                continue;
            }
            let mut is_printed = false;
            for (at, word) in words.iter().enumerate() {
                let name = program_of(word);
                if SEPARATORS.contains(word) || word.ends_with(';') {
                    is_printed = false;
                } else if matches!(name, "echo" | "printf") {
                    is_printed = true;
                }
                let known = variables.iter().find(|(variable, _)| variable == name).map(|(_, launcher)| *launcher);
                let Some(launcher) = known.or_else(|| launcher_of(name)) else { continue };
                if is_printed || is_looked_up(&words, at) {
                    continue;
                }
                if let Some(processes) = read_processes(&words[at + 1..]) {
                    calls.push(Self { line: index + 1, launcher, processes });
                }
            }
        }
        calls
    }
}

/// Tasks of a job under Slurm, and runs of its script in Headway.
#[derive(Clone, Copy, Debug)]
pub struct JobRuns {
    pub slurm_tasks: u32,
    pub nodes: u32,
    pub runs: u32,
}

impl JobRuns {
    /// Describes how the processes of a call differ from those under Slurm, and what to do; `None` where they do not.
    pub fn describe_difference(&self, call: &MpiCall) -> Option<(String, String)> {
        let Self { slurm_tasks, nodes, runs } = *self;
        let launcher = call.launcher;
        let (slurm, each, all) = match &call.processes {
            Processes::OfJob => (slurm_tasks.to_string(), 1, runs),
            Processes::Given(count) => (count.to_string(), *count, count.saturating_mul(runs)),
            Processes::PerNode(count) => (count.saturating_mul(nodes).to_string(), *count, count.saturating_mul(runs)),
            Processes::Unread(_) if runs == 1 => return None,
            Processes::Unread(word) => {
                let message = format!(
                    "Slurm would start {word} processes with {launcher}, and Headway would start {word} in each of {runs} \
                     runs of the script"
                );
                return Some((message, describe_runs(launcher)));
            }
        };
        let message = format!("Slurm would start {slurm} processes with {launcher}, and Headway would start {all}");
        if runs > 1 {
            return Some((format!("{message}: {each} in each of {runs} runs of the script"), describe_runs(launcher)));
        }
        let hint = format!(
            "write the number, {launcher} -np {slurm}: without it MPICH starts 1 process, and Open MPI one per CPU core"
        );
        (slurm != each.to_string()).then_some((message, hint))
    }
}

fn describe_runs(launcher: &str) -> String {
    format!(
        "{launcher} is given no hosts: the script runs once on each node (once per GPU where srun starts a task for each), \
         and processes of different runs do not find each other. Let each run start its own, as torchrun does"
    )
}

/// Returns the program in a word of a command line, without what the shell has around it.
fn program_of(word: &str) -> &str {
    let word = word.trim_end_matches([')', '"', '\'', '`', ';']);
    word.rsplit(['(', '=', '"', '\'', '`', ';', '&', '|']).next().unwrap_or(word)
}

fn launcher_of(program: &str) -> Option<&'static str> {
    let name = program.rsplit('/').next()?;
    LAUNCHERS.iter().find(|launcher| **launcher == name).copied()
}

/// Reads `NAME=mpirun` and `NAME=$(which mpirun)`, also with a path, quotes and `export`.
fn read_assignment(words: &[&str]) -> Option<(String, &'static str)> {
    let words = words.strip_prefix(&["export"]).unwrap_or(words);
    let (first, others) = words.split_first()?;
    let (name, _) = first.split_once('=')?;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    let value: Vec<&str> = [first].into_iter().chain(others).map(|word| program_of(word)).collect();
    let launcher = match value[..] {
        [program] | ["which", program] | ["command", "-v", program] => launcher_of(program)?,
        _ => return None,
    };
    Some((name.to_owned(), launcher))
}

/// Whether a word names a program to look up. `$(which mpirun) -n 8` calls what it has found.
fn is_looked_up(words: &[&str], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| program_of(words[before]));
    let is_argument = before.is_some_and(|word| LOOK_UPS.contains(&word));
    let is_substituted = words[at].ends_with([')', '`', '"']);
    let goes_on = words.get(at + 1).is_some_and(|next| !SEPARATORS.contains(next) && !next.contains('>'));
    is_argument && !(is_substituted && goes_on)
}

/// Returns the processes that a call starts for all its programs, between which a colon stands; `None` where it starts
/// nothing.
fn read_processes(words: &[&str]) -> Option<Processes> {
    let end = words.iter().position(|word| SEPARATORS.contains(word)).unwrap_or(words.len());
    let mut all = None;
    for program in words[..end].split(|word| *word == ":") {
        all = Some(match (all, read_program(program)?) {
            (None, first) => first,
            (Some(Processes::Given(one)), Processes::Given(other)) => Processes::Given(one.saturating_add(other)),
            (Some(_), Processes::Unread(word)) | (Some(Processes::Unread(word)), _) => Processes::Unread(word),
            (Some(_), _) => Processes::OfJob,
        });
    }
    all
}

fn read_program(words: &[&str]) -> Option<Processes> {
    let mut found = Processes::OfJob;
    let mut words = words.iter().copied().peekable();
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix('-') else { break };
        let (name, given) = split_option(option);
        if QUESTIONS.contains(&name) {
            return None;
        }
        if FLAGS.contains(&name) {
            continue;
        }
        // What begins with a dash is the next option: one that is not known here takes no value.
        let value = given.or_else(|| words.next_if(|next| !next.starts_with('-'))).unwrap_or_default();
        if PAIRS.contains(&name) {
            words.next();
        }
        let is_open = found == Processes::OfJob;
        match name {
            "n" | "np" | "c" => found = read_number(value),
            "N" | "npernode" | "ppn" | "perhost" if is_open => found = read_per_node(value),
            "map-by" if is_open => {
                let count = value.strip_prefix("ppr:").and_then(|rest| rest.split_once(":node"));
                found = count.map_or(found, |(count, _)| read_per_node(count));
            }
            _ => {}
        }
    }
    Some(found)
}

/// Splits `-np=8`, `--np=8` and `-n8`, of which the first dash is gone; other options have their value behind them.
fn split_option(option: &str) -> (&str, Option<&str>) {
    let option = option.strip_prefix('-').unwrap_or(option);
    if let Some((name, value)) = option.split_once('=') {
        return (name, Some(value));
    }
    let count = option.strip_prefix(['n', 'c']).unwrap_or_default();
    match count.as_bytes().first() {
        Some(b'0'..=b'9') => (&option[..1], Some(count)),
        _ => (option, None),
    }
}

fn read_number(word: &str) -> Processes {
    let word = word.trim_matches(['"', '\'']);
    let variable = word.strip_prefix('$').map(|name| name.trim_matches(['{', '}']));
    match word.parse() {
        Ok(count) => Processes::Given(count),
        Err(_) if variable.is_some_and(|name| TASK_COUNTS.contains(&name)) => Processes::OfJob,
        Err(_) => Processes::Unread(word.to_owned()),
    }
}

fn read_per_node(word: &str) -> Processes {
    match read_number(word) {
        Processes::Given(count) => Processes::PerNode(count),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<Processes> {
        MpiCall::find_all(text).into_iter().map(|call| call.processes).collect()
    }

    #[test]
    fn a_call_starts_as_many_processes_as_its_options_say() {
        use Processes::{Given, OfJob, PerNode, Unread};
        for (text, processes) in [
            ("mpirun python a.py -n 5", OfJob),
            ("mpirun -np 8 python a.py", Given(8)),
            ("  /opt/mpi/bin/mpiexec -n8 ./a.out", Given(8)),
            ("time mpirun --np=\"16\" ./a.out", Given(16)),
            ("mpirun --bind-to none -x PATH --mca btl tcp,self --allow-run-as-root \\\n  -np 4 python a.py", Given(4)),
            ("mpiexec.hydra -genv OMP_NUM_THREADS 4 -ppn 2 ./a.out", PerNode(2)),
            ("mpirun --map-by ppr:8:node:PE=12 ./a.out", PerNode(8)),
            ("mpirun -N 8 -np 16 ./a.out", Given(16)),
            ("mpirun --bynode -np 8 ./a.out", Given(8)),
            ("mpirun --bind-to-core -n 4 ./a.out", Given(4)),
            ("mpirun -np 1 ./a.out : -np 7 ./b.out", Given(8)),
            ("mpirun -np $SLURM_NTASKS ./a.out", OfJob),
            ("mpirun -n \"${SLURM_NTASKS_PER_NODE}\" ./a.out", OfJob),
            ("mpirun -np $WORLD ./a.out", Unread("$WORLD".into())),
            ("module load openmpi && mpirun ./a.out", OfJob),
            ("out=$(mpirun -n 2 ./a.out)", Given(2)),
            ("$(command -v mpirun) -n 2 ./a.out", Given(2)),
            ("MPI=$(which mpirun)\n$MPI -n 2 ./a.out", Given(2)),
            ("export RUN=\"/opt/mpi/bin/mpirun\"\n${RUN} ./a.out", OfJob),
            ("RUN=\"mpirun -np 8\"\n$RUN ./a.out", Given(8)),
        ] {
            assert_eq!(found(&format!("#!/bin/bash\n{text}\n")), [processes], "{text}");
        }
    }

    #[test]
    fn what_calls_no_launcher_is_none() {
        for text in [
            "# mpirun ./a.out",
            "python a.py # not by mpirun",
            "which mpirun",
            "command -v mpirun > /dev/null || exit 1",
            "mpirun --version",
            "echo starts with mpirun -np 8",
            "module load mpirun/4.1",
            "./my-mpirun a",
            "MPI=$(which mpirun)",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
        let calls = MpiCall::find_all("#!/bin/sh\necho first; mpirun a\nmpiexec b\n");
        let told: Vec<_> = calls.iter().map(|call| (call.line, call.launcher)).collect();
        assert_eq!(told, [(2, "mpirun"), (3, "mpiexec")]);
    }
}

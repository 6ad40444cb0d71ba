//! A script for Slurm as a specification. Each option is mapped, or named with why it is not and what to do instead: nothing is
//! left out in silence, and what would make another job of it (a hold, a start later) is refused unless the caller says otherwise.

mod body;
mod dependency;
mod mpi;
mod nodes;
mod quantity;
mod shape;

use std::collections::BTreeMap;
use std::path::Path;

use headway_types::spec::NoticeSignal;
use serde_json::{Map, Value, json};

use super::bare::sanitised;
use super::sbatch::{Directive, directives, first_unread};
use super::{Place, Submission, file};
use crate::failure::{Failure, Kind};
use shape::Shape;

/// Reads a script. `directory`: where the caller is; `left_out`: options whose loss he accepts.
pub fn read_script(
    script: &Path,
    arguments: &[String],
    directory: &Path,
    left_out: &[String],
) -> Result<Submission, Failure> {
    let source = script.display().to_string();
    let text = file::text(script, &source)?;
    let name = script.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    translate(&Script { text: &text, source: &source, name: &name, arguments, directory }, left_out)
}

/// A script and how it was called.
#[derive(Clone, Copy)]
struct Script<'a> {
    text: &'a str,
    source: &'a str,
    /// That of its file, without the ending.
    name: &'a str,
    arguments: &'a [String],
    directory: &'a Path,
}

fn translate(script: &Script<'_>, left_out: &[String]) -> Result<Submission, Failure> {
    let Script { text, source, .. } = *script;
    if let Some(line) = text.split('\n').position(|line| line.ends_with('\r')) {
        let place = format!("{source}:{}", line + 1);
        let message =
            format!("{place}: the lines end as in DOS (\\r\\n), and the shell would read \\r as part of words");
        return Err(Failure::new(Kind::Usage, message).hint(format!("dos2unix {source}; Slurm refuses it too")));
    }
    let mut options = Options::default();
    for directive in directives(text, source)? {
        // Of an option given twice the last holds, as in Slurm.
        options.given.insert(directive.name, directive);
    }
    if let Some(line) = first_unread(text) {
        options.notes.push(format!("line {line}: comes after the first command, so it is not read, as in Slurm"));
    }
    let mut job = Translation { source, options, spec: Map::new(), places: BTreeMap::new(), is_array: false };
    let result = job.all(script, left_out);
    result.map_err(|(line, failure)| Failure {
        message: format!("{source}{}: {}", line.map(|line| format!(":{line}")).unwrap_or_default(), failure.message),
        ..failure
    })?;
    let Translation { options, spec, places, .. } = job;
    Ok(Submission { source: source.to_owned(), body: Value::Object(spec), places, notes: options.notes })
}

type Wrong = (Option<usize>, Failure);

fn wrong(line: usize, message: impl Into<String>) -> Wrong {
    (Some(line), Failure::new(Kind::Usage, message))
}

/// What a script asks for, as far as it is not yet dealt with.
#[derive(Default)]
struct Options {
    given: BTreeMap<&'static str, Directive>,
    notes: Vec<String>,
}

impl Options {
    fn take(&mut self, name: &str) -> Option<Directive> {
        self.given.remove(name)
    }

    fn note(&mut self, line: usize, note: impl AsRef<str>) {
        self.notes.push(format!("line {line}: {}", note.as_ref()));
    }

    /// A whole number that is not zero.
    fn count(&mut self, name: &str) -> Result<Option<(usize, u32)>, Wrong> {
        let Some(one) = self.take(name) else { return Ok(None) };
        match one.value.parse::<u32>() {
            Ok(count) if count > 0 => Ok(Some((one.line, count))),
            _ => Err(wrong(one.line, format!("--{name} must be a whole number above 0, not \"{}\"", one.value))),
        }
    }
}

struct Translation<'a> {
    source: &'a str,
    options: Options,
    spec: Map<String, Value>,
    places: BTreeMap<String, Place>,
    /// Whether the script is one.
    is_array: bool,
}

impl Translation<'_> {
    fn all(&mut self, script: &Script<'_>, left_out: &[String]) -> Result<(), Wrong> {
        let Script { text, name, .. } = *script;
        self.refuse(left_out)?;
        self.spec.insert("version".into(), json!(1));
        self.name(name);
        self.account();
        let labels = self.labels();
        let shape = self.shape(text, left_out)?;
        self.time()?;
        self.signal()?;
        self.dependency(left_out)?;
        self.array(left_out)?;
        let cpus = self.per_node(&shape)?;
        self.nodes(left_out)?;
        self.run(script, &shape, cpus)?;
        if !labels.is_empty() {
            self.spec.insert("labels".into(), Value::Object(labels));
        }
        self.options.notes.extend(body::warnings(text, self.is_array));
        self.rest(name);
        Ok(())
    }

    fn set(&mut self, path: &str, line: usize, value: Value) {
        let mut at = &mut self.spec;
        let mut keys = path.split('.').peekable();
        while let Some(key) = keys.next() {
            if keys.peek().is_none() {
                at.insert(key.to_owned(), value);
                break;
            }
            let below = at.entry(key).or_insert_with(|| json!({}));
            let Value::Object(map) = below else { break };
            at = map;
        }
        self.places.insert(path.to_owned(), Place::Line(line));
    }

    /// What would make another job of it.
    fn refuse(&mut self, left_out: &[String]) -> Result<(), Wrong> {
        for (name, instead) in [
            ("begin", "Headway starts jobs as soon as it can. Submit it then, with --leave-out begin"),
            (
                "hold",
                "submit it with --leave-out hold, and hold it: headway job hold JOB; later: headway job release JOB",
            ),
        ] {
            let Some(given) = self.options.given.get(name) else { continue };
            if !left_out.iter().any(|one| one.trim_start_matches('-') == name) {
                let (line, failure) = wrong(given.line, format!("--{name} is not taken yet"));
                return Err((line, failure.hint(instead.replace("SCRIPT", self.source))));
            }
            if let Some(one) = self.options.take(name) {
                self.options.note(one.line, format!("--{name} is left out, as you asked"));
            }
        }
        Ok(())
    }

    /// `0-15%4`: Headway reads it as Slurm writes it.
    fn array(&mut self, left_out: &[String]) -> Result<(), Wrong> {
        let Some(one) = self.options.take("array") else { return Ok(()) };
        if left_out.iter().any(|left| left.trim_start_matches('-') == "array") {
            self.options.note(one.line, "--array is left out, as you asked");
            return Ok(());
        }
        self.is_array = true;
        self.set("array", one.line, json!(one.value));
        Ok(())
    }

    fn name(&mut self, script: &str) {
        let (line, wanted) = match self.options.take("job-name") {
            Some(one) => (one.line, one.value),
            None => (1, script.to_owned()),
        };
        let name = sanitised(&wanted);
        if name != wanted {
            self.options.note(line, format!("it is called {name}, since names hold letters, digits, '-', '_' and '.'"));
        }
        self.set("name", line, json!(name));
    }

    fn account(&mut self) {
        if let Some(one) = self.options.take("account") {
            self.set("project", one.line, json!(sanitised(&one.value)));
            self.options.note(one.line, format!("--account {} became the project of that name", one.value));
        }
    }

    fn labels(&mut self) -> Map<String, Value> {
        let mut labels = Map::new();
        for (name, instead) in [
            ("partition", "Headway has no partitions; where it stood for a GPU type, give --gpu-type"),
            ("qos", "Headway has priorities from 0 to 100: give --priority"),
            ("comment", "`headway ps` and the web page show it"),
            ("wckey", "usage is counted by project: give --project"),
        ] {
            if let Some(one) = self.options.take(name) {
                labels.insert(name.into(), json!(one.value));
                self.options.note(one.line, format!("--{name} became the label {name}={}; {instead}", one.value));
            }
        }
        labels
    }

    fn time(&mut self) -> Result<(), Wrong> {
        if let Some(one) = self.options.take("time") {
            match quantity::time(&one.value) {
                Some(0) => self.options.note(one.line, "no time limit, as --time=0 asks"),
                Some(seconds) => self.set("limits.time", one.line, json!(format!("{seconds}s"))),
                None => {
                    let message = format!("--time must be as in 90, 1:30:00 or 2-12:00:00, not \"{}\"", one.value);
                    return Err(wrong(one.line, message));
                }
            }
        }
        // A script that fails has failed, as in Slurm; what nodes do to it never counts against it.
        self.set("limits.max_restarts", 1, json!(0));
        self.requeue()
    }

    /// `--requeue`, `--no-requeue`: whether the script may run a second time.
    fn requeue(&mut self) -> Result<(), Wrong> {
        let (again, never) = (self.options.take("requeue"), self.options.take("no-requeue"));
        let (one, restartable, note) = match (again, never) {
            (None, None) => return Ok(()),
            // As with every option given twice, the last line counts.
            (Some(again), never) if never.as_ref().is_none_or(|never| never.line < again.line) => (
                again,
                true,
                "--requeue became limits.restartable: true: other jobs may take its GPUs, and it starts again",
            ),
            (_, Some(never)) => (
                never,
                false,
                "--no-requeue became limits.restartable: false: it is started once, and fails where its node does",
            ),
            (Some(again), None) => (again, true, ""),
        };
        self.set("limits.restartable", one.line, json!(restartable));
        self.options.note(one.line, note);
        Ok(())
    }

    /// `[R:][B:]SIGNAL[@SECONDS]`.
    fn signal(&mut self) -> Result<(), Wrong> {
        let Some(one) = self.options.take("signal") else { return Ok(()) };
        let text = one.value.strip_prefix("R:").unwrap_or(&one.value);
        let (text, to) = text.strip_prefix("B:").map_or((text, ""), |rest| (rest, "B:"));
        let (signal, before) = text.split_once('@').unwrap_or((text, "60"));
        let read = NoticeSignal::read(signal).zip(before.parse::<u32>().ok().filter(|before| *before > 0));
        let (signal, before) = read.ok_or_else(|| {
            let message = format!(
                "--signal must be as in USR1@120 or B:TERM, with HUP, INT, QUIT, USR1, USR2 or TERM, not \"{}\"",
                one.value
            );
            wrong(one.line, message)
        })?;
        self.set("limits.signal", one.line, json!(format!("{to}{}@{before}s", signal.name())));
        if to.is_empty() {
            self.options.note(
                one.line,
                "--signal goes to every process of the job that handles it, the script itself among them",
            );
        }
        Ok(())
    }

    /// CPUs and memory; the reply is what a task has of CPUs.
    fn per_node(&mut self, shape: &Shape) -> Result<Option<u32>, Wrong> {
        let per_task = self.options.count("cpus-per-task")?;
        let per_gpu = self.options.count("cpus-per-gpu")?;
        let on_node = shape.gpus_per_node.or(Some(shape.gpus).filter(|gpus| *gpus == 1));
        let asked = match (per_task, per_gpu) {
            (Some(per_task), _) => Some(("cpus-per-task", per_task, shape.tasks_per_node)),
            (None, Some(per_gpu)) => Some(("cpus-per-gpu", per_gpu, on_node)),
            (None, None) => None,
        };
        let cpus = asked.and_then(|(option, (line, count), times)| {
            let cpus = self.times_on_node(option, line, times)?.saturating_mul(count);
            Some((line, cpus))
        });
        if let Some((line, cpus)) = cpus {
            self.set("resources.per_node.cpus", line, json!(cpus));
        }
        let of_node = if asked.is_some() { cpus.map(|(_, cpus)| cpus) } else { Some(1) };
        for (name, times) in [("mem", Some(1)), ("mem-per-gpu", on_node), ("mem-per-cpu", of_node)] {
            let Some(one) = self.options.take(name) else { continue };
            let Some(times) = self.times_on_node(name, one.line, times) else { continue };
            match quantity::mebibytes(&one.value) {
                Some(0) => self.options.note(one.line, "--mem=0 asks for all memory of a node: Headway sets no bound"),
                Some(size) => {
                    let size = size.saturating_mul(u64::from(times));
                    self.set("resources.per_node.memory", one.line, json!(format!("{size}MiB")));
                }
                None => {
                    return Err(wrong(one.line, format!("--{name} must be as in 64G or 4096M, not \"{}\"", one.value)));
                }
            }
        }
        if let Some(one) = self.options.take("tmp") {
            let size = quantity::mebibytes(&one.value);
            let size =
                size.ok_or_else(|| wrong(one.line, format!("--tmp must be as in 64G, not \"{}\"", one.value)))?;
            self.set("resources.per_node.local_disk", one.line, json!(format!("{size}MiB")));
        }
        Ok(per_task.map(|(_, count)| count))
    }

    /// How many times a node has what an option asks for one task, GPU or CPU. Where that is not known the option is
    /// left out and named: with the number of the whole job, no node would have enough.
    fn times_on_node(&mut self, option: &str, line: usize, times: Option<u32>) -> Option<u32> {
        if times.is_none() {
            let note =
                format!("--{option} is left out: without --nodes it is not known how much of the job a node has");
            self.options.note(line, note);
        }
        times
    }

    fn run(&mut self, script: &Script<'_>, shape: &Shape, cpus: Option<u32>) -> Result<(), Wrong> {
        let directory = script.directory;
        let workdir = match self.options.take("chdir") {
            Some(one) => {
                let path = directory.join(&one.value).display().to_string();
                self.set("run.workdir", one.line, json!(path));
                path
            }
            None => {
                let path = directory.display().to_string();
                self.set("run.workdir", 1, json!(path));
                path
            }
        };
        let command = body::command(script.text, script.source, script.arguments, shape.per_gpu)
            .map_err(|failure| (Some(1), failure))?;
        self.set("run.command", 1, command);
        if shape.per_gpu {
            self.set("run.per", 1, json!("gpu"));
            let note = "the script runs once per GPU, since it has one task for each and starts them with srun";
            self.options.notes.push(note.to_owned());
        }
        let mut env = body::variables(shape.per_gpu, shape.gpus, cpus, &workdir);
        if self.is_array {
            env.extend(body::array_variables());
        }
        if let Some(one) = self.options.take("export") {
            self.export(&one, &mut env);
        }
        self.set("run.env", 1, Value::Object(env));
        Ok(())
    }

    fn export(&mut self, one: &Directive, env: &mut Map<String, Value>) {
        for word in one.value.split(',').map(str::trim) {
            match (word, word.split_once('=')) {
                ("NONE" | "NIL", _) => {}
                ("ALL", _) => {
                    let note = "--export=ALL is left out: a job does not inherit your environment; name what it needs: \
                                --env NAME";
                    self.options.note(one.line, note);
                }
                (_, Some((name, value))) => {
                    env.insert(name.to_owned(), json!(headway_api::spec::literal(value)));
                }
                (name, None) => match std::env::var(name) {
                    Ok(value) => {
                        env.insert(name.to_owned(), json!(headway_api::spec::literal(&value)));
                    }
                    Err(_) => self.options.note(one.line, format!("--export {name} is left out: it is not set here")),
                },
            }
        }
    }

    /// Whatever is left is named, with what there is instead.
    fn rest(&mut self, script: &str) {
        let name = self.spec.get("name").and_then(Value::as_str).unwrap_or(script).to_owned();
        for (option, one) in std::mem::take(&mut self.options.given) {
            let instead = match option {
                "output" | "error" | "open-mode" => format!("a node keeps what a job writes: headway logs -f {name}"),
                "input" => "a job reads nothing: redirect within the script".into(),
                "mail-type" | "mail-user" => "Headway sends no mail: headway job wait JOB && mail …".into(),
                "nice" | "priority" => "Headway has priorities from 0 to 100: give --priority".into(),
                "exclusive" => "GPUs are never shared; of CPUs and memory ask for what the job needs".into(),
                "nodefile" => "name the nodes: --nodelist".into(),
                "reservation" => "a reservation names its jobs itself: headway reservation --help".into(),
                "deadline" => "write the deadline into a specification; it stops nothing".into(),
                "wait" => "wait after submitting: headway job wait JOB".into(),
                "test-only" => "headway submit --dry-run".into(),
                "wrap" => "the script is what runs".into(),
                "uid" | "gid" => "a job runs as its owner".into(),
                "quiet" | "verbose" | "parsable" => "-o name prints the id alone".into(),
                _ => "Headway has nothing like it".into(),
            };
            self.options.note(one.line, format!("--{option} is left out: {instead}"));
        }
        self.options.notes.sort_by_key(|note| {
            let line = note.strip_prefix("line ").and_then(|rest| rest.split(':').next()?.parse::<usize>().ok());
            line.unwrap_or(usize::MAX)
        });
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod script_tests;
#[cfg(test)]
mod tests;

//! `headway plan solve`: one round for whoever asks, without a server. From a file or line by line, so that other
//! simulators can use Headway as their planner. Equal documents give equal replies.

use std::io::{BufRead as _, Read as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use headway_api::solve::{self as wire, SolveError};
use headway_api::yaml;
use headway_goodput::catalog::Catalog;
use headway_goodput::physics::Parameters;
use headway_planner::{CurveCache, PlanInput, plan, verify};
use headway_types::Plan;
use serde::Serialize;
use serde_json::Value;

use crate::failure::{Failure, Kind};
use crate::output::{Format, Printer};
use crate::solve::{self, Names};

#[derive(Args, Clone, Debug)]
pub struct Solve {
    /// A round (docs/plan-solve.md) in JSON, `-` for standard input.
    #[arg(default_value = "-")]
    pub file: PathBuf,
    /// One round a line on standard input, one reply a line back; a bad line is answered by an error and the next is read.
    #[arg(long, conflicts_with = "file")]
    pub stream: bool,
    /// The input is that of a stored round, in the planner's own form; the reply is the plan as the scheduler stores it.
    #[arg(long)]
    pub stored: bool,
    /// Files with GPU types of your own, in the form of the built-in hardware catalog; a stored round brings what it was solved with.
    #[arg(long = "catalog", value_name = "FILE", conflicts_with = "stored")]
    pub catalogs: Vec<PathBuf>,
    /// Decide by this policy, whatever the input says.
    #[arg(long, value_parser = named::<wire::Objective>)]
    pub policy: Option<wire::Objective>,
    /// Let this solver decide, whatever the input says: `headway`, or `milp`, an exact backend for rounds of moderate size. Where
    /// `milp` is asked for, here or in the document, and has no answer, there is no reply.
    #[arg(long, value_parser = named::<wire::Solver>)]
    pub solver: Option<wire::Solver>,
}

/// A word of the wire.
fn named<T: serde::de::DeserializeOwned>(name: &str) -> Result<T, String> {
    serde_json::from_value(Value::String(name.to_owned())).map_err(|error| error.to_string())
}

/// Why a round has no reply.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error(transparent)]
    Document(#[from] SolveError),
    /// The round is what it says and still has no plan.
    #[error("{0}")]
    Planner(String),
}

impl From<RoundError> for Failure {
    fn from(error: RoundError) -> Self {
        let kind = if matches!(error, RoundError::Document(_)) { Kind::Usage } else { Kind::Failed };
        Failure::new(kind, error.to_string())
    }
}

pub fn run(print: &Printer, command: &Solve) -> Result<(), Failure> {
    let mut solver = Solver::new(command)?;
    if command.stream {
        if print.format != Format::Json {
            return Err(Failure::new(Kind::Usage, "--stream replies in JSON lines").hint("leave -o out"));
        }
        return stream(&mut solver);
    }
    let text = read(&command.file)?;
    let answer = solver.solve(&text)?;
    let mut out = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    match print.format {
        // Names are whoever's wrote the document.
        Format::Table => put!("{}", solve::table(print, &answer.reply()))?,
        Format::Name => answer
            .reply()
            .jobs
            .iter()
            .filter(|job| job.allocation.is_some())
            .try_for_each(|job| say!("{}", job.name))?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut out, &answer).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
        Format::Yaml => {
            let text = yaml::write(&answer);
            write!(out, "{}", text.map_err(|error| Failure::new(Kind::Failed, format!("printing: {error}")))?)?;
        }
    }
    out.flush()?;
    Ok(())
}

/// Line by line until the input ends. Whoever reads the replies may wait for each before it writes the next.
fn stream(solver: &mut Solver) -> Result<(), Failure> {
    let mut input = std::io::stdin().lock();
    let mut out = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let answer = match std::str::from_utf8(&line) {
            Ok(text) => solver.solve(text.trim_end()),
            Err(error) => Err(SolveError::one("", format!("not UTF-8: {error}"), None).into()),
        };
        let written = match answer {
            Ok(answer) => serde_json::to_writer(&mut out, &answer),
            Err(error) => serde_json::to_writer(&mut out, &Refused::new(&error, &line)),
        };
        written.map_err(std::io::Error::from)?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
}

/// The text of a file, `-` for standard input.
pub fn read(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let done = if file.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).map(|_| ())
    } else {
        std::fs::read_to_string(file).map(|read| text = read)
    };
    done.map(|()| text).map_err(|error| {
        let kind = if error.kind() == std::io::ErrorKind::NotFound { Kind::NotFound } else { Kind::Failed };
        Failure::new(kind, format!("reading {}: {error}", file.display()))
    })
}

/// Rounds one after another. What it keeps between them makes them faster and changes none.
struct Solver {
    stored: bool,
    site: Catalog,
    policy: Option<wire::Objective>,
    solver: Option<wire::Solver>,
    names: Names,
    curves: CurveCache,
}

impl Solver {
    fn new(command: &Solve) -> Result<Self, Failure> {
        Ok(Self {
            stored: command.stored,
            site: super::catalog::read(&command.catalogs, Parameters::built_in())?,
            policy: command.policy,
            solver: command.solver,
            names: Names::default(),
            curves: CurveCache::new(),
        })
    }

    fn solve(&mut self, text: &str) -> Result<Answer, RoundError> {
        let (round, mut input) = self.input(text)?;
        if let Some(objective) = self.policy {
            input.policy.objective = objective;
        }
        if let Some(solver) = self.solver {
            input.policy.solver = solver;
        }
        // The planner refuses only what breaks its promises, and then names it.
        let plan = plan(&input, &mut self.curves).map_err(|error| SolveError::one("", error.to_string(), None))?;
        // A plan that breaks a promise is worth less than none.
        verify(&input, &plan)
            .map_err(|violation| RoundError::Planner(format!("the plan does not hold: {violation}")))?;
        // A stored round replays as it was decided; whoever asks for a solver now gets that one or hears why not.
        let instead = plan.report.solver.as_ref().and_then(|solver| solver.instead.clone());
        if let Some(reason) = instead.filter(|_| !self.stored || self.solver.is_some()) {
            return Err(RoundError::Planner(reason));
        }
        Ok(Answer { stored: self.stored, round, input, plan })
    }

    fn input(&mut self, text: &str) -> Result<(Option<Value>, PlanInput), RoundError> {
        if self.stored {
            return Ok((None, wire::read_json(text)?));
        }
        let mut document = wire::read(text)?;
        let round = document.round.take();
        let mut input = solve::input(document, &mut self.names)?;
        for node in &mut input.nodes {
            node.class.stated = self.site.stated(&node.class.gpu_type.0).cloned();
        }
        Ok((round, input))
    }
}

/// A round and its plan, until it is printed.
struct Answer {
    stored: bool,
    round: Option<Value>,
    input: PlanInput,
    plan: Plan,
}

impl Answer {
    fn reply(&self) -> wire::Reply {
        solve::reply(self.round.clone(), &self.input, &self.plan)
    }
}

impl Serialize for Answer {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.stored { self.plan.serialize(serializer) } else { self.reply().serialize(serializer) }
    }
}

/// The line that answers a bad one.
#[derive(Serialize)]
struct Refused {
    version: u32,
    /// The document's own, where that much could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    round: Option<Value>,
    error: Refusal,
}

#[derive(Serialize)]
struct Refusal {
    /// `document` or `planner`.
    code: &'static str,
    message: String,
    findings: Vec<wire::Finding>,
}

impl Refused {
    fn new(error: &RoundError, line: &[u8]) -> Self {
        let round = serde_json::from_slice::<Value>(line).ok().and_then(|value| value.get("round").cloned());
        let (code, findings) = match error {
            RoundError::Document(error) => ("document", error.findings.clone()),
            RoundError::Planner(_) => ("planner", Vec::new()),
        };
        Self { version: wire::VERSION, round, error: Refusal { code, message: error.to_string(), findings } }
    }
}

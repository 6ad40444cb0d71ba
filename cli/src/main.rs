//! `headway`: the one binary. It parses arguments, calls the REST API like any script could, and prints; the server,
//! the agent and `up` are entered from here.

// `print!` panics where nobody reads any more; `say!` and `put!` do not.
#![warn(clippy::print_stdout)]

#[macro_use]
mod output;

mod bundle;
mod command;
mod completion;
mod confirm;
mod context;
mod demo;
mod doctor;
#[cfg(test)]
mod documented;
#[cfg(test)]
mod documented_tree;
mod failure;
mod logging;
mod moment;
mod prompt;
mod solve;
mod submission;
mod table;
mod top;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use context::Connection;
use failure::Failure;
use headway_scheduler::spans::Collector;
use logging::LogFormat;
use output::Output;

/// With the commit it was built from; `build.rs` says which.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("HEADWAY_BUILD"), ")");

/// Goodput-maximising scheduler for clusters that train large language models.
#[derive(Parser)]
#[command(name = "headway", version = VERSION, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    connection: Connection,
    /// How to print [default: table; json for `plan solve`]
    #[arg(short = 'o', long, global = true, help_heading = "For every command", value_enum)]
    output: Option<Output>,
    /// Print no header line.
    #[arg(long, global = true, help_heading = "For every command")]
    no_headers: bool,
    /// Write nothing to standard output: the exit code tells, and complaints go to standard error as ever.
    #[arg(long, global = true, help_heading = "For every command")]
    quiet: bool,
    /// How lines of the log are written, to standard error.
    #[arg(
        long,
        global = true,
        help_heading = "For every command",
        value_enum,
        env = "HEADWAY_LOG_FORMAT",
        default_value = "text"
    )]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a whole cluster on this machine.
    Up(up::Up),
    /// Run the scheduler.
    Server(command::server::Server),
    /// Run the agent of this node.
    Agent(command::agent::Agent),
    /// Submit jobs: specification files, a bare command, or a script for Slurm.
    Submit(Box<command::submit::Submit>),
    /// Check a specification without submitting it.
    Validate(command::submit::Validate),
    /// List jobs.
    Ps(command::ps::Ps),
    /// Watch the cluster and its jobs live, in a terminal.
    Top(top::Top),
    /// Show one job whole.
    Describe(command::describe::Describe),
    /// Print what a job's ranks wrote.
    Logs(command::logs::Logs),
    /// End a job.
    Cancel(command::cancel::Cancel),
    /// Why a job has what it has, or why it waits.
    Why(command::why::Why),
    /// Jobs: get, wait, hold, release, checkpoint, events, goodput, curve, pin, resize, change priority and sizes.
    #[command(subcommand)]
    Job(command::job::Job),
    /// Arrays: jobs of one specification, looked at, held, released, cancelled as one.
    #[command(subcommand)]
    Array(command::array::Array),
    /// Nodes: list, look at GPUs and health, drain, undrain, cordon.
    #[command(subcommand)]
    Node(command::node::Node),
    /// The queue: what waits for GPUs, in order, and why.
    #[command(subcommand)]
    Queue(command::queue::Queue),
    /// Plans: show the present one, rebalance, approve, reject; solve a round of one's own.
    #[command(subcommand)]
    Plan(command::plan::Plan),
    /// Projects: quotas, floors and shares.
    #[command(subcommand)]
    Project(command::project::Project),
    /// Reservations: nodes set aside.
    #[command(subcommand)]
    Reservation(command::reservation::Reservation),
    /// The policy: objective, constants and mode.
    #[command(subcommand)]
    Policy(command::policy::Policy),
    /// Tokens: make one, list them, revoke one.
    #[command(subcommand)]
    Token(command::token::Token),
    /// Secrets: values that jobs are given by name; set, list, delete.
    #[command(subcommand)]
    Secret(command::secret::Secret),
    /// Users: who there is, and what their tokens open at most.
    #[command(subcommand)]
    User(command::user::User),
    /// The audit: who did what, and what was refused.
    #[command(subcommand)]
    Audit(command::audit::Audit),
    /// Keep the cluster: back it up, restore it, examine it; which server leads; readmit nodes to a database that was restored.
    #[command(subcommand)]
    Admin(command::admin::Admin),
    /// Log in through the cluster's identity provider, and keep the token for the context.
    Login(command::login::Login),
    /// End the login of the context in use: revoke its token and forget it.
    Logout,
    /// Who the scheduler takes you for.
    Whoami,
    /// Clusters by name: list them, choose one.
    #[command(subcommand)]
    Context(command::context::Context),
    /// What happened, with reasons.
    Events(command::events::Events),
    /// GPU-hours by user, project, GPU type and cause.
    #[command(subcommand)]
    Usage(command::usage::Usage),
    /// Best configurations of a model on GPUs, from its architecture alone; or the model against measurements.
    Estimate(Box<command::estimate::Estimate>),
    /// Compare policies on a workload in virtual time, against a truth they are not told.
    Evaluate(Box<command::evaluate::Evaluate>),
    /// The goodput model: fit its constants, list the models and GPU types it knows by name.
    #[command(subcommand)]
    Model(command::model::Model),
    /// What would come of jobs, nodes, quotas or priorities that are not so (`headway plan simulate`).
    Simulate(Box<command::plan::Simulate>),
    /// Submit three demonstration jobs to a running cluster and watch them.
    Demo(demo::Demo),
    /// Which version this is, and which the scheduler is.
    Version,
    /// Print the licences of Headway and of everything it is made of.
    Licenses,
    /// Print a completion script for a shell.
    Completion {
        shell: clap_complete::Shell,
        /// Complete names too, of jobs, nodes, projects and contexts: the scheduler is asked for them at each press of the key.
        #[arg(long)]
        names: bool,
    },
    /// Print the manual page, or write one for each command into a directory.
    Man {
        /// Directory to write them to, such as ~/.local/share/man/man1.
        #[arg(long, alias = "out", value_name = "DIR")]
        dir: Option<std::path::PathBuf>,
    },
    /// A worker that follows a performance model instead of training (for tests and demonstrations).
    #[command(hide = true)]
    EmulatedWorker,
    /// Hand the cgroup controllers of the agent's unit back to systemd, which runs this when the agent has stopped.
    #[command(hide = true)]
    HandBackCgroups,
}

fn main() -> ExitCode {
    // One TLS provider for the whole process; a second installation can only be ours and is harmless.
    rustls::crypto::ring::default_provider().install_default().ok();
    completion::answer();
    let cli = Cli::parse();
    if let Command::EmulatedWorker = cli.command {
        return headway_agent::emulated_worker_main();
    }
    if cli.quiet
        && let Err(error) = output::silence()
    {
        aside!("headway: closing standard output: {error}");
        return ExitCode::FAILURE;
    }
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            aside!("headway: starting the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(logged(cli)) {
        Ok(code) => code,
        // Whoever read the output has seen enough.
        Err(failure) if failure.kind == failure::Kind::Unread => ExitCode::SUCCESS,
        Err(failure) => {
            aside!("{failure}");
            failure.exit_code()
        }
    }
}

fn manual(directory: &std::path::Path) -> Result<(), Failure> {
    use clap::CommandFactory as _;
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(Cli::command(), directory)?;
    let pages = std::fs::read_dir(directory)?.count();
    say!("{pages} pages are in {}", directory.display())?;
    Ok(())
}

impl Command {
    /// Where it sends spans of what it does.
    fn collector(&self) -> Result<Option<Collector>, Failure> {
        match self {
            Self::Server(server) => server.spans.collector(),
            _ => Ok(None),
        }
    }
}

/// Runs the command between the start of the log and the last of its spans.
async fn logged(cli: Cli) -> Result<ExitCode, Failure> {
    let exporting = logging::start(cli.log_format, cli.command.collector()?.as_ref())?;
    let ended = run(cli).await;
    if let Some(exporting) = exporting {
        exporting.finish().await;
    }
    ended
}

async fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let print = output::Printer::new(cli.output.unwrap_or(Output::Table), !cli.no_headers);
    if cli.connection.dry_run
        && matches!(
            cli.command,
            Command::Up(_)
                | Command::Server(_)
                | Command::Agent(_)
                | Command::Demo(_)
                | Command::Login(_)
                | Command::Logout
                | Command::Context(command::context::Context::Add(_) | command::context::Context::Use { .. })
        )
    {
        return Err(Failure::new(failure::Kind::Usage, "this has no dry run"));
    }
    match cli.command {
        Command::Up(up) => up::run(up, cli.connection.context.as_deref()).await?,
        Command::Context(context) => command::context::run(&cli.connection, &print, context).await?,
        Command::Server(server) => command::server::run(server).await?,
        Command::Agent(agent) => command::agent::run(agent).await?,
        Command::Submit(submit) => command::submit::run(&cli.connection.client()?, &print, *submit).await?,
        Command::Validate(validate) => command::submit::validate(&print, validate)?,
        Command::Ps(ps) => command::ps::run(&cli.connection.client()?, &print, ps).await?,
        Command::Top(top) => top::run(&cli.connection.client()?, &print, top).await?,
        Command::Describe(describe) => command::describe::run(&cli.connection.client()?, &print, describe).await?,
        Command::Logs(logs) => command::logs::run(&cli.connection.client()?, logs).await?,
        Command::Cancel(cancel) => command::cancel::run(&cli.connection.client()?, &print, cancel).await?,
        Command::Why(why) => command::why::run(&cli.connection.client()?, &print, why).await?,
        Command::Job(job) => return command::job::run(&cli.connection.client()?, &print, job).await,
        Command::Array(array) => command::array::run(&cli.connection.client()?, &print, array).await?,
        Command::Project(project) => command::project::run(&cli.connection.client()?, &print, project).await?,
        Command::Reservation(one) => command::reservation::run(&cli.connection.client()?, &print, one).await?,
        Command::Policy(policy) => command::policy::run(&cli.connection.client()?, &print, policy).await?,
        Command::Token(token) => command::token::run(&cli.connection.client()?, &print, token).await?,
        Command::Secret(secret) => command::secret::run(&cli.connection.client()?, &print, secret).await?,
        Command::User(user) => command::user::run(&cli.connection.client()?, &print, user).await?,
        Command::Audit(audit) => command::audit::run(&cli.connection, &print, cli.output, audit).await?,
        Command::Admin(admin) => command::admin::run(&cli.connection, &print, admin).await?,
        Command::Login(login) => command::login::run(&cli.connection, &print, login).await?,
        Command::Logout => command::login::log_out(&cli.connection).await?,
        Command::Whoami => command::token::whoami(&cli.connection.client()?, &print).await?,
        Command::Queue(queue) => command::queue::run(&cli.connection.client()?, &print, queue).await?,
        // The node itself is nobody's client yet.
        Command::Node(command::node::Node::Join(_)) if cli.connection.dry_run => {
            return Err(Failure::new(failure::Kind::Usage, "this has no dry run"));
        }
        Command::Node(command::node::Node::Join(one)) => command::node::join(&print, one).await?,
        Command::Node(node) => command::node::run(&cli.connection.client()?, &print, node).await?,
        // Asks no server, so it needs no connection; its reply is for programs unless told otherwise.
        Command::Plan(command::plan::Plan::Solve(solve)) => {
            let print = output::Printer::new(cli.output.unwrap_or(Output::Json), !cli.no_headers);
            command::solve::run(&print, &solve)?;
        }
        Command::Plan(plan) => command::plan::run(&cli.connection, &print, plan).await?,
        Command::Usage(usage) => command::usage::run(&cli.connection.client()?, &print, usage).await?,
        Command::Events(events) => command::events::run(&cli.connection.client()?, &print, events).await?,
        Command::Estimate(estimate) => command::estimate::run(&print, &estimate)?,
        Command::Evaluate(evaluate) => command::evaluate::run(&print, &evaluate)?,
        Command::Model(model) => command::model::run(&print, &model)?,
        Command::Simulate(simulate) => {
            command::plan::run(&cli.connection, &print, command::plan::Plan::Simulate(*simulate)).await?;
        }
        Command::Version => command::version::run(cli.connection.client().ok(), &print).await?,
        Command::Demo(demo) => demo::run(&cli.connection.client()?, demo).await?,
        Command::HandBackCgroups => {
            headway_agent::hand_back_cgroups().map_err(|error| Failure::from(anyhow::Error::new(error)))?
        }
        Command::Licenses => put!("{}", headway_scheduler::licenses())?,
        Command::Completion { shell, names } => {
            use clap::CommandFactory as _;
            let mut script = Vec::new();
            if names {
                script = completion::script(shell)?;
            } else {
                clap_complete::generate(shell, &mut Cli::command(), "headway", &mut script);
            }
            std::io::Write::write_all(&mut std::io::stdout(), &script).map_err(Failure::from)?;
        }
        Command::Man { dir: Some(directory) } => manual(&directory)?,
        Command::Man { dir: None } => {
            use clap::CommandFactory as _;
            clap_mangen::Man::new(Cli::command()).render(&mut std::io::stdout())?;
        }
        Command::EmulatedWorker => {}
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn commands_are_well_formed_and_each_has_a_page() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
        let directory = tempfile::tempdir().unwrap();
        manual(directory.path()).unwrap();
        let page = std::fs::read_to_string(directory.path().join("headway-job-wait.1")).unwrap();
        assert!(page.contains("exit code 124"), "{page}");
    }
}

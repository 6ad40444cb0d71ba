//! Completion of names: of jobs, nodes and projects as the scheduler knows them, and of contexts. The shell runs this binary at each press of the key, so
//! the question is short and its time too; where nobody answers nothing is completed and nothing said.

use std::time::Duration;

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use headway_api::client::{Client, ClientError, JobFilter};

use crate::Cli;
use crate::context::{Connection, Contexts};
use crate::failure::{Failure, Kind};

/// What the script of a shell sets when it asks.
const VARIABLE: &str = "HEADWAY_COMPLETE";
/// A key that is pressed waits no longer.
const ANSWER: Duration = Duration::from_millis(700);
/// The newest.
const JOBS_AT_MOST: u32 = 200;
/// Commands whose arguments name nothing that a scheduler knows.
const OTHERS: [&str; 7] = ["up", "server", "agent", "estimate", "evaluate", "model", "man"];

/// Answers a shell that asks, and ends the process; otherwise does nothing. Before anything else is done.
pub fn answer() {
    CompleteEnv::with_factory(|| with_names(Cli::command(), "")).var(VARIABLE).complete();
}

/// The script by which a shell asks this binary.
pub fn script(shell: Shell) -> Result<Vec<u8>, Failure> {
    let unknown = || Failure::new(Kind::Usage, format!("names are not completed in {shell}"));
    let shells = Shells::builtins();
    let completer = shells.completer(&shell.to_string()).ok_or_else(unknown)?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "headway", "headway", "headway", &mut script)?;
    Ok(script)
}

/// The tree of commands, with names where an argument takes one. `noun`: the command that this one is below.
fn with_names(command: Command, noun: &str) -> Command {
    let name = command.get_name().to_owned();
    if OTHERS.contains(&name.as_str()) || name == "create" {
        return command;
    }
    let named = command.mut_args(|arg| match names_of(noun, arg.get_id().as_str()) {
        Some(names) => arg.add(ArgValueCandidates::new(names)),
        None => arg,
    });
    named.mut_subcommands(|below| with_names(below, &name))
}

type Names = fn() -> Vec<CompletionCandidate>;

fn names_of(noun: &str, argument: &str) -> Option<Names> {
    match (noun, argument) {
        (_, "job" | "jobs") => Some(jobs),
        (_, "node" | "nodes") => Some(nodes),
        (_, "project") | ("project", "name") => Some(projects),
        (_, "context") | ("context", "name") => Some(contexts),
        _ => None,
    }
}

fn jobs() -> Vec<CompletionCandidate> {
    asked(async |client| {
        let filter = JobFilter { limit: Some(JOBS_AT_MOST), ..JobFilter::default() };
        let jobs = client.jobs(&filter).await?.items;
        Ok(jobs.into_iter().map(|job| candidate(&job.name, &job.state.to_string())).collect())
    })
}

fn nodes() -> Vec<CompletionCandidate> {
    asked(async |client| {
        let nodes = client.nodes().await?;
        Ok(nodes.into_iter().map(|node| candidate(&node.name, &node.availability.to_string())).collect())
    })
}

fn projects() -> Vec<CompletionCandidate> {
    asked(async |client| Ok(client.projects().await?.into_iter().map(|one| candidate(&one.name, "")).collect()))
}

fn contexts() -> Vec<CompletionCandidate> {
    let known = Contexts::load().unwrap_or_default();
    known.contexts.iter().map(|(name, one)| candidate(name, &one.url)).collect()
}

fn candidate(name: &str, about: &str) -> CompletionCandidate {
    CompletionCandidate::new(name).help((!about.is_empty()).then(|| about.to_owned().into()))
}

/// Asks the scheduler that the command would speak to.
fn asked(ask: impl AsyncFnOnce(&Client) -> Result<Vec<CompletionCandidate>, ClientError>) -> Vec<CompletionCandidate> {
    let Ok(client) = connection(&std::env::args().collect::<Vec<_>>()).client() else { return Vec::new() };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    let answer = runtime.block_on(async { tokio::time::timeout(ANSWER, ask(&client)).await });
    answer.ok().and_then(Result::ok).unwrap_or_default()
}

/// As the words typed so far and the environment say.
fn connection(words: &[String]) -> Connection {
    let said = |flag: &str, variable: &str| typed(words, flag).or_else(|| std::env::var(variable).ok());
    Connection {
        url: said("--url", "HEADWAY_URL"),
        context: said("--context", "HEADWAY_CONTEXT"),
        token_file: said("--token-file", "HEADWAY_TOKEN_FILE").map(Into::into),
        dry_run: false,
    }
}

/// The value of a flag among words: `--flag value` or `--flag=value`.
fn typed(words: &[String], flag: &str) -> Option<String> {
    let after = words.iter().position(|word| word == flag).and_then(|at| words.get(at + 1)).cloned();
    after.or_else(|| words.iter().find_map(|word| word.strip_prefix(flag)?.strip_prefix('=').map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_cluster_that_is_named_in_the_line_is_the_one_that_is_asked() {
        let line = words("headway -- headway --context lab job get --url=http://127.0.0.1:1");
        assert_eq!(typed(&line, "--context").as_deref(), Some("lab"));
        assert_eq!(typed(&line, "--url").as_deref(), Some("http://127.0.0.1:1"));
        assert_eq!(typed(&line, "--token-file"), None);
        assert_eq!(typed(&words("headway --context"), "--context"), None);
    }

    #[test]
    fn jobs_nodes_projects_and_contexts_have_names_and_the_tree_stays_whole() {
        let mut tree = with_names(Cli::command(), "");
        tree.build();
        let has = |path: &[&str], argument: &str| {
            let command = path.iter().fold(&tree, |command, name| command.find_subcommand(name).unwrap());
            let argument = command.get_arguments().find(|one| one.get_id() == argument).unwrap();
            argument.get::<ArgValueCandidates>().is_some()
        };
        for (path, argument) in [
            (&["why"][..], "job"),
            (&["cancel"], "jobs"),
            (&["job", "get"], "job"),
            (&["node", "drain"], "node"),
            (&["project", "get"], "name"),
            (&["context", "use"], "name"),
            (&["ps"], "project"),
        ] {
            assert!(has(path, argument), "{path:?} {argument}");
        }
        assert!(!has(&["project", "create"], "name"), "a new name is none that is known");
        tree.debug_assert();
    }

    #[test]
    fn a_script_asks_this_binary() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(script(shell).unwrap()).unwrap();
            assert!(script.contains(VARIABLE) && script.contains("headway"), "{shell}: {script}");
        }
    }
}

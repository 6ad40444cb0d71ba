//! The tree of commands against what people expect of it: all of it is there and says what it does.
#![allow(clippy::unwrap_used)]

use clap::CommandFactory as _;

use crate::Cli;

/// What users of other schedulers look for, noun by noun; the first line has those without a noun.
const EXPECTED: &[(&str, &str)] = &[
    (
        "",
        "submit validate ps logs cancel why estimate up server agent simulate completion man version login logout whoami",
    ),
    (
        "job",
        "list get describe logs exec cancel hold release requeue checkpoint resize update events goodput explain wait \
         top pin unpin",
    ),
    ("array", "list get cancel"),
    ("node", "list get describe drain undrain cordon uncordon label health gpus lost delete"),
    ("queue", "list get top"),
    ("project", "list get set create delete"),
    ("reservation", "list create delete"),
    ("plan", "list show diff history explain simulate solve rebalance approve reject rollback pause resume pin unpin"),
    ("model", "fit"),
    ("usage", "report"),
    ("audit", "list head verify export"),
    ("policy", "get set"),
    ("user", "list create link unlink revoke"),
    ("token", "list create revoke"),
    ("secret", "list set delete"),
    ("context", "list use"),
    ("admin", "backup restore migrate doctor support-bundle config leader space"),
];

fn known(noun: &str, verb: &str) -> bool {
    let tree = Cli::command();
    let below = if noun.is_empty() { Some(&tree) } else { tree.find_subcommand(noun) };
    below.is_some_and(|command| command.find_subcommand(verb).is_some())
}

#[test]
fn every_expected_command_is_there() {
    let expected = EXPECTED.iter().flat_map(|(noun, verbs)| verbs.split_whitespace().map(move |verb| (*noun, verb)));
    let missing: Vec<_> = expected.filter(|(noun, verb)| !known(noun, verb)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_command_and_option_says_what_it_does() {
    fn silent(command: &clap::Command, path: &str, found: &mut Vec<String>) {
        for one in command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help") {
            let path = format!("{path} {}", one.get_name());
            if one.get_about().is_none() {
                found.push(path.clone());
            }
            let options = one.get_opts().filter(|option| !option.is_hide_set());
            found.extend(
                options.filter(|option| option.get_help().is_none()).map(|one| format!("{path} --{}", one.get_id())),
            );
            silent(one, &path, found);
        }
    }
    let mut found = Vec::new();
    silent(&Cli::command(), "headway", &mut found);
    assert!(found.is_empty(), "without a word of help: {found:#?}");
}

#[test]
fn a_completion_script_knows_every_verb() {
    for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "headway", &mut script);
        let script = String::from_utf8(script).unwrap();
        for verb in ["requeue", "rebalance", "drain", "--no-headers"] {
            assert!(script.contains(verb) || script.contains(verb.trim_start_matches("--")), "{shell}: {verb}");
        }
    }
}

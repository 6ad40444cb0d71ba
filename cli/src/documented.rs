//! Commands and scripts as documents show them: each is one that this binary takes.
#![allow(clippy::unwrap_used)]

use clap::Parser as _;

use crate::Cli;

const PAGES: [(&str, &str); 2] =
    [("README.md", include_str!("../../README.md")), ("from-slurm.md", include_str!("../../docs/from-slurm.md"))];

/// The fenced blocks of a language.
pub fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<(bool, String)> = None;
    for line in page.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(named)) => open = Some((named == language, String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take().filter(|(wanted, _)| *wanted).map(|(_, text)| text)),
            (Some((_, text)), None) => text.push_str(&format!("{line}\n")),
            (None, None) => {}
        }
    }
    blocks
}

#[test]
fn every_command_of_a_page_is_one() {
    for (page, text) in PAGES {
        let of_blocks = blocks(text, "sh");
        let lines = of_blocks.iter().flat_map(|block| block.lines());
        // In tables a command stands between backquotes, which separate words and code in turn.
        let in_text =
            text.lines().filter(|line| line.starts_with('|')).flat_map(|line| line.split('`').skip(1).step_by(2));
        let lines = lines.map(|line| line.strip_prefix("$ ").unwrap_or(line)).chain(in_text);
        let commands: Vec<&str> = lines.filter(|line| line.starts_with("headway ")).collect();
        assert!(commands.len() > 2, "{page}");
        for command in commands {
            let words = shlex::split(command).unwrap();
            let parsed = Cli::try_parse_from(&words);
            assert!(parsed.is_ok(), "{page}: {command}: {}", parsed.err().unwrap());
        }
    }
}

//! Commands and scripts as documents show them: each is one that this binary takes.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use clap::Parser as _;
use clap::error::ErrorKind;

use crate::Cli;

/// README and every page right below `docs`, by name.
fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let below = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let files = below.chain([root.join("README.md")]).filter(|file| file.extension().is_some_and(|one| one == "md"));
    let name = |file: &Path| file.file_name().unwrap().to_string_lossy().into_owned();
    files.map(|file| (name(&file), std::fs::read_to_string(&file).unwrap())).collect()
}

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

/// What a page tells to type in blocks of shell or of no language.
fn typed(text: &str) -> Vec<String> {
    let of_blocks = [blocks(text, "sh"), blocks(text, "")].concat();
    let lines = of_blocks.iter().map(|block| block.replace("\\\n", " ")).collect::<String>();
    commands(lines.lines().map(|line| line.strip_prefix("$ ").unwrap_or(line)))
}

/// What its tables speak of, between backquotes, which separate words and code in turn.
fn named(text: &str) -> Vec<String> {
    commands(text.lines().filter(|line| line.starts_with('|')).flat_map(|line| line.split('`').skip(1).step_by(2)))
}

fn commands<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    lines.filter(|line| line.starts_with("headway ")).map(str::to_owned).collect()
}

/// Why these are no words of this binary; none where they are. What comes after a pipe or a redirection is the shell's.
fn refused(command: &str) -> Option<clap::Error> {
    let words = shlex::split(command).unwrap();
    let own = words.iter().take_while(|word| !["|", ">", "&&", "||"].contains(&word.as_str()));
    Cli::try_parse_from(own).err().filter(|error| error.kind() != ErrorKind::DisplayVersion)
}

#[test]
fn every_command_of_a_page_is_one() {
    let mut wrong = Vec::new();
    for (page, text) in pages() {
        let (typed, named) = (typed(&text), named(&text));
        let many = ["README.md", "from-slurm.md", "user-guide.md", "admin-guide.md"].contains(&page.as_str());
        assert!(!many || typed.len() + named.len() > 2, "{page}");
        let typed = typed.iter().filter_map(|command| Some((command, refused(command)?)));
        // A command may be spoken of without what it needs.
        let named = named.iter().filter_map(|command| Some((command, refused(command)?)));
        let named = named.filter(|(_, error)| error.kind() != ErrorKind::MissingRequiredArgument);
        wrong.extend(typed.chain(named).map(|(command, error)| format!("{page}: {command}: {error}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

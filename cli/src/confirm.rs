//! Asks at a terminal before what cannot be taken back. Whoever is no person at a terminal is not asked: scripts go on as they did.

use std::io::{BufRead, IsTerminal as _};

use clap::Args;
use headway_api::client::Client;

use crate::failure::{Failure, Kind};
use crate::output::harmless;

#[derive(Args, Clone, Copy, Debug)]
pub struct Yes {
    /// Do it without asking, as is done where nobody is at a terminal.
    #[arg(long)]
    pub yes: bool,
}

impl Yes {
    /// That it is to be done. A dry run does nothing, and so asks nothing.
    pub fn or_ask(self, client: &Client, question: &str) -> Result<(), Failure> {
        let stdin = std::io::stdin();
        if self.yes || client.is_dry_run() || !stdin.is_terminal() {
            return Ok(());
        }
        eprint!("{} [y/N] ", harmless(question));
        answered(&mut stdin.lock())
    }
}

/// Asks a person at a terminal. Where nobody can be asked, it is refused.
pub fn ask_or_refuse(question: &str, refusal: Failure) -> Result<(), Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(refusal);
    }
    eprint!("{} [y/N] ", harmless(question));
    answered(&mut stdin.lock())
}

/// Whatever is no yes, the end of the input too, is a no.
fn answered(input: &mut impl BufRead) -> Result<(), Failure> {
    let mut answer = String::new();
    input.read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::new(Kind::Failed, "nothing was done")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_one() {
        for (answer, done) in
            [("y\n", true), ("yes\n", true), ("Y", true), ("\n", false), ("", false), ("n\n", false), ("yep\n", false)]
        {
            assert_eq!(answered(&mut answer.as_bytes()).is_ok(), done, "{answer:?}");
        }
    }
}

//! Asks at a terminal for one line that is not shown. However that ends, by an interrupt as well, the terminal is as it was before: whoever
//! gives up waiting drops the future.

use std::io::Stdin;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use tokio::sync::oneshot;

use crate::failure::{Failure, Kind};

/// A terminal gives no more of a line, in bytes, and drops the rest without a word.
const LONGEST_LINE: usize = 4_095;
/// What is pasted comes at once, what is typed does not.
const PASTED_WITHIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The line without its end. Refuses what a terminal cannot give whole: several lines, or one that is too long.
pub async fn hidden(what: &str, instead: &str) -> Result<String, Failure> {
    let quiet = Quiet::begin();
    eprint!("{what} (one line, not shown): ");
    let (read, line) = oneshot::channel();
    // A thread that ends with the process: nothing can wake it from reading, and a runtime would wait for it.
    std::thread::spawn(move || {
        let mut line = String::new();
        // Whoever asked may have given up.
        let _ = read.send(std::io::stdin().read_line(&mut line).map(|_| line));
    });
    let line = line.await.map_err(|died| Failure::from(anyhow::Error::new(died)))??;
    let refused = |message: &str| Err(Failure::new(Kind::Usage, message).hint(instead));
    if quiet.more_was_pasted() {
        return refused("several lines were pasted, and a terminal gives one");
    }
    let line = line.strip_suffix('\n').unwrap_or(&line);
    if line.len() >= LONGEST_LINE {
        return refused("a terminal gives no such long line whole");
    }
    Ok(line.to_owned())
}

/// A terminal that shows nothing of what is typed, until this is dropped.
struct Quiet {
    terminal: Stdin,
    before: Option<Termios>,
}

impl Quiet {
    fn begin() -> Self {
        let terminal = std::io::stdin();
        let before = tcgetattr(&terminal).ok();
        if let Some(mut quiet) = before.clone() {
            quiet.local_modes.remove(LocalModes::ECHO);
            // A terminal that will not be quiet is asked all the same: it says so by echoing.
            let _ = tcsetattr(&terminal, OptionalActions::Flush, &quiet);
        }
        Self { terminal, before }
    }

    /// Whether there is more behind the line that was read, also where no end of a line follows it.
    fn more_was_pasted(&self) -> bool {
        let Some(mut at_once) = self.before.clone() else { return false };
        at_once.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        at_once.special_codes[SpecialCodeIndex::VMIN] = 1;
        at_once.special_codes[SpecialCodeIndex::VTIME] = 0;
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &at_once);
        let mut waits = [PollFd::new(&self.terminal, PollFlags::IN)];
        poll(&mut waits, Some(&PASTED_WITHIN)).is_ok() && waits[0].revents().contains(PollFlags::IN)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // What is still to be read is nobody's: a shell would run it.
            let _ = tcsetattr(&self.terminal, OptionalActions::Flush, before);
        }
        eprintln!();
    }
}

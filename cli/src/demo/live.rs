//! The live table: redrawn in place on a terminal, a few lines every ten seconds otherwise.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use headway_api::log_text::shorten;
use headway_api::v1::{EventRecord, Job};

use crate::command::ps;
use crate::output::{Printer, duration};

const HEADERS: &[&str] = &[
    "ID",
    "NAME",
    "STATE",
    "GPUS",
    "LAYOUT",
    "BATCH",
    "TOK/S",
    "GNS",
    "EFF",
    "GOODPUT",
    "LOSS",
    "DONE",
    "ETA",
    "LAST CHANGE AND WHY",
];

/// Verbs worth a line of the reader's time.
const TOLD: &[&str] = &[
    "job.submitted",
    "job.started",
    "job.moved",
    "job.returned",
    "job.batch_changed",
    "job.preempted",
    "job.resumed",
    "job.succeeded",
    "job.failed",
    "plan.adopted",
];

pub struct Screen {
    terminal: bool,
    /// Lines drawn last, to draw over.
    drawn: usize,
    told_until: u64,
    next_print: Duration,
}

impl Screen {
    pub fn new() -> Self {
        Self { terminal: std::io::stdout().is_terminal(), drawn: 0, told_until: 0, next_print: Duration::ZERO }
    }

    /// Shows the present state. Events not told before are told once, above the table.
    pub fn show(&mut self, elapsed: Duration, jobs: &[Job], events: &[EventRecord], to_come: usize) {
        let fresh = self.fresh_events(events);
        if !self.terminal {
            for line in &fresh {
                say!("{line}").ok();
            }
            if elapsed < self.next_print {
                return;
            }
            self.next_print = elapsed + Duration::from_secs(10);
        }
        let mut text = String::new();
        if self.terminal && self.drawn > 0 {
            write!(std::io::stdout(), "\x1b[{}A\x1b[J", self.drawn).ok();
        }
        if self.terminal {
            fresh.iter().for_each(|line| text.push_str(&format!("{line}\n")));
        }
        let table = table(elapsed, jobs, to_come);
        self.drawn = table.lines().count();
        text.push_str(&table);
        put!("{text}").ok();
        std::io::stdout().flush().ok();
    }

    /// Leaves the table where it is; what follows is printed below it.
    pub fn leave(&mut self) {
        self.drawn = 0;
        say!("").ok();
    }

    fn fresh_events(&mut self, events: &[EventRecord]) -> Vec<String> {
        let mut fresh: Vec<&EventRecord> = events.iter().filter(|event| event.seq > self.told_until).collect();
        fresh.sort_by_key(|event| event.seq);
        if let Some(last) = fresh.last() {
            self.told_until = last.seq;
        }
        fresh
            .iter()
            .filter(|event| TOLD.contains(&event.verb.as_str()))
            .map(|event| format!("{}  {:<18} {}", event.at.format("%H:%M:%S"), event.verb, event.message))
            .collect()
    }
}

fn table(elapsed: Duration, jobs: &[Job], to_come: usize) -> String {
    let printer = Printer::plain();
    let rows = jobs.iter().map(|job| {
        let mut row = ps::numbers(job);
        row.push(job.last_change.as_ref().map_or_else(|| "-".into(), |change| shorten(&change.reason, 70)));
        row
    });
    let busy: u32 = jobs.iter().map(|job| job.gpus).sum();
    let mut text = format!("\n{} · {busy} devices busy", duration(elapsed.as_secs_f64()));
    if to_come > 0 {
        text.push_str(&format!(" · {to_come} job still to come"));
    }
    text.push('\n');
    text.push_str(&printer.table(HEADERS, rows));
    text.push('\n');
    text
}

//! `headway top`: the cluster and its jobs, live in a terminal. Here are the shells: one task follows the scheduler, one thread reads keys, and the loop between them
//! draws what `state` knows as `draw` says.

mod draw;
mod feed;
mod state;

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use clap::Args;
use headway_api::client::Client;
use headway_api::v1::Explanation;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::sync::mpsc;
use uuid::Uuid;

use self::feed::Feed;
use self::state::{Deed, State};
use crate::command::shutdown_token;
use crate::failure::{Failure, Kind};
use crate::output::Printer;

/// However much comes, so often at most is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(250);
/// What is selected is asked about once it has been so for as long, and again after a while.
const WONDER_AFTER: Duration = Duration::from_millis(300);
const WONDER_AGAIN: Duration = Duration::from_secs(10);
const NEWS: usize = 256;

#[derive(Args, Clone, Debug)]
pub struct Top {}

pub async fn run(client: &Client, print: &Printer, _: Top) -> Result<(), Failure> {
    if !(std::io::stdout().is_terminal() && std::io::stdin().is_terminal()) {
        return Err(Failure::new(Kind::Usage, "top needs a terminal").hint(
            "`headway ps --watch` repeats the list of jobs wherever it goes, `headway ps -o json` is for programs",
        ));
    }
    // Before the screen is taken, so that whoever may not ask hears it.
    client.overview().await?;
    let stop = shutdown_token(None)?;
    let screen = Screen::take()?;
    let watched = watch(client, print.colours, screen, stop).await;
    watched.map_err(Failure::from)
}

/// The terminal in raw mode on its other screen; given back however this ends, by a panic as well.
struct Screen(DefaultTerminal);

impl Screen {
    fn take() -> std::io::Result<Self> {
        ratatui::try_init().map(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

async fn watch(
    client: &Client,
    colours: bool,
    mut screen: Screen,
    stop: tokio_util::sync::CancellationToken,
) -> std::io::Result<()> {
    let mut feed = Feed::open(client);
    let mut keys = keys();
    let (answered, mut answers) = mpsc::channel::<(Uuid, Result<Explanation, String>)>(1);
    let mut state = State::default();
    let mut wondering = Wondering::default();
    let mut ticks = tokio::time::interval(DRAW_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut stale = true;
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            key = keys.recv() => match key {
                Some(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                    if state.key(key) == Deed::Quit {
                        break;
                    }
                    screen.0.draw(|frame| draw::draw(frame, &mut state, colours))?;
                }
                Some(_) => stale = true,
                // Nobody can press anything any more.
                None => break,
            },
            Some(item) = feed.next() => {
                if item.apply(&mut state).is_err() {
                    state.lost("what came does not fit; everything is fetched again".into());
                    feed.reopen();
                }
                stale = true;
            }
            Some((job, why)) = answers.recv() => {
                wondering.answered();
                state.explained(job, why);
                stale = true;
            }
            _ = ticks.tick() => {
                if let Some(job) = wondering.due(state.wonders(), Instant::now()) {
                    let (client, answered) = (client.clone(), answered.clone());
                    tokio::spawn(async move {
                        let why = client.explain(&job.to_string()).await.map_err(|error| error.to_string());
                        // Nobody may be waiting any more.
                        let _ = answered.send((job, why)).await;
                    });
                }
                if std::mem::take(&mut stale) {
                    screen.0.draw(|frame| draw::draw(frame, &mut state, colours))?;
                }
            }
        }
    }
    Ok(())
}

/// What the terminal says. The thread ends with the process: nothing can wake it from reading.
fn keys() -> mpsc::Receiver<Event> {
    let (pressed, keys) = mpsc::channel(NEWS);
    std::thread::spawn(move || {
        while let Ok(event) = event::read()
            && pressed.blocking_send(event).is_ok()
        {}
    });
    keys
}

/// One question at a time about the job that is selected.
#[derive(Default)]
struct Wondering {
    about: Option<Uuid>,
    since: Option<Instant>,
    asked: Option<Instant>,
    under_way: bool,
}

impl Wondering {
    fn answered(&mut self) {
        self.under_way = false;
    }

    /// The job to ask about now.
    fn due(&mut self, selected: Option<Uuid>, now: Instant) -> Option<Uuid> {
        if self.about != selected {
            (self.about, self.since, self.asked) = (selected, Some(now), None);
        }
        let rested = self.since.is_some_and(|since| now - since >= WONDER_AFTER);
        let fresh = self.asked.is_some_and(|asked| now - asked < WONDER_AGAIN);
        let due = self.about.filter(|_| rested && !fresh && !self.under_way)?;
        (self.asked, self.under_way) = (Some(now), true);
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_question_at_a_time_about_what_rests() {
        let (mut wondering, one, other) = (Wondering::default(), Some(Uuid::from_u128(1)), Some(Uuid::from_u128(2)));
        let mut now = Instant::now();
        assert_eq!(wondering.due(one, now), None, "the selection may go on");
        now += WONDER_AFTER;
        assert_eq!(wondering.due(one, now), one);
        assert_eq!(wondering.due(other, now), None);
        now += WONDER_AFTER;
        assert_eq!(wondering.due(other, now), None, "the first is not answered");
        wondering.answered();
        assert_eq!(wondering.due(other, now), other);
        wondering.answered();
        assert_eq!(wondering.due(other, now), None);
        now += WONDER_AGAIN;
        assert_eq!(wondering.due(other, now), other);
        assert_eq!(wondering.due(None, now), None);
    }
}

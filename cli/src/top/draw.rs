//! How `headway top` looks: the cluster in two lines, the jobs as a table, the selected one in a pane below. Pure: a state onto a frame of any size.

use headway_api::v1::{Explanation, Job, JobStateKind, Overview};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Clear, Paragraph, Row, Table, TableState, Wrap};

use super::state::{Link, State};
use crate::output::{age, duration, gpus, optional, si};

/// Lines of the pane below the table, and the height from which on there is one.
const PANE: u16 = 9;
const LEAST_WITH_PANE: u16 = 20;
const KEYS: &str = "q quit  ? keys  j/k move  s/S sort by  r turn round  Enter details";

/// Columns with their widths, and from which width of the terminal on they are shown.
const COLUMNS: [(&str, u16, u16); 9] = [
    ("NAME", 20, 0),
    ("STATE", 9, 0),
    ("GPUS", 6, 0),
    ("OWNER", 10, 100),
    ("AGE", 7, 90),
    ("DONE", 5, 0),
    ("ETA", 7, 0),
    ("GOODPUT", 8, 70),
    ("WHY", 0, 0),
];

pub fn draw(frame: &mut Frame<'_>, state: &mut State, colours: bool) {
    let area = frame.area();
    let pane = if state.detail && area.height >= LEAST_WITH_PANE { PANE } else { 0 };
    let [head, table, below, keys] =
        Layout::vertical([Constraint::Length(2), Constraint::Min(3), Constraint::Length(pane), Constraint::Length(1)])
            .areas(area);
    let paint = Paint { colours };
    frame.render_widget(Paragraph::new(cluster(state, paint)), head);
    jobs(frame, table, state, paint);
    if pane > 0 {
        frame.render_widget(Paragraph::new(detail(state, paint)).wrap(Wrap { trim: false }), below);
    }
    frame.render_widget(Paragraph::new(Line::styled(KEYS, paint.dim())), keys);
    if state.help {
        help(frame, area, paint);
    }
}

/// Colours where they are wanted; what they say is also said in words.
#[derive(Clone, Copy)]
struct Paint {
    colours: bool,
}

impl Paint {
    fn colour(self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }

    fn dim(self) -> Style {
        if self.colours { Style::new().add_modifier(Modifier::DIM) } else { Style::new() }
    }

    fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn state(self, state: JobStateKind) -> Style {
        match state {
            JobStateKind::Running => self.colour(Color::Green),
            JobStateKind::Starting | JobStateKind::Stopping => self.colour(Color::Cyan),
            JobStateKind::Queued | JobStateKind::Held => self.colour(Color::Yellow),
            JobStateKind::Failed => self.colour(Color::Red),
            JobStateKind::Succeeded | JobStateKind::Cancelled => self.dim(),
        }
    }
}

fn cluster(state: &State, paint: Paint) -> Vec<Line<'static>> {
    let Some(overview) = &state.overview else {
        let why = match &state.link {
            Link::Lost { why, .. } => format!("no reply yet: {why}"),
            _ => "asking the scheduler …".into(),
        };
        return vec![Line::raw(why)];
    };
    vec![Line::styled(figures(overview, state), paint.bold()), alert(overview, &state.link, paint)]
}

fn figures(of: &Overview, state: &State) -> String {
    let idle = |what: &str| of.gpus_by_activity.get(what).copied().unwrap_or(0);
    let free = idle("idle_waiting") + idle("idle_no_demand");
    let count = |what: &str| of.jobs_by_state.get(what).copied().unwrap_or(0);
    let ended = if state.ended > 0 { format!(", {} ended", state.ended) } else { String::new() };
    format!(
        "GPUs {}/{} busy, {free} idle · goodput {} tok/s · {} running, {} queued want {}{ended}",
        of.gpus_busy,
        of.gpus_healthy,
        si(of.goodput_tokens_per_second),
        count("running"),
        count("queued"),
        of.gpus_waited_for
    )
}

/// What to look at first, or that nothing new comes.
fn alert(of: &Overview, link: &Link, paint: Paint) -> Line<'static> {
    if let Link::Lost { since, why } = link {
        let since = since.map_or(String::new(), |at| format!(", data from {}", at.format("%H:%M:%S")));
        return Line::styled(format!("reconnecting{since}: {why}"), paint.colour(Color::Red));
    }
    let alerts: u32 = of.attention_by_kind.values().sum();
    let waiting = match of.plans_waiting.len() {
        0 => String::new(),
        1 => "1 plan waits for approval · ".into(),
        many => format!("{many} plans wait for approval · "),
    };
    match of.attention.first() {
        Some(first) => {
            let count = if alerts == 1 { "1 alert".into() } else { format!("{alerts} alerts") };
            Line::styled(format!("{waiting}{count}: {}", first.headline), paint.colour(Color::Yellow))
        }
        None => Line::styled(format!("{waiting}live, no alerts"), paint.dim()),
    }
}

fn jobs(frame: &mut Frame<'_>, area: Rect, state: &mut State, paint: Paint) {
    state.page = usize::from(area.height.saturating_sub(1)).max(1);
    let shown: Vec<&(&str, u16, u16)> = COLUMNS.iter().filter(|(_, _, least)| *least <= area.width).collect();
    let jobs = state.jobs();
    if jobs.is_empty() && state.overview.is_some() {
        let text = "No job is live. Submit one: headway submit FILE";
        return frame.render_widget(Paragraph::new(text), area);
    }
    let sorted = <&str>::from(state.sort);
    let header = shown.iter().map(|(name, ..)| {
        let mark = if state.turned { "▴" } else { "▾" };
        if name.eq_ignore_ascii_case(sorted) { format!("{name}{mark}") } else { (*name).to_owned() }
    });
    let rows = jobs.iter().map(|job| {
        let cells = shown.iter().map(|(name, ..)| {
            let text = cell(name, job, state);
            let style = if *name == "STATE" { paint.state(job.state) } else { Style::new() };
            Cell::new(Span::styled(text, style))
        });
        Row::new(cells.collect::<Vec<_>>())
    });
    let widths = shown.iter().map(|(_, width, _)| match width {
        0 => Constraint::Fill(1),
        width => Constraint::Length(*width),
    });
    let table = Table::new(rows.collect::<Vec<_>>(), widths.collect::<Vec<_>>())
        .header(Row::new(header.collect::<Vec<_>>()).style(paint.bold()))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .highlight_symbol("›");
    let mut selection = TableState::new().with_selected(Some(state.position()));
    frame.render_stateful_widget(table, area, &mut selection);
}

fn cell(column: &str, job: &Job, state: &State) -> String {
    match column {
        "NAME" => job.name.clone(),
        "STATE" => job.state.to_string(),
        "GPUS" if job.gpus == 0 => format!("0/{}", job.gpus_max),
        "GPUS" => job.gpus.to_string(),
        "OWNER" => job.owner.clone(),
        "AGE" => optional(state.now().map(|now| (now - job.submitted_at).num_seconds() as f64), age),
        "DONE" => optional(job.progress_fraction, |share| format!("{:.0} %", share * 100.0)),
        "ETA" => optional(job.eta_seconds, duration),
        "GOODPUT" => optional(job.goodput_tokens_per_second, si),
        _ => why(job),
    }
}

/// In a few words: why it waits or is where it is, else its last change.
fn why(job: &Job) -> String {
    let waits = job.waiting.as_ref().map(|waiting| waiting.headline.clone());
    let cause = job.state_cause.clone().or(waits);
    cause.or_else(|| job.last_change.as_ref().map(|change| change.reason.clone())).unwrap_or_else(|| "-".into())
}

fn detail(state: &State, paint: Paint) -> Vec<Line<'static>> {
    let Some(job) = state.selected() else { return Vec::new() };
    let layout = job.layout.map(|at| format!(", {}×{}×{}", at.dp, at.tp, at.pp)).unwrap_or_default();
    let batch = job.global_batch_sequences.map(|batch| format!(", batch {batch}")).unwrap_or_default();
    let nodes = if job.nodes.is_empty() { String::new() } else { format!(" on {}", job.nodes.join(", ")) };
    let range = match job.gpus_min == job.gpus_max {
        true => format!("{} asked for", gpus(job.gpus_min)),
        false => format!("{} to {} allowed", job.gpus_min, gpus(job.gpus_max)),
    };
    let mut lines = vec![
        Line::styled(format!("── {} ({}, {})", job.name, job.project, job.id), paint.bold()),
        Line::raw(format!("{} {}{nodes}{layout}{batch}; {range}", job.state, gpus(job.gpus))),
    ];
    match state.why() {
        None => lines.push(Line::styled("finding out why …", paint.dim())),
        Some(Err(why)) => lines.push(Line::raw(format!("why is not known: {why}"))),
        Some(Ok(why)) => lines.extend(explained(why)),
    }
    lines
}

fn explained(of: &Explanation) -> Vec<Line<'static>> {
    let mut lines = vec![Line::raw(of.headline.clone())];
    lines.extend(
        of.reasons.iter().filter(|reason| reason.binding).map(|reason| Line::raw(format!("  {}", reason.detail))),
    );
    if let Some(start) = &of.predicted_start {
        let told = match (start.p10, start.p50, start.p90) {
            (Some(p10), Some(p50), p90) => {
                let clock = |at: chrono::DateTime<chrono::Utc>| at.format("%H:%M").to_string();
                let last = p90.map_or_else(|| "later".into(), clock);
                format!("starts about {} ({} to {last} UTC)", clock(p50), clock(p10))
            }
            _ => start
                .reason
                .clone()
                .map_or_else(|| "no telling when it starts".into(), |why| format!("no telling when it starts: {why}")),
        };
        lines.push(Line::raw(told));
    }
    let would = of.counterfactuals.iter().filter(|one| one.possible).take(2);
    lines.extend(would.map(|one| Line::raw(format!("  {}: {}", one.question, one.answer))));
    lines
}

fn help(frame: &mut Frame<'_>, area: Rect, paint: Paint) {
    let lines = [
        "j k ↓ ↑        next, last job",
        "PgDn PgUp g G  a page, the first, the last",
        "s S → ←        sort by the next, the former column",
        "r              turn the order round",
        "Enter d        details of the selected job, or none",
        "Esc q Ctrl-C   leave",
    ];
    let (width, height) = (area.width.min(56), area.height.min(lines.len() as u16 + 1));
    let at = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    let mut text = vec![Line::styled("Keys (? closes)", paint.bold())];
    text.extend(lines.map(Line::raw));
    frame.render_widget(Clear, at);
    frame.render_widget(Paragraph::new(text), at);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;
    use serde_json::json;
    use strum::VariantArray;

    use super::*;
    use crate::top::state::Sort;
    use crate::top::state::tests::{live, press};

    fn drawn(state: &mut State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state, true)).unwrap();
        terminal.backend().to_string()
    }

    fn explained_state() -> State {
        let mut state = live();
        press(&mut state, KeyCode::Char('j'));
        let why = json!({
            "job_id": state.selected().unwrap().id, "headline": "Needs 8 GPUs of one node; 7 are free on the best one.",
            "reasons": [{"code": "fragmented", "binding": true, "detail": "24 GPUs are free, at most 7 on one node"}],
            "runner_up": null, "marginal_speed_up": null, "prediction": null, "plan_id": null,
            "predicted_start": {"asked_at": "2026-03-01T14:00:00Z", "p10": "2026-03-01T14:05:00Z",
                "p50": "2026-03-01T14:20:00Z", "p90": null, "method": "planner", "reason": null},
        });
        let id = state.selected().unwrap().id;
        state.explained(id, Ok(serde_json::from_value(why).unwrap()));
        state
    }

    #[test]
    fn a_terminal_of_80_by_24() {
        insta::assert_snapshot!(drawn(&mut explained_state(), 80, 24));
    }

    #[test]
    fn a_terminal_of_120_by_40() {
        insta::assert_snapshot!(drawn(&mut explained_state(), 120, 40));
    }

    #[test]
    fn what_is_old_says_so_and_keys_are_shown_over_it() {
        let mut state = live();
        state.lost("no reply from http://127.0.0.1:7600/".into());
        press(&mut state, KeyCode::Char('?'));
        insta::assert_snapshot!(drawn(&mut state, 80, 16));
    }

    #[test]
    fn any_size_can_be_drawn() {
        for (width, height) in [(1, 1), (10, 2), (39, 5), (300, 90)] {
            drawn(&mut explained_state(), width, height);
            drawn(&mut State::default(), width, height);
        }
    }

    #[test]
    fn every_order_has_a_column_to_mark() {
        let named = |sort: Sort| COLUMNS.iter().any(|(name, ..)| name.eq_ignore_ascii_case(<&str>::from(sort)));
        assert!(Sort::VARIANTS.iter().all(|sort| named(*sort)));
    }
}

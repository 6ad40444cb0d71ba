//! The best configurations as a picture: what each one's step is made of, side by side.

use plotters::prelude::*;

use super::answer::{Answer, describe};
use crate::failure::{Failure, Kind};

const WIDTH: u32 = 1080;
const ROW: u32 = 34;
const LEGEND: u32 = 72;
/// Room for the names of configurations.
const NAMES: u32 = 380;
/// Terms that are told together, and their colour, told apart by those who see few (Okabe and Ito).
const GROUPS: [(&str, &[&str], RGBColor); 7] = [
    ("computing", &["compute", "logits"], RGBColor(0x00, 0x72, 0xb2)),
    ("recomputing", &["recompute"], RGBColor(0x56, 0xb4, 0xe9)),
    ("launches", &["launches", "overhead"], RGBColor(0x99, 0x99, 0x99)),
    (
        "collectives in layers",
        &["tensor collectives", "context collectives", "expert collectives", "parameter collectives"],
        RGBColor(0xd5, 0x5e, 0x00),
    ),
    ("pipeline", &["pipeline bubble", "pipeline transfers"], RGBColor(0xe6, 0x9f, 0x00)),
    ("gradients", &["data collectives"], RGBColor(0xcc, 0x79, 0xa7)),
    ("optimizer and offload", &["optimizer", "offload"], RGBColor(0x00, 0x9e, 0x73)),
];

/// An SVG document.
pub fn draw(answer: &Answer) -> Result<String, Failure> {
    let mut text = String::new();
    let height = LEGEND + ROW * answer.best.len().max(1) as u32;
    paint(&mut text, (WIDTH, height), answer)
        .map_err(|error| Failure::new(Kind::Failed, format!("drawing the picture: {error}")))?;
    Ok(text)
}

fn paint(text: &mut String, size: (u32, u32), answer: &Answer) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(text, size).into_drawing_area();
    area.fill(&WHITE)?;
    let (name, number) = (("sans-serif", 14).into_font(), ("sans-serif", 13).into_font());
    let title = format!("{} × {}, {} sequences per step", answer.gpus, answer.gpu_type, answer.global_batch);
    area.draw(&Text::new(title, (12, 10), ("sans-serif", 16)))?;
    for (place, (group, _, colour)) in GROUPS.iter().enumerate() {
        let left = 12 + 152 * place as i32;
        area.draw(&Rectangle::new([(left, 40), (left + 12, 52)], colour.filled()))?;
        area.draw(&Text::new(*group, (left + 18, 39), number.clone()))?;
    }
    let longest = answer.best.iter().map(|line| line.step_time_band.p90).fold(1e-9, f64::max);
    let room = f64::from(WIDTH - NAMES - 90);
    let at = |seconds: f64| NAMES as i32 + (room * seconds / longest) as i32;
    for (place, line) in answer.best.iter().enumerate() {
        let top = (LEGEND + ROW * place as u32) as i32;
        area.draw(&Text::new(describe(&line.strategy), (12, top + 4), name.clone()))?;
        let mut so_far = 0.0;
        for (_, terms, colour) in &GROUPS {
            let seconds: f64 = terms.iter().filter_map(|term| line.terms.get(term)).sum();
            let corners = [(at(so_far), top), (at(so_far + seconds), top + 20)];
            area.draw(&Rectangle::new(corners, colour.filled()))?;
            so_far += seconds;
        }
        let (low, high, middle) = (at(line.step_time_band.p10), at(line.step_time_band.p90), top + 10);
        area.draw(&PathElement::new(vec![(low, middle), (high, middle)], BLACK))?;
        for end in [low, high] {
            area.draw(&PathElement::new(vec![(end, middle - 4), (end, middle + 4)], BLACK))?;
        }
        area.draw(&Text::new(format!("{:.2} s", line.step_time_seconds), (high + 8, top + 3), number.clone()))?;
    }
    area.present()?;
    Ok(())
}

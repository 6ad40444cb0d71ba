//! Plots as SVG, for reports that need no network.

use plotters::coord::Shift;
use plotters::prelude::*;

/// Why a plot was not drawn.
#[derive(Debug, thiserror::Error)]
#[error("drawing {what}: {why}")]
pub struct PlotError {
    pub what: &'static str,
    pub why: String,
}

const SIZE: (u32, u32) = (860, 360);
/// Told apart by those who see few colours (Okabe and Ito).
const COLOURS: [RGBColor; 10] = [
    RGBColor(0x99, 0x99, 0x99),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x33, 0x33, 0x33),
    RGBColor(0xf0, 0xe4, 0x42),
    RGBColor(0x8c, 0x56, 0x4b),
];
/// Right of the plot, where nothing is hidden behind it.
const LEGEND: u32 = 160;

/// Bars in groups: a name per group, a name per series, and a mean with its spread for each.
pub struct Bars<'a> {
    pub y: &'a str,
    pub groups: Vec<String>,
    pub series: Vec<(String, Vec<(f64, f64)>)>,
}

/// A curve through points.
pub struct Curves<'a> {
    pub x: &'a str,
    pub y: &'a str,
    pub series: Vec<(String, Vec<(f64, f64)>)>,
}

impl Bars<'_> {
    pub fn svg(&self) -> Result<String, PlotError> {
        draw("bars", |area| self.draw(area))
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Box<dyn std::error::Error>> {
        let highest = self.series.iter().flat_map(|(_, values)| values).map(|(mean, spread)| mean + spread);
        let lowest = self.series.iter().flat_map(|(_, values)| values).map(|(mean, spread)| mean - spread);
        let (top, bottom) = (highest.fold(0.0, f64::max) * 1.08, lowest.fold(0.0, f64::min) * 1.08);
        let area = &beside_legend(area, self.series.iter().map(|(name, _)| name))?;
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(30)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..self.groups.len().max(1) as f64, bottom..top.max(1e-9))?;
        let name = |at: &f64| self.groups.get(*at as usize).filter(|_| at.fract() > 0.4).cloned().unwrap_or_default();
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .x_labels(2 * self.groups.len() + 1)
            .x_label_formatter(&name)
            .y_desc(self.y)
            .label_style(("sans-serif", 13))
            .draw()?;
        let width = 0.84 / self.series.len().max(1) as f64;
        for (number, (_, values)) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let left = |group: usize| group as f64 + 0.08 + width * number as f64;
            let bars = values.iter().enumerate().map(|(group, (mean, _))| {
                Rectangle::new([(left(group), 0.0), (left(group) + 0.92 * width, *mean)], colour.filled())
            });
            chart.draw_series(bars)?;
            let whiskers =
                values.iter().enumerate().filter(|(_, (_, spread))| *spread > 0.0).map(|(group, (mean, spread))| {
                    let middle = left(group) + 0.46 * width;
                    PathElement::new(vec![(middle, mean - spread), (middle, mean + spread)], BLACK)
                });
            chart.draw_series(whiskers)?;
        }
        Ok(())
    }
}

impl Curves<'_> {
    pub fn svg(&self) -> Result<String, PlotError> {
        draw("curves", |area| self.draw(area))
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Box<dyn std::error::Error>> {
        let points = || self.series.iter().flat_map(|(_, points)| points);
        let right = points().map(|(x, _)| *x).fold(1e-9, f64::max);
        let top = points().map(|(_, y)| *y).fold(1e-9, f64::max);
        let area = &beside_legend(area, self.series.iter().map(|(name, _)| name))?;
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..right, 0.0..1.05 * top)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc(self.x)
            .y_desc(self.y)
            .label_style(("sans-serif", 13))
            .draw()?;
        for (number, (_, points)) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        }
        Ok(())
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Writes the legend, and leaves the rest for the plot.
fn beside_legend<'a, 'n>(
    area: &Area<'a>,
    names: impl Iterator<Item = &'n String>,
) -> Result<Area<'a>, Box<dyn std::error::Error>> {
    let (plot, legend) = area.split_horizontally(SIZE.0 - LEGEND);
    for (number, name) in names.enumerate() {
        let y = 14 + 20 * number as i32;
        legend.draw(&Rectangle::new([(0, y), (12, y + 10)], COLOURS[number % COLOURS.len()].filled()))?;
        legend.draw(&Text::new(name.clone(), (18, y - 1), ("sans-serif", 13)))?;
    }
    Ok(plot)
}

fn draw(
    what: &'static str,
    paint: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<String, PlotError> {
    let mut text = String::new();
    let wrong = |why: String| PlotError { what, why };
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(|error| wrong(error.to_string()))?;
        paint(&area).map_err(|error| wrong(error.to_string()))?;
        area.present().map_err(|error| wrong(error.to_string()))?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_plot_names_its_series_and_groups() {
        let bars = Bars {
            y: "hours",
            groups: vec!["0.35".into(), "0.9".into()],
            series: vec![
                ("fifo_backfill".into(), vec![(1.0, 0.1), (2.0, 0.0)]),
                ("sia".into(), vec![(0.5, 0.1), (-0.2, 0.0)]),
            ],
        };
        let svg = bars.svg().unwrap();
        for word in ["<svg", "hours", "fifo_backfill", "sia", "0.35", "0.9"] {
            assert!(svg.contains(word), "{word}");
        }
        let curves = Curves { x: "h", y: "share", series: vec![("a".into(), vec![(0.0, 0.0), (1.0, 1.0)])] };
        assert!(curves.svg().unwrap().contains("share"));
    }
}

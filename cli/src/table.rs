//! Tables that fit where they are read: columns by importance, text that may be cut, states in colour. Nothing here reads a terminal: how wide it is
//! and whether it takes colours is told.

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Blanks between two columns.
const GAP: usize = 2;
/// Columns up to this rank are extra: they go before text is cut to less than it wants.
const EXTRA: u8 = 5;

/// A column of a table, and what may be done to it where there is too little room.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub header: &'static str,
    /// Columns of a lower rank go first; without one it stays.
    rank: Option<u8>,
    /// Text that may be cut: down to so many characters, and to so many as long as there are columns that are only extra.
    least: Option<(usize, usize)>,
    /// Its text goes on below itself instead of being cut.
    wraps: bool,
    /// Only shown with `-o wide` and `-o csv`.
    pub wide: bool,
    paint: Option<fn(&str) -> Option<Color>>,
}

impl Column {
    /// One that is always there, whole.
    pub const fn new(header: &'static str) -> Self {
        Self { header, rank: None, least: None, wraps: false, wide: false, paint: None }
    }

    /// Goes where there is too little room, the lowest rank first.
    pub const fn rank(self, rank: u8) -> Self {
        Self { rank: Some(rank), ..self }
    }

    /// Its text may be cut, down to so many characters.
    pub const fn cut(self, least: usize) -> Self {
        Self { least: Some((least, least)), ..self }
    }

    /// Likewise, but extra columns go first where it has fewer than it wants.
    pub const fn cut_late(self, least: usize, wanted: usize) -> Self {
        Self { least: Some((least, wanted)), ..self }
    }

    /// Sentences that are read to their end: they go on below themselves, in so many columns at least.
    pub const fn wrap(self, least: usize) -> Self {
        Self { least: Some((least, least)), wraps: true, ..self }
    }

    pub const fn wide(self) -> Self {
        Self { wide: true, ..self }
    }

    /// Words for states have colours.
    pub const fn state(self) -> Self {
        Self { paint: Some(colour), ..self }
    }
}

impl From<&'static str> for Column {
    fn from(header: &'static str) -> Self {
        Self::new(header)
    }
}

/// Green runs, yellow is on its way or set aside, red needs somebody.
fn colour(state: &str) -> Option<Color> {
    match state {
        "running" | "succeeded" | "available" | "good" => Some(Color::Green),
        "starting" | "stopping" | "held" | "draining" | "cordoned" | "registering" | "probation" => Some(Color::Yellow),
        "failed" | "unreachable" | "lost" | "quarantined" => Some(Color::Red),
        "cancelled" => Some(Color::DarkGrey),
        _ => None,
    }
}

/// Columns and rows as text without borders, as kubectl prints; within `width`, where there is one.
pub fn render(
    columns: &[Column],
    rows: Vec<Vec<String>>,
    headers: bool,
    width: Option<usize>,
    colours: bool,
) -> String {
    let plain = |text: String| text.replace(|letter: char| letter.is_control() && letter != '\n', "\u{fffd}");
    let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row.into_iter().map(plain).collect()).collect();
    let (columns, rows) = match width {
        Some(width) => fitted(columns, rows, headers, width),
        None => (columns.to_vec(), rows),
    };
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if colours {
        table.enforce_styling();
    }
    if headers {
        table.set_header(columns.iter().map(|column| column.header));
    }
    for row in rows {
        table.add_row(row.into_iter().zip(&columns).map(|(text, column)| {
            let paint = column.paint.filter(|_| colours).and_then(|paint| paint(&text));
            match paint {
                Some(colour) => Cell::new(text).fg(colour),
                None => Cell::new(text),
            }
        }));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((u16::from(index > 0), 1));
        column.set_cell_alignment(CellAlignment::Left);
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// What of a table fits: as many columns as there is room for with their texts cut, then as much of the texts as there is room for.
fn fitted(columns: &[Column], rows: Vec<Vec<String>>, headers: bool, width: usize) -> (Vec<Column>, Vec<Vec<String>>) {
    let natural: Vec<usize> = (0..columns.len())
        .map(|index| {
            let cells = rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.width());
            let header = if headers { columns[index].header.width() } else { 0 };
            cells.max().unwrap_or(0).max(header)
        })
        .collect();
    let least = |index: usize| columns[index].least.map_or(natural[index], |(least, _)| least.min(natural[index]));
    let wanted = |index: usize| columns[index].least.map_or(natural[index], |(_, wanted)| wanted.min(natural[index]));
    let gaps = |kept: &[usize]| GAP * kept.len().saturating_sub(1);
    let needed = |kept: &[usize]| kept.iter().map(|index| least(*index)).sum::<usize>() + gaps(kept);
    let well = |kept: &[usize]| kept.iter().map(|index| wanted(*index)).sum::<usize>() + gaps(kept);
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    loop {
        let lowest = kept.iter().enumerate().filter_map(|(at, index)| Some((columns[*index].rank?, at)));
        // Of equals the last goes first.
        let lowest = lowest.min_by_key(|(rank, at)| (*rank, std::cmp::Reverse(*at)));
        match lowest {
            Some((rank, at)) if needed(&kept) > width || (rank <= EXTRA && well(&kept) > width) => kept.remove(at),
            _ => break,
        };
    }
    // What is over goes to what texts want first, and then to what they have.
    let mut room = width.saturating_sub(needed(&kept));
    let mut widths: Vec<usize> = kept.iter().map(|index| least(*index)).collect();
    let goals: [&dyn Fn(usize) -> usize; 2] = [&wanted, &|index| natural[index]];
    for goal in goals {
        for (width, index) in widths.iter_mut().zip(&kept) {
            let more = goal(*index).saturating_sub(*width).min(room);
            *width += more;
            room -= more;
        }
    }
    let fit = |index: usize, text: &str, width: usize| match columns[index].wraps {
        true => wrapped(text, width),
        false => cut(text, width),
    };
    let row = |row: Vec<String>| kept.iter().zip(&widths).map(|(at, width)| fit(*at, &row[*at], *width)).collect();
    (kept.iter().map(|index| columns[*index]).collect(), rows.into_iter().map(row).collect())
}

/// A text in lines of so many columns, broken between words, and within one that is longer.
fn wrapped(text: &str, width: usize) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split(' ') {
        let blank = usize::from(!line.is_empty());
        if blank == 1 && line.width() + 1 + word.width() > width {
            lines.push(std::mem::take(&mut line));
        } else if blank == 1 {
            line.push(' ');
        }
        for sign in word.chars() {
            if !line.is_empty() && line.width() + sign.width().unwrap_or(0) > width {
                lines.push(std::mem::take(&mut line));
            }
            line.push(sign);
        }
    }
    lines.push(line);
    lines.join("\n")
}

/// A text within so many columns of a terminal; what is cut off is an ellipsis.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut used = 0;
    let fits = |sign: &char| {
        used += sign.width().unwrap_or(0);
        used < width
    };
    let mut short: String = text.chars().take_while(fits).collect();
    short.truncate(short.trim_end().len());
    short.push('…');
    short
}

/// How wide a table of one row gets that has so many columns of a terminal.
#[cfg(test)]
pub fn widest(columns: &[Column], row: Vec<String>, width: usize) -> usize {
    let shown: Vec<Column> = columns.iter().filter(|column| !column.wide).copied().collect();
    let row = row.into_iter().zip(columns).filter(|(_, column)| !column.wide).map(|(cell, _)| cell).collect();
    render(&shown, vec![row], true, Some(width), false).lines().map(UnicodeWidthStr::width).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column::new("NAME").cut(6),
        Column::new("STATE").state(),
        Column::new("AGE").rank(2),
        Column::new("WHY").rank(1).cut(8),
    ];

    fn shown(width: usize) -> String {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        let rows = vec![
            row(["a-very-long-name", "running", "3m", "grows since others have ended"]),
            row(["b", "queued", "12d", "-"]),
        ];
        render(&COLUMNS, rows, true, Some(width), false)
    }

    #[test]
    fn text_is_cut_before_columns_go_and_the_least_important_goes_first() {
        insta::assert_snapshot!(shown(60), @"
        NAME              STATE    AGE  WHY
        a-very-long-name  running  3m   grows since others have end…
        b                 queued   12d  -
        ");
        insta::assert_snapshot!(shown(34), @"
        NAME        STATE    AGE  WHY
        a-very-lo…  running  3m   grows s…
        b           queued   12d  -
        ");
        insta::assert_snapshot!(shown(24), @"
        NAME        STATE    AGE
        a-very-lo…  running  3m
        b           queued   12d
        ");
        for width in 20..80 {
            assert!(shown(width).lines().all(|line| line.width() <= width), "{width}");
        }
    }

    #[test]
    fn sentences_go_on_below_themselves() {
        let columns = [Column::new("JOB").cut(4), Column::new("GPUS"), Column::new("REASON").wrap(12)];
        let row = ["llama", "8 -> 4", "others need them more, as /a/very/long/path/says"].map(str::to_owned).to_vec();
        insta::assert_snapshot!(render(&columns, vec![row], true, Some(32), false), @"
        JOB    GPUS    REASON
        llama  8 -> 4  others need them
                       more, as
                       /a/very/long/path
                       /says
        ");
        assert_eq!(wrapped("", 4), "");
        assert_eq!(wrapped("日本語のジョブ", 6), "日本語\nのジョ\nブ");
    }

    #[test]
    fn wide_signs_count_twice() {
        assert_eq!(cut("日本語のジョブ", 7), "日本語…");
        assert_eq!(cut("short", 5), "short");
    }

    #[test]
    fn colours_take_no_room() {
        let row = vec![vec!["a".to_owned(), "failed".into(), "3m".into(), "-".into()]];
        let plain = render(&COLUMNS, row.clone(), false, Some(40), false);
        let painted = render(&COLUMNS, row, false, Some(40), true);
        assert!(painted.contains("\u{1b}[") && !plain.contains('\u{1b}'));
        assert!(painted.contains("failed"), "{painted:?}");
    }
}

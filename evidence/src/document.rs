//! A report as blocks, told in Markdown with figures beside it and in one HTML file that needs nothing else.

use std::fmt::Write;

pub enum Block {
    Heading(u8, String),
    Paragraph(String),
    Code(String),
    Table { headers: Vec<String>, rows: Vec<Vec<String>> },
    Figure { name: String, caption: String, svg: String },
}

#[derive(Default)]
pub struct Document(pub Vec<Block>);

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:1080px;margin:2em auto;padding:0 1em;color:#222}\
    table{border-collapse:collapse;margin:1em 0;font-variant-numeric:tabular-nums;font-size:13px}\
    th,td{padding:3px 9px;border-bottom:1px solid #ddd;text-align:right}th:first-child,td:first-child{text-align:left}\
    pre{background:#f4f4f4;padding:.7em;overflow-x:auto}svg{max-width:100%;height:auto}figcaption{color:#555}figure{margin:1em 0}";

impl Document {
    pub fn heading(&mut self, level: u8, text: impl Into<String>) {
        self.0.push(Block::Heading(level, text.into()));
    }

    pub fn paragraph(&mut self, text: impl Into<String>) {
        self.0.push(Block::Paragraph(text.into()));
    }

    pub fn code(&mut self, text: impl Into<String>) {
        self.0.push(Block::Code(text.into()));
    }

    pub fn table(&mut self, headers: Vec<String>, rows: Vec<Vec<String>>) {
        self.0.push(Block::Table { headers, rows });
    }

    pub fn figure(&mut self, name: impl Into<String>, caption: impl Into<String>, svg: String) {
        self.0.push(Block::Figure { name: name.into(), caption: caption.into(), svg });
    }

    /// Figures by the file names the Markdown gives them.
    pub fn figures(&self) -> impl Iterator<Item = (String, &str)> {
        self.0.iter().filter_map(|block| match block {
            Block::Figure { name, svg, .. } => Some((format!("{name}.svg"), svg.as_str())),
            _ => None,
        })
    }

    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for block in &self.0 {
            let _ = match block {
                Block::Heading(level, words) => writeln!(text, "{} {words}\n", "#".repeat(usize::from(*level))),
                Block::Paragraph(words) => writeln!(text, "{words}\n"),
                Block::Code(words) => writeln!(text, "```\n{words}\n```\n"),
                Block::Figure { name, caption, .. } => writeln!(text, "![{caption}]({name}.svg)\n\n{caption}\n"),
                Block::Table { headers, rows } => {
                    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
                    let rule = format!("|{}\n", "---|".repeat(headers.len()));
                    let rows: String = rows.iter().map(|row| line(row)).collect();
                    writeln!(text, "{}{rule}{rows}", line(headers))
                }
            };
        }
        text.truncate(text.trim_end().len());
        text + "\n"
    }

    #[must_use]
    pub fn html(&self) -> String {
        let title = self.0.iter().find_map(|block| match block {
            Block::Heading(1, words) => Some(words.as_str()),
            _ => None,
        });
        let title = escape(title.unwrap_or("Evidence"));
        let mut text = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style></head><body>\n"
        );
        for block in &self.0 {
            let _ = match block {
                Block::Heading(level, words) => writeln!(text, "<h{level}>{}</h{level}>", escape(words)),
                Block::Paragraph(words) => writeln!(text, "<p>{}</p>", inline(words)),
                Block::Code(words) => writeln!(text, "<pre>{}</pre>", escape(words)),
                Block::Figure { caption, svg, .. } => {
                    writeln!(text, "<figure>{svg}<figcaption>{}</figcaption></figure>", inline(caption))
                }
                Block::Table { headers, rows } => {
                    let line = |cells: &[String], tag: &str| {
                        let cells: String =
                            cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", inline(cell))).collect();
                        format!("<tr>{cells}</tr>\n")
                    };
                    let rows: String = rows.iter().map(|row| line(row, "td")).collect();
                    writeln!(text, "<table>{}{rows}</table>", line(headers, "th"))
                }
            };
        }
        text + "</body></html>\n"
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Words between backquotes are code, between asterisks stressed.
fn inline(text: &str) -> String {
    let stressed = |text: &str| within(text, '*', "em", escape);
    within(text, '`', "code", stressed)
}

fn within(text: &str, mark: char, tag: &str, rest: impl Fn(&str) -> String) -> String {
    let parts = text.split(mark).enumerate();
    parts.map(|(at, part)| if at % 2 == 1 { format!("<{tag}>{}</{tag}>", escape(part)) } else { rest(part) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let mut document = Document::default();
        document.heading(1, "A & B");
        document.paragraph("`x < y` holds");
        document.table(vec!["a".into(), "b".into()], vec![vec!["1".into(), "2".into()]]);
        document.figure("one", "what it shows", "<svg></svg>".into());
        assert_eq!(
            document.markdown(),
            "# A & B\n\n`x < y` holds\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n![what it shows](one.svg)\n\nwhat it shows\n"
        );
        let html = document.html();
        for part in ["<h1>A &amp; B</h1>", "<code>x &lt; y</code> holds", "<td>1</td>", "<svg></svg>"] {
            assert!(html.contains(part), "{part}");
        }
        assert_eq!(document.figures().count(), 1);
    }
}

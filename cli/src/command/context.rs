//! `headway context …`: the clusters a user knows by name, and which of them commands speak to.

use clap::Subcommand;
use serde::Serialize;

use crate::context::Contexts;
use crate::failure::Failure;
use crate::output::Printer;
use crate::table::Column;

#[derive(Subcommand, Clone, Debug)]
pub enum Context {
    /// Clusters by name; the one in use is marked.
    List,
    /// Have commands speak to this cluster from now on.
    Use { name: String },
}

#[derive(Serialize)]
struct Row {
    name: String,
    current: bool,
    url: String,
    token_file: String,
}

const COLUMNS: [Column; 4] =
    [Column::new(""), Column::new("NAME"), Column::new("URL").cut_late(20, 60), Column::new("TOKEN").rank(1).cut(12)];

pub fn run(print: &Printer, context: Context) -> Result<(), Failure> {
    let mut known = Contexts::load()?;
    match context {
        Context::List => {
            let row = |(name, one): (&String, &crate::context::Context)| Row {
                name: name.clone(),
                current: known.current.as_ref() == Some(name),
                url: one.url.clone(),
                token_file: one.token_file.display().to_string(),
            };
            let rows: Vec<Row> = known.contexts.iter().map(row).collect();
            let mark = |row: &Row| if row.current { "*".to_owned() } else { String::new() };
            let cells = |row: &Row| vec![mark(row), row.name.clone(), row.url.clone(), row.token_file.clone()];
            print.list(&rows, &COLUMNS, cells, |row| row.name.clone())
        }
        Context::Use { name } => {
            known.chosen(Some(&name))?;
            known.current = Some(name.clone());
            known.save()?;
            say!("commands speak to {name} now")?;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_fit_the_terminal() {
        let urls = (1..=3).map(|number| format!("https://headway-{number}.cluster.example:7600")).collect::<Vec<_>>();
        let row = vec![
            "*".to_owned(),
            "production".into(),
            urls.join(","),
            "/home/ada/.config/headway/tokens/production".into(),
        ];
        for width in [60, 80, 120, 160] {
            assert!(crate::table::widest(&COLUMNS, row.clone(), width) <= width, "{width}");
        }
    }
}

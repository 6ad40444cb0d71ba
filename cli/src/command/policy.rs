//! `headway policy …`: what an operator may change while Headway runs.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use headway_api::client::Client;
use headway_api::v1::{Policy as PolicyReply, SiteRow};
use headway_api::yaml;
use serde_json::{Map, Value};

use super::read;
use crate::failure::{Failure, Kind};
use crate::output::Printer;
use crate::table::Column;

#[derive(Subcommand, Clone, Debug)]
pub enum Policy {
    /// Show the policy and the site's own rows.
    #[command(alias = "show")]
    Get,
    /// Change settings; what is not named stays.
    Set {
        /// NAME=VALUE, names as `policy get` shows them; `null` takes a limit away.
        #[arg(required_unless_present = "rows", value_name = "NAME=VALUE")]
        settings: Vec<String>,
        /// YAML or JSON of the site's own rows, instead of all there are; - reads standard input, an empty list takes all away.
        #[arg(long, value_name = "FILE")]
        rows: Option<PathBuf>,
    },
}

const ROWS: [Column; 3] = [Column::new("ROW").cut(8), Column::new("COUNTS GPUS OF").wrap(16), Column::new("AT MOST")];

pub async fn run(client: &Client, print: &Printer, policy: Policy) -> Result<(), Failure> {
    let policy = match policy {
        Policy::Get => client.policy().await?,
        Policy::Set { settings, rows } => {
            let rows = rows.map(|file| read_rows(&file)).transpose()?;
            let rows = rows.map(serde_json::to_value).transpose();
            let rows = rows.map_err(|error| Failure::new(Kind::Failed, format!("writing the rows: {error}")))?;
            client.change_policy(&named(&settings, rows)?).await?
        }
    };
    if print.structured() {
        return print.value(&policy);
    }
    let mut fields = fields(&policy)?;
    fields.remove("rows");
    let settings = fields.iter().map(|(name, value)| vec![name.clone(), shown(value)]);
    say!("{}", print.table(&[Column::new("SETTING"), Column::new("VALUE").wrap(16)], settings))?;
    let rows = policy.rows.unwrap_or_default();
    if !rows.is_empty() {
        let told = |row: &SiteRow| vec![row.name.clone(), row.amount.in_words(), row.at_most.to_string()];
        say!("\n{}", print.table(&ROWS, rows.iter().map(told)))?;
    }
    Ok(())
}

/// Rows from a file: a list, or a mapping that has them as the policy has.
fn read_rows(file: &Path) -> Result<Vec<SiteRow>, Failure> {
    rows_of(&read(file)?).map_err(|error| Failure::new(Kind::Usage, format!("{}: {error}", file.display())))
}

fn rows_of(text: &str) -> Result<Vec<SiteRow>, Box<dyn std::error::Error>> {
    let mut value: Value = yaml::read(text)?;
    if let Some(rows) = value.get_mut("rows").map(Value::take) {
        value = rows;
    }
    Ok(serde_json::from_value(value)?)
}

fn fields(policy: &PolicyReply) -> Result<serde_json::Map<String, Value>, Failure> {
    match serde_json::to_value(policy) {
        Ok(Value::Object(fields)) => Ok(fields),
        _ => Err(Failure::new(Kind::Failed, "the scheduler's policy is none")),
    }
}

/// What is to change. Which settings there are is the scheduler's to say.
fn named(settings: &[String], rows: Option<Value>) -> Result<Map<String, Value>, Failure> {
    let mut named = Map::new();
    for setting in settings {
        let (name, text) =
            setting.split_once('=').ok_or_else(|| Failure::new(Kind::Usage, format!("{setting} is no NAME=VALUE")))?;
        // A word that is no JSON is meant as the word it is, and "10m" as so many seconds where a setting is of seconds.
        let word = || match headway_api::spec::duration(text) {
            Ok(length) if name.ends_with("_seconds") => Value::from(length.0),
            _ => Value::String(text.to_owned()),
        };
        let value = serde_json::from_str(text).unwrap_or_else(|_| word());
        named.insert(name.to_owned(), value);
    }
    named.extend(rows.map(|rows| ("rows".to_owned(), rows)));
    Ok(named)
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(word) => word.clone(),
        Value::Null => "-".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn settings_are_words_numbers_and_limits_taken_away_and_nothing_else_is_sent() {
        let settings = ["objective=sia", "patience_seconds=null", "max_moves=4", "power=0"].map(str::to_owned);
        let named = Value::Object(named(&settings, None).unwrap());
        let wanted = serde_json::json!({"objective": "sia", "patience_seconds": null, "max_moves": 4, "power": 0});
        assert_eq!(named, wanted);
    }

    #[test]
    fn a_setting_of_seconds_may_be_written_with_a_unit() {
        let set = |setting: &str| Value::Object(named(&[setting.to_owned()], None).unwrap());
        assert_eq!(set("patience_seconds=10m"), serde_json::json!({"patience_seconds": 600.0}));
        assert_eq!(set("mode=10m"), serde_json::json!({"mode": "10m"}));
    }

    #[test]
    fn rows_are_read_from_a_list_or_from_what_the_policy_shows() {
        let list = "- {name: team-x, amount: {label: team=x, gpu_type: H100-80G}, at_most: 64}";
        let rows = rows_of(list).unwrap();
        assert_eq!((rows[0].at_most, rows[0].amount.in_words()), (64, "type H100-80G, label team=x".into()));
        let shown = serde_json::json!({"rows": rows, "mode": "auto"}).to_string();
        assert_eq!(rows_of(&shown).unwrap(), rows);
        assert_eq!(rows_of("[]").unwrap(), []);
        let wrong =
            ["- {name: a, amount: {labels: a=b}, at_most: 1}", "- {name: a, amount: {label: a}, at_most: 1}", "a"];
        for (text, told) in wrong.into_iter().zip(["unknown field `labels`", "no key=value", "invalid type"]) {
            let error = rows_of(text).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
        assert!(rows_of("- {name: a, amount: {project: b}, at_most: -1}").is_err());
    }
}

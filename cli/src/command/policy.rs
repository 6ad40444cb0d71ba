//! `headway policy …`: what an operator may change while Headway runs.

use clap::Subcommand;
use headway_api::client::Client;
use headway_api::v1::Policy as PolicyReply;
use serde_json::Value;

use crate::failure::{Failure, Kind};
use crate::output::Printer;

#[derive(Subcommand, Clone, Debug)]
pub enum Policy {
    /// Show the policy.
    Get,
    /// Change settings; what is not named stays.
    Set {
        /// NAME=VALUE, names as `policy get` shows them; `null` takes a limit away.
        #[arg(required = true, value_name = "NAME=VALUE")]
        settings: Vec<String>,
    },
}

pub async fn run(client: &Client, print: &Printer, policy: Policy) -> Result<(), Failure> {
    let policy = match policy {
        Policy::Get => client.policy().await?,
        Policy::Set { settings } => client.set_policy(&changed(&client.policy().await?, &settings)?).await?,
    };
    if print.structured() {
        return print.value(&policy);
    }
    let fields = fields(&policy)?;
    let rows = fields.iter().map(|(name, value)| vec![name.clone(), shown(value)]);
    say!("{}", print.table(&["SETTING", "VALUE"], rows))?;
    Ok(())
}

fn fields(policy: &PolicyReply) -> Result<serde_json::Map<String, Value>, Failure> {
    match serde_json::to_value(policy) {
        Ok(Value::Object(fields)) => Ok(fields),
        _ => Err(Failure::new(Kind::Failed, "the scheduler's policy is none")),
    }
}

fn changed(policy: &PolicyReply, settings: &[String]) -> Result<PolicyReply, Failure> {
    let mut fields = fields(policy)?;
    for setting in settings {
        let (name, text) =
            setting.split_once('=').ok_or_else(|| Failure::new(Kind::Usage, format!("{setting} is no NAME=VALUE")))?;
        let Some(field) = fields.get_mut(name) else {
            let known: Vec<&str> = fields.keys().map(String::as_str).collect();
            let unknown = Failure::new(Kind::Usage, format!("there is no setting {name}"));
            return Err(unknown.hint(format!("settings are {}", known.join(", "))));
        };
        // A word that is no JSON is meant as the word it is.
        *field = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
    }
    serde_json::from_value(Value::Object(fields)).map_err(|error| Failure::new(Kind::Usage, error.to_string()))
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

    fn policy() -> PolicyReply {
        serde_json::from_value(serde_json::json!({
            "mode": "auto", "power": -0.5, "epsilon": 0.1, "horizon_seconds": 3600.0, "min_gain": 0.01,
            "min_batch_gain": 0.03, "node_budget": 10000, "round_every_seconds": 60.0, "round_pause_seconds": 1.0,
            "objective": "goodput", "solver": "headway", "patience_seconds": 3600.0, "max_moves": null,
        }))
        .unwrap()
    }

    #[test]
    fn settings_are_words_numbers_and_limits_taken_away() {
        let settings =
            ["objective=sia", "solver=milp", "patience_seconds=null", "max_moves=4", "power=0"].map(str::to_owned);
        let after = fields(&changed(&policy(), &settings).unwrap()).unwrap();
        assert_eq!((&after["objective"], &after["solver"]), (&Value::from("sia"), &Value::from("milp")));
        assert_eq!((&after["patience_seconds"], &after["max_moves"]), (&Value::Null, &Value::from(4)));
        assert_eq!(after["power"], 0.0);
        assert_eq!(after["min_gain"], 0.01);
    }

    #[test]
    fn a_setting_that_is_none_is_refused_with_those_there_are() {
        let refusal = changed(&policy(), &["powr=1".to_owned()]).unwrap_err();
        assert!(refusal.hint.unwrap().contains("power"));
        assert!(changed(&policy(), &["objective=best".to_owned()]).is_err());
        assert!(changed(&policy(), &["solver=highs".to_owned()]).is_err());
    }
}

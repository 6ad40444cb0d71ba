//! `headway array …`: jobs of one specification, looked at and acted on as one. One element is a job like any other: `headway why 'sweep[7]'`.

use clap::{Args, Subcommand};
use headway_api::client::{ArrayQuery, Client};
use headway_api::v1::{Array as ArrayReply, ArrayDetail, ArrayDone, CancelRequest};
use headway_types::JobStateKind;

use super::cancel::Grace;
use super::{may_end_an_id, ps, short};
use crate::confirm::Yes;
use crate::failure::{Failure, Kind};
use crate::output::{Printer, moment};
use crate::table::Column;

#[derive(Subcommand, Clone, Debug)]
pub enum Array {
    /// List arrays, those of which an element has not ended unless told otherwise.
    List(List),
    /// How far an array is, and each of its elements.
    Get {
        /// Name, id, or unique end of one.
        array: String,
    },
    /// End all elements that have not.
    Cancel(Cancel),
    /// Keep all elements from running until they are released; those that run save and stop.
    Hold(Act),
    /// Let all held elements run again.
    Release {
        /// Name, id, or unique end of one.
        array: String,
    },
    /// Change how many elements run at once.
    Update {
        /// Name, id, or unique end of one.
        array: String,
        /// Elements that may run at once, or `all`.
        #[arg(long, value_name = "N", value_parser = parallel)]
        parallel: Parallel,
    },
}

#[derive(Args, Clone, Debug)]
pub struct List {
    /// Also arrays whose elements have all ended.
    #[arg(short, long)]
    pub all: bool,
    /// Only arrays of this project.
    #[arg(long)]
    pub project: Option<String>,
    /// Only arrays of this owner.
    #[arg(long)]
    pub user: Option<String>,
    /// Only arrays with this in their name.
    #[arg(long)]
    pub name: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub struct Act {
    /// Name, id, or unique end of one.
    pub array: String,
    /// Why, for the event log.
    #[arg(long)]
    pub reason: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub struct Cancel {
    #[command(flatten)]
    pub act: Act,
    #[command(flatten)]
    pub grace: Grace,
    #[command(flatten)]
    pub yes: Yes,
}

/// How many elements may run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parallel {
    All,
    AtMost(u32),
}

const COLUMNS: [Column; 7] = [
    Column::new("ID"),
    Column::new("ARRAY").cut(16),
    Column::new("OWNER").rank(3).cut(5),
    Column::new("PROJECT").rank(2),
    Column::new("SUBMITTED").rank(1),
    Column::new("ELEMENTS").rank(4),
    Column::new("DONE").cut_late(18, 60),
];

const ELEMENTS: [Column; 5] = [
    Column::new("ID"),
    Column::new("NAME").cut(12),
    Column::new("STATE").state(),
    Column::new("GPUS"),
    Column::new("WHY").cut_late(18, 60),
];

pub async fn run(client: &Client, print: &Printer, array: Array) -> Result<(), Failure> {
    match array {
        Array::List(list) => {
            let live = (!list.all).then_some(true);
            let (project, user, name_contains) = (list.project, list.user, list.name);
            let query = ArrayQuery { project, user, name_contains, live, ..ArrayQuery::default() };
            print.list(&client.arrays(&query).await?, &COLUMNS, row, |array| array.id.to_string())
        }
        Array::Get { array } => show(print, &client.array(&resolve(client, &array).await?).await?),
        Array::Cancel(Cancel { act, grace, yes }) => {
            let id = resolve(client, &act.array).await?;
            yes.or_ask(client, &format!("cancel all elements of array {} that have not ended?", act.array))?;
            let body = CancelRequest { reason: act.reason, grace_s: grace.grace.map(|grace| grace.0) };
            done(print, &client.cancel_array(&id, &body).await?, "are cancelled")
        }
        Array::Hold(act) => {
            let id = resolve(client, &act.array).await?;
            done(print, &client.hold_array(&id, act.reason.as_deref()).await?, "are held")
        }
        Array::Release { array } => {
            done(print, &client.release_array(&resolve(client, &array).await?).await?, "are released")
        }
        Array::Update { array, parallel } => {
            let most = match parallel {
                Parallel::All => None,
                Parallel::AtMost(most) => Some(most),
            };
            let changed = client.update_array(&resolve(client, &array).await?, most).await?;
            if print.structured() {
                return print.value(&changed);
            }
            let now = changed.array.parallel.map_or_else(|| "any number".to_owned(), |most| most.to_string());
            say!("array {}: {now} of its elements may run at once", changed.array.name)?;
            Ok(())
        }
    }
}

fn parallel(text: &str) -> Result<Parallel, String> {
    match text.parse::<u32>() {
        Ok(most) if most > 0 => Ok(Parallel::AtMost(most)),
        _ if text == "all" => Ok(Parallel::All),
        _ => Err("must be a whole number above 0, or all".into()),
    }
}

/// The array that is meant: by its id, else the only live one of a name, or the only one there was.
async fn resolve(client: &Client, text: &str) -> Result<String, Failure> {
    if uuid::Uuid::parse_str(text).is_ok() {
        return Ok(text.to_owned());
    }
    let mut known = client.arrays(&named(text)).await?;
    if known.is_empty() && may_end_an_id(text) {
        known = client.arrays(&ArrayQuery { id: Some(text.to_owned()), ..ArrayQuery::default() }).await?;
    }
    chosen(&known, text)
}

/// "sweep" and "sweep[0-99]", as `ps` shows it.
fn named(text: &str) -> ArrayQuery {
    let name = text.split_once('[').map_or(text, |(name, _)| name);
    ArrayQuery { name: Some(name.to_owned()), ..ArrayQuery::default() }
}

fn chosen(arrays: &[ArrayReply], text: &str) -> Result<String, Failure> {
    let name = text.split_once('[').map_or(text, |(name, _)| name);
    let named: Vec<&ArrayReply> = arrays.iter().filter(|array| array.name == name).collect();
    let live: Vec<&ArrayReply> = named.iter().copied().filter(|array| ended(array) < array.count).collect();
    let by_id = || {
        let begins_or_ends = |array: &&ArrayReply| {
            let id = array.id.to_string();
            id.starts_with(text) || id.ends_with(text)
        };
        arrays.iter().filter(begins_or_ends).collect::<Vec<_>>()
    };
    let meant = match (live.is_empty(), named.is_empty()) {
        (false, _) => live,
        (true, false) => named,
        (true, true) => by_id(),
    };
    match meant.as_slice() {
        [only] => Ok(only.id.to_string()),
        [] => {
            Err(Failure::new(Kind::NotFound, format!("no array is called {text}"))
                .hint("see `headway array list --all`"))
        }
        several => {
            let line = |array: &&ArrayReply| format!("    {}  {}", array.id, moment(array.submitted_at));
            let lines: Vec<String> = several.iter().map(line).collect();
            Err(Failure::new(Kind::Conflict, format!("{} arrays are called {text}", several.len()))
                .hint(format!("name one by its id:\n{}", lines.join("\n"))))
        }
    }
}

fn ended(of: &ArrayReply) -> u32 {
    let is_final = |state: &&String| state.parse::<JobStateKind>().is_ok_and(JobStateKind::is_final);
    of.by_state.iter().filter(|(state, _)| is_final(state)).map(|(_, count)| count).sum()
}

fn row(of: &ArrayReply) -> Vec<String> {
    vec![
        short(&of.id.to_string()).into(),
        called(of),
        of.owner.clone(),
        of.project.clone(),
        moment(of.submitted_at),
        of.count.to_string(),
        counts(of),
    ]
}

/// "sweep[0-99]%8".
pub fn called(of: &ArrayReply) -> String {
    let parallel = of.parallel.map_or(String::new(), |most| format!("%{most}"));
    format!("{}[{}]{parallel}", of.name, of.range)
}

/// "8 running, 40 waiting, 52 done": what elements are, in the words of whoever looks at them from afar.
pub fn counts(of: &ArrayReply) -> String {
    let count = |states: &[JobStateKind]| -> u32 {
        states.iter().filter_map(|state| of.by_state.get(<&str>::from(*state))).sum()
    };
    use JobStateKind as S;
    let told = [
        (count(&[S::Running, S::Starting, S::Stopping]), "running"),
        (count(&[S::Queued]), "waiting"),
        (count(&[S::Held]), "held"),
        (count(&[S::Succeeded]), "done"),
        (count(&[S::Failed]), "failed"),
        (count(&[S::Cancelled]), "cancelled"),
    ];
    let told: Vec<String> =
        told.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    told.join(", ")
}

fn show(print: &Printer, of: &ArrayDetail) -> Result<(), Failure> {
    if print.is_for_programs() {
        return print.one(of, &of.array.id.to_string());
    }
    let now = chrono::Utc::now();
    say!("{} ({}) of {}, project {}", called(&of.array), of.array.id, of.array.owner, of.array.project)?;
    say!("  {}", counts(&of.array))?;
    if of.array.waiting_for_array > 0 {
        let most = of.array.parallel.unwrap_or_default();
        say!(
            "  {} wait since {most} run at once: headway array update {} --parallel N",
            of.array.waiting_for_array,
            of.array.name
        )?;
    }
    for one in &of.dependents {
        say!("  before {}, which is {} and waits for {}: {}", one.name, one.state, one.on, one.standing)?;
    }
    print.list(
        &of.elements,
        &ELEMENTS,
        |job| {
            let id = short(&job.id.to_string()).to_owned();
            vec![id, job.name.clone(), job.state.to_string(), ps::gpus(job), ps::why(job, now)]
        },
        |job| job.id.to_string(),
    )
}

fn done(print: &Printer, of: &ArrayDone, what: &str) -> Result<(), Failure> {
    if print.structured() {
        return print.value(of);
    }
    say!("array {}: {} of {} elements {what}", of.array.name, of.touched, of.array.count)?;
    Ok(())
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    pub fn array(number: u32, name: &str, by_state: &[(&str, u32)]) -> ArrayReply {
        let by_state = by_state.iter().map(|(state, count)| ((*state).to_owned(), *count)).collect();
        ArrayReply {
            id: uuid::Uuid::from_u128(0x018b_cfe5_0001_7000_8000_0000_0000_0000 + u128::from(number)),
            name: name.into(),
            project: "nlp".into(),
            owner: "ada".into(),
            submitted_at: "2026-03-01T12:00:00Z".parse().unwrap(),
            range: "0-99".into(),
            count: 100,
            parallel: Some(8),
            by_state,
            waiting_for_array: 40,
            version: 3,
        }
    }

    #[test]
    fn an_array_is_one_line() {
        let of = array(1, "sweep", &[("running", 7), ("starting", 1), ("queued", 40), ("succeeded", 52)]);
        assert_eq!((called(&of).as_str(), counts(&of).as_str()), ("sweep[0-99]%8", "8 running, 40 waiting, 52 done"));
        let rows = vec![row(&of), row(&ArrayReply { parallel: None, ..array(2, "grid", &[("failed", 100)]) })];
        insta::assert_snapshot!(Printer::plain().rows(&COLUMNS, rows));
    }

    #[test]
    fn of_a_name_the_live_one_is_meant() {
        let over = |number| array(number, "sweep", &[("succeeded", 100)]);
        let live = |number| array(number, "sweep", &[("running", 1), ("succeeded", 99)]);
        assert_eq!(chosen(&[over(1), live(2)], "sweep").unwrap(), live(2).id.to_string());
        assert_eq!(chosen(&[over(1)], "sweep[0-99]").unwrap(), over(1).id.to_string(), "as `ps` shows it");
        assert_eq!(named("sweep[0-99]%8").name.as_deref(), Some("sweep"));
        assert_eq!(chosen(&[live(1), live(2)], "sweep").unwrap_err().kind, Kind::Conflict);
        assert_eq!(chosen(&[live(1), live(2)], "00002").unwrap(), live(2).id.to_string());
        assert_eq!(chosen(&[live(1)], "grid").unwrap_err().kind, Kind::NotFound);
    }

    #[test]
    fn any_number_is_said_in_a_word() {
        assert_eq!((parallel("8"), parallel("all")), (Ok(Parallel::AtMost(8)), Ok(Parallel::All)));
        assert!(parallel("0").is_err() && parallel("many").is_err());
    }
}

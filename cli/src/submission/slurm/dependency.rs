//! `--dependency`: jobs that come before this one. Of Slurm's kinds those that name jobs and how they end are taken; all of them have to be met.

use serde_json::{Value, json};

use super::{Translation, Wrong, wrong};

impl Translation<'_> {
    pub(super) fn dependency(&mut self, left_out: &[String]) -> Result<(), Wrong> {
        let Some(one) = self.options.take("dependency") else { return Ok(()) };
        if left_out.iter().any(|left| left.trim_start_matches('-') == "dependency") {
            self.options.note(one.line, "--dependency is left out, as you asked");
            return Ok(());
        }
        let after = read(&one.value).map_err(|why| {
            let (line, failure) = wrong(one.line, format!("--dependency={}: {why}", one.value));
            let hint = "headway knows afterok, afternotok, afterany and after, each with names or ids of jobs, and commas between \
                        them; without it: --leave-out dependency";
            (line, failure.hint(hint))
        })?;
        self.options.note(one.line, "--dependency names jobs of Headway: by name your newest, or by id");
        self.set("after", one.line, after);
        Ok(())
    }
}

/// `afterok:1:2,afterany:3` as the section `after`.
fn read(text: &str) -> Result<Value, String> {
    if text.contains('?') {
        return Err("one of several is not enough for Headway: all have to be met".into());
    }
    let mut after = Vec::new();
    for kind in text.split(',') {
        let (kind, jobs) = kind.split_once(':').unwrap_or((kind, ""));
        let on = match kind {
            "afterok" => "success",
            "afternotok" => "failure",
            "afterany" => "any",
            "after" => "start",
            "singleton" => return Err("Headway has no singletons: name the job that comes before".into()),
            other => return Err(format!("{other} is not known")),
        };
        for job in jobs.split(':') {
            if job.is_empty() {
                return Err(format!("{kind} names no job"));
            }
            if job.contains('+') {
                return Err("Headway waits no longer than until the other job has started".into());
            }
            after.push(json!({ "job": job, "on": on }));
        }
    }
    Ok(Value::Array(after))
}

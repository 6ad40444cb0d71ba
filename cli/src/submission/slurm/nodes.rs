//! Which nodes a script asks for.

use headway_types::spec::check_node_label;
use serde_json::{Map, Value, json};

use super::{Translation, Wrong, quantity, wrong};

impl Translation<'_> {
    pub(super) fn nodes(&mut self, left_out: &[String]) -> Result<(), Wrong> {
        if let Some(one) = self.options.take("nodelist") {
            let hosts = quantity::host_list(&one.value);
            let message = "--nodelist names nodes with commas, as in n1,n[3-5]";
            self.set("resources.nodes.include", one.line, json!(hosts.ok_or_else(|| wrong(one.line, message))?));
            let note = "--nodelist became resources.nodes.include: the job takes no other nodes, and not all of these where it needs fewer";
            self.options.note(one.line, note);
        }
        self.constraint(left_out)?;
        if let Some(one) = self.options.take("exclude") {
            match quantity::host_list(&one.value) {
                Some(hosts) => self.set("resources.nodes.exclude", one.line, json!(hosts)),
                None => self.options.note(one.line, "--exclude is left out: give the nodes by name, with commas"),
            }
        }
        if let Some(one) = self.options.take("switches") {
            self.set("resources.topology", one.line, json!({ "require": "rack" }));
            self.options.note(one.line, "--switches became topology: {require: rack}: one fabric domain");
        }
        Ok(())
    }

    /// Features that all nodes have to have are labels; what chooses between features is not.
    fn constraint(&mut self, left_out: &[String]) -> Result<(), Wrong> {
        let Some(one) = self.options.take("constraint") else { return Ok(()) };
        if left_out.iter().any(|name| name.trim_start_matches('-') == "constraint") {
            self.options.note(one.line, "--constraint is left out, as you asked");
            return Ok(());
        }
        let features: Vec<&str> = one.value.split(['&', ',']).map(str::trim).collect();
        let mut labels = Map::new();
        for feature in features {
            let (name, value) = feature.split_once('=').unwrap_or((feature, "true"));
            if let Err(why) = check_node_label(name, value) {
                let (line, failure) = wrong(one.line, format!("--constraint takes features joined by &: {why}"));
                let hint = "where it stood for a GPU type, give --gpu-type; --leave-out constraint submits it without";
                return Err((line, failure.hint(hint)));
            }
            labels.insert(name.to_owned(), json!(value));
        }
        let told: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect();
        let note = format!(
            "--constraint asks for nodes labelled {} (headway node label NODE {}); where it stood for a GPU type, give --gpu-type and \
             --leave-out constraint",
            told.join(", "),
            told.join(" ")
        );
        self.options.note(one.line, note);
        self.set("resources.nodes.labels", one.line, Value::Object(labels));
        Ok(())
    }
}

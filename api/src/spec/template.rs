//! `{placeholders}` in commands and environment: checked when a job is submitted, filled in when it is launched.
//!
//! `{name}` is substituted, `{{` and `}}` are literal braces, `${…}` is the shell's and stays as it is.

use std::collections::BTreeMap;

use super::section::nearest;
use super::training::EXECUTION;

/// Placeholders whose value is known for every job.
const ALWAYS: &[&str] = &[
    "nnodes",
    "node_rank",
    "gpus_per_node",
    "master_addr",
    "master_port",
    "job_id",
    "job_name",
    "generation",
    "checkpoint_dir",
    "resume_path",
    "samples_seen",
    "lr_scale",
    "python",
    "headway",
];
/// Placeholders that only elements of an array have.
const OF_ARRAYS: &[&str] = &["array_id", "array_name", "array_index", "array_count", "array_first", "array_last"];
/// Placeholders of the configuration, which only a job with a training section has, beside those of its execution.
const CONFIGURED: &[&str] = &["dp", "tp", "pp", "shares", "micro_batch", "global_batch_sequences"];

/// Why a template cannot be filled in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    #[error("there is no placeholder {{{name}}}{}", .nearest.as_ref().map_or(String::new(), |near| format!("; did you mean {{{near}}}?")))]
    Unknown { name: String, nearest: Option<String> },
    /// A known placeholder that means nothing for this job.
    #[error("{{{name}}} has no value for a job without a training section")]
    NotConfigured { name: String },
    #[error("{{{name}}} has no value for a job that is no array")]
    NoArray { name: String },
    #[error("the brace before \"{rest}\" is never closed")]
    Unclosed { rest: String },
}

/// Fills in `values`. A name that is not among them is an error.
pub fn render(template: &str, values: &BTreeMap<String, String>) -> Result<String, RenderError> {
    let mut out = String::with_capacity(template.len());
    for piece in pieces(template)? {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Name(name) => match values.get(name) {
                Some(value) => out.push_str(value),
                None if is_configured(name) => return Err(RenderError::NotConfigured { name: name.to_owned() }),
                None if OF_ARRAYS.contains(&name) => return Err(RenderError::NoArray { name: name.to_owned() }),
                None => return Err(unknown(name, values.keys().map(String::as_str))),
            },
        }
    }
    Ok(out)
}

/// A template that is filled in as exactly this text.
#[must_use]
pub fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}', '$']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let length = if from.starts_with("${") { shell_length(from) } else { 1 };
        match &from[..length] {
            "{" => out.push_str("{{"),
            "}" => out.push_str("}}"),
            shells => out.push_str(shells),
        }
        rest = &from[length..];
    }
    out.push_str(rest);
    out
}

/// What a job has that placeholders may stand for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Has {
    /// A training section.
    pub training: bool,
    /// It is an array.
    pub array: bool,
}

/// Checks that a template can be filled in at launch.
pub(super) fn check(template: &str, has: Has) -> Result<(), RenderError> {
    for piece in pieces(template)? {
        let Piece::Name(name) = piece else { continue };
        match name {
            _ if ALWAYS.contains(&name) => {}
            _ if is_configured(name) && !has.training => {
                return Err(RenderError::NotConfigured { name: name.to_owned() });
            }
            _ if OF_ARRAYS.contains(&name) && !has.array => return Err(RenderError::NoArray { name: name.to_owned() }),
            _ if is_configured(name) || OF_ARRAYS.contains(&name) => {}
            _ => return Err(unknown(name, [ALWAYS, CONFIGURED, &EXECUTION, OF_ARRAYS].concat().into_iter())),
        }
    }
    Ok(())
}

fn is_configured(name: &str) -> bool {
    CONFIGURED.contains(&name) || EXECUTION.contains(&name)
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> RenderError {
    RenderError::Unknown { name: name.to_owned(), nearest: nearest(name, known).map(str::to_owned) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Name(&'a str),
}

fn pieces(template: &str) -> Result<Vec<Piece<'_>>, RenderError> {
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}', '$']) {
        let (before, from) = rest.split_at(at);
        pieces.push(Piece::Text(before));
        let (piece, length) = if from.starts_with("{{") || from.starts_with("}}") {
            (Piece::Text(&from[..1]), 2)
        } else if from.starts_with("${") {
            let length = shell_length(from);
            (Piece::Text(&from[..length]), length)
        } else if let Some(inner) = from.strip_prefix('{') {
            let end =
                inner.find('}').ok_or_else(|| RenderError::Unclosed { rest: inner.chars().take(20).collect() })?;
            (Piece::Name(&inner[..end]), end + 2)
        } else {
            (Piece::Text(&from[..1]), 1)
        };
        pieces.push(piece);
        rest = &from[length..];
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

/// Bytes of the shell's `${…}` that `text` begins with, braces within it counted; all of `text` if it never closes.
fn shell_length(text: &str) -> usize {
    let mut depth = 0_u32;
    for (at, character) in text.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 1 => return at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn filled(template: &str) -> Result<String, RenderError> {
        let values = [("dp", "4"), ("python", "/usr/bin/python3")];
        render(template, &values.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
    }

    #[test]
    fn names_are_filled_in_and_doubled_braces_are_literal() {
        for (template, rendered) in [
            ("{python} t.py --dp {dp}", "/usr/bin/python3 t.py --dp 4"),
            ("{{dp}} {{}} }", "{dp} {} }"),
            ("{dp}{dp}", "44"),
            ("awk '{{print $1}}' ünïcode", "awk '{print $1}' ünïcode"),
            ("", ""),
        ] {
            assert_eq!(filled(template).unwrap(), rendered, "{template}");
        }
    }

    #[test]
    fn what_is_the_shells_stays() {
        for template in ["$HOME ${HOME} ${A:-${B}} $$ ${open", "${dp}"] {
            assert_eq!(filled(template).unwrap(), template);
        }
        assert_eq!(filled("{{${A}}}").unwrap(), "{${A}}");
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_literally_comes_out_as_it_was(text in "[${}a \\n]{0,12}|.{0,30}") {
            assert_eq!(filled(&literal(&text)).unwrap(), text);
        }
    }

    #[test]
    fn an_unknown_name_is_told_with_its_nearest() {
        let error = filled("{pyhton}").unwrap_err();
        assert_eq!(error.to_string(), "there is no placeholder {pyhton}; did you mean {python}?");
        assert_eq!(filled("{tp}").unwrap_err(), RenderError::NotConfigured { name: "tp".into() });
        assert_eq!(filled("a {dp").unwrap_err(), RenderError::Unclosed { rest: "dp".into() });
        let tuned = Has { training: true, array: false };
        assert!(check("{master_port} {dp}", tuned).is_ok());
        assert!(check("{master_port} {dp}", Has { training: false, ..tuned }).is_err());
        assert!(check("{print $1}", tuned).is_err());
        assert!(check("{array_index}", Has { array: true, ..tuned }).is_ok());
        let no_array = RenderError::NoArray { name: "array_index".into() };
        assert_eq!((check("{array_index}", tuned), filled("{array_index}")), (Err(no_array.clone()), Err(no_array)));
    }
}

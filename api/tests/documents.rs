//! What documents show of this crate's interfaces is so: specifications are read by the real reader, and REST paths are those
//! of the OpenAPI document.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use headway_api::spec;
use serde_json::Value;

/// What is served beside the interface, at the root (docs/operations.md).
const AT_ROOT: [&str; 4] = ["/healthz", "/readyz", "/metrics", "/version"];
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// README and every page below `docs`.
fn pages() -> Vec<(String, String)> {
    fn below(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                below(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = vec![root.join("README.md")];
    below(&root.join("docs"), &mut files);
    files.iter().map(|file| (file.display().to_string(), std::fs::read_to_string(file).unwrap())).collect()
}

/// The fenced blocks of YAML.
fn yaml(page: &str) -> impl Iterator<Item = &str> {
    page.split("\n```yaml\n").skip(1).map(|rest| rest.split("\n```").next().unwrap_or_default())
}

/// What stands between backquotes, blocks left out.
fn code(page: &str) -> Vec<&str> {
    let text = page.split("```").step_by(2);
    text.flat_map(|part| part.lines()).flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// `GET /jobs/{id}` of `GET /jobs/{id}?at=…`, for each of `POST /plans/pause | resume`.
fn operations(code: &str) -> Vec<(String, String)> {
    let words: Vec<&str> = code.split_whitespace().map(|word| word.trim_end_matches(',')).collect();
    let methods: Vec<&str> = words.iter().copied().take_while(|word| METHODS.contains(word)).collect();
    let Some(first) = words.get(methods.len()).filter(|word| word.starts_with('/') && !word.contains('…')) else {
        return Vec::new();
    };
    let first = first.split('?').next().unwrap_or_default();
    let (folder, _) = first.rsplit_once('/').unwrap_or_default();
    let others = words[methods.len() + 1..].chunks(2).take_while(|pair| pair.len() == 2 && pair[0] == "|");
    let paths = std::iter::once(first.to_owned()).chain(others.map(|pair| format!("{folder}/{}", pair[1])));
    paths.flat_map(|path| methods.iter().map(move |method| (method.to_lowercase(), path.clone()))).collect()
}

/// Whether a path as written is one of the document's: what is in braces there is anything.
fn is_path(template: &str, path: &str) -> bool {
    let path = path.strip_prefix("/api/v1").unwrap_or(path);
    let template = template.strip_prefix("/api/v1").unwrap_or(template);
    let (template, path) = (template.split('/').collect::<Vec<_>>(), path.split('/').collect::<Vec<_>>());
    template.len() == path.len()
        && template.iter().zip(&path).all(|(known, written)| known.starts_with('{') || known == written)
}

#[test]
fn every_specification_of_a_page_is_one() {
    let mut read = 0;
    for (page, text) in pages() {
        for block in yaml(&text).filter(|block| block.contains("version: 1")) {
            let (body, _) = spec::submission_yaml(block).unwrap_or_else(|error| panic!("{page}: {error}\n{block}"));
            read += spec::read_submission_json(&body).unwrap_or_else(|error| panic!("{page}: {error}\n{block}")).len();
        }
    }
    assert!(read >= 3, "{read}");
}

#[test]
fn every_rest_path_of_a_page_is_one() {
    let document: Value = serde_json::from_str(include_str!("../openapi.json")).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for (page, text) in pages() {
        for (method, path) in code(&text).into_iter().flat_map(operations) {
            checked += 1;
            if AT_ROOT.contains(&path.as_str()) {
                continue;
            }
            let known =
                |(template, methods): (&String, &Value)| is_path(template, &path) && methods.get(&method).is_some();
            if !paths.iter().any(known) {
                wrong.push(format!("{page}: {method} {path}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked > 25, "{checked}");
}

#[test]
fn what_is_written_in_short_is_each_of_its_paths() {
    let of = |code| operations(code).into_iter().map(|(method, path)| format!("{method} {path}")).collect::<Vec<_>>();
    assert_eq!(of("POST /plans/pause | resume"), ["post /plans/pause", "post /plans/resume"]);
    assert_eq!(of("GET, DELETE /auth/sessions?user=ada"), ["get /auth/sessions", "delete /auth/sessions"]);
    assert!(of("GET").is_empty() && of("headway ps").is_empty());
}

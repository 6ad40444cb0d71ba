//! Every specification that is offered as an example is one.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use headway_api::spec;

#[test]
fn every_example_is_well_formed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut read = Vec::new();
    for folder in ["api/examples", "examples/training", "examples/emulated"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let file = entry.unwrap().path();
            if file.extension().is_none_or(|extension| extension != "yaml" && extension != "toml") {
                continue;
            }
            let text = std::fs::read_to_string(&file).unwrap();
            let (body, _) = match file.extension().unwrap().to_str() {
                Some("toml") => spec::document_toml(&text).unwrap(),
                _ => spec::submission_yaml(&text).unwrap(),
            };
            let jobs = spec::read_submission_json(&body).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            read.extend(jobs.into_iter().map(|job| job.name));
        }
    }
    for framework in ["tiny", "torchtitan-8b", "accelerate", "deepspeed", "deepspeed-zero3", "huggingface", "untouched"]
    {
        assert!(read.iter().any(|name| name == framework), "{framework}: {read:?}");
    }
    assert!(read.iter().any(|name| name.contains("megatron")), "{read:?}");
}

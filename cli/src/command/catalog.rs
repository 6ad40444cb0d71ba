//! Files with GPU types of a site's own, in the form of the built-in hardware catalog.

use std::path::PathBuf;

use headway_goodput::catalog::Catalog;
use headway_goodput::physics::Parameters;

use crate::failure::{Failure, Kind};

const FORM: &str =
    "an entry has the form of those in core/goodput/src/hardware.toml (docs/operations.md, \"GPU types of your own\")";

/// The entries of all files, without the built-in ones; of two with the same name, the later holds.
pub fn read(files: &[PathBuf], parameters: &Parameters) -> Result<Catalog, Failure> {
    let mut catalog = Catalog::default();
    for file in files {
        let name = file.display();
        let text = std::fs::read_to_string(file).map_err(|error| {
            Failure::new(Kind::Usage, format!("the hardware catalog {name} cannot be read: {error}"))
        })?;
        catalog.extend(&text, parameters).map_err(|error| {
            let error = anyhow::Error::from(error);
            Failure::new(Kind::Usage, format!("the hardware catalog {name} is refused: {error:#}")).hint(FORM)
        })?;
    }
    Ok(catalog)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const MINE: &str =
        "[Mine]\nfamily='other'\npeak=10\nmatmul=8\nmemory=2\nbandwidth=1\nlink=9\nnetwork=1\nmultiprocessors=8\n";

    #[test]
    fn a_later_file_replaces_an_entry_and_a_wrong_one_is_refused_by_name_and_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).unwrap();
            dir.path().join(name)
        };
        let read = |files: &[PathBuf]| read(files, Parameters::built_in());
        let first = file("first.toml", MINE);
        let second = file("second.toml", &MINE.replace("memory=2", "memory=3"));
        let memory = |files: &[PathBuf]| read(files).unwrap().stated("Mine").unwrap().memory.0 >> 30;
        assert_eq!((memory(&[first.clone(), second.clone()]), memory(&[second, first])), (3, 2));
        let refused = |file: PathBuf| read(&[file]).unwrap_err().to_string();
        let misspelt = refused(file("misspelt.toml", &MINE.replace("bandwidth", "bandwith")));
        assert!(misspelt.contains("misspelt.toml") && misspelt.contains("line 6"), "{misspelt}");
        let impossible = refused(file("impossible.toml", &MINE.replace("link=9", "link=0")));
        assert!(impossible.contains("impossible.toml is refused: GPU type Mine: link must be"), "{impossible}");
        assert!(refused(dir.path().join("none.toml")).contains("none.toml cannot be read"));
    }
}

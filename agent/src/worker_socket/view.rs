//! Files as the job's user sees them: root may see less of a shared file system than that user. Reads, never writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How many files one look takes: their names must fit one command line.
const AT_ONCE: usize = 256;

/// The words that make a command run as the user; none where that is the agent's own.
#[derive(Clone, Debug, Default)]
pub(super) struct View(pub(super) Vec<String>);

impl View {
    /// The path without links and `..`; an error if there is nothing.
    pub(super) fn real(&self, path: &Path) -> Result<PathBuf, String> {
        if self.0.is_empty() {
            return fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()));
        }
        let output = self.run("readlink", &["-e", "--"], &[path.to_owned()])?;
        let text = String::from_utf8(output).map_err(|_| format!("{} is no text", path.display()))?;
        Ok(PathBuf::from(text.strip_suffix('\n').unwrap_or(&text)))
    }

    pub(super) fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        if self.0.is_empty() {
            return fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        }
        self.run("cat", &["--"], &[path.to_owned()])
    }

    /// The sizes of regular files, in order.
    pub(super) fn sizes(&self, paths: &[PathBuf]) -> Result<Vec<u64>, String> {
        if self.0.is_empty() {
            return paths.iter().map(|path| size(path)).collect();
        }
        let mut sizes = Vec::new();
        for some in paths.chunks(AT_ONCE) {
            let text = self.run("stat", &["-L", "-c", "%s %F", "--"], some)?;
            for (line, path) in String::from_utf8_lossy(&text).lines().zip(some) {
                let size = line.split_once(' ').filter(|(_, kind)| kind.starts_with("regular"));
                let size = size.and_then(|(size, _)| size.parse().ok());
                sizes.push(size.ok_or_else(|| format!("{} is no file", path.display()))?);
            }
        }
        Ok(sizes)
    }

    fn run(&self, program: &str, options: &[&str], paths: &[PathBuf]) -> Result<Vec<u8>, String> {
        let output = Command::new(&self.0[0])
            .args(&self.0[1..])
            .arg(program)
            .args(options)
            .args(paths)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LC_ALL", "C")
            .current_dir("/")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("running {program}: {error}"))?;
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }
    }
}

fn size(path: &Path) -> Result<u64, String> {
    let found = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    found.is_file().then_some(found.len()).ok_or_else(|| format!("{} is no file", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn both_ways_of_looking_see_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("a b"), dir.path().join("link"));
        fs::write(&file, "12345\n").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let through_a_command = View(vec!["/usr/bin/env".into()]);
        for view in [View::default(), through_a_command] {
            assert_eq!(view.real(&link), Ok(fs::canonicalize(&file).unwrap()));
            assert_eq!(view.read(&file).unwrap(), b"12345\n");
            assert_eq!(view.sizes(&[file.clone(), link.clone()]), Ok(vec![6, 6]));
            assert!(view.real(&dir.path().join("none")).is_err());
            assert!(view.sizes(&[dir.path().to_owned()]).is_err());
        }
    }
}

//! Files as the job's user sees them: root may see less of a shared file system than that user. Reads, never writes.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::libc::O_NONBLOCK;

use crate::user_program::{NoAnswer, run_program};

/// How many files one look takes: their names must fit one command line.
const AT_ONCE: usize = 256;
/// Largest file that is read, bytes.
const READ_LIMIT: u64 = 64 << 20;
/// How long a file system may take to answer one look.
const PATIENCE: Duration = Duration::from_secs(30);

/// The words that make a command run as the user; none where that is the agent's own.
#[derive(Clone, Debug, Default)]
pub(crate) struct View(pub(crate) Vec<String>);

impl View {
    /// The path without links and `..`; an error if there is nothing.
    pub(crate) async fn real(&self, path: &Path) -> Result<PathBuf, String> {
        let path = path.to_owned();
        if self.0.is_empty() {
            return blocking(move || fs::canonicalize(&path).map_err(|error| about(&path, error))).await;
        }
        let output = self.run("readlink", &["-e", "--"], std::slice::from_ref(&path)).await?;
        let text = String::from_utf8(output).map_err(|_| format!("{} is no text", path.display()))?;
        Ok(PathBuf::from(text.strip_suffix('\n').unwrap_or(&text)))
    }

    /// A regular file, unless it is too large.
    pub(crate) async fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        let path = path.to_owned();
        if self.0.is_empty() {
            return blocking(move || read(&path)).await;
        }
        let paths = [path];
        self.sizes(&paths).await?;
        // It may have become another file since: then it is the limit and the deadline that hold.
        let content = self.run("head", &["-c", &(READ_LIMIT + 1).to_string(), "--"], &paths).await?;
        within_limit(content, &paths[0])
    }

    /// The sizes of regular files, in order.
    pub(crate) async fn sizes(&self, paths: &[PathBuf]) -> Result<Vec<u64>, String> {
        let mut sizes = Vec::new();
        for some in paths.chunks(AT_ONCE) {
            if self.0.is_empty() {
                let some = some.to_vec();
                sizes
                    .extend(blocking(move || some.iter().map(|path| size(path)).collect::<Result<Vec<_>, _>>()).await?);
                continue;
            }
            let text = self.run("stat", &["-L", "-c", "%s %F", "--"], some).await?;
            for (line, path) in String::from_utf8_lossy(&text).lines().zip(some) {
                let size = line.split_once(' ').filter(|(_, kind)| kind.starts_with("regular"));
                let size = size.and_then(|(size, _)| size.parse().ok());
                sizes.push(size.ok_or_else(|| format!("{} is no file", path.display()))?);
            }
        }
        Ok(sizes)
    }

    async fn run(&self, program: &str, options: &[&str], paths: &[PathBuf]) -> Result<Vec<u8>, String> {
        let arguments = options.iter().map(OsStr::new).chain(paths.iter().map(|path| path.as_os_str()));
        let output = run_program(&self.0, program, arguments, &[], PATIENCE).await.map_err(|why| why.to_string())?;
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }
    }
}

/// A look by the agent itself. One that no answer comes to keeps its thread: no signal would end it either.
async fn blocking<T: Send + 'static>(look: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    let looked = tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(look)).await;
    looked.map_err(|_| NoAnswer::Late(PATIENCE).to_string())?.map_err(|error| error.to_string())?
}

fn about(path: &Path, error: std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    // A pipe without a writer would hold up the opening itself.
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path);
    let file = file.map_err(|error| about(path, error))?;
    if !file.metadata().map_err(|error| about(path, error))?.is_file() {
        return Err(format!("{} is no file", path.display()));
    }
    let mut content = Vec::new();
    file.take(READ_LIMIT + 1).read_to_end(&mut content).map_err(|error| about(path, error))?;
    within_limit(content, path)
}

fn within_limit(content: Vec<u8>, path: &Path) -> Result<Vec<u8>, String> {
    if content.len() as u64 > READ_LIMIT {
        return Err(format!("{} has more than {READ_LIMIT} bytes", path.display()));
    }
    Ok(content)
}

fn size(path: &Path) -> Result<u64, String> {
    let found = fs::metadata(path).map_err(|error| about(path, error))?;
    found.is_file().then_some(found.len()).ok_or_else(|| format!("{} is no file", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn both_views() -> [View; 2] {
        [View::default(), View(vec!["/usr/bin/env".into()])]
    }

    #[tokio::test]
    async fn neither_a_pipe_nor_a_huge_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, huge) = (dir.path().join("pipe"), dir.path().join("huge"));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::File::create(&huge).unwrap().set_len(READ_LIMIT + 1).unwrap();
        for view in both_views() {
            assert!(view.read(&pipe).await.unwrap_err().contains("is no file"));
            assert!(view.read(&huge).await.unwrap_err().contains("more than"));
        }
    }

    #[tokio::test]
    async fn both_ways_of_looking_see_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("a b"), dir.path().join("link"));
        fs::write(&file, "12345\n").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for view in both_views() {
            assert_eq!(view.real(&link).await, Ok(fs::canonicalize(&file).unwrap()));
            assert_eq!(view.read(&file).await.unwrap(), b"12345\n");
            assert_eq!(view.sizes(&[file.clone(), link.clone()]).await, Ok(vec![6, 6]));
            assert!(view.real(&dir.path().join("none")).await.is_err());
            assert!(view.sizes(&[dir.path().to_owned()]).await.is_err());
        }
    }
}

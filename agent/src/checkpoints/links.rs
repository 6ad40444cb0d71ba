//! Symbolic links in a job's directory. What one leads to is not removed with older checkpoints: a checkpoint that
//! stays may consist of links into one before it, and a link beside the checkpoints says that somebody uses the one it
//! leads to. Hard links need no care, and links from elsewhere are not known.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::find::{Found, run_in};

/// Prints the real path of the job's directory `$1`, then for each symbolic link in it and in the directories of its
/// generations where it stands and where it leads in the end, with a NUL behind each.
const LINKS: &str = r#"
cd -P -- "$1" || exit 1
printf '%s\0' "$(pwd -P)"
find . -ignore_readdir_race -path './*' ! -path './*/*' -type d ! -name 'g[0-9]*' -prune -o -type l -exec sh -c '
for link; do printf "%s\0%s\0" "$link" "$(readlink -m -- "$link")"; done' sh {} +
"#;

/// A symbolic link, by paths below the job's directory as it is named.
pub(super) struct Link {
    at: PathBuf,
    target: PathBuf,
}

/// Returns the links that lead to something in the job's directory.
pub(super) async fn find_links(prefix: &[String], directory: &Path) -> Result<Vec<Link>, String> {
    let text = run_in(prefix, LINKS, directory, &[], &[]).await?;
    let mut paths = text.split(|byte| *byte == 0).map(|path| Path::new(OsStr::from_bytes(path)));
    let real = paths.next().unwrap_or(directory);
    let mut links = Vec::new();
    while let (Some(at), Some(target)) = (paths.next(), paths.next()) {
        if let Ok(target) = target.strip_prefix(real) {
            let at = directory.join(at.strip_prefix(".").unwrap_or(at));
            links.push(Link { at, target: directory.join(target) });
        }
    }
    Ok(links)
}

/// Takes out of `older`, which is to be removed, each checkpoint that a link leads to. Links in what is removed do not
/// count.
pub(super) fn keep_linked(older: &mut Vec<Found>, links: &[Link]) {
    loop {
        let before = older.len();
        let is_removed = |link: &Link| older.iter().any(|one| link.at.starts_with(&one.path));
        let used: Vec<&Path> = links.iter().filter(|link| !is_removed(link)).map(|link| &*link.target).collect();
        older.retain(|one| !used.iter().any(|target| target.starts_with(&one.path) || one.path.starts_with(target)));
        if older.len() == before {
            return;
        }
    }
}

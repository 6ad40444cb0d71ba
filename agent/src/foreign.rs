//! A checkpoint directory that another user made first. Everybody may make a directory in a shared checkpoint root, so the name of a
//! waiting job can be taken before the job starts. Whoever owns that directory decides what the job finds in it, so no job may use it.
//! This module replaces it by an empty directory of the job's user. The directory that was in the way is renamed and never deleted:
//! an operator may want to see whose it is.
//!
//! Only an agent of root can do this, and only in a directory with the sticky bit: there nobody but root can rename the entries of
//! others, so what is checked stays true. On a file system that does not obey the node's root (NFS with `root_squash`) every call fails,
//! and the caller refuses the start by name.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use headway_types::JobId;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, fchown, fstat, mkdirat, open, openat, renameat, renameat_with,
    statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid};

use crate::user::UnixUser;

const STICKY: u32 = 0o1000;
/// Attempts on a file system that cannot exchange two names in one step: somebody may take the name again in between.
const ATTEMPTS: u32 = 16;

/// Puts an empty directory of the job's user in the place of a foreign one. Returns the new path of the foreign one; `None` if the
/// directory turned out to belong to the user, because another node of the gang has just made it.
pub(crate) fn replace(directory: &Path, job: JobId, user: Option<&UnixUser>) -> io::Result<Option<PathBuf>> {
    let unusual = || io::Error::other("it has no parent directory");
    let (parent, name) = (directory.parent().ok_or_else(unusual)?, directory.file_name().ok_or_else(unusual)?);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = open(parent, flags, Mode::empty())?;
    let rules = fstat(&root)?;
    if rules.st_mode & STICKY == 0 || !(rules.st_uid == 0 || rules.st_uid == geteuid().as_raw()) {
        return Err(io::Error::other(format!("{} is not a sticky directory of root", parent.display())));
    }
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let number = hex::encode(bytes);
    let fresh = format!(".headway-new-{number}");
    let aside = format!(".foreign-{job}-{number}");
    let ids = user.map_or_else(|| (geteuid().as_raw(), rustix::process::getegid().as_raw()), UnixUser::ids);
    let replaced = make(&root, &fresh, ids).and_then(|()| exchange(&root, name, &fresh, &aside, ids.0));
    if !matches!(replaced, Ok(true)) {
        let _was_never_made = unlinkat(&root, &fresh, AtFlags::REMOVEDIR);
    }
    Ok(replaced?.then(|| parent.join(aside)))
}

/// Makes a directory and gives it to the user. Nobody else can touch it before: it is root's.
fn make(root: &OwnedFd, name: &str, (uid, gid): (u32, u32)) -> io::Result<()> {
    mkdirat(root, name, Mode::RWXU)?;
    let made =
        openat(root, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    Ok(fchown(&made, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?)
}

/// Gives `fresh` the name of the foreign directory, which is called `aside` afterwards. False if it was not foreign.
fn exchange(root: &OwnedFd, name: &OsStr, fresh: &str, aside: &str, uid: u32) -> io::Result<bool> {
    // Another node of the gang may have made the directory and may write to it: its name must not point elsewhere for a moment.
    if is_directory_of(root, name, uid)? {
        return Ok(false);
    }
    match renameat_with(root, fresh, root, name, RenameFlags::EXCHANGE) {
        Ok(()) => {}
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => return move_aside(root, name, fresh, aside, uid),
        Err(error) => return Err(error.into()),
    }
    if is_directory_of(root, fresh, uid)? {
        renameat_with(root, fresh, root, name, RenameFlags::EXCHANGE)?;
        return Ok(false);
    }
    renameat(root, fresh, root, aside)?;
    Ok(true)
}

/// The same in two steps. A name that is taken in between by an empty directory is replaced; by anything else, moved aside too.
fn move_aside(root: &OwnedFd, name: &OsStr, fresh: &str, aside: &str, uid: u32) -> io::Result<bool> {
    for attempt in 0..ATTEMPTS {
        if is_directory_of(root, name, uid)? {
            return Ok(false);
        }
        let aside = if attempt == 0 { aside.to_owned() } else { format!("{aside}-{attempt}") };
        match renameat(root, name, root, aside) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        match renameat(root, fresh, root, name) {
            Ok(()) => return Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other(format!("another user took the name again {ATTEMPTS} times")))
}

/// Whether there is a real directory of this user; a link to one does not count.
fn is_directory_of(root: impl AsFd, name: impl rustix::path::Arg, uid: u32) -> io::Result<bool> {
    match statat(root, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(found.st_uid == uid && FileType::from_raw_mode(found.st_mode).is_dir()),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    /// Who is in the way: nobody here is another user, so a directory counts as foreign by the uid that is asked for.
    const OTHERS: u32 = 77_777;

    fn root(mode: u32) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
        dir
    }

    fn job() -> JobId {
        JobId(uuid::Uuid::from_u128(3))
    }

    #[test]
    fn what_is_in_the_way_is_renamed_and_an_empty_directory_takes_its_place() {
        let root = root(0o1777);
        let name = root.path().join("job");
        for make in [
            |path: &Path| fs::create_dir_all(path.join("g1")).unwrap(),
            |path: &Path| fs::write(path, "a file").unwrap(),
            |path: &Path| symlink("/", path).unwrap(),
        ] {
            make(&name);
            let opened: OwnedFd = fs::File::open(root.path()).unwrap().into();
            for two_steps in [false, true] {
                make_and_replace(&opened, &name, two_steps);
                assert!(fs::symlink_metadata(&name).unwrap().is_dir() && fs::read_dir(&name).unwrap().next().is_none());
                fs::remove_dir(&name).unwrap();
                fs::rename(root.path().join("aside"), &name).unwrap();
            }
            fs::rename(&name, root.path().join(format!("kept-{}", fs::read_dir(root.path()).unwrap().count())))
                .unwrap();
        }
    }

    fn make_and_replace(root: &OwnedFd, name: &Path, two_steps: bool) {
        mkdirat(root, "fresh", Mode::RWXU).unwrap();
        let name = name.file_name().unwrap();
        let replaced = match two_steps {
            true => move_aside(root, name, "fresh", "aside", OTHERS),
            false => exchange(root, name, "fresh", "aside", OTHERS),
        };
        assert!(replaced.unwrap());
    }

    #[test]
    fn a_directory_of_the_user_stays_where_it_is() {
        let root = root(0o1777);
        let name = root.path().join("job");
        fs::create_dir_all(name.join("g1")).unwrap();
        assert_eq!(fs::metadata(&name).unwrap().uid(), geteuid().as_raw());
        assert_eq!(replace(&name, job(), None).unwrap(), None);
        assert!(name.join("g1").is_dir());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_directory_of_the_user_is_not_exchanged_even_for_a_moment() {
        let root = root(0o1777);
        fs::create_dir(root.path().join("job")).unwrap();
        let opened: OwnedFd = fs::File::open(root.path()).unwrap().into();
        let replaced = exchange(&opened, OsStr::new("job"), "nothing to exchange it for", "aside", geteuid().as_raw());
        assert!(!replaced.unwrap());
    }

    #[test]
    fn without_the_sticky_bit_nothing_is_renamed() {
        let root = root(0o777);
        let name = root.path().join("job");
        fs::create_dir(&name).unwrap();
        let error = replace(&name, job(), None).unwrap_err();
        assert!(error.to_string().contains("sticky"), "{error}");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }
}

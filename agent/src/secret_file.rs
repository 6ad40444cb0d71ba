//! A secret as an open file: in memory, sealed, readable to the job's user alone, and gone with the last process that holds it. It shows in no
//! environment and lies on no disk.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

use headway_api::secret::Secret;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::user::{UnixUser, give_open};

/// The descriptors begin here, and follow in the order of the variables' names.
const FIRST: i32 = 3;

/// One that a process is to be started with.
#[derive(Debug)]
pub(crate) struct SecretFile {
    /// What the job calls it.
    pub(crate) variable: String,
    pub(crate) file: OwnedFd,
}

impl SecretFile {
    /// Opened for one process and what that starts: who reads by the descriptor moves its position, who reads by the path has one of his own.
    pub(crate) fn open(variable: &str, value: &Secret, user: Option<&UnixUser>) -> io::Result<Self> {
        let memory = memfd_create(format!("headway-{variable}"), MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut memory = File::from(memory);
        memory.write_all(value.expose().as_bytes())?;
        fcntl_add_seals(&memory, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        memory.set_permissions(Permissions::from_mode(0o400))?;
        // Anew, at its beginning and for reading alone.
        let file = File::open(format!("/proc/self/fd/{}", memory.as_fd().as_raw_fd()))?;
        give_open(&file, user)?;
        Ok(Self { variable: variable.to_owned(), file: file.into() })
    }
}

/// The descriptors that files are had by, in a process that starts with them.
pub(crate) fn numbered(files: Vec<SecretFile>) -> Vec<(i32, SecretFile)> {
    (FIRST..).zip(files).collect()
}

/// By which variable a process finds the descriptor.
pub(crate) fn descriptor_variable(variable: &str) -> String {
    format!("HEADWAY_SECRET_{variable}_FD")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Read;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn it_reads_from_its_beginning_every_time_and_nobody_changes_it() {
        let SecretFile { file, .. } = SecretFile::open("KEY", &Secret::new("hunter22\n"), None).unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        for _reader in 0..2 {
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "hunter22\n");
        }
        let mut file = File::from(file);
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hunter22\n");
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o400);
        assert!(file.write_all(b"x").is_err());
        // Root opens it for writing all the same, and finds it sealed.
        let opened = std::fs::OpenOptions::new().write(true).open(&path);
        assert!(opened.and_then(|mut again| again.write_all(b"x")).is_err());
    }
}

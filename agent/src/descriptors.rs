//! Descriptors that the agent was started with. A shell or a supervisor may leave some open, and a process that the agent starts would
//! inherit them: a job could read what its user may not open.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// Standard input, output and error.
const STANDARD: RawFd = 3;

/// Has every descriptor beyond the standard ones closed where another program is executed. What a job is to have is mapped for it
/// at its start. To be called before anything is started.
pub(crate) fn close_on_exec() -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()) else { continue };
        if number < STANDARD {
            continue;
        }
        // SAFETY: it is borrowed for two calls that neither close nor keep it. One that was closed since the directory was read gives
        // EBADF; one that was opened since in its place was opened by this process, for itself.
        #[allow(unsafe_code)]
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        match fcntl_getfd(descriptor) {
            Ok(flags) if !flags.contains(FdFlags::CLOEXEC) => {
                fcntl_setfd(descriptor, flags | FdFlags::CLOEXEC)?;
                tracing::debug!(descriptor = number, "an inherited descriptor is kept from jobs");
            }
            // The directory itself is among them, and is closed by now or soon.
            Ok(_) | Err(rustix::io::Errno::BADF) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::fd::{AsRawFd, OwnedFd};
    use std::process::Command;

    use super::*;

    /// Set in the process that the test runs its body in.
    const ALONE: &str = "HEADWAY_TEST_ALONE";

    /// Runs in a process of its own: other tests run agents, which do the same to every descriptor of this one.
    #[test]
    fn what_an_agent_inherited_no_process_of_its_own_inherits() {
        if std::env::var_os(ALONE).is_none() {
            let name = "descriptors::tests::what_an_agent_inherited_no_process_of_its_own_inherits";
            let mut alone = Command::new(std::env::current_exe().unwrap());
            let output = alone.args(["--exact", name]).env(ALONE, "1").output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
            return;
        }
        let file = tempfile::tempfile().unwrap();
        let inherited: OwnedFd = rustix::io::dup(&file).unwrap();
        let link = format!("/proc/self/fd/{}", inherited.as_raw_fd());
        let shows = || Command::new("readlink").arg(&link).output().unwrap().status.success();
        assert!(shows(), "this is how it was handed on");
        close_on_exec().unwrap();
        assert!(!shows());
        assert!(fcntl_getfd(&inherited).unwrap().contains(FdFlags::CLOEXEC), "it stays open here");
    }
}

//! `headway secret set` at a terminal: what is not shown, and that the terminal is given back.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::termios::{LocalModes, tcgetattr};

/// The command when it has asked.
struct Asked {
    child: Child,
    /// Where somebody types.
    keys: File,
    terminal: OwnedFd,
    home: tempfile::TempDir,
}

impl Asked {
    fn begin() -> Self {
        let (home, pair) = (tempfile::tempdir().unwrap(), openpty(None, None).unwrap());
        let mut child = Command::new(env!("CARGO_BIN_EXE_headway"))
            .args(["secret", "set", "HF_TOKEN"])
            .env("HOME", home.path())
            .env_remove("XDG_CONFIG_HOME")
            // Nobody answers at it: whoever gets so far has read a value.
            .envs([("HEADWAY_URL", "http://127.0.0.1:1"), ("HEADWAY_TOKEN", "t")])
            .stdin(pair.slave.try_clone().unwrap())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut said, mut byte) = (Vec::new(), [0]);
        while !said.ends_with(b"): ") {
            assert_eq!(
                child.stderr.as_mut().unwrap().read(&mut byte).unwrap(),
                1,
                "{}",
                String::from_utf8_lossy(&said)
            );
            said.push(byte[0]);
        }
        let asked = Self { child, keys: pair.master.into(), terminal: pair.slave, home };
        assert!(!asked.echoes());
        asked
    }

    fn echoes(&self) -> bool {
        let modes = tcgetattr(&self.terminal).unwrap().local_modes;
        modes.contains(LocalModes::ECHO) && modes.contains(LocalModes::ICANON)
    }

    fn types(&mut self, what: &str) {
        self.keys.write_all(what.as_bytes()).unwrap();
    }

    /// Its exit code, and what it said since it asked.
    fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let code = self.child.wait().unwrap().code();
        assert!(self.echoes(), "the terminal is as it was");
        drop(self.home);
        (code, said)
    }
}

#[test]
fn an_interrupt_gives_the_terminal_back() {
    let asked = Asked::begin();
    kill(Pid::from_raw(asked.child.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(asked.end(), (Some(130), "\nheadway: interrupted\n".into()));
}

#[test]
fn one_line_is_taken() {
    let mut asked = Asked::begin();
    asked.types("hf_abc\n");
    let (code, said) = asked.end();
    assert_eq!(code, Some(6), "{said}");
}

#[test]
fn of_several_lines_none_is_taken() {
    for pasted in ["-----BEGIN\nabc\n", "-----BEGIN\nabc"] {
        let mut asked = Asked::begin();
        asked.types(pasted);
        let (code, said) = asked.end();
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("several lines") && said.contains("headway secret set NAME < FILE"), "{said}");
    }
}

#[test]
fn a_line_that_a_terminal_cuts_is_not_taken() {
    let mut asked = Asked::begin();
    asked.types(&("x".repeat(5_000) + "\n"));
    let (code, said) = asked.end();
    assert_eq!(code, Some(2), "{said}");
}

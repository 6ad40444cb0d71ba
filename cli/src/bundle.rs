//! What is sent to somebody who helps: an archive of what the server and this machine say, out of which whatever could open something has been taken. What it is
//! made of holds no specification of a job, so no environment and no command; `redacted` is the second line of defence, over every byte.

mod redact;

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use headway_scheduler::tar::{self, Entry};

pub use redact::redacted;

/// Writes `tar.gz` of texts by name, each redacted.
pub struct Bundle<W: Write> {
    out: GzEncoder<W>,
    /// Seconds since 1970.
    at: u64,
    directory: String,
    names: Vec<String>,
}

impl<W: Write> Bundle<W> {
    /// All of it lies in `directory`, so that who unpacks it finds it together.
    pub fn new(out: W, directory: &str, at: u64) -> Self {
        Self { out: GzEncoder::new(out, Compression::default()), at, directory: directory.into(), names: Vec::new() }
    }

    pub fn add(&mut self, name: &str, text: &str) -> std::io::Result<()> {
        let text = redacted(text);
        let entry = Entry { name: format!("{}/{name}", self.directory), size: text.len() as u64, modified: self.at };
        self.out.write_all(&entry.header())?;
        self.out.write_all(text.as_bytes())?;
        self.out.write_all(&vec![0; entry.padding()])?;
        self.names.push(name.into());
        Ok(())
    }

    /// Names of what is in it.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    pub fn finish(mut self) -> std::io::Result<W> {
        self.out.write_all(&tar::end())?;
        self.out.finish()
    }
}

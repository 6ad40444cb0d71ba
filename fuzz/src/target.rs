//! What is tried, with which seeds, and how each input went.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestCaseError, TestError, TestRunner};

use crate::{Edit, LONGEST, MEMORY, PATIENCE, message, text};

const INPUTS: u32 = 5_000;
/// An input is edited in at most so many places, and mostly in one or two: what is wrong in many is refused for the first.
const EDITS: usize = 8;

/// Something that reads what strangers send.
pub struct Target {
    name: &'static str,
    shape: Shape,
    seeds: Vec<Vec<u8>>,
}

/// How inputs are edited.
#[derive(Clone, Copy)]
enum Shape {
    /// By words and lines, with these words among them.
    Text(&'static [&'static str]),
    /// By the fields of a protobuf message.
    Message,
}

impl Target {
    /// `words`: what means something to the reader.
    #[must_use]
    pub fn text(name: &'static str, words: &'static [&'static str]) -> Self {
        Self { name, shape: Shape::Text(words), seeds: Vec::new() }
    }

    #[must_use]
    pub fn message(name: &'static str) -> Self {
        Self { name, shape: Shape::Message, seeds: Vec::new() }
    }

    #[must_use]
    pub fn seeds<S: Into<Vec<u8>>>(mut self, seeds: impl IntoIterator<Item = S>) -> Self {
        self.seeds.extend(seeds.into_iter().map(Into::into));
        self
    }

    /// Adds the files of a folder of this repository whose names end so.
    #[must_use]
    pub fn files(mut self, folder: &str, ending: &str) -> Self {
        let files = files(&root().join(folder));
        let wanted = files.into_iter().filter(|file| file.to_string_lossy().ends_with(ending));
        self.seeds.extend(wanted.map(|file| std::fs::read(file).expect("files of this repository can be read")));
        self
    }

    /// Reads everything there is to read; `read` says whether it understood an input.
    ///
    /// # Panics
    /// If reading an input panicked or cost too much; the smallest such input that was found is kept, and its place told.
    pub fn check(mut self, read: impl Fn(&[u8]) -> bool) {
        let corpus = root().join("fuzz/corpus").join(self.name);
        for file in files(&corpus) {
            self.seeds.push(std::fs::read(&file).expect("the corpus can be read"));
        }
        assert!(!self.seeds.is_empty(), "{} has no seeds", self.name);
        let tally = RefCell::new(Tally::new(self.name));
        for seed in &self.seeds {
            if let Err(wrong) = tally.borrow_mut().read(seed, &read) {
                self.fail(&wrong, seed, &corpus);
            }
        }
        assert!(
            tally.borrow().understood > 0,
            "{}: none of its seeds is understood, so no edited one reaches far",
            self.name
        );
        let inputs = number("HEADWAY_FUZZ_INPUTS").unwrap_or(INPUTS);
        let number = number("HEADWAY_FUZZ_SEED").unwrap_or(1);
        let seed = RngSeed::Fixed(number);
        let config =
            ProptestConfig { cases: inputs, rng_seed: seed, failure_persistence: None, ..ProptestConfig::default() };
        let found = TestRunner::new(config)
            .run(&self.mutants(), |input| tally.borrow_mut().read(&input, &read).map_err(TestCaseError::fail));
        match found {
            Ok(()) => println!("{}; seed {number}", tally.into_inner()),
            Err(TestError::Fail(wrong, input)) => self.fail(wrong.message(), &input, &corpus),
            Err(TestError::Abort(reason)) => panic!("{}: {reason}", self.name),
        }
    }

    fn mutants(&self) -> impl Strategy<Value = Vec<u8>> {
        let (shape, seeds) = (self.shape, self.seeds.clone());
        let edit = (any::<u8>(), any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(kind, at, with, much)| Edit {
            kind,
            at,
            with,
            much,
        });
        let edits = prop_oneof![
            3 => prop::collection::vec(edit.clone(), 1..=2),
            1 => prop::collection::vec(edit, 3..=EDITS),
        ];
        (0..seeds.len(), edits).prop_map(move |(seed, edits)| {
            let mut input = match shape {
                Shape::Text(words) => text::edited(&seeds[seed], &edits, &seeds, words),
                Shape::Message => message::edited(&seeds[seed], &edits, &seeds),
            };
            input.truncate(LONGEST);
            input
        })
    }

    fn fail(&self, wrong: &str, input: &[u8], corpus: &Path) -> ! {
        let kept = kept(self.name, "wrong");
        std::fs::write(&kept, input).expect("the folder of what is built can be written to");
        panic!(
            "{}: {wrong}\nThe input is {}. Once it is mended, keep it in {}\n{}",
            self.name,
            kept.display(),
            corpus.display(),
            String::from_utf8_lossy(&input[..input.len().min(2_000)])
        )
    }
}

/// Reads one input as a target does.
///
/// # Panics
/// If that panicked or cost too much.
pub fn once(name: &'static str, input: &[u8], read: impl Fn(&[u8]) -> bool) {
    if let Err(wrong) = Tally::new(name).read(input, &read) {
        panic!("{name}: {wrong}");
    }
}

/// How the inputs went.
struct Tally {
    name: &'static str,
    begun: Instant,
    /// Holds the input that is being read, for those that end the process.
    last: File,
    inputs: u64,
    understood: u64,
    memory: u64,
    longest: Duration,
}

impl Tally {
    fn new(name: &'static str) -> Self {
        let last = File::create(kept(name, "last")).expect("the folder of what is built can be written to");
        Self { name, begun: Instant::now(), last, inputs: 0, understood: 0, memory: 0, longest: Duration::ZERO }
    }

    fn read(&mut self, input: &[u8], read: &impl Fn(&[u8]) -> bool) -> Result<(), String> {
        let kept = self.last.set_len(input.len() as u64).and_then(|()| self.last.write_all_at(input, 0));
        kept.map_err(|error| format!("the input cannot be kept: {error}"))?;
        let (understood, memory, took) = measured(input, read)?;
        self.inputs += 1;
        self.understood += u64::from(understood);
        self.memory = self.memory.max(memory);
        self.longest = self.longest.max(took);
        if took > PATIENCE {
            return Err(format!("{} bytes took {took:?} to read", input.len()));
        }
        if memory > MEMORY {
            return Err(format!("{} bytes took {memory} bytes of memory to read", input.len()));
        }
        Ok(())
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, inputs, understood, memory, longest, .. } = self;
        let (seconds, mib) = (self.begun.elapsed().as_secs_f64(), *memory as f64 / f64::from(1 << 20));
        let share = 100.0 * *understood as f64 / (*inputs).max(1) as f64;
        write!(
            f,
            "{name}: {inputs} inputs in {seconds:.0} s, {share:.1} % understood, at most {mib:.2} MiB and {longest:.1?}"
        )?;
        match resident() {
            Some(most) => write!(f, "; the process had {most} at its most"),
            None => Ok(()),
        }
    }
}

/// Whether the input was understood, and what that took: bytes that this thread held at once, and time.
fn measured(input: &[u8], read: &impl Fn(&[u8]) -> bool) -> Result<(bool, u64, Duration), String> {
    let mut understood = Ok(false);
    let begun = worked();
    // A panic must not leave the counter in the middle of its count.
    let held = allocation_counter::measure(|| understood = catch_unwind(AssertUnwindSafe(|| read(input))));
    let took = worked().saturating_sub(begun);
    let understood = understood.map_err(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()));
        format!("it panics: {}", words.unwrap_or_default())
    })?;
    Ok((understood, held.bytes_max, took))
}

/// What this thread has had of a processor: a busy machine makes nothing take longer.
pub(crate) fn worked() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a thread may read its own clock").into()
}

fn resident() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| Some(line.strip_prefix("VmHWM:")?.trim().to_owned()))
}

fn number<T: std::str::FromStr>(variable: &str) -> Option<T> {
    std::env::var(variable).ok()?.parse().ok()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("fuzz/ stands in the workspace")
}

/// In the order of their names; none where there is no such folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

fn kept(name: &str, what: &str) -> PathBuf {
    let folder = root().join("target/fuzz");
    std::fs::create_dir_all(&folder).expect("the folder of what is built can be written to");
    folder.join(format!("{name}.{what}"))
}

//! Laws of what is read from output, and hostile output.
#![allow(clippy::unwrap_used)]

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Instant;

use headway_types::{GpuUuid, IdSource, example};
use proptest::prelude::*;

use super::follower::{From, Log};
use super::lines::Lines;
use super::*;

const PATTERN: &str = r"step (?P<step>\d+) loss (?P<loss>\S+)";

pub(super) fn at(seconds: f64) -> Timestamp {
    Timestamp(1_000_000_000) + Seconds(seconds)
}

pub(super) fn progress(regex: &str) -> PrintedProgress {
    PrintedProgress {
        regex: regex.into(),
        rank: Default::default(),
        samples_per_step: Some(Sequences(4)),
        tokens_per_step: None,
        sequence_length: Some(10),
    }
}

fn reader(told: &PrintedProgress) -> Reader {
    let mut ids = IdSource::seeded(1);
    let (job, node) = (ids.job(at(0.0)), ids.node(at(0.0)));
    let order = example::order(job, 1, node, vec![GpuUuid("a".into()), GpuUuid("b".into())]);
    Reader::new(&LaunchOrder { configuration: None, ..order }, told, at(0.0)).unwrap()
}

/// Each look: what was written since the one before, in pieces.
fn looks(regex: &str, looks: &[Vec<&[u8]>]) -> Vec<StepReport> {
    let (mut reader, mut lines) = (reader(&progress(regex)), Lines::default());
    let mut told = Vec::new();
    for (number, pieces) in looks.iter().enumerate() {
        for piece in pieces {
            lines.take(piece, |line| {
                reader.read(line);
                true
            });
        }
        told.extend(reader.look_over(at(number as f64 + 1.0)));
    }
    told
}

#[test]
fn a_look_tells_all_its_steps_at_once() {
    let told = looks(
        PATTERN,
        &[vec![b"hello\nstep 10 loss 3\n"], vec![b"step 11 loss 2\nstep 14 loss 1.5\n"], vec![b"bye\n"]],
    );
    let [one] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((one.step, one.steps, one.samples_seen, one.tokens), (14, 4, Sequences(56), Tokens(160.0)));
    assert_eq!((one.duration, one.loss), (Seconds(1.0), Some(1.5)));
    assert_eq!((one.configuration.layout.dp, one.configuration.micro_batch), (2, Sequences(2)));
}

#[test]
fn steps_that_were_told_tell_nothing_until_the_script_is_beyond_them() {
    let again: Vec<Vec<&[u8]>> = vec![
        vec![b"step 5 loss 1\n"],
        vec![b"step 9 loss 1\n"],
        vec![b"step 6 loss 1\rstep 9 loss 1\r"],
        vec![b"step 12 loss 1\n"],
    ];
    let steps: Vec<_> =
        looks(PATTERN, &again).iter().map(|told| (told.step, told.steps, told.samples_seen.0)).collect();
    assert_eq!(steps, [(9, 4, 36), (12, 3, 48)]);
}

#[test]
fn what_lines_say_themselves_wins_and_a_loss_that_is_no_number_is_not_in_the_report() {
    let regex = r"step (?P<step>\d+) in (?P<milliseconds>\S+) ms, (?P<tokens>\d+) tokens, (?P<consumed>\d+) samples, (?P<loss>\S+)";
    let told = looks(regex, &[vec![b"step 7 in 250 ms, 64 tokens, 900 samples, nan\n"]]);
    let [one] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(
        (one.steps, one.duration, one.tokens, one.samples_seen),
        (1, Seconds(0.25), Tokens(64.0), Sequences(900))
    );
    assert_eq!(one.loss, None);
    let rate = PrintedProgress { sequence_length: None, ..progress(r"step (\d+) tok/s ([\d.]+)") };
    let mut reader = reader(&rate);
    reader.read(b"step 1 tok/s 9");
    assert_eq!(reader.look_over(at(1.0)), None, "how long the first step took nobody knows");
    reader.read(b"step 2 tok/s 100");
    assert_eq!(reader.look_over(at(3.0)).unwrap().tokens, Tokens(200.0));
}

#[test]
fn a_long_line_counts_by_its_beginning_and_a_torn_one_not_at_all() {
    let long = [b"step 2 loss 1 ".as_slice(), &vec![b'x'; 1 << 20], b"step 3 loss 1\nstep 4 loss 2"].concat();
    let mut found = Vec::new();
    let mut lines = Lines::default();
    let mut keep = |line: &[u8]| {
        found.push(line.to_vec());
        true
    };
    lines.take(b"12", &mut keep);
    lines.tear();
    lines.take(b"34 loss 1\n", &mut keep);
    for piece in long.chunks(1000) {
        lines.take(piece, &mut keep);
    }
    lines.end(&mut keep);
    assert_eq!((found.len(), found[0].len(), found[1].as_slice()), (2, 8 * 1024, b"step 4 loss 2".as_slice()));
}

proptest! {
    #[test]
    fn pieces_of_any_size_tell_the_same(
        text in proptest::collection::vec(prop_oneof![
            (0_u64..60, 0_u64..9).prop_map(|(step, loss)| format!("step {step} loss {loss}").into_bytes()),
            Just(b"\n".to_vec()), Just(b"\r".to_vec()), Just(b"\r\n".to_vec()),
            proptest::collection::vec(any::<u8>(), 0..40),
        ], 0..60),
        cuts in proptest::collection::vec(1_usize..50, 1..20),
    ) {
        let text = text.concat();
        let first = b"step 0 loss 1\n".as_slice();
        let (mut pieces, mut rest, mut cut) = (Vec::new(), text.as_slice(), cuts.iter().cycle());
        while !rest.is_empty() {
            let (piece, more) = rest.split_at((*cut.next().unwrap()).min(rest.len()));
            pieces.push(piece);
            rest = more;
        }
        let whole = looks(PATTERN, &[vec![first], vec![&text]]);
        prop_assert_eq!(looks(PATTERN, &[vec![first], pieces]), whole);
    }

    #[test]
    fn however_looks_fall_no_step_counts_twice(steps in proptest::collection::vec(0_u64..500, 1..60)) {
        let lines: Vec<Vec<u8>> = steps.iter().map(|step| format!("step {step} loss 1\n").into_bytes()).collect();
        let told = looks(PATTERN, &lines.iter().map(|line| vec![line.as_slice()]).collect::<Vec<_>>());
        let (first, highest) = (steps[0], *steps.iter().max().unwrap());
        prop_assert_eq!(told.iter().map(|one| u64::from(one.steps)).sum::<u64>(), highest - first);
        prop_assert!(told.windows(2).all(|two| two[0].samples_seen < two[1].samples_seen));
    }
}

#[test]
fn a_loss_that_is_no_finite_number_is_an_anomaly_however_it_is_written() {
    for text in ["nan", "NaN", "NAN", "-nan", "inf", "-inf", "Infinity"] {
        let mut reader = reader(&progress(PATTERN));
        for step in 1..=40 {
            reader.read(format!("step {step} loss 2.5").as_bytes());
        }
        assert_eq!(reader.take_anomaly(), None);
        reader.read(format!("step 41 loss {text}").as_bytes());
        reader.read(format!("step 42 loss {text}").as_bytes());
        let found = reader.take_anomaly().unwrap_or_else(|| panic!("{text} is an anomaly"));
        assert_eq!((found.step, found.loss), (41, None), "{text}");
        assert_eq!(found.usual.map(|usual| (usual * 1e6).round()), Some(2.5e6));
        assert_eq!(reader.look_over(at(1.0)), None, "the first look only starts the clock");
        reader.read(b"step 43 loss 1.5");
        reader.read(format!("step 44 loss {text}").as_bytes());
        assert_eq!(reader.look_over(at(2.0)).unwrap().loss, None, "the newest loss of the look is {text}");
        assert_eq!(reader.take_anomaly().map(|found| found.step), Some(44));
    }
}

#[test]
fn steps_that_come_again_are_no_anomaly_and_of_a_look_the_gravest_counts() {
    let mut reader = reader(&progress(PATTERN));
    for line in ["step 5 loss 2", "step 3 loss nan", "step 5 loss nan"] {
        reader.read(line.as_bytes());
    }
    assert_eq!(reader.take_anomaly(), None);
    for step in 6..40 {
        reader.read(format!("step {step} loss 2").as_bytes());
    }
    for line in ["step 40 loss 9", "step 41 loss nan", "step 42 loss 2", "step 43 loss nan"] {
        reader.read(line.as_bytes());
    }
    assert_eq!(reader.take_anomaly().map(|found| (found.step, found.loss)), Some((41, None)));
}

fn log(regex: &str, path: &std::path::Path, from: From) -> Log {
    Log::new(reader(&progress(regex)), path, from)
}

#[test]
fn a_follower_reads_on_and_an_adopted_log_from_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    assert!(log(PATTERN, &path, From::Beginning).look(false).is_err(), "it is not there yet");
    std::fs::write(&path, "step 1 loss 3\nstep 2 lo").unwrap();
    let (mut fresh, mut adopted) = (log(PATTERN, &path, From::Beginning), log(PATTERN, &path, From::End));
    assert_eq!((fresh.look(false).unwrap(), adopted.look(false).unwrap()), (None, None));
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"ss 3\nstep 5 loss 2").unwrap();
    assert_eq!(fresh.look(false).unwrap().unwrap().step, 2);
    assert_eq!(adopted.look(false).unwrap(), None);
    assert_eq!(fresh.look(true).unwrap().unwrap().step, 5, "the end ends its last line");
}

#[test]
fn a_look_is_short_whatever_is_printed_and_whatever_the_pattern() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let noise: Vec<u8> = (0..16_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let catastrophic = r"(?P<step>\d+)((a|b|ab)*x?)*(a+)+(\w*\s*)*c$";
    let lines = b"1 abababababababababababab\n".repeat(1 << 19);
    for (output, regex) in [(vec![b'a'; 64 << 20], PATTERN), (noise, PATTERN), (lines, catastrophic)] {
        std::fs::write(&path, &output).unwrap();
        let mut log = log(regex, &path, From::Beginning);
        let began = Instant::now();
        log.look(false).unwrap();
        let took = began.elapsed().as_secs_f64();
        assert!(took < 2.0, "{took} s");
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"\nstep 7 loss 1\nstep 8 loss 1\n").unwrap();
        let told = log.look(false);
        assert!(regex != PATTERN || told.is_ok());
    }
}

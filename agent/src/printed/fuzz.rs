#![allow(clippy::unwrap_used)]
//! Patterns and output of strangers: the first line of an input is a pattern, the rest is what the script prints.

use headway_api::progress::Pattern;
use headway_fuzz::Target;
use headway_types::{GpuUuid, IdSource, LaunchOrder, example};

use super::Reader;
use super::lines::Lines;
use super::tests::{at, progress};

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "step", "loss", "tokens", "samples", "consumed", "tokens_per_second", "seconds", "milliseconds", "(?P<step>",
    "(?P<loss>\\S+)", "\\d+", "[\\d.]+", ".*", "(?:", ")", "+", "*", "?", "{1,99}", "{999}", "|", "^", "$", "(?i)",
    "(?u)", "\\p{L}", "\\b", "[^a]", "(?-u:\\xff)", "nan", "1,234", "1.5e3", "12%", "0x10",
];
const SEEDS: &[&str] = &[
    "step=(?P<step>\\d+).*loss=(?P<loss>\\S+)\nstep=1 loss=2.5\nstep=2 loss=nan\nstep=7 loss=1e3\n",
    "iteration +(\\d+)/ +\\d+ .*tokens/s: ([\\d.]+)\n iteration       10/     100 | tokens/s: 123.5\n iteration       20/     100 | tokens/s: 99\n",
    "\\[(?P<step>[\\d,]+)\\] (?P<milliseconds>\\S+) ms (?P<consumed>\\d+) (?P<tokens>\\d+)\n[1,000] 250 ms 64000 4096\r[1,001] 251.5 ms 64064 4096\r",
    "(?P<step>\\d+)((a|b|ab)*x?)*(a+)+(\\w*\\s*)*c$\n1 abababababababab\n2 ababab c\n",
];

#[test]
fn whatever_a_script_prints_is_read_or_left_out() {
    let mut ids = IdSource::seeded(1);
    let (job, node) = (ids.job(at(0.0)), ids.node(at(0.0)));
    let order = example::order(job, 1, node, vec![GpuUuid("a".into()), GpuUuid("b".into())]);
    let order = LaunchOrder { configuration: None, ..order };
    Target::text("printed-progress", WORDS).seeds(SEEDS.iter().copied()).check(|input| {
        let (pattern, output) = input.split_at(input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len()));
        let pattern = String::from_utf8_lossy(pattern);
        if let Err(error) = Pattern::compile(&pattern) {
            assert!(!error.message.is_empty() && !error.message.contains('\n'), "{error:?}");
            return false;
        }
        let mut reader = Reader::new(&order, &progress(&pattern), at(0.0)).unwrap();
        let mut lines = Lines::default();
        let mut read = 0;
        let mut last = None;
        for (number, piece) in output.chunks(4096).enumerate() {
            lines.take(piece, |line| {
                assert!(line.len() <= 8 * 1024);
                reader.read(line);
                true
            });
            let Some(report) = reader.look_over(at(number as f64 + 1.0)) else { continue };
            assert!(last < Some(report.step) && report.duration.0 >= 0.0, "{report:?} after {last:?}");
            last = Some(report.step);
            read += 1;
        }
        read > 0
    });
}

//! Reading `#SBATCH` lines: which options a script for Slurm gives, each with its line. What they come to is `slurm`'s to say.

use headway_api::spec::nearest;

use crate::failure::{Failure, Kind};

/// An option as a script gives it, under its long name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    pub line: usize,
    pub name: &'static str,
    /// Empty for options that take none.
    pub value: String,
}

/// Whether an option takes a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Value,
    Nothing,
    /// Only after `=`.
    Perhaps,
}

use Takes::{Nothing, Perhaps, Value};

/// The options of sbatch(1), as of Slurm 25.05.
const OPTIONS: &[(&str, Option<char>, Takes)] = &[
    ("account", Some('A'), Value),
    ("acctg-freq", None, Value),
    ("array", Some('a'), Value),
    ("batch", None, Value),
    ("bb", None, Value),
    ("bbf", None, Value),
    ("begin", Some('b'), Value),
    ("chdir", Some('D'), Value),
    ("cluster-constraint", None, Value),
    ("clusters", Some('M'), Value),
    ("comment", None, Value),
    ("constraint", Some('C'), Value),
    ("container", None, Value),
    ("container-id", None, Value),
    ("contiguous", None, Nothing),
    ("core-spec", Some('S'), Value),
    ("cores-per-socket", None, Value),
    ("cpu-freq", None, Value),
    ("cpus-per-gpu", None, Value),
    ("cpus-per-task", Some('c'), Value),
    ("deadline", None, Value),
    ("delay-boot", None, Value),
    ("dependency", Some('d'), Value),
    ("distribution", Some('m'), Value),
    ("error", Some('e'), Value),
    ("exclude", Some('x'), Value),
    ("exclusive", None, Perhaps),
    ("export", None, Value),
    ("export-file", None, Value),
    ("extra", None, Value),
    ("extra-node-info", Some('B'), Value),
    ("get-user-env", None, Perhaps),
    ("gid", None, Value),
    ("gpu-bind", None, Value),
    ("gpu-freq", None, Value),
    ("gpus", Some('G'), Value),
    ("gpus-per-node", None, Value),
    ("gpus-per-socket", None, Value),
    ("gpus-per-task", None, Value),
    ("gres", None, Value),
    ("gres-flags", None, Value),
    ("hint", None, Value),
    ("hold", Some('H'), Nothing),
    ("ignore-pbs", None, Nothing),
    ("input", Some('i'), Value),
    ("job-name", Some('J'), Value),
    ("kill-on-invalid-dep", None, Value),
    ("licenses", Some('L'), Value),
    ("mail-type", None, Value),
    ("mail-user", None, Value),
    ("mcs-label", None, Value),
    ("mem", None, Value),
    ("mem-bind", None, Value),
    ("mem-per-cpu", None, Value),
    ("mem-per-gpu", None, Value),
    ("mincpus", None, Value),
    ("network", None, Value),
    ("nice", None, Perhaps),
    ("no-kill", Some('k'), Perhaps),
    ("no-requeue", None, Nothing),
    ("nodefile", Some('F'), Value),
    ("nodelist", Some('w'), Value),
    ("nodes", Some('N'), Value),
    ("ntasks", Some('n'), Value),
    ("ntasks-per-core", None, Value),
    ("ntasks-per-gpu", None, Value),
    ("ntasks-per-node", None, Value),
    ("ntasks-per-socket", None, Value),
    ("open-mode", None, Value),
    ("output", Some('o'), Value),
    ("overcommit", Some('O'), Nothing),
    ("oversubscribe", Some('s'), Nothing),
    ("parsable", None, Nothing),
    ("partition", Some('p'), Value),
    ("power", None, Value),
    ("prefer", None, Value),
    ("priority", None, Value),
    ("profile", None, Value),
    ("propagate", None, Perhaps),
    ("qos", Some('q'), Value),
    ("quiet", Some('Q'), Nothing),
    ("reboot", None, Nothing),
    ("requeue", None, Nothing),
    ("reservation", None, Value),
    ("resv-ports", None, Perhaps),
    ("segment", None, Value),
    ("signal", None, Value),
    ("sockets-per-node", None, Value),
    ("spread-job", None, Nothing),
    ("stepmgr", None, Nothing),
    ("switches", None, Value),
    ("test-only", None, Nothing),
    ("thread-spec", None, Value),
    ("threads-per-core", None, Value),
    ("time", Some('t'), Value),
    ("time-min", None, Value),
    ("tmp", None, Value),
    ("tres-bind", None, Value),
    ("tres-per-task", None, Value),
    ("uid", None, Value),
    ("use-min-nodes", None, Nothing),
    ("verbose", Some('v'), Nothing),
    ("wait", Some('W'), Nothing),
    ("wait-all-nodes", None, Value),
    ("wckey", None, Value),
    ("wrap", None, Value),
];

/// Whether an option, written `-n` or `--ntasks`, takes the next word as its value.
pub fn takes_value(option: &str) -> bool {
    let is_it = |name: &str, short: Option<char>| match option.strip_prefix("--") {
        Some(long) => long == name,
        None => short.is_some_and(|letter| option.strip_prefix('-') == Some(letter.encode_utf8(&mut [0; 4]))),
    };
    OPTIONS.iter().any(|(name, short, takes)| *takes == Value && is_it(name, *short))
}

/// The options of a script, in its order. As in Slurm, they end where its first command begins.
pub fn directives(script: &str, source: &str) -> Result<Vec<Directive>, Failure> {
    let mut all = Vec::new();
    for (index, text) in script.lines().enumerate() {
        let text = text.trim_end();
        match text.strip_prefix("#SBATCH") {
            Some(rest) if rest.is_empty() || rest.starts_with(char::is_whitespace) => {
                of_line(rest, index + 1, &mut all).map_err(|wrong| Failure {
                    message: format!("{source}:{}: {}", index + 1, wrong.message),
                    ..wrong
                })?;
            }
            _ if text.trim().is_empty() || text.starts_with('#') => {}
            _ => break,
        }
    }
    Ok(all)
}

/// The line of the first option that stands where Slurm, and we, no longer read it.
pub fn first_unread(script: &str) -> Option<usize> {
    let is_command = |text: &str| !text.trim().is_empty() && !text.starts_with('#');
    let begin = script.lines().position(is_command)?;
    let late = script.lines().skip(begin).position(|text| text.starts_with("#SBATCH "));
    late.map(|late| begin + late + 1)
}

fn of_line(text: &str, line: usize, all: &mut Vec<Directive>) -> Result<(), Failure> {
    let usage = |message: String| Failure::new(Kind::Usage, message);
    // The shell's rules of quoting, under which a word that begins with # begins a comment.
    let words = shlex::split(text).ok_or_else(|| usage("a quote is not closed".into()))?;
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let (name, short, takes, given) = if let Some(long) = word.strip_prefix("--") {
            let (name, given) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            };
            let known = named(name)?;
            (known.0, false, known.2, given)
        } else if let Some(short) = word.strip_prefix('-').and_then(|rest| rest.chars().next()) {
            let known = OPTIONS.iter().find(|(_, letter, _)| *letter == Some(short));
            let known = known.ok_or_else(|| unknown(&format!("-{short}"), ""))?;
            let given = word.get(1 + short.len_utf8()..).filter(|rest| !rest.is_empty());
            (known.0, true, known.2, given.map(|rest| rest.strip_prefix('=').unwrap_or(rest).to_owned()))
        } else if matches!(word.as_str(), "hetjob" | "packjob") {
            let failure = usage("heterogeneous jobs are not taken".into());
            return Err(failure.hint("submit each part as a job of its own, or give all nodes what the largest needs"));
        } else {
            return Err(usage(format!("\"{word}\" is no option")).hint("options begin with - or --"));
        };
        let value = match (takes, given) {
            (Value, Some(value)) => value,
            (Value, None) => words.next().ok_or_else(|| usage(format!("--{name} needs a value")))?,
            (Nothing, Some(value)) if !short => return Err(usage(format!("--{name} takes no value, not \"{value}\""))),
            (_, given) => given.unwrap_or_default(),
        };
        all.push(Directive { line, name, value });
    }
    Ok(())
}

/// The option of a long name, or of the beginning of one, which `sbatch` takes where no other begins so.
fn named(name: &str) -> Result<&'static (&'static str, Option<char>, Takes), Failure> {
    let begins: Vec<_> = OPTIONS.iter().filter(|(known, ..)| !name.is_empty() && known.starts_with(name)).collect();
    match begins[..] {
        [one] => Ok(one),
        [] => Err(unknown(&format!("--{name}"), name)),
        _ => begins.iter().copied().find(|(known, ..)| *known == name).ok_or_else(|| {
            let known: Vec<String> = begins.iter().map(|(known, ..)| format!("--{known}")).collect();
            Failure::new(Kind::Usage, format!("--{name} may be {}", known.join(" or ")))
        }),
    }
}

fn unknown(shown: &str, name: &str) -> Failure {
    let failure = Failure::new(Kind::Usage, format!("{shown} is no option of sbatch"));
    match nearest(name, OPTIONS.iter().map(|(known, ..)| *known)) {
        Some(near) => failure.hint(format!("did you mean --{near}?")),
        None => failure.hint("see sbatch(1) for those there are"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(script: &str) -> Vec<(usize, &'static str, String)> {
        let all = directives(script, "job.sh").unwrap();
        all.into_iter().map(|one| (one.line, one.name, one.value)).collect()
    }

    #[test]
    fn options_are_read_as_sbatch_reads_them() {
        let script = "#!/bin/bash\n#SBATCH --job-name=\"my job\" -N 2\n##SBATCH --nodes=9\n#SBATCH\t-t1-00 # a day\n\
                      #SBATCH --exclusive --requeue\n\n# words\nmodule load cuda\n#SBATCH --mem=1G\n";
        let expected = [
            (2, "job-name", "my job"),
            (2, "nodes", "2"),
            (4, "time", "1-00"),
            (5, "exclusive", ""),
            (5, "requeue", ""),
        ];
        assert_eq!(read(script), expected.map(|(line, name, value)| (line, name, value.to_owned())));
        assert_eq!(first_unread(script), Some(9));
    }

    #[test]
    fn the_beginning_of_a_name_is_an_option_where_no_other_begins_so() {
        let all = read("#!/bin/sh\n#SBATCH --err=%j.err --nodes=2 --cpus-per-t 4\n");
        let expected = [(2, "error", "%j.err"), (2, "nodes", "2"), (2, "cpus-per-task", "4")];
        assert_eq!(all, expected.map(|(line, name, value)| (line, name, value.to_owned())));
    }

    #[test]
    fn what_sbatch_would_not_read_is_refused_with_its_line() {
        for (line, told) in [
            ("--job-nmae=a", "job.sh:2: --job-nmae is no option of sbatch\n  hint: did you mean --job-name?"),
            ("--nodes", "job.sh:2: --nodes needs a value"),
            ("--node=a", "job.sh:2: --node may be --nodefile or --nodelist or --nodes"),
            ("--requeue=yes", "job.sh:2: --requeue takes no value, not \"yes\""),
            ("nodes=2", "job.sh:2: \"nodes=2\" is no option"),
            ("--comment='a", "job.sh:2: a quote is not closed"),
            ("-Z 3", "job.sh:2: -Z is no option of sbatch"),
        ] {
            let refused = directives(&format!("#!/bin/sh\n#SBATCH {line}\n"), "job.sh").unwrap_err().to_string();
            assert!(refused.contains(told), "{line}: {refused}");
        }
    }
}

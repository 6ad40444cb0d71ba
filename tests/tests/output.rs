//! Output of jobs through the real binaries: what arrives of bytes that are no text, of characters that are written in two parts, of
//! progress bars, and of output that was trimmed.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use headway_tests::{Cluster, process, soon, until};

/// Runs a command that succeeds, and returns its bytes.
fn headway(cluster: &Cluster, arguments: &[&str]) -> Output {
    let output = Command::new(process::binary())
        .args(arguments)
        .env("XDG_CONFIG_HOME", cluster.dir().join("config"))
        .env("HEADWAY_URL", &cluster.url)
        .env("HEADWAY_TOKEN", cluster.token())
        .env_remove("HEADWAY_TOKEN_FILE")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "headway {}: {complaint}", arguments.join(" "));
    output
}

/// Writes a script that writes the parts of an output, with a pause between them that is longer than a follower's.
fn write_script(directory: &Path, name: &str, parts: &[&[u8]]) -> String {
    let mut lines = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let file = directory.join(format!("{name}-{number}"));
        std::fs::write(&file, part).unwrap();
        lines.push(format!("cat {}", file.display()));
    }
    let script = directory.join(format!("{name}.sh"));
    std::fs::write(&script, lines.join("\nsleep 1.3\n")).unwrap();
    script.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn output_arrives_as_it_was_written() {
    let cluster = Cluster::start(2, 1).await;
    bytes_of_one_rank_are_unchanged(&cluster);
    a_gang_writes_lines_in_their_last_state(&cluster);
    cluster.stop(&[]).await;
}

fn bytes_of_one_rank_are_unchanged(cluster: &Cluster) {
    let (begin, end) = "é".as_bytes().split_at(1);
    let all: Vec<u8> = (0..=u8::MAX).collect();
    let first = [b"hi there\n\x80\nnul:\x00:end\r\n", all.as_slice(), b"\n", begin].concat();
    let escape = b"\x1b[2J\x1b]0;title\x07 escape\n";
    let text = " split\n日本語 🚀\n\rbar 1 %\rbar 2 %\n".as_bytes();
    let second = [end, text, escape, b"last line without newline"].concat();
    let script = write_script(cluster.dir(), "bytes", &[&first, &second]);
    headway(cluster, &["submit", "--gpus", "1", "--name", "bytes", "--", "sh", &script]);
    let whole = [first, second].concat();
    for arguments in [&["logs", "-f", "bytes"][..], &["logs", "bytes"], &["logs", "bytes", "--rank", "0"]] {
        assert_eq!(headway(cluster, arguments).stdout, whole, "{arguments:?}");
    }
    let tail = headway(cluster, &["logs", "bytes", "--tail", "2"]).stdout;
    assert_eq!(tail, [&escape[..], b"last line without newline"].concat());
}

/// Each rank draws a progress bar, and then writes a character in two parts.
fn a_gang_writes_lines_in_their_last_state(cluster: &Cluster) {
    let state = |step: usize| format!("\rTrain: {:3} % |{:20}| {step}/400", step / 4, "#".repeat(step / 20));
    let bar: String = (0..=400).map(state).collect();
    let (begin, end) = "é".as_bytes().split_at(1);
    let parts = [[bar.as_bytes(), b"\ndone training\r\n", begin].concat(), [end, b" split\n"].concat()];
    let script = write_script(cluster.dir(), "bar", &[&parts[0], &parts[1]]);
    let yaml = cluster.dir().join("bar.yaml");
    let run = format!("{{per: gpu, command: [sh, {script}]}}");
    std::fs::write(&yaml, format!("version: 1\nname: bar\nresources: {{gpus: 2}}\nrun: {run}\n")).unwrap();
    headway(cluster, &["submit", yaml.to_str().unwrap()]);

    let last_state = format!("Train: 100 % |{}| 400/400", "#".repeat(20));
    let expected = [last_state.as_str(), "done training", "é split"];
    for arguments in [&["logs", "-f", "bar", "--rank", "all"][..], &["logs", "bar", "--rank", "0-1"]] {
        let lines = String::from_utf8(headway(cluster, arguments).stdout).unwrap();
        for rank in ["[rank 0] ", "[rank 1] "] {
            let of_rank: Vec<&str> = lines.lines().filter_map(|line| line.strip_prefix(rank)).collect();
            assert_eq!(of_rank, expected, "{rank}of {arguments:?}");
        }
        assert_eq!(lines.lines().count(), 2 * expected.len(), "{arguments:?}: {lines:?}");
    }
    let timed = String::from_utf8(headway(cluster, &["logs", "bar", "--timestamps"]).stdout).unwrap();
    let lines: Vec<&str> = timed.lines().map(|line| line.split_once(' ').unwrap().1).collect();
    assert_eq!(lines, expected);
    for rank in ["0", "1"] {
        let bytes = headway(cluster, &["logs", "bar", "--rank", rank]).stdout;
        assert_eq!(bytes, parts.concat(), "bytes of rank {rank} are unchanged");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trimmed_output_begins_with_a_whole_line_and_reports_what_is_missing() {
    let mut cluster = Cluster::start(1, 1).await;
    cluster.kill_agent(0);
    cluster.start_agent_with(0, &["--output-bytes-per-rank", "262144"]);
    let whole: String = (0..90_000).map(|line| format!("line {line:06}\n")).collect();
    let file = cluster.dir().join("lines");
    std::fs::write(&file, &whole).unwrap();
    let line = format!("cat {}; exec sleep 600", file.display());
    headway(&cluster, &["submit", "--gpus", "1", "--name", "long", "--", "sh", "-c", &line]);
    headway(&cluster, &["job", "wait", "long", "--for", "running"]);
    let told = |arguments: &[&str]| {
        let output = headway(&cluster, arguments);
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap())
    };
    let (kept, trimmed) = until("the output to be trimmed", soon(), || async {
        let [kept, note] = told(&["logs", "long"]);
        let trimmed = note.strip_prefix("headway: ")?.split_once(" bytes of output were trimmed here")?.0.to_owned();
        let is_whole = kept.ends_with("line 089999\n") && kept.len() <= 262_144;
        is_whole.then_some((kept, trimmed))
    })
    .await;
    let offset: usize = trimmed.parse().unwrap();
    assert_eq!(kept, whole[offset..], "what is left is unchanged");
    assert!(kept.starts_with("line "), "{}", &kept[..40]);

    let [tail, note] = told(&["logs", "long", "--tail", "100000"]);
    assert_eq!(tail, kept);
    let lines = kept.lines().count();
    assert!(note.contains(&format!("{lines} of 100000 lines are kept: the first {offset} bytes")), "{note}");
    let [tail, note] = told(&["logs", "long", "--tail", &lines.to_string()]);
    assert_eq!((tail, note.contains("trimmed")), (kept, false), "as many as were asked for: {note}");
    let [timed, _] = told(&["logs", "long", "--timestamps"]);
    assert!(timed.starts_with(&format!("(rank 0: {offset} bytes of output were trimmed here)\n")));
    headway(&cluster, &["cancel", "long"]);
    cluster.stop(&[]).await;
}

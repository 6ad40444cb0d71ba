//! What real users do wrong, and what they are told: what it is, where (file, line, field), and what to do. All through the real
//! binary; what differs from run to run is taken out of the snapshots.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use headway_api::v1::{JobStateKind, TokenRequest, TokenScope};
use headway_tests::cluster::{Cluster, free_port};
use headway_tests::process::binary;
use headway_tests::{soon, until};

/// Somebody at a terminal, who makes mistakes.
struct Person {
    directory: PathBuf,
    /// Of the scheduler spoken to, and the secret.
    url: String,
    token: String,
    /// What is different every time, and what it reads as.
    unlike: Vec<(String, &'static str)>,
    told: String,
}

impl Person {
    fn at(directory: PathBuf, url: &str, token: &str) -> Self {
        let unlike = vec![(directory.display().to_string(), "DIR"), (url.to_owned(), "URL")];
        Self { directory, url: url.into(), token: token.into(), unlike, told: String::new() }
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.directory.join(name), content).unwrap();
    }

    /// Runs a command and keeps what it says under the name of the mistake.
    fn mistake(&mut self, what: &str, arguments: &[&str]) {
        let output = Command::new(binary())
            .args(arguments)
            .current_dir(&self.directory)
            .env("XDG_CONFIG_HOME", self.directory.join("config"))
            .env("NO_COLOR", "1")
            .env("HEADWAY_URL", &self.url)
            .env("HEADWAY_TOKEN", &self.token)
            .env_remove("HEADWAY_TOKEN_FILE")
            .env_remove("HEADWAY_CONTEXT")
            .output()
            .unwrap();
        let code = output.status.code().unwrap();
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(!said.contains("panicked"), "{what}: {said}");
        let said = self.known(said);
        // Whether a round has been planned already is a matter of moments.
        let lines = said
            .lines()
            .filter(|line| !["  No word on", "  There is no telling"].iter().any(|begin| line.starts_with(begin)));
        let lines: Vec<String> = lines.map(|line| format!("  {}", alike(line))).collect();
        let asked = self.known(arguments.join(" "));
        self.told.push_str(&format!("# {what}\n$ headway {asked}\n{}\n  (exit {code})\n\n", lines.join("\n")));
    }

    fn known(&self, text: String) -> String {
        self.unlike.iter().fold(text, |text, (each_time, word)| text.replace(each_time.as_str(), word))
    }

    /// A specification with one thing wrong.
    fn specification(&mut self, what: &str, text: &str) {
        self.file("job.yaml", text);
        self.mistake(what, &["submit", "job.yaml"]);
    }

    fn script(&self, name: &str, text: &str) {
        self.file(name, text);
        fs::set_permissions(self.directory.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// A token of a user who is no admin.
fn of_ada() -> TokenRequest {
    let (scope, user) = (Some(TokenScope::User), Some("ada".to_owned()));
    TokenRequest { name: "ada".into(), scope, user, ..TokenRequest::default() }
}

/// A line without what differs from run to run: ids, moments, seconds.
fn alike(line: &str) -> String {
    // A job of whom nobody waits for may be on its way or there.
    let line = line.replace("  starting  of ", "  running  of ");
    let words = line.split(' ').map(|word| {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_id = (bare.len() == 8 || bare.len() == 36) && bare.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        let is_moment = bare.len() == 20 && bare.ends_with('Z') && bare.starts_with("20");
        if is_id && bare.chars().any(|c| c.is_ascii_digit()) {
            word.replace(bare, "ID")
        } else if is_moment {
            word.replace(bare, "MOMENT")
        } else {
            word.to_owned()
        }
    });
    words.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

const GOOD: &str = "version: 1\nname: a\nresources:\n  gpus: 1\nrun:\n  command: python train.py\n";
const TUNED: &str = "version: 1
name: llama
resources:
  gpus: {min: 1, max: 4}
training:
  model: gpt2-124m
  reference_batch: 64 sequences
run:
  command: python train.py
";

#[test]
fn in_files() {
    let scratch = tempfile::tempdir().unwrap();
    let mut person = Person::at(scratch.path().canonicalize().unwrap(), "http://127.0.0.1:1", "none");
    let with = |replace: &str, by: &str| {
        assert!(GOOD.contains(replace) || TUNED.contains(replace), "{replace}");
        if GOOD.contains(replace) { GOOD.replace(replace, by) } else { TUNED.replace(replace, by) }
    };
    for (what, text) in [
        ("a typing error in a key", with("name: a", "nmae: a")),
        ("the wrong type", with("gpus: 1", "gpus: many")),
        ("a unit that is none", with("gpus: 1", "gpus: 1\n  per_node: {memory: 512Gi}")),
        ("no command", with("  command: python train.py", "  per: node")),
        ("indented by a tab", with("  gpus: 1", "\tgpus: 1")),
        ("another version", with("version: 1", "version: 2")),
        ("a layout that cannot be", with("gpt2-124m", "gpt2-124m\n  layouts: {tp: 1.5}")),
        (
            "a batch below the reference",
            with("64 sequences", "64 sequences\n  batch: {min: 8 sequences, max: 32 sequences}"),
        ),
        ("a relative workdir", with("  command", "  workdir: proj\n  command")),
        ("a time without a unit", with("name: a", "name: a\nlimits:\n  time: 48")),
        ("min above max", with("{min: 1, max: 4}", "{min: 8, max: 4}")),
        ("sizes outside of the range", with("{min: 1, max: 4}", "{max: 4, sizes: [8, 16]}")),
        ("a range that nothing can be chosen from", with("gpus: 1", "gpus: {min: 1, max: 4}")),
        ("an empty file", String::new()),
        ("a key given twice", with("name: a", "name: a\nname: b")),
        ("a value of the environment that is null", with("  command", "  env: {HF_TOKEN: null}\n  command")),
        ("a secret that is a value", with("  command", "  secrets: [hf_abc=1]\n  command")),
        ("a dependency that is no mapping", with("name: a", "name: a\nafter: [prep]")),
        ("an end that is none", with("name: a", "name: a\nafter: [{job: prep, on: sucess}]")),
        ("an array that goes down", with("name: a", "name: a\narray: {range: 15-0}")),
        ("an unknown placeholder", with("train.py", "train.py --nodes {nodes}")),
        ("an unknown model", with("gpt2-124m", "llama3-8b")),
        ("prose", "please run my job\n".into()),
        ("a script", "#!/bin/sh\n./train.sh\n".into()),
        ("a script for Slurm", "#!/bin/bash\n#SBATCH --gpus=1\n./train.sh\n".into()),
        ("several mistakes at once", with("name: a", "nmae: a\npriority: urgent")),
        ("one of two jobs", format!("{GOOD}---\n{}", GOOD.replace("gpus: 1", "gpus: 0"))),
    ] {
        person.specification(what, &text);
    }
    person.file("job.toml", "version = 1\nname = \"a\"\nresources: 1\n");
    person.mistake("TOML that is none", &["submit", "job.toml"]);
    person.file("job.toml", "version = 1\nname = \"a\"\n[resources]\ngpus = \"8\"\n[run]\ncommand = \"true\"\n");
    person.mistake("TOML with the wrong type", &["submit", "job.toml"]);
    person.file("model.pt", b"\x80\x02\x8a\x0a\x00\xff");
    person.mistake("a file that is no text", &["submit", "model.pt"]);
    person.mistake("a file that is not there", &["submit", "jbo.yaml"]);
    person.mistake("a directory", &["submit", "."]);
    insta::assert_snapshot!(person.told);
}

#[test]
fn on_the_command_line() {
    let scratch = tempfile::tempdir().unwrap();
    let mut person = Person::at(scratch.path().canonicalize().unwrap(), "http://127.0.0.1:1", "none");
    person.file("two.yaml", format!("{GOOD}---\n{GOOD}"));
    person.file("a.yaml", GOOD);
    person.file("job.sh", "#!/bin/bash\n#SBATCH --gpus=1\n#SBATCH --ntasks-pernode=8\ntrue\n");
    person.file("array.sh", "#!/bin/bash\n#SBATCH --gpus=1\n#SBATCH --array=3-0\ntrue\n");
    person.file("after.sh", "#!/bin/bash\n#SBATCH --gpus=1\n#SBATCH -d aftercorr:prep\ntrue\n");
    for (what, arguments) in [
        ("nothing to submit", ["submit"].as_slice()),
        ("no number of GPUs", &["submit", "--", "./train.sh"]),
        ("a number of GPUs that is none", &["submit", "--gpus", "all", "--", "./train.sh"]),
        ("more GPUs than there are words for", &["submit", "--gpus", "8-4", "--", "./train.sh"]),
        ("a variable that is not set", &["submit", "--gpus", "1", "--env", "NOT_SET_HERE", "--", "./train.sh"]),
        ("a time without a unit", &["submit", "a.yaml", "--time", "48"]),
        ("one name for two jobs", &["submit", "two.yaml", "--name", "b"]),
        ("a file and a command", &["submit", "a.yaml", "--", "./train.sh"]),
        ("an option of Slurm's that is none", &["submit", "--from-sbatch", "job.sh"]),
        ("an array of Slurm's", &["submit", "--from-sbatch", "array.sh"]),
        ("a dependency of Slurm's that is not known", &["submit", "--from-sbatch", "after.sh"]),
        ("a dependency on an end that is none", &["submit", "a.yaml", "--after", "prep:done"]),
        ("a command that is none", &["sumbit", "a.yaml"]),
        ("no server", &["ps"]),
    ] {
        person.mistake(what, arguments);
    }
    insta::assert_snapshot!(person.told);
}

#[tokio::test(flavor = "multi_thread")]
async fn against_a_cluster() {
    let cluster = Cluster::start(2, 4).await;
    let scratch = tempfile::Builder::new().prefix("hw").tempdir_in("/tmp").unwrap();
    let directory = scratch.path().canonicalize().unwrap();
    let ada = cluster.client.create_token(&of_ada()).await.unwrap();
    let mut person = Person::at(directory.clone(), &cluster.url, &ada.secret);
    person.file("a.yaml", GOOD);
    let waits = |name: &str, after: &str| GOOD.replace("name: a", &format!("name: {name}\nafter: {{job: {after}}}"));
    person.file("circle.yaml", format!("{}---\n{}", waits("a", "b"), waits("b", "a")));
    let nothing = serde_json::from_value(serde_json::json!({ "quota_gpus": 0 })).unwrap();
    cluster.client.create_project("lab", &nothing).await.unwrap();
    let node_memory = GOOD.replace("gpus: 1", "gpus: 1\n  per_node: {memory: 999TiB}");
    person.specification("more memory than any node has", &node_memory);
    person
        .specification("a layout that no size admits", &TUNED.replace("gpt2-124m", "gpt2-124m\n  layouts: {tp: [8]}"));
    for (what, arguments) in [
        ("more GPUs than are built", ["submit", "a.yaml", "--gpus", "64"].as_slice()),
        ("a GPU type that nobody has", &["submit", "a.yaml", "--gpu-type", "H1000"]),
        ("a priority that is not theirs to give", &["submit", "a.yaml", "--priority", "100"]),
        ("a dry run of what can never be", &["submit", "a.yaml", "--gpus", "64", "--dry-run"]),
        ("a project whose quota is nothing", &["submit", "a.yaml", "--project", "lab", "--dry-run"]),
        ("a dependency on nobody", &["submit", "a.yaml", "--after", "prep"]),
        ("jobs that wait for each other", &["submit", "circle.yaml"]),
        ("the name of no job", &["why", "trian"]),
        ("logs of nobody's job", &["logs"]),
        ("a right that they have not", &["node", "drain", "node-1"]),
    ] {
        person.mistake(what, arguments);
    }
    for _ in 0..2 {
        person.mistake("a name given twice", &["submit", "--gpus", "1", "--name", "twice", "--", "sleep", "600"]);
    }
    until("both jobs to run", soon(), || async {
        let jobs = cluster.client.all_jobs().await.unwrap();
        let run = |job: &&headway_api::v1::Job| job.name == "twice" && job.state == JobStateKind::Running;
        (jobs.iter().filter(run).count() == 2).then_some(())
    })
    .await;
    // How the two are told is not the mistake; which of them is meant is.
    let begin = person.told.find("# a name given twice").unwrap();
    person.told.truncate(begin);
    person.mistake("a name that two jobs have", &["cancel", "twice"]);
    person.mistake("an option of one job without the job", &["job", "wait"]);
    person.token = "hw_of_nobody".into();
    person.mistake("a wrong token", &["ps"]);
    person.token = String::new();
    person.mistake("an empty token", &["ps"]);
    let [people, agents] = [free_port().to_string(), free_port().to_string()].map(|port| format!("127.0.0.1:{port}"));
    let taken = cluster.url.trim_start_matches("http://").to_owned();
    person.unlike.extend([(taken.clone(), "TAKEN"), (people.clone(), "PEOPLE"), (agents.clone(), "AGENTS")]);
    headway_tests::cluster::open_to_postgres(&directory);
    person.mistake("a port that is taken", &["up", "--data-dir", "up", "--listen", &taken, "--agent-listen", &agents]);
    let held = fs::File::create(directory.join("up/lock")).unwrap();
    held.lock().unwrap();
    let again = ["up", "--data-dir", "up", "--listen", &people, "--agent-listen", &agents];
    person.mistake("a second `up` on one directory", &again);
    insta::assert_snapshot!(person.told);
    cluster.stop(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn that_show_when_the_job_starts() {
    let cluster = Cluster::start(1, 4).await;
    let scratch = tempfile::Builder::new().prefix("hw").tempdir_in("/tmp").unwrap();
    let directory = scratch.path().canonicalize().unwrap();
    let ada = cluster.client.create_token(&of_ada()).await.unwrap();
    let mut person = Person::at(directory.clone(), &cluster.url, &ada.secret);
    person.file("not-executable.sh", "#!/bin/sh\ntrue\n");
    person.script(
        "exit-1.sh",
        "#!/bin/sh\n#SBATCH --gpus=1 -J exit-1\necho reading /data/c4\necho no such shard >&2\nexit 1\n",
    );
    person.script("module.sh", "#!/bin/sh\n#SBATCH --gpus=1 -J module\npython3 -c 'import torhc'\n");
    person.script("srun.sh", "#!/bin/sh\n#SBATCH --gpus=1 -J with-srun\nPATH=\nsrun python train.py\n");
    let workdir = directory.join("missing").display().to_string();
    for (what, name, arguments) in [
        (
            "a working directory that is not there",
            "workdir",
            ["--gpus=1", "--name=workdir", "--workdir", &workdir, "--", "true"].as_slice(),
        ),
        ("a command that is not there", "no-such", &["--gpus=1", "--name=no-such", "--", "./no-such"]),
        ("a script that is not executable", "not-executable", &["--gpus=1", "--", "./not-executable.sh"]),
        ("a script that fails at once", "exit-1", &["--from-sbatch", "exit-1.sh"]),
        ("the wrong Python", "module", &["--from-sbatch", "module.sh"]),
        ("srun in a script", "with-srun", &["--from-sbatch", "srun.sh"]),
    ] {
        // What is said at once depends on how soon the job begins.
        let before = person.told.len();
        person.mistake(what, &[&["submit"], arguments].concat());
        let said = person.told.split_off(before);
        let kept = |line: &&str| line.starts_with(['#', '$']) || line.starts_with("  headway: ");
        person.told.extend(said.lines().filter(kept).map(|line| format!("{line}\n")));
        until("the job to have failed", soon(), || async {
            let jobs = cluster.client.all_jobs().await.unwrap();
            let job = jobs.into_iter().find(|job| job.name == name)?;
            (job.state == JobStateKind::Failed).then_some(())
        })
        .await;
        person.mistake(&format!("{what}: why"), &["why", name]);
    }
    insta::assert_snapshot!(person.told);
    cluster.stop(&[]).await;
}

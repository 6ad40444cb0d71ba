//! How variables reach what a job starts. Loaders and shells obey some of them (`LD_PRELOAD`, `BASH_FUNC_…`), and on the way to the job programs
//! run as the agent's user, which may be root: the way into a cgroup, the change of user. So all of them travel under names that nobody obeys, and
//! get their own when the job's user has been taken on.

use std::collections::BTreeMap;

use tokio::process::Command;

use crate::process::MARK;

/// Begins the names that they travel under; a number follows. No variable of a job is called so.
const TRAVELS: &str = "HEADWAY_CARRIED_";

/// What a shell of the job's user runs first. A variable that this shell keeps for itself (bash: `UID`) stays as it is, and the shell says so.
pub(crate) const ARRIVE: &str = r#"HEADWAY_CARRIED_NEXT=0
while eval "HEADWAY_CARRIED_ONE=\${HEADWAY_CARRIED_$HEADWAY_CARRIED_NEXT-}"; [ "$HEADWAY_CARRIED_ONE" ]; do
unset "HEADWAY_CARRIED_$HEADWAY_CARRIED_NEXT"
HEADWAY_CARRIED_NEXT=$((HEADWAY_CARRIED_NEXT + 1))
command export "$HEADWAY_CARRIED_ONE" || :
done
unset HEADWAY_CARRIED_NEXT HEADWAY_CARRIED_ONE
"#;

/// Gives the command these variables and no other: its last words have to be a shell, whose script begins with [`ARRIVE`]. What a process is found by
/// is there from the beginning.
pub(crate) fn carry<'a>(command: &'a mut Command, variables: &BTreeMap<String, String>) -> &'a mut Command {
    let own = variables.iter().filter(|(name, _)| !name.starts_with(TRAVELS));
    let travelling = own.enumerate().map(|(at, (name, value))| (format!("{TRAVELS}{at}"), format!("{name}={value}")));
    command.env_clear().envs(travelling);
    if let Some(mark) = variables.get(MARK) {
        command.env(MARK, mark);
    }
    command
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn variables(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    async fn arrived(shell: &str, of: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut command = Command::new(shell);
        command.args(["-c", &format!("{ARRIVE}exec env -0")]);
        let output = carry(&mut command, of).output().await.unwrap();
        assert!(output.status.success(), "{output:?}");
        let shown = String::from_utf8(output.stdout).unwrap();
        let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        // What shells add of their own.
        let own = |name: &str| matches!(name, "_" | "PWD" | "SHLVL" | "OLDPWD");
        shown.split('\0').filter_map(pair).filter(|(name, _)| !own(name)).collect()
    }

    #[tokio::test]
    async fn variables_arrive_as_they_were_sent() {
        let sent = variables(&[
            ("PATH", "/usr/bin:/bin"),
            ("IFS", "x="),
            ("EMPTY", ""),
            ("HEADWAY_CARRIED_NEXT", "7"),
            ("HEADWAY_CARRIED_0", "mine"),
            ("LINES_OF", "one\ntwo 'three' \"four\" $five `six` \\seven\n"),
            ("n", "-n"),
            (MARK, "node/job/1/0/"),
        ]);
        let mut expected = sent.clone();
        expected.retain(|name, _| !name.starts_with(TRAVELS));
        for shell in ["/bin/sh", "/bin/bash"].into_iter().filter(|shell| std::path::Path::new(shell).exists()) {
            assert_eq!(arrived(shell, &sent).await, expected, "{shell}");
        }
    }

    #[tokio::test]
    async fn nothing_on_the_way_is_called_what_a_loader_or_a_shell_obeys() {
        let mut command = Command::new("/bin/true");
        carry(&mut command, &variables(&[("LD_PRELOAD", "/x.so"), ("BASH_FUNC_echo%%", "() { id; }"), (MARK, "m")]));
        let names: Vec<_> = command.as_std().get_envs().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
        assert_eq!(names, ["HEADWAY_CARRIED_0", "HEADWAY_CARRIED_1", "HEADWAY_CARRIED_2", MARK]);
    }
}

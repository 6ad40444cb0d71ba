//! Which launches one warm interpreter can serve: those by the same user, with the same interpreter, under the same
//! variables save for the launch's own. Pure.

use std::collections::BTreeMap;

use crate::environment::Member;
use crate::user::UnixUser;

/// Modules that start as well in an interpreter which has imported torch before (`headway.zygote` knows the same).
const MODULES: [&str; 2] = ["headway.run", "headway.trainer"];
/// A job's own word on it, in `run.env`: `off`.
const CHOICE: &str = "HEADWAY_WARM";

/// What an interpreter has to have been started with. A cold start would import under just these variables, so that a
/// worker cannot tell the difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    pub(crate) user: Option<UnixUser>,
    pub(crate) interpreter: String,
    pub(crate) variables: BTreeMap<String, String>,
}

impl Kind {
    /// `None` for a command that is not `INTERPRETER -m MODULE …` of a known module, for a job that does not want it, and
    /// where anything depends on the launch or on the directory the interpreter is started in.
    pub(crate) fn of(member: &Member, user: Option<&UnixUser>) -> Option<Self> {
        let [interpreter, dash_m, module, ..] = member.argv.as_slice() else { return None };
        let known = dash_m == "-m" && MODULES.contains(&module.as_str());
        let variables = member.lasting.clone()?;
        let wanted = variables.get(CHOICE).is_none_or(|choice| choice != "off");
        let kind = Self { user: user.cloned(), interpreter: interpreter.clone(), variables };
        (known && wanted && kind.is_absolute()).then_some(kind)
    }

    fn is_absolute(&self) -> bool {
        let interpreter = self.interpreter.starts_with('/') || !self.interpreter.contains('/');
        let paths =
            self.variables.get("PYTHONPATH").is_none_or(|paths| paths.split(':').all(|one| one.starts_with('/')));
        interpreter && paths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str, variables: &[(&str, &str)]) -> Option<Kind> {
        let lasting: BTreeMap<String, String> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let argv = line.split(' ').map(String::from).collect();
        let files = BTreeMap::new();
        Kind::of(&Member { rank: 0, argv, variables: lasting.clone(), lasting: Some(lasting), files }, None)
    }

    #[test]
    fn only_commands_that_surely_start_the_same_are_served() {
        for line in ["/venv/bin/python -m headway.trainer --lr 3", "python3 -m headway.run train.py"] {
            assert!(kind(line, &[("PYTHONPATH", "/a:/b")]).is_some(), "{line}");
        }
        for line in
            ["python3 train.py", "python3 -m torch.distributed.run", "venv/bin/python -m headway.run t.py", "sh"]
        {
            assert!(kind(line, &[]).is_none(), "{line}");
        }
        let run = "python3 -m headway.run t.py";
        assert!(kind(run, &[("PYTHONPATH", "src:/b")]).is_none());
        assert!(kind(run, &[("HEADWAY_WARM", "off")]).is_none());
    }

    #[test]
    fn another_environment_is_another_kind_and_other_arguments_are_not() {
        let one = kind("python3 -m headway.run a.py", &[("MODE", "1")]);
        assert_eq!(one, kind("python3 -m headway.trainer --lr 1", &[("MODE", "1")]));
        assert_ne!(one, kind("python3 -m headway.run a.py", &[("MODE", "2")]));
        assert_ne!(one, kind("python3.12 -m headway.run a.py", &[("MODE", "1")]));
    }
}

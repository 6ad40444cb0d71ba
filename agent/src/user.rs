//! Whom workers run as: the Unix user who submitted the job, a fixed one, or the agent's own. Names and command lines
//! only; it starts nothing. The change of user is made by `setpriv` of util-linux right before the worker's shell: a
//! multi-threaded process cannot make it safely between fork and exec.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use headway_types::{Fault, NodeAccount};
use nix::unistd::{Gid, Uid, User, chown, geteuid};

use crate::AgentError;

/// Where people's users begin, as Linux distributions number them: what is below runs services, and no jobs.
pub const LEAST_UID: u32 = 1_000;

/// CAP_SYS_PTRACE, by its bit: without it not even root reads the environment of another user's process.
const READ_OTHERS: u64 = 1 << 19;

const SETPRIV: [&str; 3] = ["/usr/bin/setpriv", "/bin/setpriv", "/usr/local/bin/setpriv"];

/// The operator's choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunAs {
    /// The Unix user of the job owner's name.
    Owner,
    /// The user of the agent itself.
    Agent,
    /// One user for all jobs.
    User(String),
}

impl RunAs {
    /// `Owner` for an agent that may change users, `Agent` for any other.
    #[must_use]
    pub fn by_privilege() -> Self {
        if geteuid().is_root() { Self::Owner } else { Self::Agent }
    }

    /// The one account that all jobs run as. A user that the operator names for all jobs takes all jobs; the agent's own user takes
    /// those of others only where it is said.
    pub(crate) fn account(&self, allow_others: bool) -> Option<NodeAccount> {
        match self {
            Self::Owner => None,
            Self::User(user) => Some(NodeAccount { user: user.clone(), takes_others: true }),
            Self::Agent => {
                let own = User::from_uid(geteuid()).ok().flatten();
                let user = own.map_or_else(|| geteuid().to_string(), |user| user.name);
                Some(NodeAccount { user, takes_others: allow_others })
            }
        }
    }
}

impl FromStr for RunAs {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "owner" => Self::Owner,
            "agent" => Self::Agent,
            name => Self::User(name.to_owned()),
        })
    }
}

/// A user other than the agent's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnixUser {
    name: String,
    uid: u32,
    gid: u32,
    home: PathBuf,
    shell: PathBuf,
}

impl UnixUser {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The user's id and primary group.
    pub(crate) fn ids(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }

    /// What a login sets.
    pub(crate) fn variables(&self) -> BTreeMap<String, String> {
        let values = [
            ("HOME", self.home.display().to_string()),
            ("USER", self.name.clone()),
            ("LOGNAME", self.name.clone()),
            ("SHELL", self.shell.display().to_string()),
        ];
        values.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

/// Resolves owners by the operator's choice.
#[derive(Clone, Debug)]
pub(crate) struct Users {
    run_as: RunAs,
    /// The one account that all jobs run as, where there is one.
    account: Option<NodeAccount>,
    /// Of owners.
    least_uid: u32,
    setpriv: PathBuf,
}

impl Users {
    /// Refuses a choice this agent cannot keep.
    pub(crate) fn new(run_as: RunAs, allow_others: bool, least_uid: u32) -> Result<Self, AgentError> {
        let refuse = |message: String| Err(AgentError::RunAs { message });
        let setpriv = SETPRIV.iter().map(PathBuf::from).find(|path| path.exists());
        match &run_as {
            RunAs::Agent => {}
            RunAs::Owner | RunAs::User(_) if !geteuid().is_root() => {
                return refuse("only an agent of root can change users; use --run-as agent".to_owned());
            }
            RunAs::Owner | RunAs::User(_) if setpriv.is_none() => {
                return refuse("setpriv of util-linux is not installed; use --run-as agent".to_owned());
            }
            // Workers that left their process group are found by a mark in their environment.
            RunAs::Owner | RunAs::User(_) if !may_read_others(&own_status()) => {
                return refuse(
                    "without CAP_SYS_PTRACE other users' workers are not found; use --run-as agent".to_owned(),
                );
            }
            RunAs::User(name) => match User::from_name(name) {
                Ok(Some(_)) => {}
                Ok(None) => return refuse(format!("there is no user {name}")),
                Err(error) => return refuse(format!("looking up user {name}: {error}")),
            },
            RunAs::Owner => {}
        }
        let account = run_as.account(allow_others);
        Ok(Self { run_as, account, least_uid, setpriv: setpriv.unwrap_or_default() })
    }

    /// Whether other users than the agent's own need to pass through the data directory.
    pub(crate) fn are_others(&self) -> bool {
        self.run_as != RunAs::Agent
    }

    /// Returns the user that a new start of this owner's job runs as; `None` is the agent's own. Refuses an owner whose
    /// jobs the node's account does not take: the scheduler may have granted the start before the account changed.
    pub(crate) fn of(&self, owner: &str) -> Result<Option<UnixUser>, Fault> {
        if let Some(account) = self.account.as_ref().filter(|account| !account.takes(owner)) {
            return Err(Fault::of_infrastructure(format!(
                "this node runs jobs of {} alone, and the job is {owner}'s; an operator can start the agent with --allow-others",
                account.user
            )));
        }
        let found = self.look_up(owner)?;
        // An account's name is what a login elsewhere said: no proof that its holder may be a service of this machine.
        if let Some(user) = found.as_ref().filter(|user| self.run_as == RunAs::Owner && user.uid < self.least_uid) {
            return Err(Fault::of_job(format!(
                "{owner} is a system user of this node (uid {}), as which no job runs: people's begin at {}; submit it as a \
                 person, or have an operator start the agent with a lower --least-uid",
                user.uid, self.least_uid
            )));
        }
        Ok(found)
    }

    fn look_up(&self, owner: &str) -> Result<Option<UnixUser>, Fault> {
        let name = match &self.run_as {
            RunAs::Agent => return Ok(None),
            RunAs::Owner => owner,
            RunAs::User(name) => name,
        };
        let user = match User::from_name(name) {
            Ok(Some(user)) => user,
            Ok(None) => return Err(Fault::of_node(format!("user {name} does not exist on this node"))),
            Err(error) => return Err(Fault::of_node(format!("looking up user {name}: {error}"))),
        };
        // A submitter's name is no proof that the submitter may be root here.
        if user.uid.is_root() && self.run_as == RunAs::Owner {
            return Err(Fault::of_job(format!("jobs of owner {name} would run as root, which this node never does")));
        }
        let User { name, uid, gid, dir, shell, .. } = user;
        Ok(Some(UnixUser { name, uid: uid.as_raw(), gid: gid.as_raw(), home: dir, shell }))
    }

    /// The user of all jobs, if that is the operator's choice.
    pub(crate) fn only(&self) -> Option<Option<UnixUser>> {
        match &self.run_as {
            RunAs::Owner => None,
            RunAs::Agent | RunAs::User(_) => self.look_up("").ok(),
        }
    }

    /// The user a group of this owner was started as. Without an owner it was started by an agent of an earlier release,
    /// as the agent's own user; nothing new starts so, since that user may be root.
    pub(crate) fn of_started(&self, owner: &str) -> Result<Option<UnixUser>, Fault> {
        if owner.is_empty() { Ok(None) } else { self.look_up(owner) }
    }

    /// The words that go before a command to run it as `user`, with its groups and without privileges.
    pub(crate) fn prefix(&self, user: Option<&UnixUser>) -> Vec<String> {
        let Some(user) = user else { return Vec::new() };
        vec![
            self.setpriv.display().to_string(),
            format!("--reuid={}", user.uid),
            format!("--regid={}", user.gid),
            "--init-groups".to_owned(),
            "--inh-caps=-all".to_owned(),
            "--".to_owned(),
        ]
    }
}

fn own_status() -> String {
    std::fs::read_to_string("/proc/self/status").unwrap_or_default()
}

/// By what proc_pid_status(5) says of the effective capabilities; what it does not say is no reason to refuse.
fn may_read_others(status: &str) -> bool {
    let effective = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    effective.is_none_or(|effective| effective & READ_OTHERS != 0)
}

/// Gives a file or directory to the user.
pub(crate) fn give(path: &Path, user: Option<&UnixUser>) -> std::io::Result<()> {
    match user {
        Some(user) => Ok(chown(path, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?),
        None => Ok(()),
    }
}

/// Gives what is open to the user.
pub(crate) fn give_open(file: impl AsFd, user: Option<&UnixUser>) -> std::io::Result<()> {
    match user {
        Some(user) => std::os::unix::fs::fchown(file, Some(user.uid), Some(user.gid)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use headway_types::Blame;

    use super::*;

    #[test]
    fn a_group_without_an_owner_was_started_as_the_agents_own_user_but_none_is_now() {
        let users = Users { run_as: RunAs::Owner, account: None, least_uid: LEAST_UID, setpriv: PathBuf::new() };
        assert_eq!(users.of_started(""), Ok(None));
        assert!(users.of("").is_err());
        assert!(users.of_started("nobody").unwrap().is_some());
    }

    #[test]
    fn whoever_is_called_like_a_service_of_the_node_runs_no_jobs_as_it() {
        let users = |run_as: RunAs, least_uid| Users { run_as, account: None, least_uid, setpriv: PathBuf::new() };
        let as_owner = users(RunAs::Owner, LEAST_UID);
        let fault = as_owner.of("daemon").unwrap_err();
        assert_eq!(fault.blame, Blame::Job, "no node is blamed for a name");
        assert!(
            fault.message.contains("daemon is a system user") && fault.message.contains("--least-uid"),
            "{fault:?}"
        );
        assert!(as_owner.of("nobody").is_ok());
        assert!(as_owner.of_started("daemon").is_ok(), "what runs already is looked after");
        assert!(users(RunAs::Owner, 1).of("daemon").is_ok(), "an operator says so");
        assert!(users(RunAs::Owner, 0).of("root").is_err(), "and that nobody can say");
        assert!(users(RunAs::User("daemon".into()), LEAST_UID).of("ada").is_ok(), "it is the operator's choice");
    }

    #[test]
    fn a_node_that_runs_all_jobs_as_one_user_says_so_and_takes_that_users_jobs_alone() {
        assert_eq!(RunAs::Owner.account(false), None);
        let named = RunAs::User("batch".into()).account(false).unwrap();
        assert!(named.takes("ada") && named.takes("batch"), "the operator named it for all jobs");
        let own = RunAs::Agent.account(false).unwrap();
        assert!(own.takes(&own.user) && !own.takes("somebody-else"));
        assert!(RunAs::Agent.account(true).unwrap().takes("somebody-else"));
    }

    #[test]
    fn an_agent_refuses_a_new_start_of_an_owner_whose_jobs_its_account_does_not_take() {
        let users = Users::new(RunAs::Agent, false, LEAST_UID).unwrap();
        let own = users.account.clone().unwrap().user;
        assert_eq!(users.of(&own), Ok(None));
        let fault = users.of("somebody-else").unwrap_err();
        assert_eq!(fault.blame, Blame::Infrastructure, "neither the job nor the node is blamed");
        assert!(fault.message.contains("somebody-else's") && fault.message.contains("--allow-others"), "{fault:?}");
        assert_eq!(users.of_started("somebody-else"), Ok(None), "what runs already is looked after");
        assert_eq!(users.only(), Some(None), "interpreters are kept warm for the owner's jobs");
    }

    #[test]
    fn an_agent_that_cannot_see_other_users_marks_is_told_by_its_capabilities() {
        assert!(may_read_others("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(!may_read_others("Name:\tx\nCapEff:\t00000000a80425fb\n"), "root in an ordinary container");
        assert!(may_read_others("Name:\tx\n"));
    }

    #[test]
    fn only_root_may_choose_another_user() {
        assert!(Users::new(RunAs::Agent, true, LEAST_UID).unwrap().of("anybody").unwrap().is_none());
        match Users::new(RunAs::Owner, false, LEAST_UID) {
            Ok(users) => {
                assert!(geteuid().is_root());
                assert_eq!(users.of("no-such-user").unwrap_err().blame, Blame::Node);
                assert_eq!(users.of("root").unwrap_err().blame, Blame::Job);
                assert_eq!(users.of("nobody").unwrap().unwrap().variables()["USER"], "nobody");
            }
            Err(AgentError::RunAs { message }) => {
                let may_not = !geteuid().is_root() || !may_read_others(&own_status());
                assert!(may_not && message.contains("--run-as agent"), "{message}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

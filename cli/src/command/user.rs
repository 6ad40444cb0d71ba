//! `headway user …`: who there is, and what their tokens open at most.

use clap::{Args, Subcommand};
use headway_api::client::Client;
use headway_api::v1::{IdentityRequest, Policy, RoleSource, TokenScope, User as UserReply, UserQuota};
use serde_json::{Map, Value, json};

use crate::confirm::Yes;
use crate::failure::{Failure, Kind};
use crate::output::{Printer, moment};
use crate::table::Column;

#[derive(Subcommand, Clone, Debug)]
pub enum User {
    /// List users.
    List,
    /// Show one.
    Show { name: String },
    /// Give a user a role, the most that this user's tokens open; who is not there is made.
    Set {
        name: String,
        /// viewer, user, operator or admin.
        #[arg(long)]
        role: TokenScope,
    },
    /// Make a user who is not there yet. What opens anything is a token: `headway token create NAME --user USER`.
    Create {
        name: String,
        /// The most that this user's tokens open: viewer, user, operator or admin.
        #[arg(long, default_value = "user")]
        role: TokenScope,
    },
    /// Give a user a quota of its own: jobs that have not ended, what their specifications take, how fast it may ask. Everybody's is a setting of
    /// the policy: `headway policy set 'user_quota={"unfinished_jobs": 20000}'`.
    Quota {
        name: String,
        #[command(flatten)]
        quota: Own,
        /// As everybody's again.
        #[arg(long, conflicts_with = "own")]
        reset: bool,
    },
    /// Say who a user is at the identity provider, so that this person logs in as the user. The role stays as an admin gave it.
    Link {
        name: String,
        /// What the provider calls the person (`sub`); a login that is refused says it.
        #[arg(long)]
        subject: String,
        /// Whose subject it is [default: the server's provider].
        #[arg(long)]
        issuer: Option<String>,
        /// Have each login set the role anew, by the person's groups.
        #[arg(long)]
        role_from_groups: bool,
    },
    /// Say that a user is nobody at the identity provider any more; what logins have opened ends at once.
    Unlink { name: String },
    /// Revoke all of a user's tokens at once, and with them the browser sessions. The user, and what is theirs, stays.
    Revoke {
        name: String,
        #[command(flatten)]
        yes: Yes,
    },
}

/// What a user has of its own; what is not named stays.
#[derive(Args, Clone, Copy, Debug)]
#[group(id = "own", multiple = true)]
pub struct Own {
    /// Most jobs that have not ended; elements of arrays count one by one.
    #[arg(long, value_name = "N")]
    jobs: Option<u32>,
    /// Most bytes of their specifications.
    #[arg(long, value_name = "N")]
    bytes: Option<u64>,
    /// Requests that are answered in the long run.
    #[arg(long, value_name = "N")]
    requests_per_second: Option<u32>,
    /// Requests that may come at once.
    #[arg(long, value_name = "N")]
    burst: Option<u32>,
}

pub async fn run(client: &Client, print: &Printer, user: User) -> Result<(), Failure> {
    match user {
        User::List => print.list(&client.users().await?, &COLUMNS, row, |one| one.name.clone()),
        User::Show { name } => show(print, &client.user(&name).await?),
        User::Set { name, role } => show(print, &client.set_user(&name, role).await?),
        User::Create { name, role } => {
            if client.users().await?.iter().any(|one| one.name == name) {
                let known = Failure::new(Kind::Conflict, format!("there is a user {name}"));
                return Err(known.hint("`headway user set` gives another role"));
            }
            show(print, &client.set_user(&name, role).await?)
        }
        User::Quota { name, quota, reset } => show(print, &give_quota(client, &name, quota, reset).await?),
        User::Link { name, subject, issuer, role_from_groups } => {
            let role_from = if role_from_groups { RoleSource::Groups } else { RoleSource::Hand };
            let done = client.link_user(&name, &IdentityRequest { subject, issuer, role_from }).await?;
            if print.structured() {
                return print.value(&done);
            }
            say!("{} is {} of {} now", done.user, done.subject, done.issuer)?;
            Ok(())
        }
        User::Unlink { name } => {
            client.unlink_user(&name).await?;
            say!("{name} is nobody at the identity provider any more; what logins have opened has ended")?;
            Ok(())
        }
        User::Revoke { name, yes } => revoke(client, print, &name, yes).await,
    }
}

async fn give_quota(client: &Client, name: &str, quota: Own, reset: bool) -> Result<UserReply, Failure> {
    // Who is not there is given nothing.
    let user = client.user(name).await?;
    let Own { jobs, bytes, requests_per_second, burst } = quota;
    let own =
        UserQuota { unfinished_jobs: jobs, specification_bytes: bytes, requests_per_second, request_burst: burst };
    if !reset && own == UserQuota::default() {
        let missing = Failure::new(Kind::Usage, "nothing is to change");
        return Err(
            missing.hint("name --jobs, --bytes, --requests-per-second or --burst; --reset takes all of them away")
        );
    }
    let own = if reset { Value::Null } else { json!(own) };
    let settings = Map::from_iter([("user_quotas".to_owned(), json!({ name: own }))]);
    let policy = client.change_policy(&settings).await?;
    Ok(UserReply { quota: quota_of(&policy, name), ..user })
}

/// What the policy gives a user.
fn quota_of(policy: &Policy, user: &str) -> Option<UserQuota> {
    let everybodys = policy.user_quota?;
    let own = policy.user_quotas.as_ref().and_then(|all| all.get(user)).copied().unwrap_or_default();
    Some(UserQuota {
        unfinished_jobs: own.unfinished_jobs.or(everybodys.unfinished_jobs),
        specification_bytes: own.specification_bytes.or(everybodys.specification_bytes),
        requests_per_second: own.requests_per_second.or(everybodys.requests_per_second),
        request_burst: own.request_burst.or(everybodys.request_burst),
    })
}

async fn revoke(client: &Client, print: &Printer, name: &str, yes: Yes) -> Result<(), Failure> {
    // Who is not there is no user without tokens.
    client.user(name).await?;
    yes.or_ask(client, &format!("revoke all tokens of {name}?"))?;
    let mut tokens = client.tokens(Some(name)).await?;
    // The one that opens this goes last: without it the others would stay.
    let own = client.whoami().await?.id;
    tokens.sort_by_key(|token| token.id == own);
    for token in &tokens {
        client.revoke_token(&token.id.to_string()).await?;
    }
    if print.structured() {
        return print.value(&tokens);
    }
    match tokens.len() {
        0 => say!("{name} has no token")?,
        1 => say!("the token of {name} is revoked")?,
        many => say!("{many} tokens of {name} are revoked")?,
    }
    Ok(())
}

const COLUMNS: [Column; 7] = [
    Column::new("NAME").cut(8),
    Column::new("ROLE"),
    Column::new("TOKENS"),
    Column::new("UNFINISHED JOBS"),
    Column::new("SPECIFICATIONS").rank(2),
    Column::new("REQUESTS").rank(3),
    Column::new("SINCE").rank(1),
];

fn row(user: &UserReply) -> Vec<String> {
    let quota = user.quota.unwrap_or_default();
    let of = |used: Option<String>, limit: Option<String>| {
        let limit = limit.map(|limit| format!("of {limit}"));
        let words: Vec<String> = [used, limit].into_iter().flatten().collect();
        if words.is_empty() { "-".to_owned() } else { words.join(" ") }
    };
    let pace = quota.requests_per_second.zip(quota.request_burst);
    vec![
        user.name.clone(),
        match user.role_from {
            RoleSource::Hand => user.role.to_string(),
            RoleSource::Groups => format!("{} (by groups)", user.role),
        },
        user.tokens.to_string(),
        of(
            user.used.map(|used| used.unfinished_jobs.to_string()),
            quota.unfinished_jobs.map(|limit| limit.to_string()),
        ),
        of(user.used.map(|used| mebibytes(used.specification_bytes)), quota.specification_bytes.map(mebibytes)),
        pace.map_or_else(|| "-".into(), |(rate, burst)| format!("{rate}/s, {burst} at once")),
        moment(user.created_at),
    ]
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn show(print: &Printer, user: &UserReply) -> Result<(), Failure> {
    if print.structured() {
        return print.value(user);
    }
    print.list(std::slice::from_ref(user), &COLUMNS, row, |one| one.name.clone())
}

#[cfg(test)]
mod tests {
    use headway_api::v1::UserLoad;

    use super::*;

    #[test]
    fn a_row_says_what_is_used_of_what_is_allowed() {
        let quota = UserQuota {
            unfinished_jobs: Some(10_000),
            specification_bytes: Some(64 << 20),
            requests_per_second: Some(100),
            request_burst: Some(1_000),
        };
        let used = UserLoad { unfinished_jobs: 12, specification_bytes: 1 << 20 };
        let user = |quota, used| UserReply {
            name: "ada".into(),
            role: TokenScope::User,
            created_at: chrono::DateTime::UNIX_EPOCH,
            tokens: 1,
            role_from: RoleSource::Hand,
            linked: false,
            quota,
            used,
        };
        let told = |user: UserReply| row(&user)[3..6].join("; ");
        let whole = "12 of 10000; 1.0 MiB of 64.0 MiB; 100/s, 1000 at once";
        assert_eq!(told(user(Some(quota), Some(used))), whole);
        assert_eq!(told(user(Some(quota), None)), "of 10000; of 64.0 MiB; 100/s, 1000 at once");
        assert_eq!(told(user(None, None)), "-; -; -", "of a server before this release");
    }
}

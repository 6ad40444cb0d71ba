//! `headway user …`: who there is, and what their tokens open at most.

use clap::Subcommand;
use headway_api::client::Client;
use headway_api::v1::{TokenScope, User as UserReply};

use crate::failure::{Failure, Kind};
use crate::output::{Printer, moment};

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
    /// Revoke all of a user's tokens at once, and with them the browser sessions. The user, and what is theirs, stays.
    Revoke { name: String },
}

pub async fn run(client: &Client, print: &Printer, user: User) -> Result<(), Failure> {
    match user {
        User::List => print.list(&client.users().await?, HEADERS, row, |one| one.name.clone()),
        User::Show { name } => show(print, &client.user(&name).await?),
        User::Set { name, role } => show(print, &client.set_user(&name, role).await?),
        User::Create { name, role } => {
            if client.users().await?.iter().any(|one| one.name == name) {
                let known = Failure::new(Kind::Conflict, format!("there is a user {name}"));
                return Err(known.hint("`headway user set` gives another role"));
            }
            show(print, &client.set_user(&name, role).await?)
        }
        User::Revoke { name } => revoke(client, print, &name).await,
    }
}

async fn revoke(client: &Client, print: &Printer, name: &str) -> Result<(), Failure> {
    // Who is not there is no user without tokens.
    client.user(name).await?;
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

const HEADERS: &[&str] = &["NAME", "ROLE", "TOKENS", "SINCE"];

fn row(user: &UserReply) -> Vec<String> {
    vec![user.name.clone(), user.role.to_string(), user.tokens.to_string(), moment(user.created_at)]
}

fn show(print: &Printer, user: &UserReply) -> Result<(), Failure> {
    if print.structured() {
        return print.value(user);
    }
    print.list(std::slice::from_ref(user), HEADERS, row, |one| one.name.clone())
}

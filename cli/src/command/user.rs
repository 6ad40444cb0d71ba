//! `headway user …`: who there is, and what their tokens open at most.

use clap::Subcommand;
use headway_api::client::Client;
use headway_api::v1::{TokenScope, User as UserReply};

use crate::failure::Failure;
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
}

pub async fn run(client: &Client, print: &Printer, user: User) -> Result<(), Failure> {
    match user {
        User::List => print.list(&client.users().await?, HEADERS, row, |one| one.name.clone()),
        User::Show { name } => show(print, &client.user(&name).await?),
        User::Set { name, role } => show(print, &client.set_user(&name, role).await?),
    }
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

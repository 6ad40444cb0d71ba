//! `headway token …` and `headway whoami`: what opens the scheduler, and to whom.

use clap::{Args, Subcommand};
use headway_api::client::{Client, ClientError};
use headway_api::v1::{Token as TokenReply, TokenRequest, TokenScope};
use headway_types::Seconds;

use super::short;
use crate::confirm::{self, Yes};
use crate::failure::{Failure, Kind};
use crate::output::{Printer, moment};
use crate::table::Column;

#[derive(Subcommand, Clone, Debug)]
pub enum Token {
    /// Make a token, and print its secret to standard output: it is shown this once.
    Create(Create),
    /// List your tokens (an admin: everybody's).
    List {
        /// Only this user's.
        #[arg(long)]
        user: Option<String>,
    },
    /// Revoke a token at once.
    Revoke {
        /// Id, its beginning or its end, or the token's name where only one has it.
        token: String,
        #[command(flatten)]
        yes: Yes,
    },
}

#[derive(Args, Clone, Debug)]
pub struct Create {
    /// A label to know it by.
    pub name: String,
    /// Whose it is to be [default: yours]. Admins make them for others; who is not there is made.
    #[arg(long)]
    pub user: Option<String>,
    /// What it opens: viewer, user, operator, admin, or agent for a node [default: what yours opens].
    #[arg(long)]
    pub scope: Option<TokenScope>,
    /// How long it opens anything ("30d"), or `never`: until it is revoked [default: 90 days; an agent's token never ends].
    #[arg(long, value_name = "DURATION", value_parser = parse_ttl)]
    pub ttl: Option<Ttl>,
    /// Make the user too, if there is none of that name, without asking.
    #[arg(long)]
    pub yes: bool,
}

/// How long a token opens something.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ttl {
    Never,
    For(Seconds),
}

fn parse_ttl(text: &str) -> Result<Ttl, String> {
    if text == "never" {
        return Ok(Ttl::Never);
    }
    headway_api::spec::duration(text).map(Ttl::For).map_err(|why| format!("{why}, or never"))
}

/// Asks before a token makes a user: the name may be mistyped.
async fn confirm_user(client: &Client, user: &str, yes: bool) -> Result<(), Failure> {
    if yes || client.is_dry_run() {
        return Ok(());
    }
    match client.user(user).await {
        Err(ClientError::Problem(problem)) if problem.status == 404 => {
            let hint = format!("make the user first: headway user set {user} --role user; or give --yes");
            let refusal = Failure::new(Kind::NotFound, format!("there is no user {user}")).hint(hint);
            confirm::ask_or_refuse(&format!("there is no user {user}; make one?"), refusal)
        }
        // Another refusal is one of the request itself, which says more.
        _ => Ok(()),
    }
}

pub async fn run(client: &Client, print: &Printer, token: Token) -> Result<(), Failure> {
    match token {
        Token::Create(Create { name, user, scope, ttl, yes }) => {
            if let Some(user) = &user {
                confirm_user(client, user, yes).await?;
            }
            let (ttl_s, never_expires) = match ttl {
                None => (None, false),
                Some(Ttl::Never) => (None, true),
                Some(Ttl::For(life)) => (Some(life.0), false),
            };
            let request = TokenRequest { name, user, scope, ttl_s, never_expires };
            let made = client.create_token(&request).await?;
            if print.structured() {
                return print.value(&made);
            }
            aside!(
                "headway: token {} of {}, {}; keep it, it is shown this once",
                short(&made.token.id.to_string()),
                holder(&made.token),
                made.token
                    .expires_at
                    .map_or_else(|| "which never expires".into(), |end| format!("until {}", moment(end)))
            );
            say!("{}", made.secret)?;
            Ok(())
        }
        Token::List { user } => {
            print.list(&client.tokens(user.as_deref()).await?, &COLUMNS, row, |one| one.id.to_string())
        }
        Token::Revoke { token, yes } => {
            let all = client.tokens(None).await?;
            let chosen = choose(&all, &token)?;
            yes.or_ask(client, &format!("revoke token {} of {}?", chosen.name, holder(chosen)))?;
            client.revoke_token(&chosen.id.to_string()).await?;
            if !print.structured() {
                say!("token {} of {} is revoked", chosen.name, holder(chosen))?;
            }
            Ok(())
        }
    }
}

pub async fn whoami(client: &Client, print: &Printer) -> Result<(), Failure> {
    let token = client.whoami().await?;
    if print.structured() {
        return print.value(&token);
    }
    let ends = token.expires_at.map_or(String::new(), |end| format!(", until {}", moment(end)));
    say!("{} with the scope {} (token {}{ends})", holder(&token), token.scope, token.name)?;
    Ok(())
}

const COLUMNS: [Column; 6] = [
    Column::new("ID"),
    Column::new("NAME").cut_late(10, 20),
    Column::new("USER").cut(8),
    Column::new("SCOPE"),
    Column::new("CREATED").rank(1),
    Column::new("EXPIRES").rank(6),
];

fn row(token: &TokenReply) -> Vec<String> {
    vec![
        short(&token.id.to_string()).into(),
        token.name.clone(),
        token.user.clone().unwrap_or_else(|| "-".into()),
        token.scope.to_string(),
        moment(token.created_at),
        token.expires_at.map_or_else(|| "-".into(), moment),
    ]
}

fn holder(of: &TokenReply) -> String {
    of.user.clone().unwrap_or_else(|| "agents".into())
}

/// The only token that is meant: what is revoked stays so.
fn choose<'a>(all: &'a [TokenReply], text: &str) -> Result<&'a TokenReply, Failure> {
    let is_meant = |one: &&TokenReply| {
        let id = one.id.to_string();
        one.name == text || (text.len() >= 4 && (id.starts_with(text) || id.ends_with(text)))
    };
    match all.iter().filter(is_meant).collect::<Vec<_>>().as_slice() {
        [] => Err(Failure::new(Kind::NotFound, format!("no token is called {text}")).hint("see `headway token list`")),
        [only] => Ok(only),
        several => {
            let ids: Vec<String> = several.iter().map(|one| one.id.to_string()).collect();
            let message = format!("{} tokens may be meant by {text}", several.len());
            Err(Failure::new(Kind::Conflict, message).hint(format!("name one by its id: {}", ids.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn token(id: u128, name: &str) -> TokenReply {
        TokenReply {
            id: uuid::Uuid::from_u128(id),
            name: name.into(),
            user: Some("ada".into()),
            scope: TokenScope::User,
            created_at: chrono::DateTime::UNIX_EPOCH,
            expires_at: None,
        }
    }

    #[test]
    fn a_life_is_a_duration_or_without_an_end() {
        assert_eq!(parse_ttl("30d"), Ok(Ttl::For(Seconds(30.0 * 86_400.0))));
        assert_eq!(parse_ttl("never"), Ok(Ttl::Never));
        assert!(parse_ttl("soon").unwrap_err().ends_with(", or never"));
    }

    #[test]
    fn tokens_fit_the_terminal() {
        let expires_at = Some(chrono::DateTime::UNIX_EPOCH);
        let long = TokenReply { expires_at, ..token(1, "continuous integration of the language models") };
        for width in [60, 80, 100, 120] {
            assert!(crate::table::widest(&COLUMNS, row(&long), width) <= width, "{width}");
        }
    }

    #[test]
    fn a_token_is_revoked_only_where_it_alone_is_meant() {
        let all = [token(0x1234_0001, "ci"), token(0x1234_0002, "ci"), token(0x1234_0003, "page")];
        assert_eq!(choose(&all, "page").unwrap().id, all[2].id);
        assert_eq!(choose(&all, "12340002").unwrap().id, all[1].id);
        assert_eq!(choose(&all, "ci").unwrap_err().kind, Kind::Conflict);
        assert_eq!(choose(&all, "00000000").unwrap_err().kind, Kind::Conflict);
        assert_eq!(choose(&all, "none").unwrap_err().kind, Kind::NotFound);
    }
}

//! `headway token …` and `headway whoami`: what opens the scheduler, and to whom.

use clap::{Args, Subcommand};
use headway_api::client::Client;
use headway_api::v1::{Token as TokenReply, TokenRequest, TokenScope};
use headway_types::Seconds;

use super::short;
use crate::confirm::Yes;
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
    /// How long it opens anything ("90d") [default: until it is revoked].
    #[arg(long, value_name = "DURATION", value_parser = headway_api::spec::duration)]
    pub ttl: Option<Seconds>,
}

pub async fn run(client: &Client, print: &Printer, token: Token) -> Result<(), Failure> {
    match token {
        Token::Create(Create { name, user, scope, ttl }) => {
            let request = TokenRequest { name, user, scope, ttl_s: ttl.map(|ttl| ttl.0) };
            let made = client.create_token(&request).await?;
            if print.structured() {
                return print.value(&made);
            }
            aside!(
                "headway: token {} of {}; keep it, it is shown this once",
                short(&made.token.id.to_string()),
                holder(&made.token)
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

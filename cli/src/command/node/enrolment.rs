//! How a node becomes known: `headway node join`, the tokens that admit it, and the end of its certificate.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use headway_agent::{Joiner, Joining};
use headway_api::agent::JoinToken;
use headway_api::client::Client;
use headway_api::v1::{JoinToken as TokenReply, JoinTokenRequest, NodeCertificate};
use headway_types::Seconds;

use super::Change;
use crate::command::agent::{host_name, identity_file};
use crate::command::short;
use crate::context::read_token;
use crate::failure::{Failure, Kind};
use crate::output::{Printer, moment};
use crate::table::Column;

#[derive(Args, Clone, Debug)]
pub struct Join {
    /// The join token, as `headway node token create` prints it; `-`: read it from standard input, where no other process sees it.
    #[arg(env = "HEADWAY_JOIN_TOKEN", hide_env_values = true, required_unless_present = "join_token_file")]
    pub token: Option<String>,
    /// File that holds the join token.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub join_token_file: Option<PathBuf>,
    /// URL of the scheduler's port for agents (https); of each of its servers, with commas or given more than once.
    #[arg(long, env = "HEADWAY_AGENT_SERVER", value_name = "URL", value_delimiter = ',', required = true)]
    pub server: Vec<String>,
    /// Data directory of the node's agent.
    #[arg(long, default_value = "/var/lib/headway/agent")]
    pub data_dir: PathBuf,
    /// Name of the node [default: the host name], or of the fleet [default: fleet].
    #[arg(long)]
    pub name: Option<String>,
    /// Where the key and the certificate are written [default: identity.json in the data directory].
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// Join as a fleet of emulated nodes (`headway agent --emulate`).
    #[arg(long, requires = "identity", conflicts_with = "data_dir")]
    pub fleet: bool,
}

#[derive(Subcommand, Clone, Debug)]
pub enum JoinTokens {
    /// Make a token, and print it to standard output: it is shown this once.
    Create(CreateToken),
    /// List those that still admit somebody.
    List,
    /// Have a token admit nobody any more.
    Revoke {
        /// Id of the token, or the end of it.
        token: String,
    },
}

#[derive(Args, Clone, Debug)]
pub struct CreateToken {
    /// Only this node may join with it; also one that is known already, whose former certificate then opens nothing.
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// For a fleet of emulated nodes instead of a node.
    #[arg(long)]
    pub fleet: bool,
    /// How many nodes may join with it, for groups that come and go by themselves.
    #[arg(long, default_value_t = 1)]
    pub uses: u32,
    /// How long it admits anybody, at most 7d.
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = headway_api::spec::duration)]
    pub ttl: Seconds,
}

pub async fn join(print: &Printer, one: Join) -> Result<(), Failure> {
    let text = match (one.token.as_deref(), &one.join_token_file) {
        (Some("-"), _) => std::io::read_to_string(std::io::stdin()).map_err(anyhow::Error::new)?,
        (Some(text), _) => text.to_owned(),
        (None, Some(file)) => read_token(file)?,
        (None, None) => return Err(Failure::new(Kind::Usage, "a join token is needed")),
    };
    let token: JoinToken = text.parse().map_err(|wrong| Failure::new(Kind::Usage, format!("{wrong}")))?;
    let usual = || if one.fleet { Ok("fleet".to_owned()) } else { host_name() };
    let joining = Joining {
        token,
        servers: one.server,
        name: one.name.map_or_else(usual, Ok)?,
        file: one.identity.unwrap_or_else(|| identity_file(&one.data_dir)),
        who: if one.fleet { Joiner::Fleet } else { Joiner::Node { data_dir: one.data_dir } },
    };
    let joined = headway_agent::join(joining).await.map_err(|error| Failure::from(anyhow::Error::new(error)))?;
    if !print.structured() {
        say!("{} has joined; its key and certificate are in {}", joined.name, joined.file.display())?;
    }
    Ok(())
}

pub async fn tokens(client: &Client, print: &Printer, tokens: JoinTokens) -> Result<(), Failure> {
    match tokens {
        JoinTokens::Create(CreateToken { node, fleet, uses, ttl }) => {
            let request = JoinTokenRequest { node, fleet, uses: Some(uses), ttl_s: Some(ttl.0) };
            let made = client.create_join_token(&request).await?;
            if print.structured() {
                return print.value(&made);
            }
            aside!(
                "headway: until {}; on the node: headway node join TOKEN --server {}",
                moment(made.token.expires_at),
                made.agents_url
            );
            say!("{}", made.secret)?;
            Ok(())
        }
        JoinTokens::List => {
            let row = |one: &TokenReply| {
                vec![
                    short(&one.id.to_string()).into(),
                    one.node.clone().unwrap_or_else(|| if one.fleet { "any fleet".into() } else { "any node".into() }),
                    one.uses_left.to_string(),
                    one.created_by.clone(),
                    moment(one.expires_at),
                ]
            };
            print.list(&client.join_tokens().await?, &["ID", "FOR", "USES", "BY", "UNTIL"], row, |one| {
                one.id.to_string()
            })
        }
        JoinTokens::Revoke { token } => {
            let all = client.join_tokens().await?;
            let meant: Vec<&TokenReply> = all.iter().filter(|one| one.id.to_string().ends_with(&token)).collect();
            let [one] = meant.as_slice() else {
                let message = format!("{} join tokens may be meant by {token}", meant.len());
                return Err(Failure::new(Kind::NotFound, message).hint("see `headway node token list`"));
            };
            client.revoke_join_token(&one.id.to_string()).await?;
            if !print.structured() {
                say!("join token {} admits nobody any more", short(&one.id.to_string()))?;
            }
            Ok(())
        }
    }
}

const CERTIFICATES: [Column; 6] = [
    Column::new("NAME").cut(16),
    Column::new("KIND").rank(2),
    Column::new("ISSUED").rank(1),
    Column::new("UNTIL"),
    Column::new("REVOKED").rank(6),
    Column::new("ID"),
];

pub async fn certificates(client: &Client, print: &Printer) -> Result<(), Failure> {
    let row = |one: &NodeCertificate| {
        vec![
            one.name.clone(),
            if one.fleet { "fleet" } else { "node" }.into(),
            moment(one.issued_at),
            moment(one.expires_at),
            one.revoked_at.map_or_else(|| "-".into(), moment),
            short(&one.id.to_string()).into(),
        ]
    };
    print.list(&client.node_certificates().await?, &CERTIFICATES, row, |one| one.name.clone())
}

pub async fn revoke(client: &Client, print: &Printer, change: Change) -> Result<(), Failure> {
    let revoked = client.revoke_node(&change.node, change.reason.as_deref()).await?;
    if print.structured() {
        return print.value(&revoked);
    }
    say!("the certificate of {} opens nothing any more", revoked.name)?;
    Ok(())
}

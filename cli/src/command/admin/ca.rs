//! `headway admin ca …`: what signs nodes' certificates.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use headway_api::client::Client;
use headway_api::secret::Secret;
use headway_api::v1::{NodeAuthority, NodeAuthorityList, NodeAuthorityRequest};

use crate::confirm::Yes;
use crate::failure::{Failure, Kind};
use crate::output::{Printer, moment};

/// Hexadecimal digits that tell authorities apart, for people.
const TOLD: usize = 16;

#[derive(Subcommand, Clone, Debug)]
pub enum Ca {
    /// What signs, what else is believed, how many certificates are of each, and until when it holds.
    Show {
        /// Print the certificates (PEM) instead.
        #[arg(long)]
        pem: bool,
    },
    /// Have a new one sign: one that the server makes, or one that your own authority has made for Headway alone. Every node that is connected
    /// renews its certificate at once; the former is believed until all must have.
    Rotate {
        /// Your authority's certificate (PEM, without those above it).
        #[arg(long, value_name = "FILE", requires = "key")]
        certificate: Option<PathBuf>,
        /// Its key (PKCS #8 in PEM, without a pass phrase); the server keeps it sealed.
        #[arg(long, value_name = "FILE", requires = "certificate")]
        key: Option<PathBuf>,
    },
    /// Believe nothing any more that a former one has signed. Nodes that have not renewed since must join again.
    Retire {
        /// Its fingerprint, or the beginning of it.
        fingerprint: String,
        #[command(flatten)]
        yes: Yes,
    },
}

pub async fn run(client: &Client, print: &Printer, ca: Ca) -> Result<(), Failure> {
    match ca {
        Ca::Show { pem } => {
            let known = client.node_authorities().await?;
            if pem {
                known.items.iter().try_for_each(|one| put!("{}", one.certificate))?;
                return Ok(());
            }
            show(print, &known)
        }
        Ca::Rotate { certificate, key } => {
            let site = certificate.zip(key).map(|(certificate, key)| site(&certificate, &key)).transpose()?;
            let known = client.replace_node_authority(site.as_ref()).await?;
            show(print, &known)
        }
        Ca::Retire { fingerprint, yes } => {
            let known = client.node_authorities().await?;
            let meant: Vec<&NodeAuthority> =
                known.items.iter().filter(|one| one.fingerprint.starts_with(&fingerprint)).collect();
            let [one] = meant.as_slice() else {
                let message = format!("{} authorities begin with {fingerprint}", meant.len());
                return Err(Failure::new(Kind::NotFound, message).hint("see `headway admin ca show`"));
            };
            let of = format!("{} certificates are of it", one.certificates);
            yes.or_ask(
                client,
                &format!("believe nothing any more that {} has signed ({of})?", short(&one.fingerprint)),
            )?;
            client.retire_node_authority(&one.fingerprint).await?;
            if !print.structured() {
                say!("what {} has signed is believed no more", short(&one.fingerprint))?;
            }
            Ok(())
        }
    }
}

fn site(certificate: &Path, key: &Path) -> Result<NodeAuthorityRequest, Failure> {
    let read = |file: &Path| {
        std::fs::read_to_string(file)
            .map_err(|error| Failure::new(Kind::Usage, format!("{} cannot be read: {error}", file.display())))
    };
    Ok(NodeAuthorityRequest { certificate: read(certificate)?, key: Secret::new(read(key)?) })
}

fn show(print: &Printer, known: &NodeAuthorityList) -> Result<(), Failure> {
    if print.structured() {
        return print.value(known);
    }
    let role = |one: &NodeAuthority| if one.signs { "signs" } else { "believed" };
    let row = |one: &NodeAuthority| {
        let certificates = one.certificates.to_string();
        vec![short(&one.fingerprint).into(), role(one).into(), certificates, moment(one.expires_at)]
    };
    print.list(&known.items, &["FINGERPRINT", "ROLE", "CERTIFICATES", "UNTIL"], row, |one| one.fingerprint.clone())?;
    if known.items.is_empty() {
        aside!("headway: this server gives no certificates: it has no --secrets-key-file");
    }
    if known.agent_tokens {
        aside!("headway: agents' tokens are taken as well (--agent-tokens)");
    }
    Ok(())
}

fn short(fingerprint: &str) -> &str {
    fingerprint.get(..TOLD).unwrap_or(fingerprint)
}

//! What both sides of a node's first contact have to agree on: the form of join tokens, and what a certificate calls the scheduler.
//!
//! Servers are not called by their addresses: whoever holds a certificate of the cluster's own authority under this name is a scheduler of this
//! cluster, wherever it is reached. The name holds the beginning of the authority's fingerprint, so that while one authority replaces another
//! a server shows each node a certificate of the one that the node believes.

use core::fmt;
use std::str::FromStr;

const PREFIX: &str = "hwj_";
/// Hexadecimal digits of a SHA-256.
const FINGERPRINT: usize = 64;
const LEAST_SECRET: usize = 32;
const LONGEST_SECRET: usize = 128;

/// What a node calls the scheduler that believes no authority yet.
pub const FIRST_CONTACT: &str = "join.headway.internal";

/// What a certificate of this authority calls the scheduler.
#[must_use]
pub fn server_name(fingerprint: &str) -> String {
    let beginning = fingerprint.get(..FINGERPRINT / 2).unwrap_or(fingerprint);
    format!("ca-{beginning}.headway.internal")
}

/// Admits a node, and says which authority the scheduler it is for has, so that nobody else can pass for it.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// Only a digest of it is stored.
    pub secret: String,
    /// SHA-256 of the authority's certificate (DER), in hexadecimal digits.
    pub fingerprint: String,
}

/// Why a text is no join token. Nothing of the text is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no join token: one begins with {PREFIX} and is made with `headway node token create`")]
pub struct JoinTokenForm;

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinToken").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}

impl JoinToken {
    /// The whole text, for whoever is to join.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{PREFIX}{}_{}", self.secret, self.fingerprint)
    }
}

impl FromStr for JoinToken {
    type Err = JoinTokenForm;

    fn from_str(text: &str) -> Result<Self, JoinTokenForm> {
        let (secret, fingerprint) =
            text.trim().strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')).ok_or(JoinTokenForm)?;
        let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let fits = (LEAST_SECRET..=LONGEST_SECRET).contains(&secret.len()) && fingerprint.len() == FINGERPRINT;
        if !fits || !is_hex(secret) || !is_hex(fingerprint) {
            return Err(JoinTokenForm);
        }
        Ok(Self { secret: secret.to_owned(), fingerprint: fingerprint.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_join_token_reads_as_it_was_written_and_shows_no_secret() {
        let token = JoinToken { secret: "ab".repeat(32), fingerprint: "01".repeat(32) };
        assert_eq!(token.text().parse::<JoinToken>(), Ok(token.clone()));
        assert!(!format!("{token:?}").contains(&token.secret));
        let text = token.text();
        for wrong in ["", "hw_abc", &text[..text.len() - 1], &text.replace("hwj_", "hwk_"), &text.replace('b', "B")] {
            assert_eq!(wrong.parse::<JoinToken>(), Err(JoinTokenForm), "{wrong}");
        }
    }

    #[test]
    fn a_server_is_called_by_its_authority() {
        let name = server_name(&"01".repeat(32));
        assert_eq!(name, format!("ca-{}.headway.internal", "01".repeat(16)));
        assert!(name.split('.').all(|label| label.len() <= 63));
    }
}

//! Requests about access tokens.

use headway_types::TokenScope;
use reqwest::Method;

use super::{Client, ClientError, REQUEST_TIME};
use crate::v1::{CreatedToken, Token, TokenList, TokenRequest};

impl Client {
    /// Who the scheduler takes this client for.
    pub async fn whoami(&self) -> Result<Token, ClientError> {
        self.get(&["auth", "whoami"]).await
    }

    /// Tokens that have not been revoked.
    pub async fn tokens(&self) -> Result<Vec<Token>, ClientError> {
        Ok(self.get::<TokenList>(&["auth", "tokens"]).await?.items)
    }

    /// Makes a token that lasts until it is revoked.
    pub async fn create_token(&self, name: &str, scope: TokenScope) -> Result<CreatedToken, ClientError> {
        self.post(&["auth", "tokens"], &TokenRequest { name: name.into(), scope, ttl_s: None }).await
    }

    pub async fn revoke_token(&self, id: &str) -> Result<(), ClientError> {
        self.send(self.request(Method::DELETE, &["auth", "tokens", id]).timeout(REQUEST_TIME)).await.map(drop)
    }
}

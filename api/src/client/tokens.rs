//! Requests about users, access tokens and the audit.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::stream::{Stream, TryStreamExt as _};
use headway_types::TokenScope;
use reqwest::Method;
use serde::Serialize;

use super::{Client, ClientError, REQUEST_TIME};
use crate::v1::{
    AuditHead, AuditList, AuditVerification, CodeLoginRequest, CreatedToken, DeviceLogin, DeviceLoginReply,
    DeviceLoginRequest, Identity, IdentityRequest, LoginProvider, Token, TokenList, TokenRequest, User, UserList,
    UserRequest,
};

impl Client {
    /// Who the scheduler takes this client for.
    pub async fn whoami(&self) -> Result<Token, ClientError> {
        self.get(&["auth", "whoami"]).await
    }

    /// Tokens that have not been revoked: this user's, or all that the caller may see.
    pub async fn tokens(&self, user: Option<&str>) -> Result<Vec<Token>, ClientError> {
        let (mut tokens, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let asked = [("user", user), ("cursor", cursor.as_deref())];
            let page: TokenList = self.read(self.request(Method::GET, &["auth", "tokens"]).query(&asked)).await?;
            tokens.extend(page.items);
            if page.next_cursor.is_none() {
                return Ok(tokens);
            }
            cursor = page.next_cursor;
        }
    }

    pub async fn create_token(&self, request: &TokenRequest) -> Result<CreatedToken, ClientError> {
        self.post(&["auth", "tokens"], request).await
    }

    pub async fn revoke_token(&self, id: &str) -> Result<(), ClientError> {
        self.send(self.request(Method::DELETE, &["auth", "tokens", id]).timeout(REQUEST_TIME)).await.map(drop)
    }

    pub async fn users(&self) -> Result<Vec<User>, ClientError> {
        Ok(self.get::<UserList>(&["users"]).await?.items)
    }

    pub async fn user(&self, name: &str) -> Result<User, ClientError> {
        self.get(&["users", name]).await
    }

    /// Gives a user a role; who is not there is made.
    pub async fn set_user(&self, name: &str, role: TokenScope) -> Result<User, ClientError> {
        self.read(self.request(Method::PUT, &["users", name]).json(&UserRequest { role })).await
    }

    /// Says who a user is at the identity provider.
    pub async fn link_user(&self, name: &str, request: &IdentityRequest) -> Result<Identity, ClientError> {
        self.read(self.request(Method::PUT, &["users", name, "identity"]).json(request)).await
    }

    /// Says that a user is nobody there any more; what was opened through it ends.
    pub async fn unlink_user(&self, name: &str) -> Result<(), ClientError> {
        self.send(self.request(Method::DELETE, &["users", name, "identity"]).timeout(REQUEST_TIME)).await.map(drop)
    }

    /// Through whom people log in; asked and answered without a token, as all that follows.
    pub async fn login_provider(&self) -> Result<LoginProvider, ClientError> {
        self.get(&["auth", "oidc"]).await
    }

    /// Begins a login that somebody confirms in whatever browser.
    pub async fn begin_device_login(&self) -> Result<DeviceLogin, ClientError> {
        self.read(self.request(Method::POST, &["auth", "oidc", "device"])).await
    }

    /// Asks whether it was confirmed.
    pub async fn end_device_login(&self, request: &DeviceLoginRequest) -> Result<DeviceLoginReply, ClientError> {
        self.post(&["auth", "oidc", "device", "token"], request).await
    }

    /// Hands in the code that a browser brought back to this machine.
    pub async fn end_code_login(&self, request: &CodeLoginRequest) -> Result<CreatedToken, ClientError> {
        self.post(&["auth", "oidc", "token"], request).await
    }

    /// Newest first.
    pub async fn audit(&self, query: &AuditQuery) -> Result<AuditList, ClientError> {
        self.read(self.request(Method::GET, &["audit"]).query(query)).await
    }

    /// Where its chain ends.
    pub async fn audit_head(&self) -> Result<AuditHead, ClientError> {
        self.get(&["audit", "head"]).await
    }

    /// Verifies some of it.
    pub async fn verify_audit(&self, query: &VerifyQuery) -> Result<AuditVerification, ClientError> {
        self.read(self.request(Method::GET, &["audit", "verify"]).query(query)).await
    }

    /// All of it that is sealed, as `form` says ("jsonl", "csv"), piece by piece. It is whole when the stream ends without an error.
    pub async fn export_audit(
        &self,
        since: Option<DateTime<Utc>>,
        until: Option<DateTime<Utc>>,
        form: &str,
    ) -> Result<impl Stream<Item = Result<Bytes, ClientError>> + Send + use<>, ClientError> {
        let request = self.request(Method::GET, &["audit", "export"]).query(&[("since", since), ("until", until)]);
        let response = self.send(request.query(&[("form", form)])).await?;
        let url = response.url().origin().ascii_serialization();
        let broke = move |source: reqwest::Error| ClientError::Unreachable { url: url.clone(), source };
        Ok(response.bytes_stream().map_err(broke))
    }
}

/// What of the audit's chain is verified.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VerifyQuery {
    pub since: Option<DateTime<Utc>>,
    /// "ID:HASH".
    pub head: Option<String>,
    pub cursor: Option<String>,
}

/// Which lines of the audit are wanted; what is absent is any.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AuditQuery {
    pub actor: Option<String>,
    pub action: Option<String>,
    pub subject: Option<String>,
    pub result: Option<String>,
    pub since: Option<DateTime<Utc>>,
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

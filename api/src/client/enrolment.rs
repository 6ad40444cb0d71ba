//! Requests about join tokens, nodes' certificates and what signs them.

use reqwest::Method;

use super::{Client, ClientError, REQUEST_TIME};
use crate::v1::{
    CreatedJoinToken, JoinToken, JoinTokenList, JoinTokenRequest, NodeAuthorityList, NodeAuthorityRequest,
    NodeCertificate, NodeCertificateList,
};

impl Client {
    pub async fn create_join_token(&self, request: &JoinTokenRequest) -> Result<CreatedJoinToken, ClientError> {
        self.post(&["join-tokens"], request).await
    }

    /// Those that still admit somebody.
    pub async fn join_tokens(&self) -> Result<Vec<JoinToken>, ClientError> {
        Ok(self.get::<JoinTokenList>(&["join-tokens"]).await?.items)
    }

    pub async fn revoke_join_token(&self, id: &str) -> Result<(), ClientError> {
        self.send(self.request(Method::DELETE, &["join-tokens", id]).timeout(REQUEST_TIME)).await.map(drop)
    }

    pub async fn node_certificates(&self) -> Result<Vec<NodeCertificate>, ClientError> {
        Ok(self.get::<NodeCertificateList>(&["node-certificates"]).await?.items)
    }

    /// Of a node or a fleet, by name or id: what it has opens nothing any more.
    pub async fn revoke_node(&self, node: &str, reason: Option<&str>) -> Result<NodeCertificate, ClientError> {
        let query: Vec<_> = reason.map(|reason| ("reason", reason)).into_iter().collect();
        self.read(self.request(Method::DELETE, &["node-certificates", node]).query(&query)).await
    }

    pub async fn node_authorities(&self) -> Result<NodeAuthorityList, ClientError> {
        self.get(&["node-authorities"]).await
    }

    /// Another authority signs from now on: one that the server makes, or the site's.
    pub async fn replace_node_authority(
        &self,
        site: Option<&NodeAuthorityRequest>,
    ) -> Result<NodeAuthorityList, ClientError> {
        let request = self.request(Method::POST, &["node-authorities"]);
        self.read(match site {
            Some(site) => request.json(site),
            None => request,
        })
        .await
    }

    /// What this authority has signed is believed no more.
    pub async fn retire_node_authority(&self, fingerprint: &str) -> Result<(), ClientError> {
        self.send(self.request(Method::DELETE, &["node-authorities", fingerprint]).timeout(REQUEST_TIME))
            .await
            .map(drop)
    }
}

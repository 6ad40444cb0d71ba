//! Requests about secrets.

use reqwest::Method;

use super::{Client, ClientError, REQUEST_TIME};
use crate::secret;
use crate::v1::{Secret, SecretList, SecretRequest};

impl Client {
    /// One's own, or those of a project; none with its value.
    pub async fn secrets(&self, project: Option<&str>) -> Result<Vec<Secret>, ClientError> {
        let request = self.request(Method::GET, &["secrets"]).query(&[("project", project)]);
        Ok(self.read::<SecretList>(request).await?.items)
    }

    /// Sets a secret of one's own, or of a project, in place of what there may be under that name.
    pub async fn set_secret(
        &self,
        name: &str,
        project: Option<&str>,
        value: secret::Secret,
    ) -> Result<Secret, ClientError> {
        let request = self.request(Method::PUT, &["secrets", name]).query(&[("project", project)]);
        self.read(request.json(&SecretRequest { value })).await
    }

    pub async fn delete_secret(&self, name: &str, project: Option<&str>) -> Result<(), ClientError> {
        let request = self.request(Method::DELETE, &["secrets", name]).query(&[("project", project)]);
        self.send(request.timeout(REQUEST_TIME)).await.map(drop)
    }
}

//! Requests about projects and reservations.

use reqwest::Method;
use reqwest::header::{IF_MATCH, IF_NONE_MATCH};

use super::{Client, ClientError};
use crate::v1::{Project, ProjectList, ProjectRequest, Reservation, ReservationList, ReservationRequest};

impl Client {
    pub async fn projects(&self) -> Result<Vec<Project>, ClientError> {
        Ok(self.get::<ProjectList>(&["projects"]).await?.items)
    }

    pub async fn project(&self, name: &str) -> Result<Project, ClientError> {
        self.get(&["projects", name]).await
    }

    /// Makes a project that is not there yet.
    pub async fn create_project(&self, name: &str, rules: &ProjectRequest) -> Result<Project, ClientError> {
        let request = self.request(Method::PUT, &["projects", name]).header(IF_NONE_MATCH, "*");
        self.read(request.json(rules)).await
    }

    /// Replaces the rules of a project, if it still is at this version.
    pub async fn set_project(&self, name: &str, rules: &ProjectRequest, version: u64) -> Result<Project, ClientError> {
        let request = self.request(Method::PUT, &["projects", name]).header(IF_MATCH, format!("\"{version}\""));
        self.read(request.json(rules)).await
    }

    /// Its jobs go on, bound by nothing.
    pub async fn delete_project(&self, name: &str) -> Result<Project, ClientError> {
        self.read(self.request(Method::DELETE, &["projects", name])).await
    }

    /// Reservations that are not over.
    pub async fn reservations(&self) -> Result<Vec<Reservation>, ClientError> {
        Ok(self.get::<ReservationList>(&["reservations"]).await?.items)
    }

    pub async fn reserve(&self, request: &ReservationRequest) -> Result<Reservation, ClientError> {
        self.post(&["reservations"], request).await
    }

    /// Ends a reservation, or takes it back before it begins.
    pub async fn cancel_reservation(&self, id: &str) -> Result<Reservation, ClientError> {
        self.read(self.request(Method::DELETE, &["reservations", id])).await
    }
}

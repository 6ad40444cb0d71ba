//! Requests about projects and reservations.

use reqwest::Method;
use reqwest::header::{IF_MATCH, IF_NONE_MATCH};

use super::{Client, ClientError};
use crate::v1::{
    Member, MemberList, MemberRequest, Project, ProjectList, ProjectPatch, ProjectRequest, ProjectRole, Reservation,
    ReservationList, ReservationRequest,
};

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

    /// Whether only members see that its jobs exist.
    pub async fn set_private(&self, name: &str, private: bool) -> Result<Project, ClientError> {
        let patch = ProjectPatch { private: Some(private) };
        self.read(self.request(Method::PATCH, &["projects", name]).json(&patch)).await
    }

    /// Those of what it is part of included.
    pub async fn members(&self, project: &str) -> Result<Vec<Member>, ClientError> {
        Ok(self.get::<MemberList>(&["projects", project, "members"]).await?.items)
    }

    pub async fn set_member(&self, project: &str, user: &str, role: ProjectRole) -> Result<Project, ClientError> {
        let request = self.request(Method::PUT, &["projects", project, "members", user]);
        self.read(request.json(&MemberRequest { role })).await
    }

    pub async fn remove_member(&self, project: &str, user: &str) -> Result<Project, ClientError> {
        self.read(self.request(Method::DELETE, &["projects", project, "members", user])).await
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

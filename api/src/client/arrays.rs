//! Requests about arrays.

use reqwest::Method;

use super::{Client, ClientError};
use crate::v1::{Array, ArrayDetail, ArrayDone, ArrayList, ArrayPatch, CancelRequest, Job, ReasonRequest};

const ARRAYS_PER_PAGE: u32 = 500;
const ELEMENTS_PER_PAGE: u32 = 1_000;

/// Which arrays to list. Absent fields do not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArrayQuery {
    pub project: Option<String>,
    /// Owner.
    pub user: Option<String>,
    /// The whole name.
    pub name: Option<String>,
    /// The beginning or the end of the id.
    pub id: Option<String>,
    /// Part of the name.
    pub name_contains: Option<String>,
    /// Of which an element has not ended, or none.
    pub live: Option<bool>,
}

impl Client {
    /// Every array that the query admits, the newest first.
    pub async fn arrays(&self, query: &ArrayQuery) -> Result<Vec<Array>, ClientError> {
        let (mut arrays, mut cursor) = (Vec::new(), None);
        loop {
            let asked = [
                ("project", query.project.clone()),
                ("user", query.user.clone()),
                ("name", query.name.clone()),
                ("id", query.id.clone()),
                ("q", query.name_contains.clone()),
                ("live", query.live.map(|live| live.to_string())),
                ("limit", Some(ARRAYS_PER_PAGE.to_string())),
                ("cursor", cursor),
            ];
            let asked: Vec<(&str, String)> =
                asked.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
            let page: ArrayList = self.read(self.request(Method::GET, &["arrays"]).query(&asked)).await?;
            arrays.extend(page.items);
            if page.next_cursor.is_none() {
                return Ok(arrays);
            }
            cursor = page.next_cursor;
        }
    }

    /// An array with all its elements.
    pub async fn array(&self, id: &str) -> Result<ArrayDetail, ClientError> {
        let page = |cursor: Option<String>| {
            let limit = ("limit", ELEMENTS_PER_PAGE.to_string());
            let asked: Vec<(&str, String)> =
                std::iter::once(limit).chain(cursor.map(|cursor| ("cursor", cursor))).collect();
            self.read::<ArrayDetail>(self.request(Method::GET, &["arrays", id]).query(&asked))
        };
        let mut whole = page(None).await?;
        while let Some(cursor) = whole.next_cursor.take() {
            let next = page(Some(cursor)).await?;
            let elements: Vec<Job> = std::mem::take(&mut whole.elements).into_iter().chain(next.elements).collect();
            whole = ArrayDetail { elements, next_cursor: next.next_cursor, ..whole };
        }
        Ok(whole)
    }

    /// Changes how many elements may run at once; `None`: all.
    pub async fn update_array(&self, id: &str, parallel: Option<u32>) -> Result<ArrayDone, ClientError> {
        self.read(self.request(Method::PATCH, &["arrays", id]).json(&ArrayPatch { parallel })).await
    }

    /// Ends all elements that have not.
    pub async fn cancel_array(&self, id: &str, body: &CancelRequest) -> Result<ArrayDone, ClientError> {
        self.post(&["arrays", id, "cancel"], body).await
    }

    pub async fn hold_array(&self, id: &str, reason: Option<&str>) -> Result<ArrayDone, ClientError> {
        self.post(&["arrays", id, "hold"], &ReasonRequest { reason: reason.map(str::to_owned) }).await
    }

    pub async fn release_array(&self, id: &str) -> Result<ArrayDone, ClientError> {
        self.read(self.request(Method::POST, &["arrays", id, "release"])).await
    }
}

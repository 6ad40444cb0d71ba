//! A reply as people and scripts get it. It is made of the engine's reply and of the snapshot that shows what was done, and of
//! nothing else.

use std::fmt;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headway_engine::{Reply, View};
use serde::{Deserialize, Serialize};
use serde_json::Value;

type How = dyn Fn(&Reply, &View) -> Option<Shown> + Send + Sync;

/// How the reply to a request is shown.
#[derive(Clone)]
pub struct Show(Arc<How>);

impl Show {
    pub fn new(how: impl Fn(&Reply, &View) -> Option<Shown> + Send + Sync + 'static) -> Self {
        Self(Arc::new(how))
    }

    /// `None`: it is of a kind the engine does not give to such a request.
    pub fn of(&self, reply: &Reply, view: &View) -> Option<Shown> {
        (self.0)(reply, view)
    }
}

impl fmt::Debug for Show {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Show")
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    status: u16,
    headers: Vec<(String, String)>,
    /// JSON.
    pub body: String,
}

/// A reply that is larger is not kept: more than a thousand jobs take.
const KEPT_BYTES: usize = 4 * 1024 * 1024;

impl Shown {
    /// As it is kept for whoever repeats the request.
    pub fn kept(&self) -> Option<String> {
        let text = serde_json::to_string(self).ok().filter(|text| text.len() <= KEPT_BYTES);
        if text.is_none() {
            tracing::warn!(bytes = self.body.len(), "a reply is too large to be kept for a repetition");
        }
        text
    }

    pub fn of_kept(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub fn new(status: StatusCode, body: &impl Serialize) -> Self {
        let body = serde_json::to_string(body).expect("wire types are plain JSON");
        Self { status: status.as_u16(), headers: Vec::new(), body }
    }

    pub fn with(mut self, name: HeaderName, value: String) -> Self {
        self.headers.push((name.as_str().to_owned(), value));
        self
    }

    /// With a further member of the body.
    pub fn and(mut self, member: &str, value: &impl Serialize) -> Self {
        if let (Ok(Value::Object(mut body)), Ok(value)) =
            (serde_json::from_str(&self.body), serde_json::to_value(value))
        {
            body.insert(member.to_owned(), value);
            self.body = Value::Object(body).to_string();
        }
        self
    }

    /// What would be: it has no version and no place.
    pub fn supposed(self) -> Self {
        Self { status: StatusCode::OK.as_u16(), headers: Vec::new(), body: self.body }
    }
}

impl IntoResponse for Shown {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::OK);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in self.headers {
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(&value)) {
                headers.insert(name, value);
            }
        }
        response
    }
}

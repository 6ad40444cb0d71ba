//! The live stream: server-sent events (WHATWG HTML, §9.2), as far as the scheduler uses them.

use std::collections::VecDeque;

use futures::stream::{BoxStream, Stream, StreamExt, try_unfold};
use reqwest::{Method, RequestBuilder};
use serde::de::DeserializeOwned;

use super::{Client, ClientError};
use crate::v1::StreamMessage;

/// A message longer than this is no message of ours.
const LONGEST: usize = 16 << 20;

/// One message and the point to resume after it.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamItem {
    /// Sequence number of the last event of the log seen so far.
    pub seq: Option<u64>,
    pub message: StreamMessage,
}

impl Client {
    /// Follows what happens until the connection ends. `topics`: jobs, nodes, plans, events; none means all. `since`:
    /// the `seq` to resume after.
    pub async fn stream(
        &self,
        topics: &[&str],
        since: Option<u64>,
    ) -> Result<impl Stream<Item = Result<StreamItem, ClientError>> + Send + use<>, ClientError> {
        self.follow(self.request(Method::GET, &["stream"]), topics, since).await
    }

    /// The same with rows told once and then only what has changed of them (`JobPatch`, `NodePatch`).
    pub async fn stream_patches(
        &self,
        topics: &[&str],
        since: Option<u64>,
    ) -> Result<impl Stream<Item = Result<StreamItem, ClientError>> + Send + use<>, ClientError> {
        let request = self.request(Method::GET, &["stream"]).query(&[("patch", true)]);
        self.follow(request, topics, since).await
    }

    async fn follow(
        &self,
        mut request: RequestBuilder,
        topics: &[&str],
        since: Option<u64>,
    ) -> Result<impl Stream<Item = Result<StreamItem, ClientError>> + Send + use<>, ClientError> {
        if !topics.is_empty() {
            request = request.query(&[("topics", topics.join(","))]);
        }
        if let Some(seq) = since {
            request = request.header("Last-Event-ID", seq);
        }
        let response = self.send(request).await?;
        let url = response.url().to_string();
        let reader = Reader {
            url,
            chunks: response.bytes_stream().boxed(),
            parser: Parser { seq: since, ..Parser::default() },
            ready: VecDeque::new(),
        };
        Ok(try_unfold(reader, |mut reader| async move { Ok(reader.next().await?.map(|item| (item, reader))) }))
    }
}

struct Reader {
    url: String,
    chunks: BoxStream<'static, reqwest::Result<bytes::Bytes>>,
    parser: Parser,
    ready: VecDeque<StreamItem>,
}

impl Reader {
    async fn next(&mut self) -> Result<Option<StreamItem>, ClientError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            let Some(chunk) = self.chunks.next().await else { return Ok(None) };
            let chunk = chunk.map_err(|source| ClientError::Unreachable { url: self.url.clone(), source })?;
            let items = self.parser.push(&chunk);
            self.ready.extend(items.map_err(|message| ClientError::BadReply { url: self.url.clone(), message })?);
        }
    }
}

/// Bytes in, messages out; knows nothing of connections.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// The line that is not complete yet.
    line: Vec<u8>,
    event: String,
    data: String,
    seq: Option<u64>,
}

impl Parser {
    pub(super) fn push(&mut self, chunk: &[u8]) -> Result<Vec<StreamItem>, String> {
        let mut items = Vec::new();
        for byte in chunk {
            if *byte != b'\n' {
                self.line.push(*byte);
                if self.line.len() > LONGEST {
                    return Err("a line without end".into());
                }
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let line = String::from_utf8(line).map_err(|error| error.to_string())?;
            match line.strip_suffix('\r').unwrap_or(&line) {
                "" => items.extend(self.dispatch()?),
                line => self.field(line),
            }
        }
        Ok(items)
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => self.event = value.to_owned(),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            "id" => self.seq = value.parse().ok().or(self.seq),
            // A comment (the heartbeat), or a field of a newer server.
            _ => {}
        }
    }

    fn dispatch(&mut self) -> Result<Option<StreamItem>, String> {
        let (event, data) = (std::mem::take(&mut self.event), std::mem::take(&mut self.data));
        let message = match event.as_str() {
            "job" => StreamMessage::Job(read(&data)?),
            "job_patch" => StreamMessage::JobPatch(*read(&data)?),
            "node" => StreamMessage::Node(read(&data)?),
            "node_patch" => StreamMessage::NodePatch(*read(&data)?),
            "node_gone" => StreamMessage::NodeGone(*read(&data)?),
            "plan" => StreamMessage::Plan(read(&data)?),
            "event" => StreamMessage::Event(read(&data)?),
            "reset" => StreamMessage::Reset,
            "not_leading" => StreamMessage::NotLeading(*read(&data)?),
            // Nothing was sent, or something newer than this client.
            _ => return Ok(None),
        };
        Ok(Some(StreamItem { seq: self.seq, message }))
    }
}

fn read<T: DeserializeOwned>(data: &str) -> Result<Box<T>, String> {
    serde_json::from_str(data).map(Box::new).map_err(|error| error.to_string())
}

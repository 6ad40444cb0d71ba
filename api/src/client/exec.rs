//! Commands beside a rank: started by one request, whose reply is written while they run.

use bytes::{Buf, BytesMut};
use futures::stream::{BoxStream, Stream, StreamExt, try_unfold};
use reqwest::Method;

use super::{Client, ClientError};
use crate::v1::{ExecCommand, ExecLine};

/// A line longer than this is no line of ours.
const LONGEST: usize = 1 << 20;

impl Client {
    /// Runs a command beside a rank of a running job. It goes on for as long as the lines are read.
    pub async fn exec(
        &self,
        id: &str,
        command: &ExecCommand,
    ) -> Result<impl Stream<Item = Result<ExecLine, ClientError>> + Send + use<>, ClientError> {
        let response = self.send(self.request(Method::POST, &["jobs", id, "exec"]).json(command)).await?;
        let url = response.url().to_string();
        let reader = Reader { url, chunks: response.bytes_stream().boxed(), read: BytesMut::new() };
        Ok(try_unfold(reader, |mut reader| async move { Ok(reader.next().await?.map(|line| (line, reader))) }))
    }
}

struct Reader {
    url: String,
    chunks: BoxStream<'static, reqwest::Result<bytes::Bytes>>,
    read: BytesMut,
}

impl Reader {
    async fn next(&mut self) -> Result<Option<ExecLine>, ClientError> {
        loop {
            if let Some(at) = self.read.iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(at);
                self.read.advance(1);
                return serde_json::from_slice(&line).map(Some).map_err(|error| self.bad(error.to_string()));
            }
            if self.read.len() > LONGEST {
                return Err(self.bad("a line has no end".into()));
            }
            let Some(chunk) = self.chunks.next().await else { return Ok(None) };
            let chunk = chunk.map_err(|source| ClientError::Unreachable { url: self.url.clone(), source })?;
            self.read.extend_from_slice(&chunk);
        }
    }

    fn bad(&self, message: String) -> ClientError {
        ClientError::BadReply { url: self.url.clone(), message }
    }
}

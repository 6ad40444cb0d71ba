//! Follows the scheduler for `headway top`: everything once, then the stream from there; where it breaks, the same again a little later, from the last event heard.

use std::time::Duration;

use futures::StreamExt as _;
use headway_api::client::{Client, ClientError, JobFilter, StreamItem};
use headway_api::v1::{Job, Overview};
use tokio::sync::mpsc::Sender;

use super::state::{OutOfStep, State};

/// The cluster's figures are no part of the stream.
const FIGURES_EVERY: Duration = Duration::from_secs(3);
/// A scheduler that answers later is as good as away.
const PATIENCE: Duration = Duration::from_secs(5);
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// More than anybody scrolls through; others come as they change.
const JOBS_AT_MOST: usize = 2_000;
const JOBS_PER_PAGE: u32 = 500;

/// What the loop takes in.
pub enum News {
    All(Box<(Overview, Vec<Job>)>),
    Figures(Box<Overview>),
    Heard(Box<StreamItem>),
    Lost(String),
}

impl News {
    pub fn apply(self, state: &mut State) -> Result<(), OutOfStep> {
        match self {
            Self::All(all) => state.fetched(all.0, all.1),
            Self::Figures(overview) => state.figures(*overview),
            Self::Heard(item) => state.heard(item.message)?,
            Self::Lost(why) => state.lost(why),
        }
        Ok(())
    }
}

/// Until nobody listens any more.
pub async fn follow(client: Client, told: Sender<News>) {
    let (mut last, mut wait) = (None, FIRST_WAIT);
    loop {
        let Err(error) = session(&client, &told, &mut last, &mut wait).await else { return };
        if told.send(News::Lost(error)).await.is_err() {
            return;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// One connection; ends well where nobody listens. `last`: the newest event heard.
async fn session(
    client: &Client,
    told: &Sender<News>,
    last: &mut Option<u64>,
    wait: &mut Duration,
) -> Result<(), String> {
    let in_words = |error: ClientError| error.to_string();
    let overview = client.overview().await.map_err(in_words)?;
    let jobs = jobs(client).await.map_err(in_words)?;
    let since = last.unwrap_or(overview.seq);
    if told.send(News::All(Box::new((overview, jobs)))).await.is_err() {
        return Ok(());
    }
    let stream = client.stream_patches(&["jobs", "events"], Some(since)).await.map_err(in_words)?;
    let mut stream = std::pin::pin!(stream);
    *wait = FIRST_WAIT;
    let mut figures = tokio::time::interval(FIGURES_EVERY);
    figures.tick().await;
    loop {
        let news = tokio::select! {
            item = stream.next() => {
                let item = item.ok_or("the stream has ended")?.map_err(in_words)?;
                *last = item.seq.or(*last);
                if item.message == headway_api::v1::StreamMessage::Reset {
                    *last = None;
                    return Err("too far behind; everything is fetched again".into());
                }
                News::Heard(Box::new(item))
            }
            _ = figures.tick() => {
                // The stream says nothing of a scheduler that hangs.
                let overview = tokio::time::timeout(PATIENCE, client.overview()).await;
                let overview = overview.map_err(|_| format!("no reply within {} s", PATIENCE.as_secs()))?;
                News::Figures(Box::new(overview.map_err(in_words)?))
            }
        };
        if told.send(news).await.is_err() {
            return Ok(());
        }
    }
}

/// Those that have not ended, the newest first.
async fn jobs(client: &Client) -> Result<Vec<Job>, ClientError> {
    let mut filter = JobFilter { states: vec!["live".into()], limit: Some(JOBS_PER_PAGE), ..JobFilter::default() };
    let mut jobs = Vec::new();
    loop {
        let page = client.jobs(&filter).await?;
        jobs.extend(page.items);
        if page.next_cursor.is_none() || jobs.len() >= JOBS_AT_MOST {
            return Ok(jobs);
        }
        filter.cursor = page.next_cursor;
    }
}

//! Follows the scheduler for `headway top`: everything once, then the stream from there; where it breaks, the same again a little later, from the last event heard.
//! Whatever it is that breaks, also what comes and does not fit: everything is fetched ever more rarely until it has held for a while.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use headway_api::client::{Client, ClientError, JobFilter, StreamItem};
use headway_api::v1::{Job, Overview};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinHandle;

use super::state::{OutOfStep, State};

/// The cluster's figures are no part of the stream.
const FIGURES_EVERY: Duration = Duration::from_secs(3);
/// A scheduler that answers later is as good as away.
const PATIENCE: Duration = Duration::from_secs(5);
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// After as long what was fetched has held.
const HELD: Duration = Duration::from_secs(30);
const NEWS: usize = 256;
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

/// How long to wait before everything is fetched again: twice as long each time, until what was fetched has held.
#[derive(Debug)]
struct Patience {
    wait: Duration,
    fetched: Option<Instant>,
}

impl Patience {
    fn fresh() -> Self {
        Self { wait: FIRST_WAIT, fetched: None }
    }

    fn fetched(&mut self, now: Instant) {
        self.fetched = Some(now);
    }

    /// From now, when it has broken.
    fn next(&mut self, now: Instant) -> Duration {
        if self.fetched.take().is_some_and(|at| now - at >= HELD) {
            self.wait = FIRST_WAIT;
        }
        let wait = self.wait;
        self.wait = (wait * 2).min(LONGEST_WAIT);
        wait
    }
}

/// What comes of the scheduler, until this is dropped.
pub struct Feed {
    client: Client,
    news: Receiver<News>,
    following: JoinHandle<()>,
    patience: Patience,
}

impl Feed {
    pub fn open(client: &Client) -> Self {
        let (news, following) = begin(client, Duration::ZERO);
        Self { client: client.clone(), news, following, patience: Patience::fresh() }
    }

    pub async fn next(&mut self) -> Option<News> {
        let news = self.news.recv().await;
        if let Some(News::All(_)) = news {
            self.patience.fetched(Instant::now());
        }
        news
    }

    /// What has come does not fit: what was heard so far is forgotten, and after a while everything is fetched anew.
    pub fn reopen(&mut self) {
        self.following.abort();
        let wait = self.patience.next(Instant::now());
        (self.news, self.following) = begin(&self.client, wait);
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.following.abort();
    }
}

fn begin(client: &Client, wait: Duration) -> (Receiver<News>, JoinHandle<()>) {
    let (told, news) = mpsc::channel(NEWS);
    let client = client.clone();
    let following = tokio::spawn(async move {
        tokio::time::sleep(wait).await;
        follow(&client, &told).await;
    });
    (news, following)
}

/// Until nobody listens any more.
async fn follow(client: &Client, told: &Sender<News>) {
    let (mut last, mut patience) = (None, Patience::fresh());
    loop {
        let Err(error) = session(client, told, &mut last, &mut patience).await else { return };
        if told.send(News::Lost(error)).await.is_err() {
            return;
        }
        tokio::time::sleep(patience.next(Instant::now())).await;
    }
}

/// One connection; ends well where nobody listens. `last`: the newest event heard.
async fn session(
    client: &Client,
    told: &Sender<News>,
    last: &mut Option<u64>,
    patience: &mut Patience,
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
    patience.fetched(Instant::now());
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn everything_is_fetched_ever_more_rarely_until_it_has_held() {
        let (mut patience, mut now) = (Patience::fresh(), Instant::now());
        let mut breaks_after = |held: f64| {
            patience.fetched(now);
            now += Duration::from_secs_f64(held);
            patience.next(now).as_secs_f64()
        };
        let waits = [0.0, 0.1, 3.0, 0.0, 0.0, 29.0, 31.0, 0.0].map(&mut breaks_after);
        assert_eq!(waits, [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 0.5, 1.0]);
    }

    #[tokio::test]
    async fn what_was_heard_before_it_is_reopened_is_forgotten() {
        let nobody = Client::new("http://127.0.0.1:1", "t").unwrap();
        let mut feed = Feed::open(&nobody);
        let (told, news) = mpsc::channel(NEWS);
        feed.news = news;
        told.send(News::Lost("heard before".into())).await.unwrap();
        feed.reopen();
        assert!(told.is_closed(), "nothing of it is listened to any more");
        let next = tokio::time::timeout(Duration::from_secs(60), feed.next()).await.unwrap();
        assert!(matches!(next, Some(News::Lost(why)) if why != "heard before"));
    }
}

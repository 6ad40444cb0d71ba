//! Draws the veil over whatever goes out to those who may not know of all jobs. Whoever may (admins, operators, everybody of a cluster without private projects) gets
//! replies as they are. What is known of names is kept from one reply to the next and follows the snapshot by what has changed in it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
use headway_engine::record::{Openness, Project};
use headway_engine::view::{JobView, View};
use headway_types::JobId;
use headway_types::spec::family_name;
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use serde_json::Value;
use uuid::Uuid;

use super::veil;
use crate::cluster::Cluster;
use crate::http::auth::Principal;
use crate::http::problem::Problem;
use crate::store::{OutOfSight, StoreError};

/// Replies to restricted readers are held whole for a moment; plans of the largest clusters have a few MiB.
const LARGEST: usize = 64 * 1024 * 1024;
/// What is larger is no work for a thread that answers others meanwhile.
const AT_ONCE: usize = 64 * 1024;
/// Names are read again after so long.
const READ_AGAIN: Duration = Duration::from_secs(3_600);
/// Jobs that have ended of which it is remembered whose they are.
const ENDED_AT_MOST: usize = 65_536;

/// What replies are veiled by; one for the process.
#[derive(Default)]
pub struct Veils {
    names: RwLock<Option<Names>>,
    /// Names are read by one at a time.
    reading: tokio::sync::Mutex<()>,
    ended: Mutex<BTreeMap<Uuid, Option<Whose>>>,
}

/// Project and owner.
type Whose = (Arc<str>, Arc<str>);

/// The names of all jobs of private projects, whoever may see them; elements go by the name of their array. Names of
/// jobs that were pruned since go when all are read again.
struct Names {
    private: BTreeSet<String>,
    read_at: Instant,
    /// As far as they follow the snapshot.
    view: Arc<View>,
    whose: Arc<HashMap<String, BTreeSet<Whose>>>,
}

impl Names {
    /// Takes in the jobs that were submitted since.
    fn follow(&mut self, view: Arc<View>) {
        let changed = self.view.jobs.diff(&view.jobs).filter_map(|change| match change {
            DiffItem::Add(_, live) | DiffItem::Update { new: (_, live), .. } => Some(live),
            DiffItem::Remove(..) => None,
        });
        let new: Vec<&JobView> = changed.map(|live| &**live).filter(|live| self.lacks(live)).collect();
        if !new.is_empty() {
            let whose = Arc::make_mut(&mut self.whose);
            for live in new {
                let job = &live.job;
                let of = (job.spec.project.as_str().into(), job.owner.as_str().into());
                whose.entry(family_name(&job.spec.name).to_owned()).or_default().insert(of);
            }
        }
        self.view = view;
    }

    fn lacks(&self, live: &JobView) -> bool {
        let (spec, owner) = (&live.job.spec, live.job.owner.as_str());
        let same = |(project, of): &Whose| **project == *spec.project && **of == *owner;
        self.private.contains(&spec.project)
            && !self.whose.get(family_name(&spec.name)).is_some_and(|known| known.iter().any(same))
    }
}

/// What one reader may not know of, for one reply.
struct Reader {
    out_of_sight: OutOfSight,
    view: Arc<View>,
    ended: BTreeMap<Uuid, Whose>,
    names: Arc<HashMap<String, BTreeSet<Whose>>>,
    /// What the reader has written, in small letters: that a refusal echoes it tells nothing.
    brought: String,
}

impl veil::Hidden for Reader {
    fn hides_id(&self, id: &Uuid) -> bool {
        let forms = || [id.hyphenated().to_string(), id.simple().to_string()];
        if !self.brought.is_empty() && forms().iter().any(|form| self.brought.contains(form)) {
            return false;
        }
        match self.view.jobs.get(&JobId(*id)) {
            Some(live) => self.out_of_sight.hides(&live.job.spec.project, &live.job.owner),
            None => self.ended.get(id).is_some_and(|(project, owner)| self.out_of_sight.hides(project, owner)),
        }
    }

    fn hides_name(&self, word: &str) -> bool {
        let whose = self.names.get(word).filter(|_| !self.brought.contains(&word.to_ascii_lowercase()));
        whose.is_some_and(|whose| whose.iter().all(|(project, owner)| self.out_of_sight.hides(project, owner)))
    }
}

impl Veils {
    /// Whether somebody may not know of a job, live or ended.
    pub async fn hides(&self, cluster: &Cluster, out_of_sight: &OutOfSight, job: JobId) -> Result<bool, StoreError> {
        if let Some(live) = cluster.view().jobs.get(&job) {
            return Ok(out_of_sight.hides(&live.job.spec.project, &live.job.owner));
        }
        let ended = self.ended(cluster, std::iter::once(job.0)).await?;
        Ok(ended.values().any(|(project, owner)| out_of_sight.hides(project, owner)))
    }

    /// Those of some jobs, live or ended, that somebody may not know of: one query at most.
    pub async fn hidden_of(
        &self,
        cluster: &Cluster,
        out_of_sight: &OutOfSight,
        jobs: BTreeSet<JobId>,
    ) -> Result<BTreeSet<JobId>, StoreError> {
        let view = cluster.view();
        let (live, ended): (Vec<JobId>, Vec<JobId>) = jobs.into_iter().partition(|job| view.jobs.contains_key(job));
        let whose = |job: &JobId| view.jobs.get(job).map(|live| &live.job);
        let hides = |job: &JobId| whose(job).is_some_and(|job| out_of_sight.hides(&job.spec.project, &job.owner));
        let ended = self.ended(cluster, ended.into_iter().map(|job| job.0)).await?;
        let hidden = ended.into_iter().filter(|(_, (project, owner))| out_of_sight.hides(project, owner));
        Ok(live.into_iter().filter(hides).chain(hidden.map(|(job, _)| JobId(job))).collect())
    }

    /// A text of JSON as its reader may have it.
    async fn drawn(
        &self,
        cluster: &Cluster,
        out_of_sight: OutOfSight,
        brought: String,
        text: Bytes,
    ) -> Result<Bytes, StoreError> {
        let view = cluster.view();
        let names = self.names(cluster, &view).await?;
        let Ok(plain) = std::str::from_utf8(&text) else { return Ok(text) };
        // A problem names what was asked for. It must take as long whether that is a hidden job or nothing at all.
        let is_problem = !brought.is_empty();
        let unknown = |id: &Uuid| is_problem || !view.jobs.contains_key(&JobId(*id));
        let ended = self.ended(cluster, veil::ids(plain).filter(unknown)).await?;
        let reader = Reader { out_of_sight, view, ended, names, brought };
        let at_once = text.len() <= AT_ONCE;
        let draw = move || {
            let plain = std::str::from_utf8(&text).unwrap_or_default();
            if !veil::concerns(plain, &reader) {
                return text;
            }
            match serde_json::from_slice::<Value>(&text) {
                Ok(value) => veil::drawn(value, &reader).to_string().into(),
                Err(_) => Bytes::new(),
            }
        };
        Ok(if at_once { draw() } else { tokio::task::spawn_blocking(draw).await.expect("the veil panics nowhere") })
    }

    async fn names(
        &self,
        cluster: &Cluster,
        view: &Arc<View>,
    ) -> Result<Arc<HashMap<String, BTreeSet<Whose>>>, StoreError> {
        let private: BTreeSet<String> =
            view.projects.keys().filter(|project| view.openness(project) == Openness::Private).cloned().collect();
        if let Some(names) = self.kept(&private, view) {
            return Ok(names);
        }
        let _turn = self.reading.lock().await;
        if let Some(names) = self.kept(&private, view) {
            return Ok(names);
        }
        let mut whose: HashMap<String, BTreeSet<Whose>> = HashMap::new();
        for (name, project, owner) in cluster.store().names_in(&private).await? {
            whose.entry(family_name(&name).to_owned()).or_default().insert((project.into(), owner.into()));
        }
        // The store has what was committed; the snapshot may be younger.
        let before = Arc::new(View { jobs: Default::default(), ..(**view).clone() });
        let mut names = Names { private, read_at: Instant::now(), view: before, whose: Arc::new(whose) };
        names.follow(Arc::clone(view));
        let whose = Arc::clone(&names.whose);
        *self.names.write().unwrap_or_else(PoisonError::into_inner) = Some(names);
        Ok(whose)
    }

    fn kept(&self, private: &BTreeSet<String>, view: &Arc<View>) -> Option<Arc<HashMap<String, BTreeSet<Whose>>>> {
        let current = |names: &Names| names.private == *private && names.read_at.elapsed() < READ_AGAIN;
        if let Some(names) = &*self.names.read().unwrap_or_else(PoisonError::into_inner)
            && current(names)
            && Arc::ptr_eq(&names.view, view)
        {
            return Some(Arc::clone(&names.whose));
        }
        let mut kept = self.names.write().unwrap_or_else(PoisonError::into_inner);
        let names = kept.as_mut().filter(|names| current(names))?;
        names.follow(Arc::clone(view));
        Some(Arc::clone(&names.whose))
    }

    /// Whose the jobs among these ids are, of those that have ended.
    async fn ended(
        &self,
        cluster: &Cluster,
        ids: impl Iterator<Item = Uuid>,
    ) -> Result<BTreeMap<Uuid, Whose>, StoreError> {
        let (mut found, mut unknown) = (BTreeMap::new(), Vec::new());
        {
            let known = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            for id in ids {
                match known.get(&id) {
                    Some(whose) => found.extend(whose.clone().map(|whose| (id, whose))),
                    None => unknown.push(JobId(id)),
                }
            }
        }
        let read = cluster.store().jobs_whose(&unknown).await?;
        let read = read.into_iter().map(|(id, (project, owner))| (id.0, (project.into(), owner.into())));
        let read: BTreeMap<Uuid, Whose> = read.collect();
        let mut known = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() + unknown.len() > ENDED_AT_MOST {
            known.clear();
        }
        known.extend(unknown.into_iter().map(|id| (id.0, read.get(&id.0).cloned())));
        found.extend(read);
        Ok(found)
    }
}

/// What a reply is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Media {
    Json,
    Problem,
    Events,
    /// Logs, tables of usage: what is told in them is the reader's to know.
    Other,
}

impl Media {
    fn of(response: &Response) -> Self {
        let told = response.headers().get(header::CONTENT_TYPE).map_or(&b""[..], |told| told.as_bytes());
        match told {
            _ if told.starts_with(b"application/json") => Self::Json,
            _ if told.starts_with(b"application/problem+json") => Self::Problem,
            _ if told.starts_with(b"text/event-stream") => Self::Events,
            _ => Self::Other,
        }
    }
}

/// The reply as this reader may have it.
pub async fn veiled(
    response: Response,
    veils: Arc<Veils>,
    cluster: Cluster,
    reader: Principal,
    brought: String,
) -> Response {
    let media = Media::of(&response);
    if media == Media::Events {
        return response.map(|body| Body::from_stream(lines(body, veils, cluster, reader)));
    }
    let Some(out_of_sight) = reader.out_of_sight(&cluster.view()) else { return response };
    let brought = match media {
        Media::Problem => brought,
        Media::Json => String::new(),
        Media::Events | Media::Other => return response,
    };
    let (mut head, body) = response.into_parts();
    let Ok(text) = to_bytes(body, LARGEST).await else { return Problem::internal().into_response() };
    match veils.drawn(&cluster, out_of_sight, brought, text).await {
        Ok(text) => {
            head.headers.remove(header::CONTENT_LENGTH);
            Response::from_parts(head, Body::from(text))
        }
        Err(error) => Problem::from(error).into_response(),
    }
}

/// What a reader may not know of, found out anew when the projects have changed.
#[derive(Default)]
struct Sight(Option<(Projects, Option<OutOfSight>)>);

type Projects = OrdMap<String, Arc<Project>>;

impl Sight {
    fn of(&mut self, reader: &Principal, view: &View) -> Option<&OutOfSight> {
        let current = self.0.as_ref().is_some_and(|(projects, _)| projects.ptr_eq(&view.projects));
        if !current {
            self.0 = Some((view.projects.clone(), reader.out_of_sight(view)));
        }
        self.0.as_ref()?.1.as_ref()
    }
}

/// Server-sent events, line by line. Where a line cannot be veiled, since the store does not answer, the stream ends: its reader
/// begins anew.
fn lines(
    body: Body,
    veils: Arc<Veils>,
    cluster: Cluster,
    reader: Principal,
) -> impl Stream<Item = Result<Bytes, axum::Error>> {
    let mut body = body.into_data_stream();
    async_stream::try_stream! {
        let (mut rest, mut sight) = (BytesMut::new(), Sight::default());
        while let Some(piece) = body.next().await {
            let piece = piece?;
            let view = cluster.view();
            let Some(out_of_sight) = sight.of(&reader, &view) else {
                let told = if rest.is_empty() { piece } else { [std::mem::take(&mut rest).freeze(), piece].concat().into() };
                yield told;
                continue;
            };
            rest.extend_from_slice(&piece);
            let Some(last) = rest.iter().rposition(|byte| *byte == b'\n') else { continue };
            let whole = rest.split_to(last + 1).freeze();
            let mut told = BytesMut::with_capacity(whole.len());
            for line in whole.split_inclusive(|byte| *byte == b'\n') {
                match line.strip_prefix(b"data: ") {
                    None => told.extend_from_slice(line),
                    Some(data) => {
                        let data = whole.slice_ref(data.strip_suffix(b"\n").unwrap_or(data));
                        let data = veils.drawn(&cluster, out_of_sight.clone(), String::new(), data).await;
                        told.extend_from_slice(b"data: ");
                        told.extend_from_slice(&data.map_err(axum::Error::new)?);
                        told.extend_from_slice(b"\n");
                    }
                }
            }
            yield told.freeze();
        }
    }
}

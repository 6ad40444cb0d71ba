//! Every metric Headway exports, declared with its help text, and the gauges that are read off the snapshot at each
//! scrape. Labels come from enums and route patterns, never from job, node or user names.

use std::collections::BTreeMap;
use std::time::Duration;

use headway_engine::record::Availability;
use headway_engine::view::View;
use headway_types::{AvailabilityKind, GpuHealth, JobStateKind, Seconds};
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use strum::VariantArray;

use crate::store::Unsealed;

const HTTP_REQUESTS: &str = "headway_http_requests_total";
const HTTP_DURATION: &str = "headway_http_request_duration_seconds";
const HTTP_STREAMS: &str = "headway_http_streams";
const LOOP_COMMAND: &str = "headway_loop_event_to_command_seconds";
const CLUSTER_JOBS: &str = "headway_cluster_jobs";
const CLUSTER_NODES: &str = "headway_cluster_nodes";
const CLUSTER_GPUS: &str = "headway_cluster_gpus";
const CLUSTER_GOODPUT: &str = "headway_cluster_goodput_tokens_per_second";
const CLUSTER_THROUGHPUT: &str = "headway_cluster_throughput_tokens_per_second";
const CLUSTER_TERM: &str = "headway_cluster_term";
const CLOCK_DOUBTED: &str = "headway_clock_doubted_seconds";
const LEADER: &str = "headway_leader";
const TAKEOVERS: &str = "headway_takeovers_total";
const STANDBY_AGE: &str = "headway_standby_age_seconds";
const CLUSTER_NODES_AHEAD: &str = "headway_cluster_nodes_ahead";
const ENGINE_FAULTS: &str = "headway_engine_faults_total";
const PLAN_GAP: &str = "headway_plan_gap_ratio";
const PLAN_OBJECTIVE: &str = "headway_plan_objective";
const PLAN_PROPOSALS: &str = "headway_plan_proposals";
const ROUNDS_GIVEN_UP: &str = "headway_rounds_given_up_total";
const ROUNDS_FAILED: &str = "headway_rounds_failed_total";
const ROUND_SECONDS: &str = "headway_round_seconds";
const PLAN_AGE: &str = "headway_plan_age_seconds";
const ROUND_DEFERRED: &str = "headway_round_deferred_jobs";
const MOVES_RETURNED: &str = "headway_moves_returned_total";
const JOBS_SET_ASIDE: &str = "headway_jobs_set_aside_total";
const JOBS_PREEMPTED: &str = "headway_jobs_preempted_total";
const BATCH_CHANGES: &str = "headway_batch_changes_total";
const PROGRESS_SILENT: &str = "headway_jobs_progress_silent_total";
const PLAN_INPUTS_LOST: &str = "headway_plan_inputs_lost_total";
const WRONG_TOKENS: &str = "headway_http_wrong_tokens_total";
const AGENT_WRONG_TOKENS: &str = "headway_agent_wrong_tokens_total";
const OIDC_REACHABLE: &str = "headway_oidc_provider_reachable";
const OIDC_ASKED: &str = "headway_oidc_provider_requests_total";
const OIDC_LOGINS: &str = "headway_oidc_logins_total";
const QUOTA_REFUSALS: &str = "headway_user_quota_refusals_total";
const CONNECTIONS: &str = "headway_connections";
const STRANGERS_SENT_AWAY: &str = "headway_connections_sent_away_total";
const BODIES_REFUSED: &str = "headway_http_bodies_refused_total";
const REPORTS_REFUSED: &str = "headway_agent_reports_refused_total";
const AGENTS_REFUSED: &str = "headway_agent_sessions_refused_total";
const AUTHORITY_DAYS: &str = "headway_node_authority_days_left";
const NODE_CERTIFICATE_DAYS: &str = "headway_node_certificate_days_left";
const CERTIFICATES: &str = "headway_node_certificates";
const CERTIFICATE_DAYS: &str = "headway_tls_certificate_days";
const CERTIFICATE_READ: &str = "headway_tls_certificate_reads_total";
const AUDIT_SEALED: &str = "headway_audit_sealed_total";
const AUDIT_UNSEALED: &str = "headway_audit_unsealed_rows";
const AUDIT_SEAL_LAG: &str = "headway_audit_seal_lag_seconds";
const REFUSALS_LOST: &str = "headway_audit_refusals_lost_total";
const CLUSTER_SAMPLES: &str = "headway_cluster_samples_total";
const NOTICES: &str = "headway_webhook_notices_total";
const NOTICES_WAITING: &str = "headway_webhook_notices_waiting";
const START_ERROR: &str = "headway_start_prediction_error_seconds";
const STARTS_PREDICTED: &str = "headway_starts_predicted_total";
const TRACE_SPANS: &str = "headway_trace_spans_total";
const ANSWERS_LEFT_OUT: &str = "headway_http_answers_left_out_total";

/// Seconds: from a memory read to the request timeout.
const DURATION_BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// Seconds: from a round of a few jobs to one that is given up.
const ROUND_BUCKETS: [f64; 12] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Seconds: from a start that came as it was said to one that came a day off.
const START_BUCKETS: [f64; 10] = [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0];

/// Installs the process-wide recorder. `Err`: a recorder is installed already, or a bucket list is empty.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    let rounds = Matcher::Full(ROUND_SECONDS.to_owned());
    let starts = Matcher::Full(START_ERROR.to_owned());
    let builder = PrometheusBuilder::new().set_buckets(&DURATION_BUCKETS)?;
    let builder = builder.set_buckets_for_metric(starts, &START_BUCKETS)?;
    let handle = builder.set_buckets_for_metric(rounds, &ROUND_BUCKETS)?.install_recorder()?;
    describe();
    Ok(handle)
}

fn describe() {
    describe_counter!(HTTP_REQUESTS, "REST requests answered, by method, route pattern and status");
    describe_histogram!(HTTP_DURATION, "Time from request to response head, in seconds, by method and route pattern");
    describe_gauge!(HTTP_STREAMS, "Open event streams");
    gauge!(HTTP_STREAMS).set(0.0);
    describe_histogram!(
        LOOP_COMMAND,
        "From the first event of a batch to the sending of its commands, commit included"
    );
    describe_gauge!(CLUSTER_JOBS, "Live jobs by state");
    describe_gauge!(CLUSTER_NODES, "Nodes by availability");
    describe_gauge!(CLUSTER_GPUS, "GPUs of available nodes by state: granted, free or broken");
    describe_gauge!(CLUSTER_GOODPUT, "Reference tokens per second, summed over jobs that report");
    describe_gauge!(CLUSTER_THROUGHPUT, "Raw tokens per second, summed over jobs that report");
    describe_gauge!(CLUSTER_TERM, "Leadership term of this scheduler");
    describe_gauge!(
        CLOCK_DOUBTED,
        "How far the machine's clock is ahead of what is stored, while it is not believed; else 0"
    );
    describe_gauge!(LEADER, "Whether this server leads and can commit (1), or stands by or waits for the store (0)");
    describe_counter!(TAKEOVERS, "Times this server took the lead over from another");
    describe_gauge!(STANDBY_AGE, "How old what a standby shows is; 0 of a server that does not stand by");
    describe_gauge!(AUTHORITY_DAYS, "Days until what signs nodes' certificates ends; NaN where there is none");
    describe_gauge!(CERTIFICATES, "Nodes and fleets whose certificate was not revoked");
    describe_gauge!(
        NODE_CERTIFICATE_DAYS,
        "Days until the first certificate of a node ends that was not revoked; NaN where there is none"
    );
    describe_gauge!(CLUSTER_NODES_AHEAD, "Nodes that follow a newer term than this scheduler's, and obey nothing");
    describe_counter!(
        ENGINE_FAULTS,
        "Transitions that the engine refused and states that it rules out, by kind; any is a fault of the scheduler"
    );
    describe_gauge!(PLAN_GAP, "Proven optimality gap of the adopted plan");
    describe_gauge!(PLAN_OBJECTIVE, "Objective of the adopted plan");
    describe_gauge!(PLAN_PROPOSALS, "Plans that wait for approval");
    describe_counter!(
        ROUNDS_GIVEN_UP,
        "Rounds that took too long and gave no plan; any leaves GPUs idle that somebody waits for"
    );
    describe_counter!(
        ROUNDS_FAILED,
        "Rounds that broke down or whose plan was refused; any is a fault of the scheduler and leaves GPUs idle"
    );
    // Also none is exported, so that an alert can tell none from not known.
    counter!(ROUNDS_GIVEN_UP).increment(0);
    counter!(ROUNDS_FAILED).increment(0);
    describe_histogram!(ROUND_SECONDS, "How long rounds took, curves included, those given up among them");
    describe_gauge!(PLAN_AGE, "Cluster time since the newest plan was made, adopted or not; NaN before the first");
    describe_gauge!(
        ROUND_DEFERRED,
        "Jobs that the newest round left as they are, since their goodput curves were not ready"
    );
    describe_counter!(
        MOVES_RETURNED,
        "Jobs that were stopped for another shape and started again as they were: restarts that gained nothing"
    );
    counter!(MOVES_RETURNED).increment(0);
    describe_counter!(JOBS_SET_ASIDE, "Jobs that rounds gave no plan with, and that they do without since");
    counter!(JOBS_SET_ASIDE).increment(0);
    describe_counter!(
        JOBS_PREEMPTED,
        "Jobs that gave up all their GPUs, since others needed them more or they had to leave"
    );
    counter!(JOBS_PREEMPTED).increment(0);
    describe_counter!(
        BATCH_CHANGES,
        "Live changes of a batch: made, contradicted by their first steps, taken back for that, or held off since there were enough or nothing like them was measured"
    );
    BATCH_OUTCOMES.into_iter().for_each(|outcome| counter!(BATCH_CHANGES, "outcome" => outcome).increment(0));
    describe_counter!(
        PROGRESS_SILENT,
        "Times that ten minutes brought no step of a job whose steps are read from its output"
    );
    counter!(PROGRESS_SILENT).increment(0);
    describe_counter!(
        PLAN_INPUTS_LOST,
        "Stored plans whose input could not be stored, so that they cannot be replayed"
    );
    counter!(PLAN_INPUTS_LOST).increment(0);
    describe_gauge!(
        OIDC_REACHABLE,
        "Whether the identity provider answered when it was last asked; absent where there is none"
    );
    describe_counter!(
        OIDC_ASKED,
        "Questions to the identity provider, by what was asked and outcome (ok, refused, failed)"
    );
    describe_counter!(
        OIDC_LOGINS,
        "Logins through the identity provider, by way (browser, device, code) and outcome (done, refused, failed)"
    );
    describe_counter!(
        WRONG_TOKENS,
        "Requests with a token that is unknown, revoked or expired (refused), and those not looked at since too many such came from their address (throttled)"
    );
    describe_counter!(
        AGENT_WRONG_TOKENS,
        "Agents' sessions with a token that is unknown, revoked or expired (refused), and those not looked at since too many such came from their address (throttled)"
    );
    describe_counter!(
        QUOTA_REFUSALS,
        "Requests refused since a user has, or asks, more than its quota, by what is bounded: jobs, bytes, requests or followers"
    );
    for quota in ["jobs", "bytes", "requests", "followers"] {
        counter!(QUOTA_REFUSALS, "quota" => quota).increment(0);
    }
    describe_gauge!(CONNECTIONS, "Open connections, by port");
    describe_counter!(
        STRANGERS_SENT_AWAY,
        "Connections that were ended before they had brought a credential that opens something, since others needed their place; by port"
    );
    describe_counter!(BODIES_REFUSED, "Bodies of requests that came too late, broke off, or were too many at once");
    describe_counter!(
        AGENTS_REFUSED,
        "Sessions of agents that were ended for what the agent says: out of bounds, or another node's id or name"
    );
    counter!(AGENTS_REFUSED).increment(0);
    describe_counter!(
        REPORTS_REFUSED,
        "Minutes in which reports of a job said more than its GPUs can do, and were not taken"
    );
    counter!(REPORTS_REFUSED).increment(0);
    describe_counter!(
        REFUSALS_LOST,
        "Refused requests that are not in the audit: they came faster than they can be written"
    );
    counter!(REFUSALS_LOST).increment(0);
    describe_gauge!(
        CERTIFICATE_DAYS,
        "Days until the certificate that the port for people shows ends; none without TLS"
    );
    describe_counter!(
        CERTIFICATE_READ,
        "Times that a changed certificate was read: renewed (shown from then on), or refused (the one before stays)"
    );
    counter!(CERTIFICATE_READ, "outcome" => "renewed").increment(0);
    counter!(CERTIFICATE_READ, "outcome" => "refused").increment(0);
    describe_counter!(AUDIT_SEALED, "Rows of the audit that this server has sealed into its chain");
    counter!(AUDIT_SEALED).increment(0);
    describe_gauge!(AUDIT_UNSEALED, "Rows of the audit that wait to be sealed; 0 of a server that does not lead");
    describe_gauge!(
        AUDIT_SEAL_LAG,
        "How long the oldest row of the audit has waited to be sealed, or how long nothing could be; 0 of a server that does not lead"
    );
    describe_counter!(
        CLUSTER_SAMPLES,
        "Minutes whose figures of the cluster were stored, or lost; while a server leads, one comes every minute"
    );
    counter!(CLUSTER_SAMPLES, "outcome" => "stored").increment(0);
    counter!(CLUSTER_SAMPLES, "outcome" => "lost").increment(0);
    describe_counter!(
        NOTICES,
        "Calls of jobs' webhooks: delivered, failed (tried again), and given up after a day of failures"
    );
    for outcome in [NoticeOutcome::Delivered, NoticeOutcome::Failed, NoticeOutcome::GivenUp] {
        counter!(NOTICES, "outcome" => <&str>::from(outcome)).increment(0);
    }
    describe_gauge!(NOTICES_WAITING, "Notices for jobs' webhooks that have neither arrived nor been given up");
    gauge!(NOTICES_WAITING).set(0.0);
    describe_histogram!(
        START_ERROR,
        "How far starts came from the median that was predicted first, in seconds of the cluster, by direction: early or late"
    );
    describe_counter!(
        STARTS_PREDICTED,
        "Starts that had been predicted: within the first and the last decile of what was said (80 % of them should be), before, or after"
    );
    for outcome in [StartOutcome::Early, StartOutcome::Within, StartOutcome::Late] {
        counter!(STARTS_PREDICTED, "outcome" => <&str>::from(outcome)).increment(0);
    }
    describe_counter!(
        TRACE_SPANS,
        "Spans that were exported to the collector, and lost since it did not take them in time; none where none is named"
    );
    for outcome in [SpanOutcome::Exported, SpanOutcome::Lost] {
        counter!(TRACE_SPANS, "outcome" => <&str>::from(outcome)).increment(0);
    }
    describe_counter!(
        ANSWERS_LEFT_OUT,
        "Parts of replies left out because finding them took too long or failed, by what was asked; the reply says so"
    );
}

/// One answered REST request.
pub fn request_answered(method: &str, route: &str, status: u16, took: Duration) {
    let (method, route) = (method.to_owned(), route.to_owned());
    counter!(HTTP_REQUESTS, "method" => method.clone(), "route" => route.clone(), "status" => status.to_string())
        .increment(1);
    histogram!(HTTP_DURATION, "method" => method, "route" => route).record(took.as_secs_f64());
}

/// Commands have been sent, this long after the first event that led to them.
pub fn commands_sent(took: Duration) {
    histogram!(LOOP_COMMAND).record(took.as_secs_f64());
}

/// Faults of the engine's own. Also none are exported, so that an alert can tell none from not known.
pub fn engine_faults(kind: &'static str, count: u64) {
    counter!(ENGINE_FAULTS, "kind" => kind).increment(count);
}

/// A round has ended, or was given up.
pub fn round_ended(took: Duration) {
    histogram!(ROUND_SECONDS).record(took.as_secs_f64());
}

/// A round took too long.
pub fn round_given_up() {
    counter!(ROUNDS_GIVEN_UP).increment(1);
}

/// A round broke down, or its plan was refused.
pub fn round_failed() {
    counter!(ROUNDS_FAILED).increment(1);
}

/// This server has taken the lead over from another.
pub fn took_over() {
    counter!(TAKEOVERS).increment(1);
}

/// How old what this server shows is, while another leads; called at each scrape.
pub fn stands_by(age: Option<Duration>) {
    gauge!(STANDBY_AGE).set(age.unwrap_or_default().as_secs_f64());
}

/// Whether this server leads; called at each scrape.
pub fn leads(leads: bool) {
    gauge!(LEADER).set(if leads { 1.0 } else { 0.0 });
}

/// A job was stopped for another shape and started again as it was.
pub fn move_returned() {
    counter!(MOVES_RETURNED).increment(1);
}

/// A job gave up all its GPUs.
pub fn job_preempted() {
    counter!(JOBS_PREEMPTED).increment(1);
}

/// What becomes of live changes of a batch, by the event that tells it.
const BATCH_OUTCOMES: [&str; 4] = ["changed", "contradicted", "taken_back", "held"];

/// A job's batch changed live, or not; `verb` as in `job.batch_changed`.
pub fn batch_change(verb: &str) {
    let outcome = BATCH_OUTCOMES.into_iter().find(|outcome| verb.strip_prefix("job.batch_") == Some(outcome));
    if let Some(outcome) = outcome {
        counter!(BATCH_CHANGES, "outcome" => outcome).increment(1);
    }
}

/// No step of a job was found in its output for so long.
pub fn progress_silent() {
    counter!(PROGRESS_SILENT).increment(1);
}

/// A job is left as it is since rounds gave no plan with it.
pub fn job_set_aside() {
    counter!(JOBS_SET_ASIDE).increment(1);
}

/// Jobs whose curves were not ready for the newest round.
pub fn jobs_deferred(count: usize) {
    gauge!(ROUND_DEFERRED).set(count as f64);
}

/// The input of a stored plan could not be stored.
pub fn plan_input_lost() {
    counter!(PLAN_INPUTS_LOST).increment(1);
}

/// A request came with a token that opens nothing, or from an address with too many of them.
pub fn wrong_token(outcome: &'static str) {
    counter!(WRONG_TOKENS, "outcome" => outcome).increment(1);
}

/// Likewise of an agent.
pub fn agent_wrong_token(outcome: &'static str) {
    counter!(AGENT_WRONG_TOKENS, "outcome" => outcome).increment(1);
}

/// Whether the identity provider answered when it was last asked.
pub fn oidc_reachable(answers: bool) {
    gauge!(OIDC_REACHABLE).set(if answers { 1.0 } else { 0.0 });
}

/// The identity provider was asked something.
pub fn oidc_asked(what: &'static str, outcome: &'static str) {
    counter!(OIDC_ASKED, "what" => what, "outcome" => outcome).increment(1);
}

/// Somebody wanted to log in through it.
pub fn oidc_login(way: &'static str, outcome: &'static str) {
    counter!(OIDC_LOGINS, "way" => way, "outcome" => outcome).increment(1);
}

/// A user would have more, or has asked more, than its quota of these allows.
pub fn quota_refused(quota: &'static str) {
    counter!(QUOTA_REFUSALS, "quota" => quota).increment(1);
}

/// Connections of a port have come (1) or gone (-1).
pub fn connections(port: &'static str, change: f64) {
    gauge!(CONNECTIONS, "port" => port).increment(change);
}

/// A connection had to go for another.
pub fn stranger_sent_away(port: &'static str) {
    counter!(STRANGERS_SENT_AWAY, "port" => port).increment(1);
}

/// A body was not taken.
pub fn body_refused(why: &'static str) {
    counter!(BODIES_REFUSED, "why" => why).increment(1);
}

/// Reports of a job were not believed.
pub fn report_refused() {
    counter!(REPORTS_REFUSED).increment(1);
}

/// An agent was told why it is not heard.
pub fn agent_refused() {
    counter!(AGENTS_REFUSED).increment(1);
}

/// What signs nodes' certificates ends so soon; NaN: there is none.
pub fn authority_days_left(days: f64) {
    gauge!(AUTHORITY_DAYS).set(days);
}

/// How many are valid, and when the first of them ends; NaN: there is none.
pub fn node_certificates(count: usize, days: f64) {
    gauge!(CERTIFICATES).set(count as f64);
    gauge!(NODE_CERTIFICATE_DAYS).set(days);
}

/// Until the certificate ends.
pub fn certificate_days(days: f64) {
    gauge!(CERTIFICATE_DAYS).set(days);
}

/// A changed certificate was read.
pub fn certificate_read(outcome: &'static str) {
    counter!(CERTIFICATE_READ, "outcome" => outcome).increment(1);
}

/// Rows of the audit were sealed.
pub fn audit_sealed(rows: u32) {
    counter!(AUDIT_SEALED).increment(u64::from(rows));
}

/// What waits to be sealed.
pub fn audit_unsealed(unsealed: Unsealed) {
    gauge!(AUDIT_UNSEALED).set(unsealed.rows as f64);
    gauge!(AUDIT_SEAL_LAG).set(unsealed.lag.0);
}

/// Refusals that the audit does not have.
pub fn refusals_lost(count: u64) {
    counter!(REFUSALS_LOST).increment(count);
}

/// A minute's figures of the cluster were stored, or could not be.
pub fn cluster_sampled(stored: bool) {
    counter!(CLUSTER_SAMPLES, "outcome" => if stored { "stored" } else { "lost" }).increment(1);
}

/// What came of calling a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum NoticeOutcome {
    Delivered,
    Failed,
    GivenUp,
}

/// A webhook was called.
pub fn notice(outcome: NoticeOutcome) {
    counter!(NOTICES, "outcome" => <&str>::from(outcome)).increment(1);
}

/// How many notices wait.
pub fn notices_waiting(waiting: u64) {
    gauge!(NOTICES_WAITING).set(waiting as f64);
}

/// Where a start fell, against what was predicted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum StartOutcome {
    Early,
    Within,
    Late,
}

/// A start that had been predicted has come. `late_by`: after the median, where one was said; below 0 it came before.
/// No `outcome`: it was counted as late when its band ended.
pub fn start_met(outcome: Option<StartOutcome>, late_by: Option<Seconds>) {
    if let Some(outcome) = outcome {
        counter!(STARTS_PREDICTED, "outcome" => <&str>::from(outcome)).increment(1);
    }
    if let Some(late_by) = late_by {
        let direction = if late_by.0 < 0.0 { "early" } else { "late" };
        histogram!(START_ERROR, "direction" => direction).record(late_by.0.abs());
    }
}

/// Predicted starts that have not come by the end of their bands.
pub fn starts_overdue(count: u64) {
    counter!(STARTS_PREDICTED, "outcome" => <&str>::from(StartOutcome::Late)).increment(count);
}

/// What became of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum SpanOutcome {
    Exported,
    Lost,
}

/// Spans left, one way or the other.
pub fn spans(outcome: SpanOutcome, count: u64) {
    counter!(TRACE_SPANS, "outcome" => <&str>::from(outcome)).increment(count);
}

/// A part of a reply was left out.
pub fn answer_left_out(of: &'static str) {
    counter!(ANSWERS_LEFT_OUT, "of" => of).increment(1);
}

/// Counts an event stream as open for as long as it lives.
pub struct OpenStream(());

impl OpenStream {
    #[must_use]
    pub fn count() -> Self {
        gauge!(HTTP_STREAMS).increment(1.0);
        Self(())
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        gauge!(HTTP_STREAMS).decrement(1.0);
    }
}

/// Sets the gauges that describe the cluster; called at each scrape. `plan_age`: of the newest plan, adopted or not.
pub fn observe(view: &View, plan_age: Option<Seconds>) {
    let live = JobStateKind::VARIANTS.iter().filter(|state| !state.is_final());
    let mut jobs: BTreeMap<JobStateKind, u32> = live.map(|state| (*state, 0)).collect();
    let (mut goodput, mut throughput) = (0.0, 0.0);
    for job in view.jobs.values() {
        *jobs.entry(job.job.state.kind()).or_default() += 1;
        goodput += job.live.goodput.map_or(0.0, |rate| rate.0);
        throughput += job.live.throughput.map_or(0.0, |rate| rate.0);
    }
    for (state, count) in jobs {
        gauge!(CLUSTER_JOBS, "state" => <&str>::from(state)).set(count);
    }
    let mut nodes: BTreeMap<AvailabilityKind, u32> = AvailabilityKind::VARIANTS.iter().map(|seen| (*seen, 0)).collect();
    let mut gpus = BTreeMap::from(["granted", "free", "broken"].map(|state| (state, 0u32)));
    for node in view.nodes.values() {
        *nodes.entry(node.node.availability.kind()).or_default() += 1;
        if node.node.availability != Availability::Available {
            continue;
        }
        for gpu in &node.node.inventory.gpus {
            let state = match (&gpu.health, node.held.contains_key(&gpu.uuid)) {
                (_, true) => "granted",
                (GpuHealth::Healthy, false) => "free",
                (GpuHealth::Broken(_), false) => "broken",
            };
            *gpus.entry(state).or_default() += 1;
        }
    }
    for (availability, count) in nodes {
        gauge!(CLUSTER_NODES, "availability" => <&str>::from(availability)).set(count);
    }
    for (state, count) in gpus {
        gauge!(CLUSTER_GPUS, "state" => state).set(count);
    }
    gauge!(CLUSTER_GOODPUT).set(goodput);
    gauge!(CLUSTER_THROUGHPUT).set(throughput);
    gauge!(CLUSTER_TERM).set(view.term.0 as f64);
    gauge!(CLOCK_DOUBTED).set(view.doubt.map_or(0.0, |doubt| doubt.beyond.0));
    gauge!(CLUSTER_NODES_AHEAD).set(view.ahead.len() as f64);
    gauge!(PLAN_AGE).set(plan_age.map_or(f64::NAN, |age| age.0));
    gauge!(PLAN_PROPOSALS).set(view.proposals.len() as f64);
    let report = view.target.as_ref().map(|target| &target.plan.report);
    // Zero of a policy that proves nothing would read as proven.
    gauge!(PLAN_GAP).set(report.and_then(|report| report.gap).unwrap_or(f64::NAN));
    gauge!(PLAN_OBJECTIVE).set(report.map_or(f64::NAN, |report| report.objective));
}

//! The routes below `/api/v1` and the OpenAPI document that follows from their handlers.

mod bounds;
mod replies;
mod statuses;

use axum::body::Bytes;
use axum::http::Method;
use headway_api::v1;
use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{RefOr, Required};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::access::act_of;
use super::once::{KEY_NAME, KEY_NOT_TAKEN};
use super::{
    HttpState, actions, arrays, audit, browser_sessions, deliveries, enrolment, events, exec, explain, goodput, gpus,
    history, identities, jobs, leadership, ledger, listing, logs, members, nodes, oidc, outcomes, overview, plans,
    policy, projects, queue, readmission, rebalance, reservations, secrets, simulate, space, stream, submit, timeline,
    tokens, topology, usage, users, validation,
};

const SHOWN_ONCE: &str =
    "the secret in its reply is shown once and kept nowhere, so that a repetition could not be answered with it";
const LOGS_IN: &str = "each login is its own";
const FOR_DOING_AGAIN: &str = "each request does it once more, which is what it is for";
/// What is posted without a key, by operation, and why.
const KEYLESS: [(&str, &str); 9] = [
    ("create_token", SHOWN_ONCE),
    ("create_session", SHOWN_ONCE),
    ("begin_device_login", LOGS_IN),
    ("end_device_login", LOGS_IN),
    ("end_code_login", LOGS_IN),
    ("create_join_token", SHOWN_ONCE),
    ("replace_node_authority", FOR_DOING_AGAIN),
    ("test_delivery", FOR_DOING_AGAIN),
    ("exec", FOR_DOING_AGAIN),
];

/// Why a posted operation takes no key; `None`: it takes one.
pub fn why_no_key(operation: &str) -> Option<&'static str> {
    KEYLESS.iter().find(|(id, _)| *id == operation).map(|(_, why)| *why)
}

/// The query parameter of whatever changes something.
pub const DRY_RUN: &str = "dry_run";
/// That of what changes something and is not posted; actions have it in their bodies.
pub const REASON: &str = "reason";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Headway",
        version = "v1",
        description = "Goodput-maximising scheduler for clusters that train large language models. Paths are \
            additive-only within v1. Errors are RFC 9457 problem+json with `code`, `field` and `hint`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    // Replies to `?at=` (`replies` says of which operations), and what a dry run adds.
    components(schemas(v1::PastJob, v1::PastJobList, v1::PastNode, v1::PastNodeList, v1::HeldGpus, v1::PastOverview, v1::Foreseen, v1::DrainEffect)),
    servers((url = "/", description = "The server that serves this document")),
    security(("bearer" = []), ("cookie" = [])),
    tags(
        (name = "jobs", description = "Submit, watch and steer jobs"),
        (name = "arrays", description = "Jobs of one specification, looked at and acted on as one"),
        (name = "nodes", description = "Nodes and their GPUs"),
        (name = "plans", description = "Decisions for the whole cluster"),
        (name = "projects", description = "Quotas, floors and shares"),
        (name = "reservations", description = "Nodes set aside"),
        (name = "cluster", description = "The whole cluster at a glance"),
        (name = "auth", description = "Users, tokens, secrets and the audit"),
    )
)]
struct Document;

/// Every route below `/api/v1`.
pub fn routes() -> OpenApiRouter<HttpState> {
    let v1 = OpenApiRouter::new()
        .routes(routes!(submit::submit, listing::list_jobs))
        .routes(routes!(validation::validate))
        .routes(routes!(jobs::get_job, actions::update_job))
        .routes(routes!(actions::cancel_job))
        .routes(routes!(actions::hold_job))
        .routes(routes!(actions::release_job))
        .routes(routes!(actions::requeue_job))
        .routes(routes!(actions::checkpoint_job))
        .routes(routes!(actions::pin_job))
        .routes(routes!(actions::unpin_job))
        .routes(routes!(actions::resize_job))
        .routes(routes!(arrays::list_arrays))
        .routes(routes!(arrays::get_array, arrays::update_array))
        .routes(routes!(arrays::cancel_array))
        .routes(routes!(arrays::hold_array))
        .routes(routes!(arrays::release_array))
        .routes(routes!(explain::explain_job))
        .routes(routes!(goodput::curve))
        .routes(routes!(ledger::gpu_time))
        .routes(routes!(history::allocations))
        .routes(routes!(history::series))
        .routes(routes!(events::job_events))
        .routes(routes!(history::checkpoints))
        .routes(routes!(deliveries::deliveries, deliveries::test_delivery))
        .routes(routes!(exec::exec))
        .routes(routes!(logs::logs))
        .routes(routes!(nodes::list_nodes))
        .routes(routes!(nodes::get_node, nodes::update_node, nodes::delete_node))
        .routes(routes!(nodes::insight::node_gpus))
        .routes(routes!(nodes::insight::node_health))
        .routes(routes!(events::node_events))
        .routes(routes!(topology::topology))
        .routes(routes!(gpus::gpus))
        .routes(routes!(nodes::drain_node))
        .routes(routes!(nodes::undrain_node))
        .routes(routes!(nodes::cordon_node))
        .routes(routes!(nodes::uncordon_node))
        .routes(routes!(nodes::lose_node))
        .routes(routes!(readmission::readmit_nodes))
        .routes(routes!(enrolment::create_join_token, enrolment::list_join_tokens))
        .routes(routes!(enrolment::revoke_join_token))
        .routes(routes!(enrolment::list_node_certificates))
        .routes(routes!(enrolment::revoke_node_certificate))
        .routes(routes!(enrolment::list_node_authorities, enrolment::replace_node_authority))
        .routes(routes!(enrolment::retire_node_authority))
        .routes(routes!(plans::list_plans))
        .routes(routes!(plans::current_plan))
        .routes(routes!(rebalance::rebalance))
        .routes(routes!(rebalance::pause_plans))
        .routes(routes!(rebalance::resume_plans))
        .routes(routes!(rebalance::rollback_plan))
        .routes(routes!(outcomes::plan_history))
        .routes(routes!(outcomes::plan_diff))
        .routes(routes!(simulate::simulate))
        .routes(routes!(plans::get_plan))
        .routes(routes!(plans::plan_input))
        .routes(routes!(plans::approve_plan))
        .routes(routes!(plans::reject_plan))
        .routes(routes!(policy::get_policy, policy::put_policy, policy::patch_policy))
        .routes(routes!(projects::list_projects))
        .routes(routes!(projects::get_project, projects::put_project, projects::delete_project, members::patch_project))
        .routes(routes!(members::list_members))
        .routes(routes!(members::put_member, members::delete_member))
        .routes(routes!(reservations::list_reservations, reservations::create_reservation))
        .routes(routes!(reservations::get_reservation, reservations::cancel_reservation))
        .routes(routes!(overview::overview))
        .routes(routes!(leadership::leader))
        .routes(routes!(space::space))
        .routes(routes!(queue::queue))
        .routes(routes!(goodput::goodput))
        .routes(routes!(goodput::calibration::calibration))
        .routes(routes!(usage::usage))
        .routes(routes!(events::events))
        .routes(routes!(events::event_chain))
        .routes(routes!(timeline::timeline))
        .routes(routes!(stream::stream))
        .routes(routes!(tokens::create_token, tokens::list_tokens))
        .routes(routes!(tokens::revoke_token))
        .routes(routes!(tokens::whoami))
        .routes(routes!(
            browser_sessions::create_session,
            browser_sessions::list_sessions,
            browser_sessions::end_sessions
        ))
        .routes(routes!(oidc::login_provider))
        .routes(routes!(oidc::oidc_login))
        .routes(routes!(oidc::oidc_callback))
        .routes(routes!(oidc::begin_device_login))
        .routes(routes!(oidc::end_device_login))
        .routes(routes!(oidc::end_code_login))
        .routes(routes!(browser_sessions::log_out))
        .routes(routes!(browser_sessions::end_session))
        .routes(routes!(secrets::list_secrets))
        .routes(routes!(secrets::put_secret, secrets::delete_secret))
        .routes(routes!(audit::audit))
        .routes(routes!(audit::audit_head))
        .routes(routes!(audit::verify_audit))
        .routes(routes!(audit::export_audit))
        .routes(routes!(identities::link_user, identities::unlink_user))
        .routes(routes!(users::list_users))
        .routes(routes!(users::get_user, users::put_user));
    let mut document = Document::openapi();
    let bearer = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    let cookie = ApiKeyValue::with_description(
        "headway-<cluster>",
        "What POST /api/v1/auth/sessions sets; over TLS its name begins with __Host-. It counts only in requests of the cluster's own page, \
         which sends X-Headway-Page: 1 with whatever is no GET.",
    );
    let components = document.components.get_or_insert_default();
    components.add_security_scheme("bearer", bearer);
    components.add_security_scheme("cookie", SecurityScheme::ApiKey(ApiKey::Cookie(cookie)));
    OpenApiRouter::with_openapi(document).nest("/api/v1", v1)
}

/// Adds what all routes of a kind have in common.
pub fn complete(mut document: utoipa::openapi::OpenApi) -> utoipa::openapi::OpenApi {
    let all = document.paths.paths.iter_mut();
    for (path, (method, operation)) in all.flat_map(|(path, item)| operations(item).map(move |one| (path, one))) {
        if method == Method::POST {
            accept_key(operation);
        }
        if method != Method::GET {
            accept_dry_run(operation);
        }
        if method != Method::GET && method != Method::POST {
            accept_reason(operation);
        }
        say_who_may(operation);
        bounds::add(operation);
        replies::tell(operation);
        statuses::complete(path, &method, operation);
    }
    document.components.as_mut().map(replies::add_parts);
    document
}

/// The operations of a path that this interface has, with their methods.
pub fn operations(of: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    let PathItem { get, put, post, delete, patch, .. } = of;
    let all = [
        (Method::GET, get),
        (Method::PUT, put),
        (Method::POST, post),
        (Method::DELETE, delete),
        (Method::PATCH, patch),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// The document as it is served and committed: pretty, with a final newline.
pub fn render(document: &utoipa::openapi::OpenApi) -> Bytes {
    let mut text = document.to_pretty_json().expect("an OpenAPI document is plain JSON");
    text.push('\n');
    text.into()
}

/// Whatever is posted takes a key, but for what is repeated on purpose: it says so, and `once` refuses the key.
fn accept_key(post: &mut Operation) {
    let parameters = post.parameters.get_or_insert_default();
    if let Some(why) = post.operation_id.as_deref().and_then(why_no_key) {
        let told = format!("It takes no {KEY_NAME}, and refuses one (`{KEY_NOT_TAKEN}`): {why}.");
        post.description = Some(match &post.description {
            Some(description) => format!("{description}\n\n{told}"),
            None => told,
        });
        return;
    }
    let known = |one: &RefOr<Parameter>| matches!(one, RefOr::T(one) if one.name == KEY_NAME);
    if parameters.iter().any(known) {
        return;
    }
    let key = ParameterBuilder::new()
        .name(KEY_NAME)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("Repeating the request with the same key and body does nothing again"))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build();
    parameters.push(RefOr::T(key));
}

/// What is put, changed or deleted may be explained; where a handler has told of it, it stays as told.
fn accept_reason(change: &mut Operation) {
    let parameters = change.parameters.get_or_insert_default();
    if parameters.iter().any(|one| matches!(one, RefOr::T(one) if one.name == REASON)) {
        return;
    }
    let reason = ParameterBuilder::new()
        .name(REASON)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some("Why, for the audit and the event log"))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build();
    parameters.push(RefOr::T(reason));
}

/// By the table of rules.
fn say_who_may(operation: &mut Operation) {
    let Some(act) = operation.operation_id.as_deref().and_then(act_of) else { return };
    let who = format!("To {} is for {}.", act.in_words(), act.rule().in_words());
    operation.description = Some(match &operation.description {
        Some(description) => format!("{description}\n\n{who}"),
        None => who,
    });
}

/// What changes something can be asked about. Questions change nothing as they are; what a round would decide is `rebalance`
/// itself, whose proposal moves nothing; and tokens, sessions, users and certificates are not the engine's, which answers dry runs.
fn accept_dry_run(change: &mut Operation) {
    const HAVE_NONE: [&str; 21] = [
        "validate",
        "simulate",
        "rebalance",
        "rollback_plan",
        "create_token",
        "revoke_token",
        "create_session",
        "end_sessions",
        "end_session",
        "log_out",
        "put_user",
        "link_user",
        "unlink_user",
        "begin_device_login",
        "end_device_login",
        "end_code_login",
        "create_join_token",
        "revoke_join_token",
        "revoke_node_certificate",
        "replace_node_authority",
        "retire_node_authority",
    ];
    if change.operation_id.as_deref().is_some_and(|id| HAVE_NONE.contains(&id)) {
        return;
    }
    let dry_run = ParameterBuilder::new()
        .name(DRY_RUN)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(
            "Answer as the request would be answered, its subject as it would be, and change nothing. Where the planner can tell what would come \
             of it the reply has a further member `foreseen`, a `Foreseen`.",
        ))
        .schema(Some(ObjectBuilder::new().schema_type(Type::Boolean)))
        .build();
    change.parameters.get_or_insert_default().push(RefOr::T(dry_run));
    let responses = &mut change.responses.responses;
    if let (None, Some(RefOr::T(mut made))) = (responses.get("200"), responses.get("201").cloned()) {
        "As it would be (dry run)".clone_into(&mut made.description);
        made.headers.clear();
        responses.insert("200".into(), RefOr::T(made));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// `UPDATE_OPENAPI=1 cargo test -p headway-scheduler openapi` writes the file anew.
    #[test]
    fn the_committed_document_is_what_the_handlers_say() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../api/openapi.json");
        let rendered = render(&complete(routes().into_openapi()));
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(path, &rendered).unwrap();
        }
        let committed = std::fs::read(path).unwrap_or_default();
        assert!(committed == rendered, "api/openapi.json has drifted; run with UPDATE_OPENAPI=1 and review the diff");
    }

    #[test]
    fn every_operation_has_its_own_id_and_a_summary() {
        let document = serde_json::to_value(routes().get_openapi()).unwrap();
        let mut ids = std::collections::BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            assert!(path.starts_with("/api/v1/"), "{path}");
            for (method, operation) in item.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap();
                assert!(ids.insert(id.to_owned()), "{method} {path} repeats {id}");
                assert!(operation["summary"].is_string(), "{method} {path} has no summary");
            }
        }
        assert!(ids.len() > 30, "{} operations", ids.len());
    }
}

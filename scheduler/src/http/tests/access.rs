//! Permission: the table of rules against every route of the document, and what readers see of jobs that are not theirs.

use headway_engine::record::Openness;
use headway_types::ProjectRole;

use super::contract::{filled, operations};
use super::*;
use crate::http::access::{Act, Standing, act_of};
use crate::store::{AuditFilter, AuditResult};

const PROJECTS: [(&str, Openness); 3] =
    [("free", Openness::Open), ("club", Openness::Closed), ("vault", Openness::Private)];

/// Users by the secrets of their tokens, with their scope and their role in the projects that have members.
const CALLERS: [(&str, TokenScope, Option<ProjectRole>); 9] = [
    ("node", TokenScope::Agent, None),
    ("eve", TokenScope::Viewer, None),
    ("bob", TokenScope::User, None),
    ("ada", TokenScope::User, Some(ProjectRole::User)),
    ("vic", TokenScope::User, Some(ProjectRole::Viewer)),
    ("una", TokenScope::User, Some(ProjectRole::User)),
    ("pam", TokenScope::User, Some(ProjectRole::Admin)),
    ("opal", TokenScope::Operator, None),
    ("root", TokenScope::Admin, None),
];

fn job_in(project: &str) -> Value {
    json!({"version": 1, "name": format!("of-{project}"), "project": project, "resources": {"gpus": 1},
        "labels": {"exp": "hush"}, "run": {"command": ["sleep", "1"], "env": {"KEY": "s3cret"}}})
}

/// A job of ada's in each project, whose members are as told above.
struct People {
    served: Served,
    jobs: Vec<String>,
}

impl People {
    async fn there() -> Self {
        let served = Served::start().await;
        for (name, scope, _) in CALLERS {
            served.store.ensure_token(name, scope, name, START).await.unwrap();
        }
        let mut jobs = Vec::new();
        for (project, openness) in PROJECTS {
            assert_eq!(
                served.send_json(Method::PUT, "root", &format!("/projects/{project}"), &json!({})).await.status,
                201
            );
            let submitted = served.send_json(Method::POST, "ada", "/jobs", &job_in(project)).await;
            assert_eq!(submitted.status, StatusCode::CREATED, "{}", submitted.body);
            jobs.push(submitted.id());
            if openness == Openness::Open {
                continue;
            }
            for (user, role) in CALLERS.iter().filter_map(|(name, _, role)| Some((name, (*role)?))) {
                let path = format!("/projects/{project}/members/{user}");
                let named = served.send_json(Method::PUT, "root", &path, &json!({"role": role})).await;
                assert_eq!(named.status, StatusCode::OK, "{}", named.body);
            }
        }
        let private = json!({"private": true});
        assert_eq!(served.send_json(Method::PATCH, "pam", "/projects/vault", &private).await.status, StatusCode::OK);
        Self { served, jobs }
    }
}

/// Who asks, as the table sees them.
fn standing(act: Act, caller: usize, project: usize) -> Standing {
    let (name, scope, role) = CALLERS[caller];
    let openness = PROJECTS[project].1;
    match act {
        Act::SeeJob
        | Act::ReadJob
        | Act::ChangeJob
        | Act::RunInJob
        | Act::Submit
        | Act::SeeMembers
        | Act::NameMembers => Standing {
            scope,
            owner: name == "ada" && !matches!(act, Act::Submit | Act::SeeMembers | Act::NameMembers),
            role: role.filter(|_| openness != Openness::Open),
            openness,
        },
        _ => Standing::of(scope),
    }
}

/// A request that nothing but permission keeps from being answered, or that is wrong in some other way.
fn request(method: &Method, path: &str, operation: &Value, who: &str, project: &str, job: &str) -> Request<Body> {
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let dry = if parameters.clone().any(|one| one["name"] == "dry_run") { "?dry_run=true" } else { "" };
    let path = filled(&path.replace("{project}", project), job, "nowhere");
    let body = match operation["operationId"].as_str().unwrap() {
        "submit" => job_in(project),
        "put_member" => json!({"role": "viewer"}),
        _ => json!({}),
    };
    let request = asked(method.clone(), who, &format!("{path}{dry}")).header("content-type", "application/json");
    request.body(if *method == Method::GET { Body::empty() } else { Body::from(body.to_string()) }).unwrap()
}

#[tokio::test]
async fn every_route_is_open_to_whom_the_table_says_and_to_nobody_else() {
    let People { served, jobs } = People::there().await;
    let mut arrays = Vec::new();
    for (project, _) in PROJECTS {
        let mut array = job_in(project);
        (array["name"], array["array"]) = (json!(format!("array-of-{project}")), json!("0-1"));
        let submitted = served.send_json(Method::POST, "ada", "/jobs", &array).await;
        arrays.push(submitted.body["jobs"][0]["array"]["array_id"].as_str().unwrap().to_owned());
    }
    let (mut asked, mut refused) = (0, BTreeSet::new());
    for (method, path, operation) in operations() {
        let id = operation["operationId"].as_str().unwrap();
        let act = act_of(id).unwrap_or_else(|| panic!("{id} has no rule: say in access/table.rs who may do it"));
        // Nobody needs a token for it: tests/oidc.rs.
        if act == Act::LogIn {
            continue;
        }
        for (caller, (who, ..)) in CALLERS.iter().enumerate() {
            for (index, (project, _)) in PROJECTS.iter().enumerate() {
                let of = if path.starts_with("/arrays/") { &arrays[index] } else { &jobs[index] };
                let request = request(&method, &path, &operation, who, project, of);
                let dry = request.uri().query().is_some();
                let reply = served.router.clone().oneshot(request).await.unwrap();
                let status = reply.status();
                let expected = act.rule().admits(standing(act, caller, index));
                let shown = format!("{who}: {method} {path} in {project} is {status}, {act:?}");
                asked += 1;
                if status == StatusCode::FORBIDDEN && !dry {
                    let actor = if *who == "node" { "agent".to_owned() } else { format!("user:{who}") };
                    refused.insert((actor, id.to_owned()));
                }
                // The stream of whoever is let in never ends.
                if status.is_success() {
                    assert!(expected, "{shown}");
                    continue;
                }
                let body = to_bytes(reply.into_body(), 1 << 20).await.unwrap();
                let problem: v1::Problem = serde_json::from_slice(&body).unwrap();
                let hidden = [format!("no job {}", jobs[index]), format!("no array {}", arrays[index])]
                    .contains(&problem.detail);
                assert_ne!(status, StatusCode::UNAUTHORIZED, "{shown}");
                assert_eq!(status != StatusCode::FORBIDDEN && !hidden, expected, "{shown}: {}", problem.detail);
                if hidden {
                    let sees = Act::SeeJob.rule().admits(standing(Act::SeeJob, caller, index));
                    assert!(!sees, "{shown}: {}", problem.detail);
                }
            }
        }
    }
    assert!(asked > 1_500, "{asked} requests");

    // Each of them is in the audit, whoever it was.
    assert!(refused.len() > 100, "{refused:?}");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    let filter = AuditFilter { result: Some(AuditResult::Refused), limit: 10_000, ..AuditFilter::default() };
    loop {
        let lines = served.store.audit(&filter).await.unwrap().items;
        let told: BTreeSet<_> = lines.into_iter().map(|line| (line.entry.actor, line.entry.action)).collect();
        let missing: Vec<_> = refused.difference(&told).collect();
        if missing.is_empty() {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "not in the audit: {missing:?}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn every_rule_has_a_route() {
    let known: BTreeSet<String> =
        operations().into_iter().map(|(.., one)| one["operationId"].as_str().unwrap().to_owned()).collect();
    for (name, _) in crate::http::access::ROUTES {
        assert!(known.contains(*name), "{name} is no route");
    }
}

#[tokio::test]
async fn whoever_is_nobody_to_a_closed_project_sees_its_jobs_in_outline_and_of_a_private_one_nothing() {
    let People { served, jobs } = People::there().await;
    let listed = async |who: &str| {
        let listed: v1::JobList = serde_json::from_value(served.get(who, "/jobs").await.body).unwrap();
        listed.items.into_iter().map(|job| (job.name, !job.labels.is_empty())).collect::<BTreeSet<_>>()
    };
    let all = |labels: [bool; 3]| -> BTreeSet<_> {
        PROJECTS.iter().zip(labels).map(|((name, _), told)| (format!("of-{name}"), told)).collect()
    };
    for who in ["ada", "vic", "opal", "root"] {
        assert_eq!(listed(who).await, all([true; 3]), "{who}");
    }
    for who in ["bob", "eve"] {
        let outside = BTreeSet::from([("of-free".to_owned(), true), ("of-club".to_owned(), false)]);
        assert_eq!(listed(who).await, outside, "{who}");
    }
    let outline = served.get("bob", &format!("/jobs/{}", jobs[1])).await.body;
    assert_eq!((&outline["spec"], &outline["gpus_min"], &outline["owner"]), (&Value::Null, &json!(1), &json!("ada")));
    assert_eq!(served.get("bob", &format!("/jobs/{}", jobs[2])).await.problem(StatusCode::NOT_FOUND), "not_found");

    let environment = async |who: &str, job: usize| {
        served.get(who, &format!("/jobs/{}", jobs[job])).await.body["spec"]["run"]["env"]["KEY"].clone()
    };
    for (who, told) in [("ada", true), ("pam", true), ("opal", true), ("root", true), ("una", false), ("vic", false)] {
        let expected = if told { json!("s3cret") } else { Value::Null };
        assert_eq!(environment(who, 1).await, expected, "{who}");
    }
    assert_eq!(environment("pam", 0).await, Value::Null, "she is nobody to an open project");
}

#[tokio::test]
async fn plans_tell_of_a_closed_projects_jobs_what_they_get_and_neither_why_nor_what_was_measured() {
    const WITHHELD: &str = "Why is told to members of its project";
    let People { served, .. } = People::there().await;
    let mut training = job_in("club");
    training["training"] = json!({"curve": {"1": 1.0, "2": 1.9}, "seq_len": 128, "precision": "bf16",
        "reference_batch": "8 sequences", "layouts": "auto"});
    (training["name"], training["resources"]) = (json!("fitted"), json!({"gpus": {"min": 2, "max": 2}}));
    let id = served.send_json(Method::POST, "ada", "/jobs?wait_for_nodes=true", &training).await.id();
    for who in ["ada", "vic", "bob", "eve"] {
        let queue = served.get(who, "/queue").await.body;
        let row = queue["items"].as_array().unwrap().iter().find(|row| row["job_id"] == json!(id)).unwrap().clone();
        let told = row["waiting"]["headline"] != "It waits; why is told to members of its project";
        assert_eq!(told, ["ada", "vic"].contains(&who), "{who}: {row}");
    }
    served.add_node_of(8).await;
    let of = |plan: &Value, list: &str| {
        plan[list].as_array().unwrap().iter().find(|one| one["job_id"] == json!(id)).cloned().unwrap_or_default()
    };
    let started = served
        .until("ada", "/plans/current", |told| told.body["moves"].is_array() && !of(&told.body, "moves").is_null());
    let path = format!("/plans/{}", started.await.body["id"].as_str().unwrap());
    let parent = served.get("ada", &path).await.body["parent_id"].clone();
    for who in ["ada", "vic", "opal"] {
        let plan = served.get(who, &path).await.body;
        let (assigned, verdict, moved) = (of(&plan, "assignments"), of(&plan, "verdicts"), of(&plan, "moves"));
        assert!(assigned["predicted"]["goodput_tokens_per_second"].as_f64() > Some(0.0), "{who}: {assigned}");
        assert_ne!(verdict["headline"], WITHHELD, "{who}");
        assert!(moved["goodput_after_tokens_per_second"].as_f64() > Some(0.0), "{who}: {moved}");
        let input = served.until(who, &format!("{path}/input"), |told| told.status == StatusCode::OK).await;
        assert!(input.body.to_string().contains(&id));
        assert!(served.get(who, "/goodput").await.body["jobs"].to_string().contains(&id), "{who}");
    }
    for who in ["bob", "eve"] {
        let plan = served.get(who, &path).await.body;
        let (assigned, verdict, moved) = (of(&plan, "assignments"), of(&plan, "verdicts"), of(&plan, "moves"));
        assert_eq!((&assigned["gpus"], &verdict["gpus"], &moved["to_gpus"]), (&json!(2), &json!(2), &json!(2)));
        assert_eq!(assigned["slices"].as_array().unwrap().len(), 1);
        assert_eq!((&assigned["configuration"], &moved["to_configuration"]), (&Value::Null, &Value::Null));
        assert_eq!(assigned["predicted"]["goodput_tokens_per_second"], json!(0.0));
        assert_eq!(moved["goodput_after_tokens_per_second"], json!(0.0));
        assert_eq!((&verdict["reasons"], &verdict["runner_up"]), (&json!([]), &Value::Null));
        assert_eq!((&verdict["headline"], &moved["reason"]), (&json!(WITHHELD), &json!(WITHHELD)), "{who}");
        // Nor is it told elsewhere.
        let goodput = served.get(who, "/goodput").await.body;
        assert!(!goodput.to_string().contains(&id), "{who}: {goodput}");
        let named = served.get(who, &format!("/goodput?jobs={id}")).await;
        assert_eq!(named.problem(StatusCode::FORBIDDEN), "forbidden");
        // What it gets is told of a job of an open project with the reasons.
        let open = plan["verdicts"].as_array().unwrap().iter().find(|one| one["job_name"] == "of-free").unwrap();
        assert_ne!(open["headline"], WITHHELD, "{open}");
        assert_eq!(served.get(who, &format!("{path}/input")).await.problem(StatusCode::NOT_FOUND), "not_found");
        if parent.is_string() {
            let diff = served.get(who, &format!("{path}/diff")).await.body;
            let change = of(&diff, "changes");
            assert_eq!((&change["to_gpus"], &change["to_configuration"]), (&json!(2), &Value::Null), "{diff}");
            assert_eq!(change["to_goodput_tokens_per_second"], json!(0.0));
        }
    }
}

#[tokio::test]
async fn events_of_jobs_go_to_whom_the_jobs_are_open() {
    let People { served, jobs } = People::there().await;
    // Also those of jobs that have ended.
    assert_eq!(served.post("ada", &format!("/jobs/{}/cancel", jobs[1])).await.status, StatusCode::OK);
    let told = async |who: &str| {
        let page: v1::EventList = serde_json::from_value(served.get(who, "/events").await.body).unwrap();
        page.items.into_iter().filter_map(|event| Some(event.job_id?.to_string())).collect::<BTreeSet<_>>()
    };
    assert_eq!(told("vic").await, jobs.iter().cloned().collect());
    assert_eq!(told("bob").await, BTreeSet::from([jobs[0].clone()]));
    for (job, project) in jobs.iter().zip(["free", "club", "vault"]).skip(1) {
        let own: v1::EventList =
            serde_json::from_value(served.get("vic", &format!("/events?job={job}")).await.body).unwrap();
        let path = format!("/events/{}/chain", own.items[0].seq);
        assert_eq!(served.get("vic", &path).await.status, StatusCode::OK);
        assert_eq!(served.get("bob", &path).await.problem(StatusCode::NOT_FOUND), "not_found");
        assert_eq!(served.get("bob", &format!("/events?project={project}")).await.body["items"], json!([]));
    }

    let resumed = asked(Method::GET, "bob", "/stream").header("last-event-id", "0");
    let resumed = served.router.clone().oneshot(resumed.body(Body::empty()).unwrap()).await.unwrap();
    let mut resumed = resumed.into_body().into_data_stream();
    served.submit("ada", JOB, "last").await;
    let heard = super::service::until(&mut resumed, "event: job\n").await;
    assert!(heard.contains(&jobs[0]) && !heard.contains(&jobs[1]) && !heard.contains(&jobs[2]), "{heard}");
}

#[tokio::test]
async fn the_timeline_tells_of_jobs_what_lists_do() {
    let People { served, jobs } = People::there().await;
    let told = async |who: &str| {
        let drawn: v1::Timeline = serde_json::from_value(served.get(who, "/timeline").await.body).unwrap();
        drawn.lanes.into_iter().map(|lane| lane.id.to_string()).collect::<BTreeSet<_>>()
    };
    assert_eq!(told("vic").await, jobs.iter().cloned().collect());
    assert_eq!(told("bob").await, BTreeSet::from([jobs[0].clone(), jobs[1].clone()]));
    let named = served.get("bob", &format!("/timeline?job={}", jobs[2])).await;
    assert_eq!(named.body["lanes"], json!([]));
}

#[tokio::test]
async fn members_are_named_by_the_projects_admin_and_inherited_by_its_parts() {
    let People { served, .. } = People::there().await;
    let part = json!({"parent": "club"});
    assert_eq!(served.send_json(Method::PUT, "root", "/projects/part", &part).await.status, StatusCode::CREATED);
    let submitted = served.send_json(Method::POST, "una", "/jobs", &job_in("part")).await;
    assert_eq!(submitted.status, StatusCode::CREATED, "{}", submitted.body);
    let refused = served.send_json(Method::POST, "bob", "/jobs", &job_in("part")).await;
    assert_eq!((refused.problem(StatusCode::FORBIDDEN), &refused.body["field"]), ("forbidden", &json!("project")));
    assert!(refused.body["hint"].as_str().unwrap().contains("members of the project from the role user on"));
    let put = served.send_json(Method::PUT, "pam", "/projects/part/members/bob", &json!({"role": "user"})).await;
    assert_eq!(put.status, StatusCode::OK, "{}", put.body);
    assert_eq!(served.send_json(Method::POST, "bob", "/jobs", &job_in("part")).await.status, StatusCode::CREATED);
    let nobody = served.send_json(Method::PUT, "pam", "/projects/part/members/nobody", &json!({"role": "user"})).await;
    assert_eq!(nobody.problem(StatusCode::NOT_FOUND), "not_found");
    let members: v1::MemberList =
        serde_json::from_value(served.get("una", "/projects/part/members").await.body).unwrap();
    let own: Vec<_> = members.items.iter().filter(|one| one.project == "part").map(|one| &*one.user).collect();
    assert_eq!((own, members.items.len()), (vec!["bob"], 5));
    let delete = |path: &str| asked(Method::DELETE, "root", path).body(Body::empty()).unwrap();
    assert_eq!(served.send(delete("/projects/part")).await.problem(StatusCode::CONFLICT), "wrong_state");
    assert_eq!(served.send(delete("/projects/part/members/bob")).await.status, StatusCode::OK);
    assert_eq!(served.send(delete("/projects/part/members/bob")).await.problem(StatusCode::CONFLICT), "wrong_state");
    assert_eq!(served.send(delete("/projects/part")).await.status, StatusCode::OK);
}

//! Jobs over REST: submitted, checked, changed, shown.

use super::*;

#[tokio::test]
async fn a_key_submits_once_and_only_one_body() {
    let served = Served::start().await;
    let first = served.submit("ada", JOB, "k1").await;
    assert_eq!(first.status, StatusCode::CREATED, "{}", first.body);
    assert_eq!(first.headers["location"], format!("/api/v1/jobs/{}", first.id()));
    assert_eq!(first.headers["idempotency-replayed"], "false");
    let again = served.submit("ada", JOB, "k1").await;
    assert_eq!((again.status, again.id()), (StatusCode::CREATED, first.id()));
    assert_eq!(again.headers["idempotency-replayed"], "true");
    let other = served.submit("ada", &JOB.replace("first", "second"), "k1").await;
    assert_eq!(other.problem(StatusCode::CONFLICT), "idempotency_key_reused");
    assert_ne!(served.submit("bob", JOB, "k1").await.id(), first.id(), "a key belongs to its caller");
}

#[tokio::test]
async fn a_batch_is_stored_as_a_whole_and_a_dry_run_not_at_all() {
    let served = Served::start().await;
    let job = |name: &str| json!({"version": 1, "name": name, "resources": {"gpus": 1}, "run": {"command": ["true"]}});
    let good = json!({"jobs": [job("a"), job("b")]});
    let checked = served.send_json(Method::POST, "ada", "/jobs?dry_run=true", &good).await;
    assert_eq!((checked.status, &checked.body["jobs"][1]["name"]), (StatusCode::OK, &json!("b")));
    assert_eq!(checked.body["jobs"][0]["feasible"], false, "there is no node");
    assert_eq!(checked.body["jobs"][0]["start_left_out"], "no round has been planned yet");
    assert_eq!(served.get("eve", "/jobs").await.body["items"], json!([]));
    let bad = json!({"jobs": [job("a"), job("")]});
    let answer = served.send_json(Method::POST, "ada", "/jobs", &bad).await;
    answer.problem(StatusCode::UNPROCESSABLE_ENTITY);
    assert!(answer.body["field"].as_str().unwrap().starts_with("jobs[1]"), "{}", answer.body);
    assert_eq!(served.send_json(Method::POST, "ada", "/jobs", &good).await.status, StatusCode::CREATED);
    let first = served.get("eve", "/jobs?limit=1").await.body;
    let rest =
        served.get("eve", &format!("/jobs?limit=1&cursor={}", first["next_cursor"].as_str().unwrap())).await.body;
    // Ids of one batch share their millisecond, so which comes first is chance.
    let names = BTreeSet::from([first, rest.clone()].map(|page| page["items"][0]["name"].as_str().unwrap().to_owned()));
    assert_eq!(names, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    assert_eq!(rest["next_cursor"], Value::Null);
}

#[tokio::test]
async fn a_job_is_changed_by_its_owner_or_an_admin_and_by_nobody_else() {
    let served = Served::start().await;
    assert_eq!(served.submit("eve", JOB, "k").await.problem(StatusCode::FORBIDDEN), "forbidden");
    let id = served.submit("ada", JOB, "k").await.id();
    let job = format!("/jobs/{id}");
    assert_eq!(served.post("bob", &format!("{job}/hold")).await.problem(StatusCode::FORBIDDEN), "forbidden");
    let reason = json!({"reason": "until the data is there"});
    let held = served.send_json(Method::POST, "ada", &format!("{job}/hold"), &reason).await;
    assert_eq!((held.status, &held.body["state"]), (StatusCode::OK, &json!("held")));
    let why = served.get("eve", &format!("{job}/explain")).await;
    assert_eq!(why.body["headline"], "on hold until it is released: until the data is there");
    assert_eq!(why.body["reasons"].as_array().unwrap().len(), 1, "told once: {}", why.body["reasons"]);

    let tag = served.get("eve", &job).await.headers["etag"].clone();
    let patch = |tag: &str| {
        let request = asked(Method::PATCH, "root", &job).header("content-type", "application/json");
        request.header("if-match", tag).body(Body::from(json!({"priority": 80}).to_string())).unwrap()
    };
    assert_eq!(served.send(patch("\"9\"")).await.problem(StatusCode::PRECONDITION_FAILED), "version_changed");
    let patched = served.send(patch(tag.to_str().unwrap())).await;
    assert_eq!((patched.status, &patched.body["priority"]), (StatusCode::OK, &json!(80)));
    assert_ne!(patched.headers["etag"], tag);
    assert_eq!(served.post("ada", &format!("{job}/cancel")).await.body["state"], "cancelled");
    assert_eq!(served.post("ada", &format!("{job}/release")).await.problem(StatusCode::CONFLICT), "wrong_state");
}

#[tokio::test]
async fn a_job_that_is_cancelled_again_is_as_it_was_asked_to_be_and_other_ends_are_conflicts() {
    let served = Served::start().await;
    let job = format!("/jobs/{}", served.submit("ada", JOB, "k").await.id());
    for again in ["", "", "?dry_run=true"] {
        let cancelled = served.post("ada", &format!("{job}/cancel{again}")).await;
        let (status, state) = (cancelled.status, &cancelled.body["state"]);
        assert_eq!((status, state), (StatusCode::OK, &json!("cancelled")), "{}", cancelled.body);
    }
    let events = served.get("eve", &format!("{job}/events?verb=job.cancelled")).await.body;
    assert_eq!(events["items"].as_array().unwrap().len(), 1, "it was cancelled once: {events}");
    assert_eq!(served.post("ada", &format!("{job}/hold")).await.problem(StatusCode::CONFLICT), "wrong_state");
    assert_eq!(served.post("bob", &format!("{job}/cancel")).await.problem(StatusCode::FORBIDDEN), "forbidden");
}

#[tokio::test]
async fn what_is_known_already_is_not_sent_again() {
    let served = Served::start().await;
    let job = format!("/jobs/{}", served.submit("ada", JOB, "k").await.id());
    for path in [job.as_str(), "/policy"] {
        let read = served.get("ada", path).await;
        let tag = read.headers["etag"].to_str().unwrap().to_owned();
        let ask = |tag: &str| asked(Method::GET, "ada", path).header("if-none-match", tag).body(Body::empty()).unwrap();
        let known = served.send(ask(&tag)).await;
        assert_eq!((known.status, &known.body), (StatusCode::NOT_MODIFIED, &json!("")), "{path}");
        assert_eq!(known.headers["etag"].to_str().unwrap(), tag);
        assert_eq!(served.send(ask("\"9-0000000000000000\"")).await.status, StatusCode::OK, "{path}");
    }
    // What is sent as If-Match is the version, whatever the rest of the body is by then.
    let tag = served.get("ada", &job).await.headers["etag"].to_str().unwrap().to_owned();
    let hold = served.post("ada", &format!("{job}/hold")).await;
    assert_eq!(hold.status, StatusCode::OK);
    let patch = asked(Method::PATCH, "ada", &job).header("content-type", "application/json").header("if-match", &tag);
    let patched = served.send(patch.body(Body::from(r#"{"priority": 40}"#)).unwrap()).await;
    assert_eq!(patched.problem(StatusCode::PRECONDITION_FAILED), "version_changed");
}

#[tokio::test]
async fn a_compressed_body_is_refused_as_one() {
    let served = Served::start().await;
    let request = asked(Method::POST, "ada", "/jobs").header("content-type", "application/json");
    let answer = served.send(request.header("content-encoding", "gzip").body(Body::from("\x1f")).unwrap()).await;
    assert_eq!(answer.problem(StatusCode::UNSUPPORTED_MEDIA_TYPE), "unsupported_media_type");
    assert_eq!(answer.body["field"], "Content-Encoding");
}

#[tokio::test]
async fn a_job_is_pinned_and_its_sizes_and_labels_change() {
    let served = Served::start().await;
    let yaml = "{version: 1, name: first, resources: {gpus: {min: 1, max: 8}}, training: {model: gpt2-124m, \
        reference_batch: 64 sequences}, deadline: 2999-01-01T00:00:00Z, budget: {gpu_hours: 12}, \
        elastic: {min_share: 0.5}, run: {command: [a]}}";
    let submitted = served.submit("ada", yaml, "k").await;
    let shown = &submitted.body["jobs"][0];
    assert_eq!((&shown["budget_gpu_hours"], &shown["min_share"]), (&json!(12.0), &json!(0.5)), "{}", submitted.body);
    assert_eq!(shown["deadline"], "2999-01-01T00:00:00Z");
    let job = format!("/jobs/{}", submitted.id());
    let reason = json!({"reason": "demo at noon"});
    assert_eq!(
        served.send_json(Method::POST, "bob", &format!("{job}/pin"), &reason).await.status,
        StatusCode::FORBIDDEN
    );
    let pinned = served.send_json(Method::POST, "ada", &format!("{job}/pin"), &reason).await;
    assert_eq!((&pinned.body["pin"]["by"], &pinned.body["pin"]["reason"]), (&json!("ada"), &json!("demo at noon")));
    assert_eq!(served.post("ada", &format!("{job}/unpin")).await.body["pin"], Value::Null);
    assert_eq!(served.post("ada", &format!("{job}/unpin")).await.problem(StatusCode::CONFLICT), "wrong_state");
    let patch = json!({"gpus_max": 4, "labels": {"exp": "b"}, "time_limit_seconds": 3600.0});
    let patched = served.send_json(Method::PATCH, "ada", &job, &patch).await;
    assert_eq!((&patched.body["gpus_max"], &patched.body["labels"]["exp"]), (&json!(4), &json!("b")));
    assert_eq!(patched.body["priority"], 50, "what is not named stays");
    let wrong = served.send_json(Method::PATCH, "ada", &job, &json!({"gpus_min": 5})).await;
    assert_eq!(wrong.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid");
    let events = served.get("eve", &format!("{job}/events")).await;
    assert_eq!(events.body["items"][0]["verb"], "job.changed");
}

#[tokio::test]
async fn a_job_that_was_cancelled_is_put_back_once_per_key() {
    let served = Served::start().await;
    let id = served.submit("ada", JOB, "k").await.id();
    let job = format!("/jobs/{id}");
    let queued = served.post("ada", &format!("{job}/requeue")).await;
    assert_eq!(queued.problem(StatusCode::CONFLICT), "wrong_state");
    assert_eq!(queued.body["detail"], "job is queued already");
    assert_eq!(served.post("ada", &format!("{job}/cancel")).await.body["state"], "cancelled");
    assert_eq!(served.post("bob", &format!("{job}/requeue")).await.problem(StatusCode::FORBIDDEN), "forbidden");
    let dry = served.post("ada", &format!("{job}/requeue?dry_run=true")).await;
    assert_eq!(dry.body["state"], "queued", "{}", dry.body);
    assert_eq!(served.get("eve", &job).await.body["state"], "cancelled");
    let asked = || {
        let request = asked(Method::POST, "ada", &format!("{job}/requeue")).header("content-type", "application/json");
        request.header("idempotency-key", "again").body(Body::from(json!({"reason": "new data"}).to_string())).unwrap()
    };
    let back = served.send(asked()).await;
    assert_eq!(
        (back.status, &back.body["state"], &back.body["ended_at"]),
        (StatusCode::OK, &json!("queued"), &Value::Null)
    );
    assert_eq!(served.post("ada", &format!("{job}/cancel")).await.body["state"], "cancelled");
    let again = served.send(asked()).await;
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(served.get("eve", &job).await.body["state"], "cancelled", "it was done once");
    let events = served.get("eve", &format!("{job}/events")).await.body;
    let said = events["items"].as_array().unwrap().iter().filter(|one| one["verb"] == "job.requeued").count();
    assert_eq!(said, 1, "{events}");
    let deed = served.get("root", "/audit?limit=50").await.body;
    assert!(deed.to_string().contains("requeue_job"), "{deed}");
}

#[tokio::test]
async fn a_priority_above_high_is_for_admins_to_give() {
    let served = Served::start().await;
    let of = |priority: u8| JOB.replace("version: 1,", &format!("version: 1, priority: {priority},"));
    for (who, path) in [("ada", "/jobs"), ("ada", "/jobs?dry_run=true"), ("eve", "/jobs/validate")] {
        let request = asked(Method::POST, who, path).header("content-type", "application/yaml");
        let refused = served.send(request.body(Body::from(of(76))).unwrap()).await;
        assert_eq!(refused.problem(StatusCode::FORBIDDEN), "priority_above_role", "{path}");
        assert_eq!(refused.body["field"], "priority");
        let detail = refused.body["detail"].as_str().unwrap();
        assert!(detail.contains("first") && detail.contains("76") && detail.contains("75"), "{detail}");
        assert!(refused.body["hint"].as_str().unwrap().contains("admin"), "{}", refused.body);
    }
    let job = |priority: u8| json!({"version": 1, "name": "a", "priority": priority, "resources": {"gpus": 1}, "run": {"command": ["a"]}});
    let batch = served.send_json(Method::POST, "ada", "/jobs", &json!({"jobs": [job(75), job(100)]})).await;
    assert_eq!(batch.problem(StatusCode::FORBIDDEN), "priority_above_role");
    assert_eq!(batch.body["field"], "jobs[1].priority");
    assert_eq!(served.get("eve", "/jobs").await.body["items"], json!([]), "nothing of it is stored");

    let submitted = served.submit("ada", &of(75), "k").await;
    assert_eq!(submitted.status, StatusCode::CREATED, "{}", submitted.body);
    let path = format!("/jobs/{}", submitted.id());
    let raised = served.send_json(Method::PATCH, "ada", &path, &json!({"priority": 76})).await;
    assert_eq!(raised.problem(StatusCode::FORBIDDEN), "priority_above_role");
    assert_eq!(served.send_json(Method::PATCH, "root", &path, &json!({"priority": 100})).await.body["priority"], 100);
    let labels = served.send_json(Method::PATCH, "ada", &path, &json!({"labels": {"exp": "b"}})).await;
    assert_eq!(labels.body["priority"], 100, "what an admin gave stays: {}", labels.body);
    assert_eq!(served.submit("root", &of(100), "k").await.status, StatusCode::CREATED);
}

/// Every route that is read, each with a job, a node and a project of the cluster filled in.
fn readings(id: &str, plan: &str, node: &str) -> Vec<String> {
    let read = super::contract::operations().into_iter().filter(|(method, ..)| *method == Method::GET);
    let paths = read.map(|(_, path, _)| path).filter(|path| path != "/stream");
    let plans = |path: &str| path.starts_with("/plans/");
    paths.map(|path| super::contract::filled(&path, if plans(&path) { plan } else { id }, node)).collect()
}

#[tokio::test]
async fn what_a_jobs_environment_holds_is_shown_to_its_owner_and_operators_alone() {
    let served = Served::start().await;
    let node = served.add_node().await.to_string();
    let stream = served.router.clone().oneshot(asked(Method::GET, "eve", "/stream").body(Body::empty()).unwrap());
    let mut stream = stream.await.unwrap().into_body().into_data_stream();
    let yaml = JOB.replace("[sleep, '1']", "[sleep, '1'], env: {HF_TOKEN: hf_abracadabra}");
    let submitted = served.submit("ada", &yaml, "k").await;
    assert!(!submitted.body.to_string().contains("abracadabra"), "a reply is kept as it is");
    let id = submitted.id();
    let heard = super::service::until(&mut stream, "event: job\n").await;
    assert!(!heard.contains("abracadabra"), "{heard}");
    let plan = served.until("eve", "/plans/current", |answer| answer.status == StatusCode::OK).await.body;
    let plan = plan["id"].as_str().unwrap();
    served.until("eve", &format!("/plans/{plan}/input"), |answer| answer.status == StatusCode::OK).await;
    for reader in ["eve", "bob"] {
        for path in readings(&id, plan, &node) {
            let body = served.get(reader, &path).await.body;
            assert!(!body.to_string().contains("abracadabra"), "{reader} reads it in {path}: {body}");
        }
        let spec = served.get(reader, &format!("/jobs/{id}")).await.body["spec"].clone();
        assert_eq!(spec["run"]["env"], json!({"HF_TOKEN": null}), "names stay visible to {reader}");
        let again = served.send_json(Method::POST, "bob", "/jobs", &spec).await;
        assert_eq!(again.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid", "no job runs with a value left out");
    }
    for reader in ["ada", "opal", "root"] {
        let own = served.get(reader, &format!("/jobs/{id}")).await.body;
        assert_eq!(own["spec"]["run"]["env"]["HF_TOKEN"], "hf_abracadabra", "{reader}");
    }
}

#[tokio::test]
async fn a_jobs_page_shows_what_was_asked_and_what_happened() {
    let served = Served::start().await;
    let id = served.submit("ada", JOB, "k").await.id();
    let shown = served.get("eve", &format!("/jobs/{id}")).await;
    let detail: v1::JobDetail = serde_json::from_value(shown.body).unwrap();
    assert_eq!((detail.job.name.as_str(), detail.job.owner.as_str()), ("first", "ada"));
    let again = served.send_json(Method::POST, "bob", "/jobs", &detail.spec).await;
    assert_eq!(again.status, StatusCode::CREATED, "what is shown can be submitted: {}", again.body);
    for (list, field) in [("allocations", "items"), ("checkpoints", "items"), ("series", "points"), ("curve", "points")]
    {
        assert_eq!(served.get("eve", &format!("/jobs/{id}/{list}")).await.body[field], json!([]), "{list}");
    }
    let events = served.get("eve", &format!("/jobs/{id}/events")).await;
    assert_eq!(events.body["items"][0]["verb"], "job.submitted");
    assert_eq!(events.body["items"][0]["actor"], "user:ada");
    assert_eq!(served.get("eve", &format!("/jobs/{id}/logs")).await.problem(StatusCode::CONFLICT), "not_started");
}

#[tokio::test]
async fn whatever_is_posted_is_done_once_per_key() {
    let served = Served::start().await;
    let id = served.submit("ada", JOB, "k").await.id();
    let post = |path: String, key: &str, body: &str| {
        let request = asked(Method::POST, "ada", &path).header("content-type", "application/json");
        request.header("idempotency-key", key).body(Body::from(body.to_owned())).unwrap()
    };
    let pin = format!("/jobs/{id}/pin");
    let first = served.send(post(pin.clone(), "p", r#"{"reason": "a demo"}"#)).await;
    assert_eq!((first.status, first.headers.get("idempotency-replayed")), (StatusCode::OK, None));
    served.post("ada", &format!("/jobs/{id}/unpin")).await;
    let again = served.send(post(pin.clone(), "p", r#"{"reason": "a demo"}"#)).await;
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(again.body, first.body, "what was answered first, though it is not pinned any more");
    assert_eq!(served.get("eve", &format!("/jobs/{id}")).await.body["pin"], Value::Null, "it is not pinned again");
    let other = served.send(post(pin.clone(), "p", r#"{"reason": "another"}"#)).await;
    assert_eq!(other.problem(StatusCode::CONFLICT), "idempotency_key_reused");
    // A key counts for its route; what was refused may be asked again.
    let cancel = format!("/jobs/{id}/cancel");
    let refused = served.send(post(format!("/jobs/{id}/release"), "p", "")).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert_eq!(served.send(post(cancel.clone(), "p", "{}")).await.status, StatusCode::OK);
    let again = served.send(post(cancel, "p", "{}")).await;
    assert_eq!((again.status, &again.headers["idempotency-replayed"]), (StatusCode::OK, &"true".parse().unwrap()));
    let once = served.submit("ada", JOB, "k").await;
    assert_eq!(
        (once.status, &once.body["jobs"][0]["state"]),
        (StatusCode::CREATED, &json!("queued")),
        "it is cancelled by now"
    );
    assert_eq!(once.headers["location"], format!("/api/v1/jobs/{id}"));
    let bad = served.send(post(pin, "", "{}")).await;
    assert_eq!(bad.problem(StatusCode::BAD_REQUEST), "bad_request");
}

#[tokio::test]
async fn a_check_tells_what_quotas_say() {
    let served = Served::start().await;
    let rules = json!({"quota_gpus": 4, "borrow_gpus": 4});
    served.send_json(Method::PUT, "root", "/projects/nlp", &rules).await;
    for (gpus, verdict) in [(4, "within"), (8, "borrows"), (16, "never")] {
        let job = json!({"version": 1, "name": "a", "project": "nlp", "resources": {"gpus": gpus}, "run": {"command": ["a"]}});
        let answer = served.send_json(Method::POST, "ada", "/jobs/validate", &job).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        let quota = &answer.body["jobs"][0]["quota"];
        assert_eq!((&quota["verdict"], &quota["needed_gpus"]), (&json!(verdict), &json!(gpus)));
    }
    let free = json!({"version": 1, "name": "a", "resources": {"gpus": 1}, "run": {"command": ["a"]}});
    let answer = served.send_json(Method::POST, "ada", "/jobs/validate", &free).await;
    assert_eq!(answer.body["jobs"][0]["quota"], Value::Null);
}

#[tokio::test]
async fn what_can_never_run_is_refused_at_submit_with_what_comes_closest() {
    let served = Served::start().await;
    served.add_node().await;
    let job =
        |resources: Value| json!({"version": 1, "name": "a", "resources": resources, "run": {"command": ["true"]}});
    let large = job(json!({"gpus": 1_000}));
    let refused = served.send_json(Method::POST, "ada", "/jobs", &large).await;
    assert_eq!(refused.problem(StatusCode::UNPROCESSABLE_ENTITY), "never_fits");
    assert_eq!(refused.body["field"], "resources.gpus");
    let detail = "a cannot run on this cluster: it needs 1000 GPUs of one node class, and the largest has 1";
    assert_eq!(refused.body["detail"], detail);
    let hint = refused.body["hint"].as_str().unwrap();
    assert!(hint.contains("could run on 1 GPU") && hint.contains("wait_for_nodes"), "{hint}");
    let batch = json!({"jobs": [job(json!({"gpus": 1})), large]});
    let refused = served.send_json(Method::POST, "ada", "/jobs", &batch).await;
    assert_eq!(refused.problem(StatusCode::UNPROCESSABLE_ENTITY), "never_fits");
    assert_eq!(refused.body["field"], "jobs[1].resources.gpus");
    for (resources, code, field) in [
        (json!({"gpus": {"min": 1, "max": 1, "type": "H1O0"}}), "unknown_gpu_type", "resources.gpus.type"),
        (json!({"gpus": {"min": 1, "max": 1, "type": "B200"}}), "wrong_gpu_type", "resources.gpus.type"),
        (json!({"gpus": 1, "per_node": {"memory": "99TiB"}}), "host_resources", "resources.per_node"),
    ] {
        let refused = served.send_json(Method::POST, "ada", "/jobs", &job(resources)).await;
        assert_eq!((refused.problem(StatusCode::UNPROCESSABLE_ENTITY), &refused.body["field"]), (code, &json!(field)));
    }
    assert_eq!(served.get("eve", "/jobs").await.body["items"], json!([]), "nothing was stored");
    let waits = served.send_json(Method::POST, "ada", "/jobs?wait_for_nodes=true", &job(json!({"gpus": 1_000}))).await;
    assert_eq!(waits.status, StatusCode::CREATED, "{}", waits.body);
}

#[tokio::test]
async fn layouts_and_batches_that_can_never_be_have_codes_of_their_own() {
    let served = Served::start().await;
    served.add_node_of(8).await;
    let job = |tp: u32, batch: &str| {
        let training = json!({"model": "gpt2-124m", "reference_batch": batch, "layouts": {"tp": [tp], "pp": [1]}});
        let gpus = json!({"gpus": 8});
        json!({"version": 1, "name": "a", "resources": gpus, "training": training, "run": {"command": ["true"]}})
    };
    for (job, code, field) in [
        (job(3, "64 sequences"), "layout_infeasible", "training.layouts"),
        (job(1, "4 sequences"), "batch_infeasible", "training.batch"),
    ] {
        let refused = served.send_json(Method::POST, "ada", "/jobs", &job).await;
        assert_eq!((refused.problem(StatusCode::UNPROCESSABLE_ENTITY), &refused.body["field"]), (code, &json!(field)));
    }
}

#[tokio::test]
async fn a_key_is_replayed_though_the_job_could_not_run_any_more() {
    let served = Served::start().await;
    let large = JOB.replace("gpus: 1", "gpus: 64");
    let first = served.submit("ada", &large, "k").await;
    assert_eq!(first.status, StatusCode::CREATED, "without nodes nobody says never: {}", first.body);
    served.add_node().await;
    let again = served.submit("ada", &large, "k").await;
    assert_eq!((again.status, again.id()), (StatusCode::CREATED, first.id()));
    assert_eq!(served.submit("ada", &large, "k2").await.problem(StatusCode::UNPROCESSABLE_ENTITY), "never_fits");
}

#[tokio::test]
async fn a_gpu_type_is_known_by_its_beginning() {
    let served = Served::start().await;
    served.add_node().await;
    let of = served.get("eve", "/nodes").await.body["items"][0]["gpu_type"].as_str().unwrap().to_owned();
    let yaml = JOB.replace("gpus: 1", &format!("gpus: {{min: 1, max: 1, type: {}}}", &of[..of.len() - 1]));
    let submitted = served.submit("ada", &yaml, "k").await;
    assert_eq!(submitted.status, StatusCode::CREATED, "{}", submitted.body);
    let detail = served.get("eve", &format!("/jobs/{}", submitted.id())).await;
    assert_eq!(detail.body["spec"]["resources"]["gpus"]["type"], json!([of]));
}

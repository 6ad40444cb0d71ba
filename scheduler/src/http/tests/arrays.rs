//! Arrays over REST, and what a job's owner wants of its size.

use super::*;

fn array(name: &str, array: Value, after: &Value) -> Value {
    json!({"version": 1, "name": name, "resources": {"gpus": 1}, "array": array, "after": after,
        "run": {"command": ["sleep", "{array_index}"], "env": {"INDEX": "{array_index}"}}})
}

async fn submitted(served: &Served, who: &str, body: &Value) -> String {
    let reply = served.send_json(Method::POST, who, "/jobs", body).await;
    assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.body);
    reply.body["jobs"][0]["array"]["array_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_array_is_submitted_read_and_acted_on_as_one() {
    let served = Served::start().await;
    let body = array("sweep", json!({"range": "0-9:3", "parallel": 2}), &json!([]));
    let checked = served.send_json(Method::POST, "ada", "/jobs?dry_run=true", &body).await;
    assert_eq!(
        (checked.status, checked.body["jobs"].as_array().unwrap().len()),
        (StatusCode::OK, 1),
        "{}",
        checked.body
    );
    let reply = served.send_json(Method::POST, "ada", "/jobs", &body).await;
    assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.body);
    let names: Vec<&str> =
        reply.body["jobs"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["sweep[0]", "sweep[3]", "sweep[6]", "sweep[9]"]);
    let id = reply.body["jobs"][0]["array"]["array_id"].as_str().unwrap().to_owned();
    assert_eq!(reply.headers["location"], format!("/api/v1/arrays/{id}"));

    let of = served.get("ada", &format!("/arrays/{id}?limit=3")).await.body;
    assert_eq!((&of["range"], &of["count"], &of["parallel"]), (&json!("0-9:3"), &json!(4), &json!(2)), "{of}");
    assert_eq!((&of["by_state"], &of["waiting_for_array"]), (&json!({"queued": 4}), &json!(2)));
    assert_eq!(of["elements"].as_array().unwrap().len(), 3);
    let next = of["next_cursor"].as_str().unwrap();
    let rest = served.get("ada", &format!("/arrays/{id}?cursor={next}")).await.body;
    assert_eq!((&rest["elements"][0]["name"], &rest["next_cursor"]), (&json!("sweep[9]"), &Value::Null));
    let waits = &rest["elements"][0]["waiting"];
    assert_eq!(waits["code"], "array_limit", "{waits}");
    assert_eq!(
        waits["headline"],
        "waits for others of array sweep to end: 0 run and 2 may start, and it allows 2 at once"
    );
    let listed = served.get("ada", "/arrays?live=true&q=WEE").await.body;
    assert_eq!(listed["items"][0]["id"], id.as_str());
    assert_eq!(served.get("ada", "/arrays?live=false").await.body["items"], json!([]));
    assert_eq!(
        served.get("ada", "/overview").await.body["gpus_waited_for"],
        2,
        "only those that may start wait for GPUs"
    );

    let wider = served.send_json(Method::PATCH, "ada", &format!("/arrays/{id}"), &json!({"parallel": 3})).await;
    assert_eq!((wider.status, &wider.body["parallel"]), (StatusCode::OK, &json!(3)), "{}", wider.body);
    assert_eq!(served.get("ada", &format!("/arrays/{id}")).await.body["waiting_for_array"], 1);
    for (patch, status) in [(json!({}), 422), (json!({"parallel": 0}), 422), (json!({"parallel": 2, "x": 1}), 422)] {
        let refused = served.send_json(Method::PATCH, "ada", &format!("/arrays/{id}"), &patch).await;
        assert_eq!(refused.status.as_u16(), status, "{patch}: {}", refused.body);
    }
    let supposed = served.post("ada", &format!("/arrays/{id}/cancel?dry_run=true")).await;
    assert_eq!((supposed.status, &supposed.body["touched"]), (StatusCode::OK, &json!(4)), "{}", supposed.body);
    let held = served.send_json(Method::POST, "ada", &format!("/arrays/{id}/hold"), &json!({"reason": "wait"})).await;
    assert_eq!((&held.body["touched"], held.status), (&json!(4), StatusCode::OK), "{}", held.body);
    assert_eq!(served.get("ada", &format!("/arrays/{id}")).await.body["by_state"], json!({"held": 4}));
    assert_eq!(served.post("ada", &format!("/arrays/{id}/release")).await.body["touched"], 4);
    assert_eq!(served.post("ada", &format!("/arrays/{id}/release")).await.problem(StatusCode::CONFLICT), "wrong_state");
    assert_eq!(served.post("ada", &format!("/arrays/{id}/cancel")).await.body["touched"], 4);
    for again in ["", "?dry_run=true"] {
        let cancelled = served.post("ada", &format!("/arrays/{id}/cancel{again}")).await;
        assert_eq!(cancelled.status, StatusCode::OK, "{again}: {}", cancelled.body);
        assert_eq!((&cancelled.body["touched"], &cancelled.body["id"]), (&json!(0), &json!(id)));
    }
    let over = served.post("ada", &format!("/arrays/{id}/hold")).await;
    over.problem(StatusCode::CONFLICT);
    assert_eq!(over.body["detail"], "all elements of array sweep have ended");
    let audit = served.get("root", &format!("/audit?subject=array:{id}")).await.body;
    let actions: Vec<&str> =
        audit["items"].as_array().unwrap().iter().map(|line| line["action"].as_str().unwrap()).collect();
    assert!(
        ["submit", "update_array", "hold_array", "release_array", "cancel_array"]
            .iter()
            .all(|one| actions.contains(one)),
        "{audit}"
    );
}

#[tokio::test]
async fn whoever_waits_names_the_array_by_name_or_id() {
    let served = Served::start().await;
    let id = submitted(&served, "ada", &array("sweep", json!("0-2"), &json!([]))).await;
    for on in ["sweep", id.as_str()] {
        let eval = json!({"version": 1, "name": "eval", "resources": {"gpus": 1}, "run": {"command": ["true"]}, "after": [{"job": on}]});
        let reply = served.send_json(Method::POST, "ada", "/jobs", &eval).await;
        assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.body);
        let eval = served.get("ada", &format!("/jobs/{}", reply.id())).await.body;
        assert_eq!((&eval["after"][0]["array_id"], &eval["after"][0]["name"]), (&json!(id), &json!("sweep")), "{eval}");
        assert_eq!(eval["waiting"]["headline"], "waits for sweep to succeed");
    }
    let element = json!({"version": 1, "name": "one", "resources": {"gpus": 1}, "run": {"command": ["true"]}, "after": [{"job": "sweep[1]"}]});
    let reply = served.send_json(Method::POST, "ada", "/jobs", &element).await;
    assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.body);
    let array = served.get("ada", &format!("/arrays/{id}")).await.body;
    assert_eq!(array["dependents"].as_array().unwrap().len(), 2, "{array}");
    served.post("ada", &format!("/arrays/{id}/cancel")).await;
    let ended = served.get("ada", "/jobs?q=eval").await.body;
    let cause = ended["items"][0]["state_cause"].as_str().unwrap();
    assert_eq!(
        cause,
        "cancelled by scheduler: it waits for sweep to succeed, and sweep has elements that were cancelled"
    );
    let late = json!({"version": 1, "name": "late", "resources": {"gpus": 1}, "run": {"command": ["true"]}, "after": [{"job": "sweep"}]});
    let refused = served.send_json(Method::POST, "ada", "/jobs", &late).await;
    refused.problem(StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refused.body["detail"].as_str().unwrap().contains("can never be met"), "{}", refused.body);
}

#[tokio::test]
async fn a_list_shows_an_array_as_one_row_and_its_pages_miss_nothing() {
    let served = Served::start().await;
    let mut expected = Vec::new();
    for number in 0..4 {
        served
            .send_json(
                Method::POST,
                "ada",
                "/jobs",
                &json!({"version": 1, "name": format!("single-{number}"),
            "resources": {"gpus": 1}, "run": {"command": ["true"]}}),
            )
            .await;
        expected.push(format!("single-{number}"));
        submitted(&served, "ada", &array(&format!("grid-{number}"), json!("0-4"), &json!([]))).await;
        expected.push(format!("grid-{number}[0]"));
    }
    expected.reverse();
    let (mut names, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let after = cursor.map_or(String::new(), |cursor| format!("&cursor={cursor}"));
        let page = served.get("ada", &format!("/jobs?arrays=collapsed&limit=3{after}")).await.body;
        for row in page["items"].as_array().unwrap() {
            names.push(row["name"].as_str().unwrap().to_owned());
            let is_array = row["stands_for"]["count"] == 5 && row["stands_for"]["by_state"] == json!({"queued": 5});
            assert_eq!(is_array, row["name"].as_str().unwrap().starts_with("grid"), "{row}");
        }
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(names, expected);
    let expanded = served.get("ada", "/jobs?limit=500&totals=true").await.body;
    assert_eq!((expanded["items"].as_array().unwrap().len(), &expanded["totals"]["jobs"]), (24, &json!(24)));
    // The condition is that of any element.
    let last = served.get("ada", "/jobs?q=grid-3[4]").await.body["items"][0]["id"].as_str().unwrap().to_owned();
    served.post("ada", &format!("/jobs/{last}/cancel")).await;
    let cancelled = served.get("ada", "/jobs?arrays=collapsed&state=cancelled").await.body;
    assert_eq!(cancelled["items"].as_array().unwrap().len(), 1, "{cancelled}");
    assert_eq!(cancelled["items"][0]["stands_for"]["by_state"], json!({"cancelled": 1, "queued": 4}));
    let id = cancelled["items"][0]["stands_for"]["id"].as_str().unwrap();
    let elements = served.get("ada", &format!("/jobs?array={id}&state=live&sort=priority")).await.body;
    assert_eq!(elements["items"].as_array().unwrap().len(), 4);
    served.get("ada", "/jobs?arrays=collapsed&sort=name").await.problem(StatusCode::BAD_REQUEST);
    served.get("ada", "/jobs?arrays=folded").await.problem(StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn what_is_no_array_is_refused_at_its_field() {
    let served = Served::start().await;
    let mut told = Vec::new();
    for of in [json!({"range": "0-1000"}), json!({"range": "9-0"}), json!({}), json!({"range": "0-9", "parallel": 0})] {
        let refused = served.send_json(Method::POST, "ada", "/jobs", &array("sweep", of, &json!([]))).await;
        refused.problem(StatusCode::UNPROCESSABLE_ENTITY);
        told.push(format!("{}: {}", refused.body["field"].as_str().unwrap(), refused.body["detail"].as_str().unwrap()));
    }
    let many = json!({"jobs": [array("a", json!("0-599"), &json!([])), array("b", json!("0-599"), &json!([]))]});
    let refused = served.send_json(Method::POST, "ada", "/jobs", &many).await;
    told.push(refused.body["detail"].as_str().unwrap().to_owned());
    let index = json!({"version": 1, "name": "a", "resources": {"gpus": 1}, "run": {"command": "echo {array_index}"}});
    let refused = served.send_json(Method::POST, "ada", "/jobs", &index).await;
    told.push(refused.body["detail"].as_str().unwrap().to_owned());
    insta::assert_snapshot!(told.join("\n"), @r"
    array.range: an array has 1000 elements at most, not 1001
    array.range: 9-0 goes down
    array.range: is required
    array.parallel: must be a whole number from 1 to 1048576, not 0
    1200 jobs at once; at most 1000, elements of arrays counted
    {array_index} has no value for a job that is no array
    ");
}

#[tokio::test]
async fn an_array_of_a_private_project_is_nobodys_to_know_of() {
    let served = Served::start().await;
    served.send_json(Method::PUT, "root", "/projects/secret", &json!({})).await;
    served.send_json(Method::PUT, "root", "/projects/secret/members/ada", &json!({"role": "user"})).await;
    served.send_json(Method::PATCH, "root", "/projects/secret", &json!({"private": true})).await;
    let mut body = array("manhattan", json!("0-2%1"), &json!([]));
    body["project"] = json!("secret");
    let id = submitted(&served, "ada", &body).await;
    assert_eq!(served.get("ada", &format!("/arrays/{id}")).await.status, StatusCode::OK);
    for path in [format!("/arrays/{id}"), format!("/arrays/{id}?limit=1")] {
        served.get("eve", &path).await.problem(StatusCode::NOT_FOUND);
    }
    served.post("eve", &format!("/arrays/{id}/cancel")).await.problem(StatusCode::NOT_FOUND);
    for path in ["/arrays", "/jobs", "/jobs?arrays=collapsed", "/events", "/queue", "/overview"] {
        let told = served.get("eve", path).await;
        assert_eq!(told.status, StatusCode::OK, "{path}");
        let told = told.body.to_string();
        assert!(!told.contains("manhattan") && !told.contains(&id), "{path}: {told}");
    }
    let eval = json!({"version": 1, "name": "eval", "resources": {"gpus": 1}, "run": {"command": ["true"]}, "after": [{"job": id}]});
    let refused = served.send_json(Method::POST, "bob", "/jobs", &eval).await;
    refused.problem(StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_job_is_resized_by_its_owner_or_told_what_comes_closest() {
    let served = Served::start().await;
    let job = json!({"version": 1, "name": "train", "resources": {"gpus": {"min": 1, "max": 2, "sizes": [1, 2]}},
        "training": {"curve": {"1": 1.0, "2": 1.9}, "seq_len": 128, "precision": "bf16", "reference_batch": "8 sequences", "layouts": "auto"},
        "run": {"command": ["true"]}});
    let reply = served.send_json(Method::POST, "ada", "/jobs?wait_for_nodes=true", &job).await;
    assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.body);
    let id = reply.id();
    let resize =
        async |who: &str, body: &Value| served.send_json(Method::POST, who, &format!("/jobs/{id}/resize"), body).await;
    let one = resize("ada", &json!({"gpus": 1, "reason": "the deadline"})).await;
    assert_eq!(
        (one.status, &one.body["gpus_min"], &one.body["gpus_max"]),
        (StatusCode::OK, &json!(1), &json!(1)),
        "{}",
        one.body
    );
    let refused = resize("ada", &json!({"min": 3, "max": 5})).await;
    refused.problem(StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(refused.body["detail"], "the job takes no size of 3 to 5 GPUs; the closest it takes is 2");
    for wrong in [json!({}), json!({"gpus": 1, "max": 2}), json!({"min": 1}), json!({"gpus": 0})] {
        resize("ada", &wrong).await.problem(StatusCode::UNPROCESSABLE_ENTITY);
    }
    resize("eve", &json!({"gpus": 2})).await.problem(StatusCode::FORBIDDEN);
    let told = served.get("ada", &format!("/jobs/{id}/events")).await.body.to_string();
    assert!(told.contains("ada wants train on 1 GPU: the deadline"), "{told}");
    let patch = json!({"elastic": {"min_runtime_seconds": 0, "max_resizes_per_hour": 9, "max_overhead_pct": 50, "min_share": 0.5}});
    let changed = served.send_json(Method::PATCH, "ada", &format!("/jobs/{id}"), &patch).await;
    assert_eq!((changed.status, &changed.body["min_share"]), (StatusCode::OK, &json!(0.5)), "{}", changed.body);
    let elastic = served.get("ada", &format!("/jobs/{id}")).await.body["spec"]["elastic"].clone();
    assert_eq!(
        elastic,
        json!({"min_runtime": "0s", "max_resizes_per_hour": 9, "max_overhead_pct": 50.0, "min_share": 0.5})
    );
    let wrong = json!({"elastic": {"max_overhead_pct": 101}});
    let refused = served.send_json(Method::PATCH, "ada", &format!("/jobs/{id}"), &wrong).await;
    refused.problem(StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(refused.body["field"], "elastic.max_overhead_pct");
    // Beyond what the project may have.
    served.send_json(Method::PUT, "root", "/projects/default", &json!({"quota_gpus": 1})).await;
    let refused = resize("ada", &json!({"gpus": 2})).await;
    assert_eq!(refused.problem(StatusCode::UNPROCESSABLE_ENTITY), "quota", "{}", refused.body);
    assert_eq!(refused.body["hint"], "the closest size that its quota admits is 1");
}

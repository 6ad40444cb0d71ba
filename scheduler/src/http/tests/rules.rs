//! Rules and questions over REST: projects, reservations, the policy, what if.

use super::*;

#[tokio::test]
async fn a_project_is_made_changed_and_deleted_by_admins() {
    let served = Served::start().await;
    let put = |path: &str, header: &str, value: &str, body: &Value| {
        let request = asked(Method::PUT, "root", path).header("content-type", "application/json");
        request.header(header, value).body(Body::from(body.to_string())).unwrap()
    };
    let rules = json!({"quota_gpus": 8, "borrow_gpus": 4});
    let denied = served.send_json(Method::PUT, "ada", "/projects/nlp", &rules).await;
    assert_eq!(denied.problem(StatusCode::FORBIDDEN), "forbidden");
    let checked = served.send_json(Method::PUT, "root", "/projects/nlp?dry_run=true", &rules).await;
    assert_eq!((checked.status, &checked.body["weight"]), (StatusCode::OK, &json!(1.0)));
    assert_eq!(served.get("eve", "/projects/nlp").await.problem(StatusCode::NOT_FOUND), "not_found");
    let made = served.send(put("/projects/nlp", "if-none-match", "*", &rules)).await;
    assert_eq!((made.status, &made.headers["etag"]), (StatusCode::CREATED, &"\"1\"".parse().unwrap()));
    let twice = served.send(put("/projects/nlp", "if-none-match", "*", &rules)).await;
    assert_eq!(twice.problem(StatusCode::CONFLICT), "wrong_state");
    let more = json!({"quota_gpus": 16});
    let stale = served.send(put("/projects/nlp", "if-match", "\"7\"", &more)).await;
    assert_eq!(stale.problem(StatusCode::PRECONDITION_FAILED), "version_changed");
    let changed = served.send(put("/projects/nlp", "if-match", "\"1\"", &more)).await;
    assert_eq!((&changed.body["version"], &changed.body["borrow_gpus"]), (&json!(2), &json!(0)), "{}", changed.body);
    let wrong = [json!({"parent": "nlp"}), json!({"parent": "none"}), json!({"floor_gpus": 2, "quota_gpus": 1})];
    for body in wrong {
        let refused = served.send_json(Method::PUT, "root", "/projects/nlp", &body).await;
        assert_eq!(refused.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid");
    }
    let listed: v1::ProjectList = serde_json::from_value(served.get("eve", "/projects").await.body).unwrap();
    assert_eq!((listed.items.len(), listed.items[0].rules.quota_gpus), (1, Some(16)));
    let delete = || asked(Method::DELETE, "root", "/projects/nlp").body(Body::empty()).unwrap();
    assert_eq!(served.send(delete()).await.status, StatusCode::OK);
    assert_eq!(served.send(delete()).await.problem(StatusCode::NOT_FOUND), "not_found");
    let events = served.get("eve", "/events").await.body;
    assert_eq!(
        (&events["items"][0]["verb"], &events["items"][0]["actor"]),
        (&json!("project.deleted"), &json!("user:root"))
    );
}

#[tokio::test]
async fn a_reservation_needs_nodes_that_are_there() {
    let served = Served::start().await;
    let wanted = json!({"name": "demo", "nodes": ["nowhere"], "until": "2999-01-01T00:00:00Z", "projects": ["nlp"]});
    let denied = served.send_json(Method::POST, "ada", "/reservations", &wanted).await;
    assert_eq!(denied.problem(StatusCode::FORBIDDEN), "forbidden");
    let refused = served.send_json(Method::POST, "root", "/reservations", &wanted).await;
    assert_eq!(refused.problem(StatusCode::NOT_FOUND), "not_found");
    assert_eq!(refused.body["field"], "nodes");
    let mut both = wanted;
    both["duration_seconds"] = json!(60.0);
    let refused = served.send_json(Method::POST, "root", "/reservations", &both).await;
    assert_eq!(refused.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid");
    assert_eq!(served.get("eve", "/reservations").await.body["items"], json!([]));
    let none = "/reservations/01890000-0000-7000-8000-000000000000";
    let delete = asked(Method::DELETE, "root", none).body(Body::empty()).unwrap();
    assert_eq!(served.send(delete).await.problem(StatusCode::NOT_FOUND), "not_found");
}

#[tokio::test]
async fn a_maintenance_window_is_for_nobody_and_is_found_where_its_location_points() {
    let served = Served::start().await;
    let node = served.add_node().await.to_string();
    let wanted = |more: Value| {
        let mut wanted = json!({"name": "psu-swap", "nodes": [node], "duration_seconds": 3_600.0});
        wanted.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        wanted
    };
    let ask = async |more: Value| served.send_json(Method::POST, "opal", "/reservations", &wanted(more)).await;
    for wrong in [json!({}), json!({"maintenance": true, "users": ["ada"]})] {
        let refused = ask(wrong).await;
        assert_eq!(refused.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid");
        assert!(refused.body["detail"].as_str().unwrap().contains("maintenance"), "{}", refused.body);
    }
    let made = ask(json!({"maintenance": true})).await;
    assert_eq!((made.status, &made.body["maintenance"]), (StatusCode::CREATED, &json!(true)), "{}", made.body);
    let place = made.headers["location"].to_str().unwrap().trim_start_matches("/api/v1").to_owned();
    let found = served.get("eve", &place).await;
    assert_eq!((found.status, &found.body["id"]), (StatusCode::OK, &made.body["id"]));
    assert_eq!((&found.body["maintenance"], &found.body["users"]), (&json!(true), &json!([])));

    // It has begun, so nobody is planned onto the node.
    let job = served.submit("ada", JOB, "k").await.id();
    let waits = |answer: &Answer| answer.body["headline"].as_str().is_some_and(|told| told.contains("psu-swap"));
    served.until("eve", &format!("/jobs/{job}/explain"), waits).await;
    let deleted = served.send(asked(Method::DELETE, "opal", &place).body(Body::empty()).unwrap()).await;
    assert_eq!(deleted.status, StatusCode::OK);
    assert_eq!(served.get("eve", &place).await.problem(StatusCode::NOT_FOUND), "not_found");
    served.until("eve", &format!("/jobs/{job}"), |answer| answer.body["state"] == "starting").await;
}

#[tokio::test]
async fn a_reservation_shows_what_it_costs_and_its_nodes_show_it() {
    let served = Served::start().await;
    let node = served.add_node().await.to_string();
    let job = served.submit("ada", JOB, "k").await.id();
    served.until("eve", &format!("/jobs/{job}"), |answer| answer.body["state"] == "starting").await;
    let wanted = json!({"name": "r9", "nodes": [node], "from": "2999-01-01T00:00:00Z", "duration_seconds": 3_600.0,
        "projects": ["nlp"], "reason": "the board watches"});
    let supposed = served.send_json(Method::POST, "opal", "/reservations?dry_run=true", &wanted).await;
    let made = served.send_json(Method::POST, "opal", "/reservations", &wanted).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    assert_eq!(supposed.body["cost"], made.body["cost"], "{}", supposed.body);
    let cost = &made.body["cost"];
    assert_eq!(cost["gpus"].as_f64(), cost["gpu_hours"].as_f64(), "{cost}");
    assert_eq!((&cost["jobs"][0]["job_id"], &cost["jobs"][0]["ending"]), (&json!(job), &json!("unsaved")), "{cost}");
    let id = &made.body["id"];
    let node = served.get("eve", &format!("/nodes/{node}")).await.body;
    let reserved = &node["reservations"][0];
    assert_eq!((&reserved["id"], &reserved["name"], &reserved["active"]), (id, &json!("r9"), &json!(false)));
    let seen = served.get("eve", &format!("/reservations/{}", id.as_str().unwrap())).await.body;
    assert_eq!((&seen["cost"], &seen["reason"]), (cost, &json!("the board watches")), "{seen}");
    let listed = served.get("eve", "/reservations").await.body;
    assert_eq!((&listed["items"][0]["cost"], &listed["items"][0]["reason"]), (cost, &seen["reason"]), "{listed}");
    let line = served.get("root", "/audit?action=create_reservation").await.body;
    assert_eq!(line["items"][0]["reason"], seen["reason"], "{line}");
}

#[tokio::test]
async fn a_reservation_that_has_begun_shows_no_cost_and_closes_its_node() {
    let served = Served::start().await;
    let node = served.add_node().await.to_string();
    let wanted = json!({"name": "psu-swap", "nodes": [node], "duration_seconds": 3_600.0, "maintenance": true});
    let mut long = wanted.clone();
    long["reason"] = json!("x".repeat(501));
    let refused = served.send_json(Method::POST, "opal", "/reservations", &long).await;
    assert_eq!(refused.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid");
    let made = served.send_json(Method::POST, "opal", "/reservations", &wanted).await.body;
    assert!(made["cost"].is_object(), "{made}");
    let seen = served.get("eve", &format!("/reservations/{}", made["id"].as_str().unwrap())).await.body;
    assert_eq!((seen.get("cost"), seen.get("reason")), (None, None), "{seen}");
    let closed = |answer: &Answer| answer.body["takes_work"] == false;
    let health = served.until("eve", &format!("/nodes/{node}/health"), closed).await.body;
    assert_eq!(health["reservation"]["name"], "psu-swap", "{health}");
    let gpus = served.get("eve", &format!("/nodes/{node}/gpus")).await.body;
    assert_eq!((&gpus["reservation"]["name"], &gpus["gpus"][0]["activity"]), (&json!("psu-swap"), &json!("reserved")));
    let topology = served.get("eve", "/topology").await.body;
    assert_eq!(topology["domains"][0]["gpus_free"], 0, "{topology}");
}

#[tokio::test]
async fn a_policy_of_an_older_client_resets_nothing_it_does_not_know() {
    let served = Served::start().await;
    let mut policy = served.get("eve", "/policy").await.body;
    policy["objective"] = json!("least_attained");
    policy["patience_seconds"] = Value::Null;
    assert_eq!(served.send_json(Method::PUT, "root", "/policy", &policy).await.status, StatusCode::OK);
    for unknown in ["objective", "patience_seconds", "max_moves", "power_cap", "usage_half_life_seconds"] {
        policy.as_object_mut().unwrap().remove(unknown);
    }
    let kept = served.send_json(Method::PUT, "root", "/policy", &policy).await.body;
    assert_eq!((&kept["objective"], &kept["patience_seconds"]), (&json!("least_attained"), &Value::Null));
    policy["objective"] = json!("best");
    let refused = served.send_json(Method::PUT, "root", "/policy", &policy).await;
    assert_eq!(refused.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid");
}

#[tokio::test]
async fn a_site_states_rows_of_its_own_and_what_is_wrong_with_one_is_named() {
    let served = Served::start().await;
    let policy = served.get("eve", "/policy").await.body;
    assert_eq!(policy["rows"], json!([]));
    let put = async |who: &str, rows: Value| {
        let mut policy = policy.clone();
        policy["rows"] = rows;
        served.send_json(Method::PUT, who, "/policy", &policy).await
    };
    let team = json!({"name": "team-x", "amount": {"label": "team=x"}, "at_most": 64});
    assert_eq!(put("ada", json!([team])).await.problem(StatusCode::FORBIDDEN), "forbidden");
    let wrong = [
        (json!({"project": "nlp"}), "rows.amount.project", "row few: no project nlp"),
        (json!({"gpu_type": "H100-80G"}), "rows.amount.gpu_type", "row few: no node has GPUs of type H100-80G"),
        (json!({"node": "n1"}), "rows.amount.node", "row few: no node n1"),
        (json!({}), "rows.amount", "must be at least one of gpu_type, project, label and node"),
    ];
    for (amount, field, told) in wrong {
        let refused = put("root", json!([{"name": "few", "amount": amount, "at_most": 0}])).await;
        assert_eq!(refused.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid");
        assert_eq!(refused.body["field"], field);
        assert!(refused.body["detail"].as_str().unwrap().contains(told), "{}", refused.body);
    }
    let twice = put("root", json!([team, team])).await;
    assert_eq!(twice.body["detail"], "rows.name is team-x, it must be another name for each row", "{}", twice.body);
    for unread in [json!({"label": "team"}), json!({"lable": "team=x"})] {
        let refused = put("root", json!([{"name": "few", "amount": unread, "at_most": 1}])).await;
        assert_eq!(refused.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid");
    }
    let negative = put("root", json!([{"name": "few", "amount": {"label": "team=x"}, "at_most": -1}])).await;
    assert_eq!(negative.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid");

    assert_eq!(served.send_json(Method::PUT, "root", "/projects/nlp", &json!({})).await.status, StatusCode::CREATED);
    let nlp = json!({"name": "few", "amount": {"project": "nlp", "label": "team=a=b"}, "at_most": 0});
    let stated = put("root", json!([team, nlp])).await;
    assert_eq!((stated.status, &stated.body["rows"]), (StatusCode::OK, &json!([team, nlp])));
    // A row outlives its project, and keeps nobody from other settings.
    let gone = asked(Method::DELETE, "root", "/projects/nlp").body(Body::empty()).unwrap();
    assert_eq!(served.send(gone).await.status, StatusCode::OK);
    assert_eq!(put("root", json!([team, nlp])).await.status, StatusCode::OK);
    let mut older = policy.clone();
    older.as_object_mut().unwrap().remove("rows");
    let kept = served.send_json(Method::PUT, "root", "/policy", &older).await;
    assert_eq!(kept.body["rows"], json!([team, nlp]));
    assert_eq!(served.post("root", "/plans/rebalance").await.status, StatusCode::OK);
    let wider = json!({"rows": {"team-x": 128}});
    assert_eq!(served.send_json(Method::POST, "eve", "/plans/simulate", &wider).await.status, StatusCode::OK);
    let unknown = served.send_json(Method::POST, "eve", "/plans/simulate", &json!({"rows": {"x": 1}})).await;
    assert_eq!(unknown.problem(StatusCode::NOT_FOUND), "not_found");
    assert_eq!(put("root", json!([])).await.body["rows"], json!([]));
}

#[tokio::test]
async fn what_if_is_asked_of_the_newest_round_and_changes_nothing() {
    let served = Served::start().await;
    let id = served.submit("ada", JOB, "k").await.id();
    assert_eq!(served.post("root", "/plans/rebalance").await.status, StatusCode::OK);
    let why = served.get("eve", &format!("/jobs/{id}/explain")).await.body;
    let why: v1::Explanation = serde_json::from_value(why).unwrap();
    assert_eq!(why.funnel[0].name, "in the cluster");
    assert!(!why.counterfactuals.is_empty() && why.counterfactuals.iter().all(|one| !one.possible));
    // Each as what would have to be changed for it, too: who applies one reads no sentence.
    let kinds: Vec<&str> =
        why.counterfactuals.iter().flat_map(|one| &one.changes).map(|one| one.kind.as_str()).collect();
    assert_eq!(kinds, ["force"]);
    assert!(why.counterfactuals[0].changes[0].job_id.is_some_and(|job| job.to_string() == id));
    assert!(why.predicted_start.is_some_and(|start| start.p10.is_none() && start.reason.is_some()));

    let ask = async |body: Value| served.send_json(Method::POST, "eve", "/plans/simulate", &body).await;
    let forced = ask(json!({"force": {"job_id": id}})).await;
    assert_eq!(
        (forced.status, &forced.body["outcome"]["possible"]),
        (StatusCode::OK, &json!(false)),
        "{}",
        forced.body
    );
    assert_eq!(forced.body["outcome"]["changes"], json!([{"kind": "force", "job_id": id}]));
    let gone = ask(json!({"jobs_gone": [id]})).await;
    assert_eq!(
        (gone.status, &gone.body["outcome"]["changes"]),
        (StatusCode::OK, &json!([{"kind": "gone", "job_id": id}]))
    );
    assert_eq!(ask(json!({"nodes_back": [id]})).await.problem(StatusCode::NOT_FOUND), "not_found");
    assert_eq!(ask(json!({})).await.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid");
    let detail: v1::JobDetail = serde_json::from_value(served.get("eve", &format!("/jobs/{id}")).await.body).unwrap();
    let another = ask(json!({"jobs": [detail.spec]})).await;
    assert_eq!(another.body["outcome"]["gpus"], 0, "{}", another.body);
    assert_eq!(served.get("eve", "/jobs").await.body["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_policy_is_changed_in_part_and_only_as_it_was_read() {
    let served = Served::start().await;
    let patch = |tag: Option<&str>, body: Value| {
        let request = asked(Method::PATCH, "root", "/policy").header("content-type", "application/json");
        let request = tag.map_or(request, |tag| {
            asked(Method::PATCH, "root", "/policy").header("content-type", "application/json").header("if-match", tag)
        });
        request.body(Body::from(body.to_string())).unwrap()
    };
    let read = served.get("eve", "/policy").await;
    let tag = read.headers["etag"].to_str().unwrap().to_owned();
    let changed = served.send(patch(Some(&tag), json!({"min_gain": 0.05, "max_moves": 3}))).await;
    assert_eq!((changed.status, &changed.body["min_gain"]), (StatusCode::OK, &json!(0.05)), "{}", changed.body);
    assert_eq!(changed.body["horizon_seconds"], read.body["horizon_seconds"], "what is not named stays");
    assert_ne!(changed.headers["etag"], *tag);
    let stale = served.send(patch(Some(&tag), json!({"mode": "paused"}))).await;
    assert_eq!(stale.problem(StatusCode::PRECONDITION_FAILED), "version_changed");
    assert!(stale.body["detail"].as_str().unwrap().contains("min_gain"), "what has changed since: {}", stale.body);
    let whole =
        asked(Method::PUT, "root", "/policy").header("content-type", "application/json").header("if-match", &*tag);
    let whole = served.send(whole.body(Body::from(read.body.to_string())).unwrap()).await;
    assert_eq!(whole.problem(StatusCode::PRECONDITION_FAILED), "version_changed");
    let lifted = served.send(patch(None, json!({"max_moves": null}))).await;
    assert_eq!((lifted.status, &lifted.body["max_moves"]), (StatusCode::OK, &Value::Null), "{}", lifted.body);
    let unknown = served.send(patch(None, json!({"min_gian": 0.5}))).await;
    assert_eq!(
        (unknown.problem(StatusCode::UNPROCESSABLE_ENTITY), &unknown.body["field"]),
        ("invalid", &json!("min_gian"))
    );
    assert!(unknown.body["hint"].as_str().unwrap().contains("min_gain"), "{}", unknown.body);
    let wrong = served.send(patch(None, json!({"mode": "auto", "power": "much"}))).await;
    assert_eq!((wrong.problem(StatusCode::UNPROCESSABLE_ENTITY), &wrong.body["field"]), ("invalid", &json!("power")));
    let events = served.get("eve", "/events").await.body;
    let told = events["items"][0]["message"].as_str().unwrap();
    assert_eq!(told, "the policy: max_moves 3 becomes null");
}

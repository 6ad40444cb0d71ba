//! Jobs that come before others, over REST.

use super::*;

fn job(name: &str, after: &Value) -> Value {
    json!({"version": 1, "name": name, "resources": {"gpus": 1}, "run": {"command": ["true"]}, "after": after})
}

async fn submit(served: &Served, who: &str, body: &Value) -> Answer {
    served.send_json(Method::POST, who, "/jobs", body).await
}

#[tokio::test]
async fn a_chain_is_submitted_as_one_and_told_from_both_sides() {
    let served = Served::start().await;
    let on = |job: &str| json!([{"job": job}]);
    let chain = json!({"jobs": [job("test", &on("train")), job("train", &on("prep")), job("prep", &json!([]))]});
    let checked = served.send_json(Method::POST, "ada", "/jobs?dry_run=true", &chain).await;
    assert_eq!(checked.body["jobs"][0]["waits_for"], json!(["waits for train to succeed"]), "{}", checked.body);
    assert_eq!(checked.body["jobs"][2]["waits_for"], json!([]));
    let submitted = submit(&served, "ada", &chain).await;
    assert_eq!(submitted.status, StatusCode::CREATED, "{}", submitted.body);
    let ids: Vec<String> = (0..3).map(|at| submitted.body["jobs"][at]["id"].as_str().unwrap().to_owned()).collect();
    let train = served.get("eve", &format!("/jobs/{}", ids[1])).await.body;
    let (after, dependents) = (&train["after"][0], &train["dependents"][0]);
    assert_eq!(
        (&after["name"], &after["standing"], &after["state"]),
        (&json!("prep"), &json!("open"), &json!("queued"))
    );
    assert_eq!((&dependents["name"], &dependents["on"]), (&json!("test"), &json!("success")));
    assert_eq!(train["spec"]["after"], json!([{"job": "prep", "on": "success"}]), "as it was written");
    assert_eq!(train["waiting"]["code"], "dependency");
    let why = served.get("eve", &format!("/jobs/{}/explain", ids[1])).await.body;
    assert_eq!(why["headline"], "waits for prep to succeed", "{why}");
    assert_eq!(served.get("eve", "/overview").await.body["gpus_waited_for"], 1, "only the first waits for GPUs");

    served.post("ada", &format!("/jobs/{}/cancel", ids[2])).await;
    let ended = served.get("eve", &format!("/jobs/{}", ids[0])).await.body;
    assert_eq!(ended["state_cause"], "cancelled by scheduler: it waits for train to succeed, and train was cancelled");
    let after = &ended["after"][0];
    assert_eq!((&after["standing"], &after["state"]), (&json!("never"), &json!("cancelled")));
    let prep = served.get("eve", &format!("/jobs/{}", ids[2])).await.body;
    assert_eq!(prep["dependents"][0]["standing"], "never", "of jobs that have ended, too: {prep}");
    // What ended is judged at once.
    let late = submit(&served, "ada", &job("late", &json!([{"job": "prep", "on": "any"}]))).await;
    let late = served.get("eve", &format!("/jobs/{}", late.id())).await.body;
    assert_eq!((&late["after"][0]["standing"], &late["state"]), (&json!("met"), &json!("queued")));
}

#[tokio::test]
async fn what_names_nobody_is_refused_with_the_nearest_name() {
    let served = Served::start().await;
    assert_eq!(submit(&served, "ada", &job("prepare-data", &json!([]))).await.status, StatusCode::CREATED);
    let on = |job: &str| json!([{"job": job}]);
    let mut told = Vec::new();
    for body in [
        job("a", &on("prepare-dta")),
        job("a", &json!([{"job": "prepare-data"}, {"job": "01890000-0000-7000-8000-000000000000"}])),
        json!({"jobs": [job("a", &on("b")), job("b", &on("a"))]}),
        json!({"jobs": [job("a", &json!([])), job("a", &json!([])), job("b", &on("a"))]}),
        job("a", &json!([{"job": "prepare-data", "on": "sucess"}])),
        job("a", &json!(["prepare-data"])),
    ] {
        for path in ["/jobs", "/jobs?dry_run=true", "/jobs/validate"] {
            let refused = served.send_json(Method::POST, "ada", path, &body).await;
            refused.problem(StatusCode::UNPROCESSABLE_ENTITY);
            let [field, detail, hint] =
                ["field", "detail", "hint"].map(|key| refused.body[key].as_str().unwrap_or_default().to_owned());
            let line = [format!("{field}: {detail}"), hint].join("\n  ").trim_end().to_owned();
            if told.last() != Some(&line) {
                told.push(line);
            }
        }
    }
    insta::assert_snapshot!(told.join("\n"), @r#"
    after[0].job: a waits for prepare-dta, and there is no such job of yours in project default
      did you mean prepare-data?
    after[1].job: a waits for 01890000-0000-7000-8000-000000000000, and there is no such job of yours in project default
      name a job or an array of your own by its name, or any by its whole id (headway ps -o json)
    jobs[0].after: the jobs wait for each other in a circle: a waits for b, b waits for a
      let one of them wait for none of the others
    jobs[2].after[0].job: b waits for a, and 2 jobs of this submission are called so
      give each its own name
    after[0].on: must be one of success, failure, any, start, not "sucess"
    after[0]: must be a mapping, not text
    "#);
    assert_eq!(served.get("eve", "/jobs").await.body["items"].as_array().unwrap().len(), 1, "nothing of it is stored");
    let others = submit(&served, "bob", &job("a", &on("prepare-data"))).await;
    assert_eq!(others.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid", "a name is its owner's");
}

#[tokio::test]
async fn nobody_learns_of_a_private_job_by_waiting_for_it() {
    let served = Served::start().await;
    for project in ["vault", "open"] {
        served.send_json(Method::PUT, "root", &format!("/projects/{project}"), &json!({})).await;
    }
    let in_project = |name: &str, project: &str, after: Value| {
        let mut body = job(name, &after);
        body["project"] = json!(project);
        body
    };
    let hidden = submit(&served, "ada", &in_project("hush", "vault", json!([]))).await.id();
    let role = json!({"role": "user"});
    served.send_json(Method::PUT, "root", "/projects/vault/members/ada", &role).await;
    served.send_json(Method::PATCH, "root", "/projects/vault", &json!({"private": true})).await;
    let on = json!([{"job": hidden}]);
    let stranger = submit(&served, "bob", &in_project("a", "open", on.clone())).await;
    let missing = "01890000-0000-7000-8000-000000000000";
    let unknown = submit(&served, "bob", &in_project("a", "open", json!([{"job": missing}]))).await;
    assert_eq!(stranger.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid");
    let (told, as_unknown) = (stranger.body["detail"].as_str().unwrap(), unknown.body["detail"].as_str().unwrap());
    assert_eq!(told.replace(&hidden, missing), as_unknown);

    let waiting = submit(&served, "ada", &in_project("b", "open", on)).await.id();
    let to_bob = served.get("bob", &format!("/jobs/{waiting}")).await;
    let after = &to_bob.body["after"][0];
    assert_eq!((&after["job_id"], &after["name"], &after["state"]), (&Value::Null, &Value::Null, &Value::Null));
    assert_eq!(after["standing"], "open");
    assert!(!to_bob.body.to_string().contains("hush"), "{}", to_bob.body);
    assert_eq!(served.get("ada", &format!("/jobs/{waiting}")).await.body["after"][0]["name"], "hush");
    let why = served.get("bob", &format!("/jobs/{waiting}/explain")).await.body;
    assert_eq!(why["headline"], "waits for a job of another project to succeed");
}

//! Secrets: who may set, see and use them, and that no value is told or stored anywhere.

use sqlx::{AssertSqlSafe, ConnectOptions};

use super::*;

const VALUE: &str = "hunter22-of-the-team";
const NEEDY: &str = "{version: 1, name: needy, project: nlp, resources: {gpus: 1}, run: {command: train, secrets: {HF_TOKEN: team-hf}}}";

async fn set(served: &Served, who: &str, path: &str) -> Answer {
    served.send_json(Method::PUT, who, path, &json!({"value": VALUE})).await
}

async fn delete(served: &Served, who: &str, path: &str) -> Answer {
    served.send(asked(Method::DELETE, who, path).body(Body::empty()).unwrap()).await
}

async fn with_members(members: &[(&str, &str)]) -> Served {
    let served = Served::start().await;
    let made = served.send_json(Method::PUT, "root", "/projects/nlp", &json!({})).await;
    assert!(made.status.is_success(), "{}", made.body);
    for (user, role) in members {
        let path = format!("/projects/nlp/members/{user}");
        let named = served.send_json(Method::PUT, "root", &path, &json!({"role": role})).await;
        assert_eq!(named.status, StatusCode::OK, "{}", named.body);
    }
    served
}

/// Whether any row of any table holds the text.
async fn stored_anywhere(served: &Served, text: &str) -> Vec<String> {
    let mut connection = served.options.connect().await.unwrap();
    let tables = "SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public'";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut connection).await.unwrap();
    assert!(tables.contains(&"secrets".to_owned()));
    let mut found = Vec::new();
    for table in tables {
        for text in [text.to_owned(), hex::encode(text)] {
            let rows = format!("SELECT count(*) FROM {table} AS row WHERE row::text ILIKE '%{text}%'");
            let rows: i64 = sqlx::query_scalar(AssertSqlSafe(rows)).fetch_one(&mut connection).await.unwrap();
            if rows > 0 {
                found.push(table.clone());
            }
        }
    }
    found
}

#[tokio::test]
async fn a_secret_is_set_replaced_and_deleted_and_nobody_is_told_its_value() {
    let served = Served::start().await;
    let first = set(&served, "ada", "/secrets/HF_TOKEN").await;
    assert_eq!(first.status, StatusCode::CREATED, "{}", first.body);
    let told = (&first.body["scope"], &first.body["owner"], &first.body["set_by"], &first.body["used_at"]);
    assert_eq!(told, (&json!("user"), &json!("ada"), &json!("ada"), &Value::Null));
    assert_eq!(set(&served, "ada", "/secrets/HF_TOKEN").await.status, StatusCode::OK);
    let listed = served.get("ada", "/secrets").await;
    assert_eq!(listed.body["items"].as_array().unwrap().len(), 1);
    assert!(!listed.body.to_string().contains(VALUE) && !first.body.to_string().contains(VALUE));
    assert_eq!(served.get("bob", "/secrets").await.body["items"], json!([]));
    assert_eq!(delete(&served, "bob", "/secrets/HF_TOKEN").await.problem(StatusCode::NOT_FOUND), "not_found");
    assert_eq!(delete(&served, "ada", "/secrets/HF_TOKEN").await.status, StatusCode::NO_CONTENT);
    assert_eq!(served.get("ada", "/secrets").await.body["items"], json!([]));

    let audit = served.get("root", "/audit?subject=secret:HF_TOKEN").await.body["items"].clone();
    let what: Vec<&Value> = audit.as_array().unwrap().iter().map(|line| &line["after"]["value"]).collect();
    assert_eq!(what, [&json!("deleted"), &json!("replaced"), &json!("set")]);
    assert!(!audit.to_string().contains(VALUE));
}

#[tokio::test]
async fn no_table_ever_holds_a_value() {
    let served = with_members(&[("ada", "user")]).await;
    for path in ["/secrets/team-hf?project=nlp", "/secrets/mine"] {
        assert_eq!(set(&served, "root", path).await.status, StatusCode::CREATED);
    }
    assert_eq!(served.submit("ada", NEEDY, "1").await.status, StatusCode::CREATED);
    // Bytes show as hexadecimal digits in a row's text.
    assert_eq!(stored_anywhere(&served, VALUE).await, Vec::<String>::new());
    assert!(!stored_anywhere(&served, "team-hf").await.is_empty(), "the search finds what is there");
}

#[tokio::test]
async fn a_dry_run_sets_and_deletes_nothing() {
    let served = Served::start().await;
    assert_eq!(set(&served, "ada", "/secrets/HF_TOKEN?dry_run=true").await.status, StatusCode::OK);
    assert_eq!(served.get("ada", "/secrets").await.body["items"], json!([]));
    set(&served, "ada", "/secrets/HF_TOKEN").await;
    assert_eq!(delete(&served, "ada", "/secrets/HF_TOKEN?dry_run=true").await.status, StatusCode::NO_CONTENT);
    assert_eq!(served.get("ada", "/secrets").await.body["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_no_secret_is_refused() {
    let served = Served::start().await;
    for (path, body) in [
        ("/secrets/a%2Fb", json!({"value": VALUE})),
        ("/secrets/a", json!({"value": ""})),
        ("/secrets/a", json!({"value": "a\u{0}b"})),
        ("/secrets/a", json!({"value": "x".repeat(40_000)})),
        ("/secrets/a", json!({"value": VALUE, "note": "for the team"})),
    ] {
        let refused = served.send_json(Method::PUT, "ada", path, &body).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{path}: {}", refused.body);
        assert!(!refused.body.to_string().contains(VALUE));
    }
    assert_eq!(set(&served, "eve", "/secrets/a").await.problem(StatusCode::FORBIDDEN), "forbidden");
}

#[tokio::test]
async fn a_projects_secrets_are_kept_by_its_admins_and_used_by_its_members() {
    let served = with_members(&[("ada", "admin"), ("opal", "user")]).await;
    let path = "/secrets/team-hf?project=nlp";
    for stranger in ["opal", "bob"] {
        assert_eq!(set(&served, stranger, path).await.problem(StatusCode::FORBIDDEN), "forbidden");
    }
    assert_eq!(set(&served, "ada", path).await.status, StatusCode::CREATED);
    let listed = served.get("opal", "/secrets?project=nlp").await.body;
    assert_eq!((&listed["items"][0]["name"], &listed["items"][0]["scope"]), (&json!("team-hf"), &json!("project")));
    assert_eq!(served.get("bob", "/secrets?project=nlp").await.problem(StatusCode::FORBIDDEN), "forbidden");
    assert_eq!(set(&served, "ada", "/secrets/a?project=none").await.problem(StatusCode::NOT_FOUND), "not_found");

    for member in ["ada", "opal", "root"] {
        assert_eq!(served.submit(member, NEEDY, "1").await.status, StatusCode::CREATED, "{member}");
    }
    // Whoever may submit there may not use them for that.
    let open =
        "{version: 1, name: needy, project: open, resources: {gpus: 1}, run: {command: train, secrets: [team-hf2]}}";
    served.send_json(Method::PUT, "root", "/projects/open", &json!({})).await;
    assert_eq!(set(&served, "root", "/secrets/HF?project=open").await.status, StatusCode::CREATED);
    let open = open.replace("[team-hf2]", "[HF]");
    let refused = served.submit("bob", &open, "2").await;
    assert_eq!(refused.problem(StatusCode::UNPROCESSABLE_ENTITY), "unknown_secret");
    assert_eq!(refused.body["field"], "run.secrets.HF");
    assert!(refused.body["hint"].as_str().unwrap().contains("headway secret set HF"), "{}", refused.body);
}

#[tokio::test]
async fn a_job_that_names_no_secret_there_is_refused_before_it_is_stored() {
    let served = Served::start().await;
    let needy = NEEDY.replace("nlp", "default");
    assert_eq!(served.submit("ada", &needy, "1").await.problem(StatusCode::UNPROCESSABLE_ENTITY), "unknown_secret");
    set(&served, "bob", "/secrets/team-hf").await;
    assert_eq!(served.submit("ada", &needy, "1").await.problem(StatusCode::UNPROCESSABLE_ENTITY), "unknown_secret");
    set(&served, "ada", "/secrets/team-hf").await;
    let job = served.submit("ada", &needy, "1").await.id();
    let shown = served.get("ada", &format!("/jobs/{job}")).await.body;
    assert_eq!(shown["spec"]["run"]["secrets"], json!({"HF_TOKEN": "team-hf"}));
    // What was admitted stays so, whatever became of the secret.
    delete(&served, "ada", "/secrets/team-hf").await;
    assert_eq!(served.submit("ada", &needy, "1").await.id(), job);
}

//! The list of jobs: filters, orders, totals, and why who waits does.

use super::*;

fn job(name: &str, more: &str) -> String {
    format!("{{version: 1, name: {name}, {more}resources: {{gpus: 1}}, run: {{command: [sleep, '1']}}}}")
}

/// The names that a list shows.
async fn names(served: &Served, query: &str) -> Vec<String> {
    let list = served.get("eve", &format!("/jobs?{query}")).await;
    assert_eq!(list.status, StatusCode::OK, "{query}: {}", list.body);
    let items = list.body["items"].as_array().unwrap();
    items.iter().map(|job| job["name"].as_str().unwrap().to_owned()).collect()
}

/// All pages of a list, two jobs each.
async fn paged(served: &Served, query: &str) -> Vec<String> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let list = served.get("eve", &format!("/jobs?limit=2&{query}{cursor}")).await;
        all.extend(list.body["items"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap().to_owned()));
        match list.body["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

async fn with_five_jobs() -> Served {
    let served = Served::start().await;
    let jobs = [
        ("ada", "bert", "labels: {exp: a, team: x}, "),
        ("bob", "alpha_1", "priority: 70, "),
        ("ada", "Bert-2", "labels: {exp: b}, "),
        ("bob", "alphaX1", "priority: 10, "),
        ("ada", "gpt", "labels: {exp: a}, project: vision, "),
    ];
    for (who, name, more) in jobs {
        assert_eq!(served.submit(who, &job(name, more), name).await.status, StatusCode::CREATED);
    }
    served
}

#[tokio::test]
async fn a_list_is_filtered_by_label_name_and_owner() {
    let served = with_five_jobs().await;
    assert_eq!(names(&served, "label=exp=a").await, ["gpt", "bert"]);
    assert_eq!(names(&served, "label=exp").await, ["gpt", "Bert-2", "bert"]);
    assert_eq!(names(&served, "label=exp=a,team").await, ["bert"]);
    assert_eq!(names(&served, "q=BERT&user=ada").await, ["Bert-2", "bert"]);
    // What stands for anything in a pattern stands for itself in a name.
    assert_eq!(names(&served, "q=alpha_").await, ["alpha_1"]);
    assert_eq!(names(&served, "q=%25").await, [""; 0]);
}

#[tokio::test]
async fn a_job_is_found_by_its_whole_name_or_an_end_of_its_id() {
    let served = with_five_jobs().await;
    assert_eq!(names(&served, "name=bert").await, ["bert"]);
    assert_eq!(names(&served, "name=ber").await, [""; 0]);
    assert_eq!(names(&served, "name=bert&state=live&sort=priority").await, ["bert"]);
    let found = served.get("eve", "/jobs?name=gpt&totals=true").await.body;
    assert_eq!(found["totals"]["jobs"], 1);
    let id = found["items"][0]["id"].as_str().unwrap();
    for end in [&id[28..], &id[30..].to_uppercase(), &id[..35], id] {
        assert_eq!(names(&served, &format!("id={end}")).await, ["gpt"], "{end}");
        assert_eq!(names(&served, &format!("id={end}&state=live&sort=priority")).await, ["gpt"], "{end}");
        assert_eq!(served.get("eve", &format!("/jobs?id={end}&totals=true")).await.body["totals"]["jobs"], 1);
        assert_eq!(names(&served, &format!("id={end}&user=bob")).await, [""; 0], "{end}");
    }
    assert_eq!(names(&served, &format!("id={}", &id[1..20])).await, [""; 0], "what is in the middle is no end");
    let at = "at=2026-03-01T14:02:00Z";
    for (query, field) in [
        ("id=gpt".to_owned(), "id"),
        ("id=".to_owned(), "id"),
        (format!("id=00&{at}"), "id"),
        (format!("name=gpt&{at}"), "name"),
        ("name=gpt&arrays=collapsed".to_owned(), "arrays"),
    ] {
        let refused = served.get("eve", &format!("/jobs?{query}")).await;
        assert_eq!((refused.status, &refused.body["field"]), (StatusCode::BAD_REQUEST, &Value::from(field)), "{query}");
    }
}

#[tokio::test]
async fn a_list_is_sorted_the_same_on_one_page_and_on_many() {
    let served = with_five_jobs().await;
    for sort in
        ["submitted", "-submitted", "name", "-name", "owner", "-owner", "project", "-project", "ended", "-ended"]
    {
        let query = format!("sort={sort}");
        assert_eq!(paged(&served, &query).await, names(&served, &query).await, "{sort}");
    }
    for sort in ["priority", "-priority", "gpus", "goodput", "progress", "lost", "eta", "position"] {
        let query = format!("state=live&sort={sort}");
        let whole = names(&served, &query).await;
        assert_eq!((paged(&served, &query).await, whole.len()), (whole, 5), "{sort}");
    }
    assert_eq!(names(&served, "sort=owner").await, ["gpt", "Bert-2", "bert", "alphaX1", "alpha_1"]);
    assert_eq!(names(&served, "sort=-submitted").await[0], "bert");
    let by_priority = names(&served, "state=live&sort=priority").await;
    assert_eq!((by_priority[0].as_str(), by_priority[4].as_str()), ("alpha_1", "alphaX1"));
    assert_eq!(names(&served, "sort=ended").await, [""; 0]);
}

#[tokio::test]
async fn totals_count_what_the_filter_admits_and_not_the_page() {
    let served = with_five_jobs().await;
    let gpt = served.get("eve", "/jobs?q=gpt").await.body["items"][0]["id"].as_str().unwrap().to_owned();
    served.post("ada", &format!("/jobs/{gpt}/cancel")).await;
    let list = served.get("eve", "/jobs?user=ada&state=live&limit=1&totals=true").await.body;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["totals"]["jobs"], 2);
    assert_eq!(list["totals"]["by_state"], json!({"cancelled": 1, "queued": 2}));
    assert!(served.get("eve", "/jobs").await.body.get("totals").is_none());
}

#[tokio::test]
async fn a_list_has_the_fields_that_are_asked_for() {
    let served = with_five_jobs().await;
    let list = served.get("eve", "/jobs?q=gpt&fields=name,owner").await.body;
    assert_eq!(list["items"], json!([{"name": "gpt", "owner": "ada"}]));
    let unknown = served.get("eve", "/jobs?fields=nmae").await;
    assert_eq!((unknown.problem(StatusCode::BAD_REQUEST), &unknown.body["field"]), ("bad_request", &json!("fields")));
}

#[tokio::test]
async fn what_a_list_cannot_do_is_refused() {
    let served = Served::start().await;
    for query in ["sort=colour", "sort=goodput", "cursor=x", "state=live&sort=gpus&cursor=x", "totals=maybe"] {
        let answer = served.get("eve", &format!("/jobs?{query}")).await;
        assert_eq!(answer.problem(StatusCode::BAD_REQUEST), "bad_request", "{query}");
    }
    let past = served.get("eve", "/jobs?at=2026-03-01T14:02:00Z&label=exp").await;
    assert_eq!(past.body["field"], "label", "{}", past.body);
}

#[tokio::test]
async fn who_waits_says_why_by_the_newest_round() {
    let served = Served::start().await;
    served.add_node().await;
    served.submit("ada", &job("first", ""), "1").await;
    served.until("eve", "/jobs?q=first", |answer| answer.body["items"][0]["state"] == "starting").await;
    let second = served.submit("ada", &job("second", ""), "2").await.id();
    let list =
        served.until("eve", "/jobs?q=second", |answer| answer.body["items"][0]["waiting"]["code"].is_string()).await;
    let waiting = &list.body["items"][0]["waiting"];
    let explained = served.get("eve", &format!("/jobs/{second}/explain")).await.body;
    assert_eq!((&waiting["headline"], &waiting["code"]), (&explained["headline"], &explained["reasons"][0]["code"]));
    let predicted =
        served.until("eve", "/jobs?q=second", |answer| answer.body["items"][0]["waiting"]["position"] == 1).await;
    assert!(predicted.body["items"][0]["waiting"]["p10"].is_string(), "{}", predicted.body);
    assert_eq!(served.get("eve", "/jobs?q=first").await.body["items"][0]["waiting"], Value::Null);
    served.post("ada", &format!("/jobs/{second}/hold")).await;
    let held = served.get("eve", &format!("/jobs/{second}")).await.body;
    assert_eq!((&held["waiting"]["code"], &held["waiting"]["position"]), (&json!("held"), &Value::Null));
}

#[tokio::test]
async fn a_cursor_of_another_sort_or_filter_is_refused() {
    let served = with_five_jobs().await;
    let first = served.get("eve", "/jobs?limit=2&sort=name&user=ada").await.body;
    let cursor = first["next_cursor"].as_str().unwrap();
    let same = served.get("eve", &format!("/jobs?user=ada&sort=name&limit=1&totals=true&cursor={cursor}")).await;
    assert_eq!(same.status, StatusCode::OK, "{}", same.body);
    for other in ["sort=-name&user=ada", "sort=name&user=bob", "sort=name", "user=ada", "sort=name&user=ada&state=live"]
    {
        let refused = served.get("eve", &format!("/jobs?limit=2&{other}&cursor={cursor}")).await;
        assert_eq!(refused.problem(StatusCode::BAD_REQUEST), "bad_request", "{other}");
        assert_eq!(refused.body["field"], "cursor");
        assert!(refused.body["detail"].as_str().unwrap().contains("another sort or filter"), "{}", refused.body);
    }
    let queue = served.get("eve", &format!("/queue?cursor={cursor}")).await;
    assert_eq!(queue.problem(StatusCode::BAD_REQUEST), "bad_request");
    let invented = served.get("eve", "/jobs?cursor=01890000-0000-7000-8000-000000000000").await;
    assert_eq!(invented.body["detail"], "this is no cursor of such a list");
}

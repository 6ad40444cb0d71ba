//! A login that failed, as a person in a browser sees it: there is no page of ours yet that could say it.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::super::problem::Problem;

/// A page where a browser shows it, problem+json else.
pub fn shown(problem: Problem, headers: &HeaderMap) -> Response {
    let accepts = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    if !accepts.is_some_and(|accept| accept.contains("text/html")) {
        return problem.into_response();
    }
    let (status, text) = (problem.status(), in_html(&problem));
    // Of the same status and headers, such as when to come again.
    let mut response = problem.into_response();
    *response.body_mut() = text.into();
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    for (name, value) in [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn in_html(problem: &Problem) -> String {
    let hint = problem.hinted().map(|hint| format!("<p class=\"muted\">{}</p>", escaped(hint))).unwrap_or_default();
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
        <meta name=\"color-scheme\" content=\"light dark\"><title>Headway: not logged in</title><style>\
        :root{{--page:#f9f9f7;--surface:#fcfcfb;--ink:#0b0b0b;--muted:#52514e;--line:#e1e0d9;--link:#2a5fc4}}\
        @media(prefers-color-scheme:dark){{:root{{--page:#0d0d0d;--surface:#1a1a19;--ink:#fff;--muted:#c3c2b7;--line:#2c2c2a;--link:#8ab4f8}}}}\
        body{{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif;display:grid;place-items:center;min-height:100vh}}\
        main{{box-sizing:border-box;width:min(480px,calc(100% - 32px));padding:24px;background:var(--surface);border:1px solid var(--line);\
        border-radius:8px;overflow-wrap:anywhere}}\
        h1{{font-size:18px;margin:0 0 12px}}.muted{{color:var(--muted)}}a{{color:var(--link)}}</style>\
        <main><h1>You are not logged in</h1><p>{}</p>{hint}<p><a href=\"/\">Back to the login page</a></p></main></html>",
        escaped(problem.detailed())
    )
}

fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, one| {
        match one {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            one => escaped.push(one),
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stranger_says_is_no_markup() {
        let problem = Problem::forbidden("<script>alert(\"1\")</script>").hint("'&'");
        let page = in_html(&problem);
        assert!(!page.contains("<script>") && page.contains("&lt;script&gt;") && page.contains("&#39;&amp;&#39;"));
        let plain = shown(problem.clone(), &HeaderMap::new());
        assert_eq!(plain.headers()[header::CONTENT_TYPE], "application/problem+json");
        let browser = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("text/html,*/*"))]);
        let shown = shown(problem, &browser);
        assert_eq!(
            (shown.status().as_u16(), &shown.headers()[header::CONTENT_TYPE]),
            (403, &HeaderValue::from_static("text/html; charset=utf-8"))
        );
    }
}

//! Takes out of a text what may open something: tokens, what stands in URLs beside their host, values of variables whose names say that they are secret.

/// In place of what was taken out.
const GONE: &str = "[redacted]";
/// What tokens of Headway begin with.
const TOKEN: &str = "hw_";
/// Names with one of these have values that nobody is told.
const SECRET_NAMES: &[&str] =
    &["token", "secret", "password", "passwd", "credential", "apikey", "api_key", "private_key"];
/// Schemes of URLs that may carry something in their path or query.
const SCHEMES: &[&str] = &["http", "https", "postgres", "postgresql"];

/// The text without what may open something.
pub fn redacted(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let before = kept.chars().next_back();
        let begins = !before.is_some_and(is_word);
        let (put, taken) = match begins.then(|| found(rest)).flatten() {
            Some(found) => found,
            None => (String::from(first), first.len_utf8()),
        };
        kept.push_str(&put);
        rest = &rest[taken..];
    }
    kept
}

/// What the text begins with that must not be told: what to put in its place, and how much of the text that is.
fn found(text: &str) -> Option<(String, usize)> {
    token(text).or_else(|| url(text)).or_else(|| bearer(text)).or_else(|| assignment(text))
}

fn token(text: &str) -> Option<(String, usize)> {
    let secret = text.strip_prefix(TOKEN)?;
    let length = secret.find(|one| !is_word(one)).unwrap_or(secret.len());
    (length >= 8).then(|| (GONE.into(), TOKEN.len() + length))
}

/// Of a URL its scheme, host and port are told.
fn url(text: &str) -> Option<(String, usize)> {
    let scheme = SCHEMES.iter().find(|scheme| text.starts_with(&format!("{scheme}://")))?;
    let begins = scheme.len() + 3;
    let ends = text[begins..].find(ends_url).map_or(text.len(), |at| begins + at);
    let whole = &text[begins..ends];
    let (authority, beyond) = whole.split_at(whole.find(['/', '?', '#']).unwrap_or(whole.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let hidden = authority.len() != host.len() || beyond.len() > 1;
    let tail = if hidden { format!("/{GONE}") } else { beyond.into() };
    Some((format!("{scheme}://{host}{tail}"), ends))
}

fn bearer(text: &str) -> Option<(String, usize)> {
    let word = ["Bearer ", "bearer "].into_iter().find(|word| text.starts_with(word))?;
    let length = text[word.len()..].find(ends_value).unwrap_or(text.len() - word.len());
    (length > 0).then(|| (format!("{word}{GONE}"), word.len() + length))
}

/// `HF_TOKEN=…`, `"password": "…"`.
fn assignment(text: &str) -> Option<(String, usize)> {
    let name = &text[..text.find(|one| !is_word(one) && one != '-').unwrap_or(text.len())];
    let lower = name.to_ascii_lowercase();
    // What jobs train on is counted in tokens.
    if lower.contains("tokens") || !SECRET_NAMES.iter().any(|word| lower.contains(word)) {
        return None;
    }
    let after = &text[name.len()..];
    let sign = after.find(|one: char| !['"', '\'', ' ', '\\'].contains(&one))?;
    let is_sign = after[sign..].starts_with(['=', ':']);
    let value_at = sign + 1 + after.get(sign + 1..)?.find(|one: char| !['"', '\'', ' ', '\\'].contains(&one))?;
    let length = after[value_at..].find(ends_value).unwrap_or(after.len() - value_at);
    (is_sign && length > 0 && !after[..value_at].contains('\n'))
        .then(|| (format!("{name}{}{GONE}", &after[..value_at]), name.len() + value_at + length))
}

fn is_word(one: char) -> bool {
    one.is_ascii_alphanumeric() || one == '_'
}

fn ends_url(one: char) -> bool {
    one.is_whitespace() || ['"', '\'', '<', '>', '`', '\\', ')', ']', '}'].contains(&one)
}

fn ends_value(one: char) -> bool {
    one.is_whitespace() || ['"', '\'', ',', ';', '\\', '[', ']', '{', '}', '&'].contains(&one)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_opens_something_is_gone_and_the_rest_stays() {
        for (text, expected) in [
            ("token hw_0123456789abcdef of ada", "token [redacted] of ada"),
            ("postgres://ada:pw@db.example:5433/headway?x=1 fails", "postgres://db.example:5433/[redacted] fails"),
            ("\"https://hooks.example/services/T0/B1/xyz\"", "\"https://hooks.example/[redacted]\""),
            (
                "at http://127.0.0.1:7600 and https://a.example/.",
                "at http://127.0.0.1:7600 and https://a.example/[redacted]",
            ),
            ("Authorization: Bearer abc.def", "Authorization: Bearer [redacted]"),
            ("HF_TOKEN=abc WANDB_API_KEY='def' x=1", "HF_TOKEN=[redacted] WANDB_API_KEY='[redacted]' x=1"),
            ("{\"db_password\": \"p w\", \"a\": 1}", "{\"db_password\": \"[redacted] w\", \"a\": 1}"),
            ("GPU-0-3 of node h100-07 is broken", "GPU-0-3 of node h100-07 is broken"),
            ("goodput_tokens_per_second", "goodput_tokens_per_second"),
        ] {
            assert_eq!(redacted(text), expected);
        }
    }

    #[test]
    fn figures_of_tokens_that_jobs_train_on_are_figures() {
        let metrics = "headway_cluster_goodput_tokens_per_second 12.5\n";
        assert_eq!(redacted(metrics), metrics);
        let document = "{\n  \"goodput_tokens_per_second\": 12.5,\n  \"tokens\": 7\n}";
        assert_eq!(redacted(document), document);
    }

    proptest! {
        #[test]
        fn no_token_and_no_password_of_a_url_is_left(before in ".{0,20}", secret in "[0-9a-f]{48}", after in "[ \"',].{0,20}") {
            let token = redacted(&format!("{before} hw_{secret}{after}"));
            prop_assert!(!token.contains(&secret));
            let url = redacted(&format!("{before} https://u:{secret}@h.example/{secret}?k={secret}{after}"));
            prop_assert!(!url.contains(&secret), "{url}");
        }

        #[test]
        fn twice_is_as_once(text in ".{0,80}") {
            let once = redacted(&text);
            prop_assert_eq!(redacted(&once), once);
        }
    }
}

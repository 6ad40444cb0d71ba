//! Cursors of pages. A cursor names a position in one list: another sort or filter makes another list, in which the position means nothing.
//! Cursors of jobs, past jobs, arrays, the queue and the timeline therefore carry a digest of the question that their page answered. Lists in
//! one fixed order (events, the audit, plans, tokens, elements of an array) page by bare positions, which hold under any filter.

use sha2::{Digest, Sha256};

use super::parameters;
use super::problem::Problem;

/// Parameters that change what a page shows and not which rows it has in which order. The span of a timeline is one: its lanes are ordered by
/// what they show.
const OF_THE_PAGE: [&str; 7] = ["cursor", "limit", "fields", "totals", "from", "to", "res"];
/// Between the position and the digest.
const SEPARATOR: char = '~';
/// Hexadecimal digits of the digest. They guard against mistakes, not against forgery.
const DIGITS: usize = 8;

/// Digests the list that a request asks for: its path, its filter and its order.
pub fn digest_list(path: &str, given: &[(String, String)]) -> String {
    let mut parts: Vec<&(String, String)> =
        given.iter().filter(|(name, _)| !OF_THE_PAGE.contains(&name.as_str())).collect();
    parts.sort();
    let mut hash = Sha256::new();
    hash.update(path);
    for (name, value) in parts {
        // Neither holds a NUL that would make two questions look alike: names are those of the table of parameters.
        hash.update([0]);
        hash.update(name);
        hash.update([0]);
        hash.update(value);
    }
    hex::encode(hash.finalize())[..DIGITS].to_owned()
}

/// The cursor of a position in the list that the request under way asks for.
pub fn bind(position: impl std::fmt::Display) -> String {
    format!("{position}{SEPARATOR}{}", parameters::list_digest())
}

/// The position of a cursor that belongs to the list that the request under way asks for.
pub fn position(cursor: &str) -> Result<&str, Problem> {
    match cursor.rsplit_once(SEPARATOR) {
        Some((position, digest)) if digest == parameters::list_digest() => Ok(position),
        Some(_) => Err(Problem::bad_request("this cursor belongs to a list with another sort or filter")
            .field("cursor")
            .hint("repeat the parameters of the page that gave the cursor, or leave out the cursor to begin anew")),
        None => Err(unknown()),
    }
}

/// The refusal of a text that no page gave as its cursor.
pub fn unknown() -> Problem {
    Problem::bad_request("this is no cursor of such a list")
        .field("cursor")
        .hint("send the next_cursor of the page before, with the same sort and filter")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(path: &str, given: &[(&str, &str)]) -> String {
        let given: Vec<_> = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        digest_list(path, &given)
    }

    #[test]
    fn a_list_is_its_path_its_filter_and_its_order() {
        let list = digest("/api/v1/jobs", &[("sort", "name"), ("user", "ada")]);
        assert_eq!(list, digest("/api/v1/jobs", &[("user", "ada"), ("sort", "name"), ("limit", "5"), ("cursor", "x")]));
        assert_ne!(list, digest("/api/v1/jobs", &[("sort", "-name"), ("user", "ada")]));
        assert_ne!(list, digest("/api/v1/jobs", &[("sort", "name")]));
        assert_ne!(list, digest("/api/v1/arrays", &[("sort", "name"), ("user", "ada")]));
    }

    #[test]
    fn a_position_may_hold_the_separator() {
        assert_eq!(position(&bind("node~7")).ok(), Some("node~7"));
    }
}

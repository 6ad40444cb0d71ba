//! Conditions on labels, as query parameters of lists name them.

use std::collections::BTreeMap;

use super::problem::Problem;

/// Conditions that one list may have.
const AT_MOST: usize = 16;

/// Comma-separated: `name=value`, or `name` with any value.
pub fn wanted(text: Option<&str>) -> Result<BTreeMap<String, Option<String>>, Problem> {
    let mut labels = BTreeMap::new();
    for one in text.unwrap_or_default().split(',').map(str::trim).filter(|one| !one.is_empty()) {
        let (name, value) = one.split_once('=').map_or((one, None), |(name, value)| (name, Some(value.to_owned())));
        labels.insert(name.to_owned(), value);
    }
    if labels.len() > AT_MOST {
        return Err(Problem::bad_request(format!("at most {AT_MOST} labels at once")).field("label"));
    }
    Ok(labels)
}

/// Whether all conditions are met.
pub fn meet(labels: &BTreeMap<String, String>, wanted: &BTreeMap<String, Option<String>>) -> bool {
    wanted
        .iter()
        .all(|(name, value)| labels.get(name).is_some_and(|has| value.as_ref().is_none_or(|wanted| wanted == has)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_label_has_a_value_or_any() {
        let read = wanted(Some("exp=a=b, team")).unwrap();
        assert_eq!(read, BTreeMap::from([("exp".into(), Some("a=b".into())), ("team".into(), None)]));
    }
}

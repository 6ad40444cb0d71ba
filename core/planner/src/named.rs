//! Which GPU type a written name means: people write `H100` where nodes say `H100-80G`.

use std::collections::BTreeSet;

use headway_goodput::catalog::Catalog;
use headway_types::{GpuType, JobSpec};

use crate::explain::list;

/// A name that means no GPU type, or several.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misnamed {
    #[error("{written} may mean {}", list(among))]
    Ambiguous { written: GpuType, among: Vec<String> },
    #[error("no GPU type is called {written}; the cluster has {}", list(present))]
    Unknown { written: GpuType, present: Vec<String> },
}

/// Writes the types of a specification in full: as those that are present, else as the built-in catalog does. What nobody knows is refused, unless
/// `kept`: nodes may come that have it. Where there are no nodes, nobody can know.
///
/// # Errors
/// The first name that means no type, or several.
pub fn name_gpu_types(present: &BTreeSet<&str>, spec: &mut JobSpec, kept: bool) -> Result<(), Misnamed> {
    for role in &mut spec.roles {
        let mut types: Vec<GpuType> = Vec::new();
        for written in &role.gpus.types {
            let meant = match name_gpu_type(present, written) {
                Err(Misnamed::Unknown { .. }) if kept || present.is_empty() => written.clone(),
                meant => meant?,
            };
            if !types.contains(&meant) {
                types.push(meant);
            }
        }
        role.gpus.types = types;
    }
    Ok(())
}

/// The type that a name means: one of those that are present, else of the built-in catalog.
///
/// # Errors
/// It means none, or several.
pub fn name_gpu_type(present: &BTreeSet<&str>, written: &GpuType) -> Result<GpuType, Misnamed> {
    let catalog = Catalog::built_in();
    let known = catalog.canonical(&written.0);
    let exact = [Some(written.0.as_str()), known].into_iter().flatten().find(|name| present.contains(name));
    if let Some(name) = exact {
        return Ok(GpuType(name.to_owned()));
    }
    let begins = |name: &&str| {
        let beginning = name.get(..written.0.len());
        !written.0.is_empty() && beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(&written.0))
    };
    let here: Vec<&str> = present.iter().copied().filter(begins).collect();
    let anywhere = || known.map_or_else(|| catalog.names().filter(begins).collect(), |name| vec![name]);
    let among = if here.is_empty() { anywhere() } else { here };
    match among.as_slice() {
        [only] => Ok(GpuType((*only).to_owned())),
        [] => Err(Misnamed::Unknown { written: written.clone(), present: names(present.iter().copied()) }),
        several => Err(Misnamed::Ambiguous { written: written.clone(), among: names(several.iter().copied()) }),
    }
}

fn names<'n>(of: impl Iterator<Item = &'n str>) -> Vec<String> {
    of.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::example;

    use super::*;

    fn named(present: &[&str], written: &[&str], kept: bool) -> Result<Vec<String>, String> {
        let mut spec = example::spec("a", example::gpus(1, 1), None);
        spec.roles[0].gpus.types = written.iter().map(|name| GpuType((*name).to_owned())).collect();
        name_gpu_types(&present.iter().copied().collect(), &mut spec, kept).map_err(|error| error.to_string())?;
        Ok(spec.roles[0].gpus.types.iter().map(|of| of.0.clone()).collect())
    }

    #[test]
    fn the_only_type_that_begins_so_is_meant() {
        assert_eq!(named(&["H100-80G", "L40S"], &["H100"], false), Ok(vec!["H100-80G".into()]));
        assert_eq!(named(&["H100-80G", "L40S"], &["l40s", "L40"], false), Ok(vec!["L40S".into()]));
        assert_eq!(named(&["A100-80G", "A100-80G-PCIe"], &["A100-80G"], false), Ok(vec!["A100-80G".into()]));
    }

    #[test]
    fn several_that_begin_so_are_named() {
        let refused = named(&["A100-40G", "A100-80G"], &["A100"], false);
        assert_eq!(refused, Err("A100 may mean A100-40G and A100-80G".into()));
    }

    #[test]
    fn one_that_nobody_knows_is_refused_with_those_there_are() {
        let refused = named(&["A100-80G", "L40S"], &["H1O0"], false);
        assert_eq!(refused, Err("no GPU type is called H1O0; the cluster has A100-80G and L40S".into()));
        assert_eq!(named(&["A100-80G"], &["H1O0"], true), Ok(vec!["H1O0".into()]));
        assert_eq!(named(&[], &["special"], false), Ok(vec!["special".into()]));
    }

    #[test]
    fn one_that_exists_elsewhere_is_left_to_the_planner() {
        assert_eq!(named(&["L40S"], &["H200", "L40S"], false).unwrap().len(), 2);
    }
}

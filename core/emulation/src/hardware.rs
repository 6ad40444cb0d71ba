//! GPU types as people write them.

use headway_goodput::catalog::Catalog;
use headway_types::{Bytes, GpuType, StatedDevice};

/// Why a written name is no GPU type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuTypeError {
    #[error("no GPU type of the catalog begins with \"{name}\"; it has {}", known.join(", "))]
    Unknown { name: String, known: Vec<String> },
    #[error("\"{name}\" is the beginning of several GPU types: {}", candidates.join(", "))]
    Ambiguous { name: String, candidates: Vec<String> },
}

/// A GPU type that can be emulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownType {
    pub gpu_type: GpuType,
    pub memory: Bytes,
    /// Of a type that is the site's own.
    pub stated: Option<StatedDevice>,
}

/// The type of this name, built in or the site's, or the only one whose name begins so.
pub fn gpu_type(name: &str, site: &Catalog) -> Result<KnownType, GpuTypeError> {
    let catalog = Catalog::built_in().clone().with(site);
    let candidates: Vec<&str> = catalog.names().filter(|known| known.starts_with(name)).collect();
    let found = match candidates.as_slice() {
        _ if name.is_empty() => None,
        [only] => Some(*only),
        several => several.iter().find(|known| **known == name).copied(),
    };
    match found.and_then(|found| Some((catalog.stated(found)?.memory, found))) {
        Some((memory, found)) => {
            Ok(KnownType { gpu_type: GpuType(found.to_owned()), memory, stated: site.stated(found).cloned() })
        }
        None if candidates.len() > 1 && !name.is_empty() => {
            let candidates = candidates.into_iter().map(str::to_owned).collect();
            Err(GpuTypeError::Ambiguous { name: name.to_owned(), candidates })
        }
        None => {
            let known = catalog.names().map(str::to_owned).collect();
            Err(GpuTypeError::Unknown { name: name.to_owned(), known })
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_goodput::physics::Parameters;

    use super::*;

    #[test]
    fn a_type_is_named_by_an_unmistakable_beginning() {
        let none = Catalog::default();
        let of = |name: &str| gpu_type(name, &none).map(|known| (known.gpu_type.0, known.memory, known.stated));
        assert_eq!(of("H100").unwrap(), ("H100-80G".into(), Bytes(80 << 30), None));
        assert_eq!(of("A100-40G").unwrap().0, "A100-40G");
        assert!(matches!(of("A100"), Err(GpuTypeError::Ambiguous { candidates, .. }) if candidates.len() == 2));
        assert!(matches!(of("Potato"), Err(GpuTypeError::Unknown { .. })));
        assert!(matches!(of(""), Err(GpuTypeError::Unknown { .. })));
    }

    #[test]
    fn a_sites_own_type_brings_what_its_entry_says() {
        let entry =
            "[Mine]\nfamily='other'\npeak=10\nmatmul=8\nmemory=2\nbandwidth=1\nlink=9\nnetwork=1\nmultiprocessors=8";
        let mut site = Catalog::default();
        site.extend(entry, Parameters::built_in()).unwrap();
        let mine = gpu_type("Mine", &site).unwrap();
        assert_eq!((mine.memory, mine.stated.as_ref()), (Bytes(2 << 30), site.stated("Mine")));
    }
}

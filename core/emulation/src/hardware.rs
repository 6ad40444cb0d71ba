//! GPU types as people write them.

use headway_goodput::catalog;
use headway_types::{Bytes, GpuType};

/// Why a written name is no GPU type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuTypeError {
    #[error("no GPU type of the catalog begins with \"{name}\"; it has {}", known())]
    Unknown { name: String },
    #[error("\"{name}\" is the beginning of several GPU types: {}", candidates.join(", "))]
    Ambiguous { name: String, candidates: Vec<&'static str> },
}

/// The catalogued type of this name, or the only one whose name begins so, with its memory.
pub fn gpu_type(name: &str) -> Result<(GpuType, Bytes), GpuTypeError> {
    let candidates: Vec<&'static str> = catalog::names().filter(|known| known.starts_with(name)).collect();
    let found = match candidates.as_slice() {
        _ if name.is_empty() => None,
        [only] => Some(*only),
        several => several.iter().find(|known| **known == name).copied(),
    };
    let entry = found.map(|found| GpuType(found.to_owned())).and_then(|found| Some((catalog::find(&found)?, found)));
    match entry {
        Some((hardware, found)) => Ok((found, Bytes(hardware.memory as u64))),
        None if candidates.len() > 1 && !name.is_empty() => {
            Err(GpuTypeError::Ambiguous { name: name.to_owned(), candidates })
        }
        None => Err(GpuTypeError::Unknown { name: name.to_owned() }),
    }
}

fn known() -> String {
    catalog::names().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_type_is_named_by_an_unmistakable_beginning() {
        assert_eq!(gpu_type("H100").unwrap(), (GpuType("H100-80G".into()), Bytes(80 << 30)));
        assert_eq!(gpu_type("A100-40G").unwrap().0, GpuType("A100-40G".into()));
        assert!(matches!(gpu_type("A100"), Err(GpuTypeError::Ambiguous { candidates, .. }) if candidates.len() == 2));
        assert!(matches!(gpu_type("Potato"), Err(GpuTypeError::Unknown { .. })));
        assert!(matches!(gpu_type(""), Err(GpuTypeError::Unknown { .. })));
    }
}

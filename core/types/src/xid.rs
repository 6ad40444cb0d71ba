//! Which of the NVIDIA driver's error numbers mean that a GPU must not be granted any more. The table follows the
//! immediate actions of NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors): those that ask for a reset of the
//! GPU, a restart of the machine or a look at its hardware. The others end an application (13, 31, 43, 45, 94 and their
//! like) or only tell of a repair that went well (63: a row of memory was remapped), and leave the GPU as it was.

/// Numbers and what they mean, in ascending order.
const FATAL: [(u64, &str); 17] = [
    (46, "the GPU stopped processing"),
    (48, "double-bit ECC error"),
    (54, "auxiliary power is not connected"),
    (62, "internal micro-controller halt"),
    (64, "row remapping failed"),
    (74, "NVLink error"),
    (79, "the GPU has fallen off the bus"),
    (95, "uncontained ECC error"),
    (109, "context switch timeout"),
    (110, "security fault"),
    (119, "GSP RPC timeout"),
    (120, "GSP error"),
    (136, "NVLink training failed"),
    (140, "unrecovered ECC error"),
    (143, "GPU initialisation failed"),
    (155, "NVLink error found by software"),
    (158, "fatal timeout"),
];

/// The cause to show, for an error after which the GPU must not be granted.
#[must_use]
pub fn fatal(number: u64) -> Option<String> {
    let found = FATAL.binary_search_by_key(&number, |(known, _)| *known).ok()?;
    Some(format!("XID {number}: {}", FATAL[found].1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_errors_are_fatal_and_application_errors_are_not() {
        assert!(FATAL.is_sorted());
        assert_eq!(fatal(79).as_deref(), Some("XID 79: the GPU has fallen off the bus"));
        for application in [13, 31, 43, 45, 92, 94] {
            assert_eq!(fatal(application), None, "{application}");
        }
    }

    #[test]
    fn a_row_that_was_remapped_is_no_loss_and_one_that_could_not_be_is() {
        assert_eq!(fatal(63), None);
        assert_eq!(fatal(64).as_deref(), Some("XID 64: row remapping failed"));
    }
}

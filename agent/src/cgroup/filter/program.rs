//! The filter as a program of the kernel's: eBPF instructions, in an object file as its loaders read them. Pure.

use std::collections::BTreeSet;

use object::write::{Object, Symbol, SymbolSection};
use object::{Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope};

/// What it is called where attached programs are listed; at most 15 characters.
pub(super) const NAME: &str = "headway_gpus";

/// A character device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Device {
    pub(super) major: u32,
    pub(super) minor: u32,
}

/// `BPF_DEVCG_DEV_CHAR`, in the lower half of the first word of what the program is asked.
const CHARACTER: i32 = 2;

/// Instructions by the names of the kernel's instruction set.
const MOV64: u8 = 0xb7;
const LDXW: u8 = 0x61;
const AND64: u8 = 0x57;
const JNE: u8 = 0x55;
const JEQ: u8 = 0x15;
const EXIT: u8 = 0x95;

/// More than any node has, and few enough that every jump reaches its end.
const MOST: usize = 4_096;

/// Allows everything but these. The first argument points at three words: kind and access, major, minor.
fn instructions(denied: &BTreeSet<Device>) -> Vec<[u8; 8]> {
    let compared = 2 * denied.len() as i16;
    let mut program = vec![
        instruction(MOV64, (0, 0), 0, 1),
        instruction(LDXW, (2, 1), 0, 0),
        instruction(LDXW, (3, 1), 4, 0),
        instruction(LDXW, (4, 1), 8, 0),
        instruction(AND64, (2, 0), 0, 0xffff),
        instruction(JNE, (2, 0), compared, CHARACTER),
    ];
    for (index, device) in denied.iter().enumerate() {
        let left = compared - 2 * (index as i16 + 1);
        program.push(instruction(JNE, (3, 0), 1, device.major as i32));
        // To what denies, behind the others and the exit.
        program.push(instruction(JEQ, (4, 0), left + 1, device.minor as i32));
    }
    program.push(instruction(EXIT, (0, 0), 0, 0));
    program.push(instruction(MOV64, (0, 0), 0, 0));
    program.push(instruction(EXIT, (0, 0), 0, 0));
    program
}

fn instruction(operation: u8, (to, from): (u8, u8), jump: i16, value: i32) -> [u8; 8] {
    let [j0, j1] = jump.to_le_bytes();
    let [v0, v1, v2, v3] = value.to_le_bytes();
    [operation, from << 4 | to, j0, j1, v0, v1, v2, v3]
}

/// As an object file.
pub(super) fn object(denied: &BTreeSet<Device>) -> Result<Vec<u8>, String> {
    if denied.len() > MOST {
        return Err(format!("{} devices are more than a filter can deny ({MOST})", denied.len()));
    }
    let code = instructions(denied).concat();
    let mut file = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let section = file.add_section(Vec::new(), b"cgroup/dev".to_vec(), SectionKind::Text);
    file.append_section_data(section, &code, 8);
    let license = file.add_section(Vec::new(), b"license".to_vec(), SectionKind::Data);
    file.append_section_data(license, b"Apache-2.0\0", 1);
    file.add_symbol(Symbol {
        name: NAME.into(),
        value: 0,
        size: code.len() as u64,
        kind: SymbolKind::Text,
        scope: SymbolScope::Dynamic,
        weak: false,
        section: SymbolSection::Section(section),
        flags: SymbolFlags::None,
    });
    file.write().map_err(|error| format!("writing the filter: {error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    /// What the kernel would make of the instructions.
    fn run(program: &[[u8; 8]], asked: [u32; 3]) -> i64 {
        let (mut registers, mut at) = ([0_i64; 5], 0_usize);
        loop {
            let [operation, registers_named, j0, j1, v0, v1, v2, v3] = program[at];
            let (to, jump) = (usize::from(registers_named & 0xf), i16::from_le_bytes([j0, j1]));
            let value = i64::from(i32::from_le_bytes([v0, v1, v2, v3]));
            at += 1;
            let taken = match operation {
                MOV64 => {
                    registers[to] = value;
                    false
                }
                LDXW => {
                    registers[to] = i64::from(asked[jump as usize / 4]);
                    false
                }
                AND64 => {
                    registers[to] &= value;
                    false
                }
                JNE => registers[to] != value,
                JEQ => registers[to] == value,
                EXIT => return registers[0],
                other => panic!("{other}"),
            };
            if taken {
                at = (at as i64 + i64::from(jump)) as usize;
            }
        }
    }

    proptest! {
        #[test]
        fn just_what_is_denied_is_denied(
            denied in prop::collection::btree_set((0_u32..4, 0_u32..4), 0..12),
            (major, minor) in (0_u32..5, 0_u32..5), access in 1_u32..8, kind in 1_u32..3,
        ) {
            let devices: BTreeSet<Device> = denied.iter().map(|(major, minor)| Device { major: *major, minor: *minor }).collect();
            let allowed = run(&instructions(&devices), [access << 16 | kind, major, minor]) == 1;
            prop_assert_eq!(allowed, kind != CHARACTER as u32 || !denied.contains(&(major, minor)));
        }
    }

    #[test]
    fn as_many_as_may_be_are_within_reach_of_every_jump() {
        let many = |count: u32| (0..count).map(|minor| Device { major: 195, minor }).collect::<BTreeSet<_>>();
        let program = instructions(&many(MOST as u32));
        for (minor, allowed) in [(0, 0), (MOST as u32 - 1, 0), (MOST as u32, 1)] {
            assert_eq!(run(&program, [2 << 16 | CHARACTER as u32, 195, minor]), allowed, "{minor}");
        }
        assert!(object(&many(MOST as u32 + 1)).is_err());
    }
}

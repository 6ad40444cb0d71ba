//! That what is wrong with a reader is found, and told.

use std::panic::catch_unwind;

use crate::target::worked;
use crate::{MEMORY, PATIENCE, Target};

/// What is said of a reader, if anything.
fn told(name: &'static str, read: fn(&[u8]) -> bool) -> Option<String> {
    let target = || Target::text(name, &["limit"]).seeds(["a: 1\nb: 2\n"]);
    let panic = catch_unwind(|| target().check(read)).err()?;
    panic.downcast_ref::<String>().cloned()
}

#[test]
fn a_reader_that_is_well_is_left_alone() {
    assert_eq!(told("well", |input| !input.is_empty()), None);
}

#[test]
fn a_panic_is_told_with_the_smallest_input_that_was_found() {
    let told = told("panics", |input| {
        assert!(!String::from_utf8_lossy(input).contains("limit"), "no limits here");
        true
    });
    let told = told.expect("one of the inputs has the word");
    assert!(told.starts_with("panics: it panics: no limits here"), "{told}");
    assert!(told.lines().skip(2).any(|line| line.contains("limit")), "{told}");
}

#[test]
fn too_much_memory_and_too_much_time_are_told() {
    let greedy =
        told("greedy", |_| std::hint::black_box(vec![1u8; MEMORY as usize + 1]).len() > 1).expect("it takes too much");
    assert!(greedy.contains("bytes of memory to read"), "{greedy}");
    let slow = told("slow", |_| {
        let begun = worked();
        while worked() <= begun + PATIENCE {
            std::hint::spin_loop();
        }
        true
    });
    assert!(slow.expect("it takes too long").contains("to read"));
}

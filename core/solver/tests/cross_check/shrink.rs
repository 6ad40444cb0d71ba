//! A disagreement as small as it gets: without the groups, columns and rows that it does not need.

use std::fmt::Write as _;

use headway_solver::Program;

/// The least program that still disagrees, as far as leaving out one thing after another finds it.
pub fn least(program: Program, disagrees: impl Fn(&Program) -> bool) -> Program {
    let mut least = program;
    loop {
        let before = size(&least);
        for group in (0..least.groups.len()).rev() {
            least = smaller_of(least, |program| without_group(program, group), &disagrees);
        }
        for row in (0..least.capacity.len()).rev() {
            least = smaller_of(least, |program| without_row(program, row), &disagrees);
        }
        for group in 0..least.groups.len() {
            for column in (0..least.groups[group].len()).rev() {
                if least.start[group] != column {
                    least = smaller_of(least, |program| without_column(program, group, column), &disagrees);
                }
            }
        }
        if size(&least) == before {
            return least;
        }
    }
}

fn smaller_of(
    program: Program,
    without: impl Fn(&Program) -> Program,
    disagrees: &impl Fn(&Program) -> bool,
) -> Program {
    let smaller = without(&program);
    if smaller.check().is_ok() && disagrees(&smaller) { smaller } else { program }
}

fn size(program: &Program) -> usize {
    program.capacity.len() + program.groups.iter().map(|columns| 1 + columns.len()).sum::<usize>()
}

/// What the group had of each row goes with it, floors included.
fn without_group(program: &Program, group: usize) -> Program {
    let mut smaller = program.clone();
    smaller.groups.remove(group);
    let start = smaller.start.remove(group);
    for part in &program.groups[group][start].uses {
        smaller.capacity[part.row as usize] -= part.amount;
    }
    smaller
}

fn without_column(program: &Program, group: usize, column: usize) -> Program {
    let mut smaller = program.clone();
    smaller.groups[group].remove(column);
    smaller.start[group] -= usize::from(smaller.start[group] > column);
    smaller
}

fn without_row(program: &Program, row: usize) -> Program {
    let mut smaller = program.clone();
    smaller.capacity.remove(row);
    for column in smaller.groups.iter_mut().flatten() {
        column.uses.retain(|part| part.row as usize != row);
        column.uses.iter_mut().filter(|part| part.row as usize > row).for_each(|part| part.row -= 1);
    }
    smaller
}

/// A test to paste beside the laws of `core/solver/src/laws.rs`, with their `column`.
pub fn as_code(program: &Program) -> String {
    let mut code = String::from("let groups = vec![\n");
    for columns in &program.groups {
        code.push_str("    vec![");
        for column in columns {
            let uses: Vec<String> = column.uses.iter().map(|part| format!("({}, {})", part.row, part.amount)).collect();
            write!(code, "column({}, &[{}]), ", column.value, uses.join(", ")).expect("a string takes all");
        }
        code.push_str("],\n");
    }
    write!(
        code,
        "];\nlet program = Program {{ groups, capacity: vec!{:?}, start: vec!{:?} }};",
        program.capacity, program.start
    )
    .expect("a string takes all");
    code
}

#![allow(clippy::unwrap_used)]
use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    up: Up,
}

fn read(arguments: &str) -> anyhow::Result<Up> {
    let line = Line::try_parse_from(["up", "--data-dir", "/d"].into_iter().chain(arguments.split_whitespace()))?;
    line.up.filled_in()
}

#[test]
fn a_demo_fills_in_what_nobody_said_and_nothing_else() {
    let demo = read("--demo").unwrap();
    let nodes: u32 = demo.emulate.iter().map(|group| group.nodes.unwrap().0).sum();
    assert_eq!((nodes, demo.speed, demo.failures), (64, Some(demo::SPEED), Some(demo::FAILURES)));
    assert_eq!(demo.data_dir, Some("/d".into()), "what is given holds");
    let told = read("--demo --emulate H100x8=2 --speed 5 --failures 0").unwrap();
    assert_eq!((told.emulate.len(), told.speed, told.failures), (1, Some(5.0), Some(0.0)));
    let plain = read("").unwrap();
    assert_eq!((plain.emulate.len(), plain.speed, plain.failures), (0, None, None));
    assert!(read("--speed 60").is_err(), "real nodes' time runs as ours");
}

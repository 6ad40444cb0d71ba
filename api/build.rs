//! Generates the agent protocol from its proto with a compiler written in Rust, so that no `protoc` is needed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["headway/agent/v1/agent.proto"], ["proto"])?;
    tonic_prost_build::configure().btree_map(".").compile_fds(descriptors)?;
    Ok(())
}

//! Generates the agent protocol from its proto with a compiler written in Rust, so that no `protoc` is needed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["headway/agent/v1/agent.proto"], ["proto"])?;
    // A launch brings secrets: `agent/secrets.rs` says what is shown of one.
    tonic_prost_build::configure().btree_map(".").skip_debug(["headway.agent.v1.Launch"]).compile_fds(descriptors)?;
    Ok(())
}

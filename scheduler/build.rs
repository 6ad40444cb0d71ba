//! Compiles the embedded web page again when it has been built again.

fn main() {
    println!("cargo:rerun-if-changed=../web/dist");
}

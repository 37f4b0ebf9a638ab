//! The load program.
fn main() {}

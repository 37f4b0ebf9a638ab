//! The tributary program.
fn main() {}

//! Tests that need a process of their own, for what all tests of one share: its descriptors, its environment.

use std::process::Command;

/// Runs this test alone, by a command that starts this program with the arguments that are added to it.
pub(crate) fn run(command: &mut Command, test: &str) {
    let output = command.args(["--exact", test, "--nocapture"]).output().unwrap();
    let [told, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success() && told.contains("1 passed"), "{told}\n{errors}");
}

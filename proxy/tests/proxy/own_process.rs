//! Runs tests in separate processes, because the tests change file descriptors or the environment of the process.

use std::process::Command;

/// Runs one test in a separate process. `command` starts the test program, with additional arguments.
pub(crate) fn run(command: &mut Command, test: &str) {
    let output = command.args(["--exact", test, "--nocapture"]).output().unwrap();
    let [stdout, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}\n{errors}");
}

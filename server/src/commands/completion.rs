//! `tributary completion`: prints a script with which a shell completes this program's commands and flags.

use clap::CommandFactory;

use crate::cli::{Cli, CompletionArguments};

/// Returns the completion script for a shell.
pub fn completion(arguments: &CompletionArguments) -> String {
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, name, &mut script);
    // The script is valid UTF-8, because it is generated from the definition of the command line.
    String::from_utf8_lossy(&script).into_owned()
}

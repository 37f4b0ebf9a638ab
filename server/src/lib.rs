//! The program: command line, listener, authentication, configuration sources and signals.
//!
//! ```text
//! cli → commands::serve ─┬─ tributary_sources   kubeconfig contexts, UpstreamClusters → Router::set_clusters
//!                        ├─ credentials         certificates, token
//!                        └─ tributary_listener  → front (authentication, metrics, panics) → Router
//! ```
//!
//! The crate is a library with a small binary, so that tests can call its parts. Invariant: only this crate reads flags
//! and files. The code that answers requests is behind [`handler::Handler`].

pub mod authentication;
pub mod cli;
pub mod commands;
pub mod credentials;
pub mod exit;
pub mod front;
pub mod handler;
pub mod metrics;
pub mod output;
pub mod process;
mod replicas;
pub mod status;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command, KubeconfigCommand, PluginCli, PolicyCommand, RvCommand};
use exit::Failure;

/// Runs the program with these arguments. The first argument is the program's name, because the kubectl plugin has a
/// different name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let done = if PluginCli::is_plugin_name(arguments.first().map(OsString::as_os_str)) {
        plugin(&arguments)
    } else {
        program(&arguments)
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(ProgramError::Parsing(error)) => {
            // Printing to a closed pipe fails. This error is ignored, because nobody reads the text.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(exit::USAGE))
        }
        Err(ProgramError::Failed(failure)) => {
            eprintln!("error: {failure}");
            failure.exit_code()
        }
    }
}

/// The reason why the program ends without success.
enum ProgramError {
    /// The output of the command line's parser: help, the version, or an error.
    Parsing(clap::Error),
    Failed(Failure),
}

impl From<clap::Error> for ProgramError {
    fn from(error: clap::Error) -> Self {
        Self::Parsing(error)
    }
}

impl From<Failure> for ProgramError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

fn program(arguments: &[OsString]) -> Result<u8, ProgramError> {
    let cli = Cli::try_parse_from(arguments)?;
    output::log::start(cli.log_format, cli.log_level);
    dispatch(cli.command)?;
    Ok(exit::OK)
}

/// Runs the kubectl plugin, which prints its errors and has no log.
fn plugin(arguments: &[OsString]) -> Result<u8, ProgramError> {
    let cli = PluginCli::try_parse_from(arguments)?;
    Ok(block_on(commands::plugin::run(cli.command))?)
}

fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(arguments) => block_on(commands::serve::serve(arguments, |_| {})),
        #[cfg(feature = "demo")]
        Command::Demo(arguments) => block_on(commands::demo::demo(arguments)),
        Command::Status(arguments) => block_on(commands::status::status(arguments)),
        Command::Check(arguments) => block_on(commands::check::check(arguments)),
        Command::Join(arguments) => block_on(commands::join::join(arguments)),
        Command::Kubeconfig(KubeconfigCommand::Remove(arguments)) => block_on(commands::kubeconfig::remove(arguments)),
        Command::Kubeconfig(KubeconfigCommand::User(arguments)) => commands::kubeconfig::user::user(&arguments),
        Command::Completion(arguments) => {
            output::print(&commands::completion::completion(&arguments));
            Ok(())
        }
        Command::Convert(arguments) => commands::convert::convert(&arguments),
        Command::Policy(PolicyCommand::Test(arguments)) => {
            block_on(async { commands::policy::test(&arguments).await.map(|text| output::print(&text)) })
        }
        Command::Rv(RvCommand::Decode(arguments)) => commands::rv::decode(&arguments).map(|text| output::print(&text)),
    }
}

/// Runs a command on its own runtime. Remaining tasks end with the process, after their drain.
///
/// The runtime is not shut down: in tokio, a task that uses a timer during the shutdown panics
/// (`TimerEntry::poll_elapsed`), and the log would contain a false error.
fn block_on<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    // Several crates install the process's TLS provider. Only the first installation succeeds, and the error of the
    // second is ignored.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::runtime)?;
    let result = runtime.block_on(command);
    std::mem::forget(runtime);
    result
}

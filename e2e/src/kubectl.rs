//! Runs the real kubectl and Helm. Each instance has a separate home folder, so caches and settings of the developer
//! have no effect.

use crate::{Process, Tools, guard};
use anyhow::{Context, bail};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

/// Timeout of a command, so that a stuck command fails one test and does not block the whole run.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Runs kubectl commands with one kubeconfig.
#[derive(Debug)]
pub struct Kubectl {
    name: &'static str,
    program: PathBuf,
    kubeconfig: PathBuf,
    home: tempfile::TempDir,
    runs: AtomicUsize,
}

/// Output and exit code of a finished command.
#[derive(Clone, Debug)]
pub struct KubectlOutput {
    /// Arguments of the command, for error messages.
    pub command: String,
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Standard output of the command.
    pub stdout: String,
    /// Standard error of the command.
    pub stderr: String,
}

impl KubectlOutput {
    /// Returns the standard output of a successful command.
    ///
    /// # Errors
    /// If the exit code is not 0.
    pub fn success(self) -> anyhow::Result<String> {
        if self.code != Some(0) {
            bail!("{} failed ({:?})\nstdout: {}\nstderr: {}", self.command, self.code, self.stdout, self.stderr);
        }
        Ok(self.stdout)
    }

    /// Returns the standard error of a failed command.
    ///
    /// # Errors
    /// If the exit code is 0.
    pub fn failure(self) -> anyhow::Result<String> {
        if self.code == Some(0) {
            bail!("{} succeeded\nstdout: {}", self.command, self.stdout);
        }
        Ok(self.stderr)
    }
}

impl Kubectl {
    /// kubectl that uses `kubeconfig`.
    ///
    /// # Errors
    /// When no temporary folder can be made.
    pub fn new(tools: &Tools, kubeconfig: &Path) -> anyhow::Result<Self> {
        Self::with_kubeconfig("kubectl", tools.server("kubectl"), kubeconfig)
    }

    /// Creates a runner of Helm with this major version. The methods of the returned value run Helm instead of kubectl.
    ///
    /// # Errors
    /// If no temporary folder can be made.
    pub fn helm(tools: &Tools, version: u8, kubeconfig: &Path) -> anyhow::Result<Self> {
        Self::with_kubeconfig("helm", tools.helm(version), kubeconfig)
    }

    fn with_kubeconfig(name: &'static str, program: PathBuf, kubeconfig: &Path) -> anyhow::Result<Self> {
        let (kubeconfig, home) = (kubeconfig.to_owned(), guard::temporary_folder(name)?);
        Ok(Self { name, program, kubeconfig, home, runs: AtomicUsize::new(0) })
    }

    /// Builds a command with this kubeconfig. The caller may change the command and must start it.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home.path())
            .env("KUBECONFIG", &self.kubeconfig)
            .current_dir(self.home.path())
            .args(arguments);
        command
    }

    /// Writes a file in kubectl's home, for manifests, and returns its path.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn file(&self, name: &str, text: &str) -> anyhow::Result<String> {
        let path = self.home.path().join(name);
        std::fs::write(&path, text).with_context(|| format!("write {name}"))?;
        path.to_str().map(str::to_owned).context("a temporary path is not UTF-8")
    }

    /// Runs a kubectl command until it ends. A failed command is an output, not an error.
    ///
    /// # Errors
    /// If kubectl cannot be started or runs longer than 90 s.
    pub async fn run(&self, arguments: &[&str]) -> anyhow::Result<KubectlOutput> {
        self.run_with(self.command(arguments), None).await
    }

    /// Runs a command made by [`Kubectl::command`], with text on its standard input.
    ///
    /// # Errors
    /// As [`Kubectl::run`].
    pub async fn run_with(&self, command: Command, input: Option<&str>) -> anyhow::Result<KubectlOutput> {
        use std::io::Write;
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        let shown = format!("{} {}", self.name, words.join(" "));
        let mut process = self.start(command, if input.is_some() { Stdio::piped() } else { Stdio::null() })?;
        if let (Some(text), Some(mut pipe)) = (input, process.take_input()) {
            pipe.write_all(text.as_bytes()).with_context(|| format!("write to {shown}"))?;
        }
        let status = match process.wait(TIMEOUT).await {
            Ok(status) => status,
            Err(error) => {
                bail!("{shown}: {error:#}\nstdout: {}\nstderr: {}", process.output(), process.errors())
            }
        };
        Ok(KubectlOutput { command: shown, code: status.code(), stdout: process.output(), stderr: process.errors() })
    }

    /// Runs kubectl and returns its standard output.
    ///
    /// # Errors
    ///
    /// When kubectl fails.
    pub async fn ok(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.run(arguments).await?.success()
    }

    /// Starts a kubectl command that does not end by itself (`-w`, `port-forward`, `logs -f`). Dropping the returned
    /// value kills kubectl.
    ///
    /// # Errors
    /// If kubectl cannot be started.
    pub fn spawn(&self, arguments: &[&str]) -> anyhow::Result<Process> {
        self.start(self.command(arguments), Stdio::null())
    }

    /// Starts a process like [`Kubectl::spawn`], from a command that [`Kubectl::command`] made.
    pub fn spawn_command(&self, command: Command) -> anyhow::Result<Process> {
        self.start(command, Stdio::null())
    }

    /// Starts a kubectl command whose standard input is a pipe. [`Process::take_input`] returns the pipe.
    ///
    /// # Errors
    /// If kubectl cannot be started.
    pub fn spawn_with_input(&self, arguments: &[&str]) -> anyhow::Result<Process> {
        self.start(self.command(arguments), Stdio::piped())
    }

    fn start(&self, command: Command, input: Stdio) -> anyhow::Result<Process> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let file = |kind: &str| self.home.path().join(format!("run-{run}.{kind}"));
        Process::spawn_with(self.name, command, &file("out"), &file("err"), input)
    }
}

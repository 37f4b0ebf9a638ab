//! The real kubectl and Helm. Each instance has its own home folder, so that caches and settings of the user have no
//! effect.

use crate::{Process, Tools, guard};
use anyhow::{Context, bail};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

/// The timeout of a command. A stuck command fails its own test and not the whole run.
const TIMEOUT: Duration = Duration::from_secs(90);

/// kubectl for one kubeconfig.
#[derive(Debug)]
pub struct Kubectl {
    name: &'static str,
    program: PathBuf,
    kubeconfig: PathBuf,
    home: tempfile::TempDir,
    runs: AtomicUsize,
}

/// The output of a command.
#[derive(Clone, Debug)]
pub struct KubectlOutput {
    /// The arguments, for error messages.
    pub command: String,
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Standard output of the command.
    pub stdout: String,
    /// Standard error of the command.
    pub stderr: String,
}

impl KubectlOutput {
    /// Standard output of a successful run.
    ///
    /// # Errors
    /// When the exit code is not 0.
    pub fn success(self) -> anyhow::Result<String> {
        if self.code != Some(0) {
            bail!("{} failed ({:?})\nstdout: {}\nstderr: {}", self.command, self.code, self.stdout, self.stderr);
        }
        Ok(self.stdout)
    }

    /// Standard error of a failed run.
    ///
    /// # Errors
    /// When the exit code is 0.
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

    /// Helm of a major version with `kubeconfig`. Its methods run Helm instead of kubectl.
    ///
    /// # Errors
    /// When no temporary folder can be made.
    pub fn helm(tools: &Tools, version: u8, kubeconfig: &Path) -> anyhow::Result<Self> {
        Self::with_kubeconfig("helm", tools.helm(version), kubeconfig)
    }

    fn with_kubeconfig(name: &'static str, program: PathBuf, kubeconfig: &Path) -> anyhow::Result<Self> {
        let (kubeconfig, home) = (kubeconfig.to_owned(), guard::temporary_folder(name)?);
        Ok(Self { name, program, kubeconfig, home, runs: AtomicUsize::new(0) })
    }

    /// A command for this kubeconfig. The caller may change and spawn it.
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

    /// Runs kubectl to its end.
    ///
    /// # Errors
    /// When kubectl cannot be started or runs longer than 90 s. A failed command is an output, not an error.
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

    /// Starts a kubectl that keeps running (`-w`, `port-forward`, `logs -f`). It is killed on drop.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self, arguments: &[&str]) -> anyhow::Result<Process> {
        self.start(self.command(arguments), Stdio::null())
    }

    /// Starts a process like [`Kubectl::spawn`], from a command that [`Kubectl::command`] made.
    pub fn spawn_command(&self, command: Command) -> anyhow::Result<Process> {
        self.start(command, Stdio::null())
    }

    /// Starts a kubectl with a pipe as its standard input, taken with [`Process::take_input`].
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn_with_input(&self, arguments: &[&str]) -> anyhow::Result<Process> {
        self.start(self.command(arguments), Stdio::piped())
    }

    fn start(&self, command: Command, input: Stdio) -> anyhow::Result<Process> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let file = |kind: &str| self.home.path().join(format!("run-{run}.{kind}"));
        Process::spawn_with(self.name, command, &file("out"), &file("err"), input)
    }
}

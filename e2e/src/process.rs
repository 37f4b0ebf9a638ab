//! Runs a child process in a new process group, with its output in a file. Dropping the process kills the group.

use crate::guard;
use anyhow::{Context, bail};
use rustix::process::{Pid, Signal};
use std::{
    fs::{self, OpenOptions},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// The polling interval: short compared with the seconds that servers take to start.
const POLL: Duration = Duration::from_millis(20);

/// A running child. Dropping it kills its whole process group.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    group: u32,
    output: PathBuf,
    errors: PathBuf,
    exited: Option<ExitStatus>,
}

impl Process {
    /// Starts `command` in a process group of its own, with standard output and standard error appended to `log`.
    ///
    /// # Errors
    /// When the log cannot be written, or the program cannot be started.
    pub fn spawn(name: &str, command: Command, log: &Path) -> anyhow::Result<Self> {
        Self::spawn_with(name, command, log, log, Stdio::null())
    }

    /// Starts a process like [`Self::spawn`], with separate files for standard output and standard error, and with this
    /// standard input.
    ///
    /// # Errors
    /// If a file cannot be written, or the program cannot be started.
    pub fn spawn_with(
        name: &str,
        mut command: Command,
        output: &Path,
        errors: &Path,
        input: Stdio,
    ) -> anyhow::Result<Self> {
        let append = |path: &Path| {
            OpenOptions::new().create(true).append(true).open(path).with_context(|| format!("open {}", path.display()))
        };
        let child = command
            .stdin(input)
            .stdout(append(output)?)
            .stderr(append(errors)?)
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {name}: {:?}", command.get_program()))?;
        let group = child.id();
        guard::add_group(group);
        Ok(Self {
            name: name.to_owned(),
            child,
            group,
            output: output.to_owned(),
            errors: errors.to_owned(),
            exited: None,
        })
    }

    /// Name of the process in error messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id, which is also the id of its process group.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.group
    }

    /// Takes the child's standard input. Returns `None` if the input is not a pipe or was taken before.
    pub fn take_input(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// Reads the standard output that the process has written until now.
    #[must_use]
    pub fn output(&self) -> String {
        read_lossy(&self.output)
    }

    /// Reads the standard error that the process has written until now. If both streams share one file, this is also
    /// the standard output.
    #[must_use]
    pub fn errors(&self) -> String {
        read_lossy(&self.errors)
    }

    /// The exit status; `None` while the process runs.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        if self.exited.is_none() {
            self.exited = self.child.try_wait().ok().flatten();
            if self.exited.is_some() {
                guard::remove_group(self.group);
            }
        }
        self.exited
    }

    /// Sends a signal to the whole process group.
    ///
    /// # Errors
    /// If the process group no longer exists.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let group = i32::try_from(self.group).ok().and_then(Pid::from_raw).context("the process has no id")?;
        rustix::process::kill_process_group(group, signal).with_context(|| format!("signal {}", self.name))
    }

    /// Waits for the end of the process.
    ///
    /// # Errors
    /// When the process still runs after `patience`.
    pub async fn wait(&mut self, patience: Duration) -> anyhow::Result<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.exit_status() {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("{} still runs after {patience:?}", self.name);
            }
            sleep(POLL).await;
        }
    }

    /// Sends SIGTERM. If the process still runs after `patience`, sends SIGKILL.
    ///
    /// # Errors
    /// If even SIGKILL does not end the process.
    pub async fn terminate(&mut self, patience: Duration) -> anyhow::Result<ExitStatus> {
        if self.exit_status().is_none() {
            let _gone = self.signal(Signal::TERM);
        }
        match self.wait(patience).await {
            Ok(status) => Ok(status),
            Err(_) => self.kill().await,
        }
    }

    /// Sends SIGKILL to the group, and waits for the end.
    ///
    /// # Errors
    /// When the process cannot be reaped.
    pub async fn kill(&mut self) -> anyhow::Result<ExitStatus> {
        let _gone = self.signal(Signal::KILL);
        self.wait(Duration::from_secs(10)).await
    }

    /// Waits until `check` accepts the standard output, and returns the output.
    ///
    /// # Errors
    /// If `check` accepts no output within `patience`; the message shows the output so far.
    pub async fn wait_for_output(
        &mut self,
        patience: Duration,
        check: impl Fn(&str) -> bool,
    ) -> anyhow::Result<String> {
        let deadline = Instant::now() + patience;
        loop {
            let ended = self.exit_status();
            let output = self.output();
            if check(&output) {
                return Ok(output);
            }
            if let Some(status) = ended {
                bail!("{} ended ({status}) before its output was right: {output}\n{}", self.name, self.log_tail(20));
            }
            if Instant::now() > deadline {
                bail!("{}: output not as awaited after {patience:?}: {output}\n{}", self.name, self.log_tail(20));
            }
            sleep(POLL).await;
        }
    }

    /// Returns the last `lines` lines of standard error.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.errors, lines)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.exit_status().is_none() {
            let _gone = self.signal(Signal::KILL);
            let _reaped = self.child.wait();
            guard::remove_group(self.group);
        }
    }
}

fn read_lossy(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// Returns the last `lines` lines of a file, or the empty string if the file cannot be read.
#[must_use]
pub fn tail(path: &Path, lines: usize) -> String {
    let text = read_lossy(path);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

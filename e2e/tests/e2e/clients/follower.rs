//! Runs the Go client program `tributary-e2e-clients`, which reads commands and writes events as lines of JSON.

use anyhow::{Context, bail};
use serde_json::Value;
use std::{
    io::Write,
    path::Path,
    process::{ChildStdin, Command, Stdio},
    time::Duration,
};
use tokio::time::{Instant, sleep};
use tributary_e2e::{Process, guard};

/// Longest time until the program answers the command `dump`, which requests its objects.
const DUMP_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Follower {
    process: Process,
    input: ChildStdin,
    /// Number of output lines that the test has read.
    read: usize,
    _folder: tempfile::TempDir,
}

impl Follower {
    pub(crate) fn start(
        program: &Path,
        kubeconfig: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let folder = guard::temporary_folder("client")?;
        let mut command = Command::new(program);
        let (subcommand, rest) = arguments.split_first().context("no subcommand")?;
        command.arg(subcommand).arg("--kubeconfig").arg(kubeconfig).args(rest).envs(environment.iter().copied());
        let (out, err) = (folder.path().join("out"), folder.path().join("err"));
        let mut process = Process::spawn_with("client", command, &out, &err, Stdio::piped())?;
        let input = process.take_input().context("no pipe to the client")?;
        Ok(Self { process, input, read: 0, _folder: folder })
    }

    /// Reads the next line of output. `None` if no complete line has arrived.
    fn next_line(&mut self) -> anyhow::Result<Option<Value>> {
        let output = self.process.output();
        let whole = output.rfind('\n').map_or("", |end| &output[..end]);
        let Some(line) = whole.lines().nth(self.read) else { return Ok(None) };
        self.read += 1;
        serde_json::from_str(line).map(Some).with_context(|| format!("the client printed {line}"))
    }

    /// Reads lines up to the next line with this `event`.
    pub(crate) async fn wait_for(&mut self, event: &str, patience: Duration) -> anyhow::Result<Value> {
        let deadline = Instant::now() + patience;
        loop {
            let ended = self.process.exit_status();
            while let Some(line) = self.next_line()? {
                if line["event"] == event {
                    return Ok(line);
                }
                if line["event"] == "error" {
                    bail!("the client failed: {line}");
                }
            }
            if let Some(status) = ended {
                bail!("the client ended ({status}) before {event:?}\n{}", self.process.log_tail(30));
            }
            if Instant::now() > deadline {
                bail!("the client did not say {event:?} in {patience:?}\n{}", self.process.log_tail(30));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends a command that the program does not answer.
    pub(crate) fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        self.input.write_all(line.as_bytes()).context("write to the client")
    }

    pub(crate) fn log_tail(&self, lines: usize) -> String {
        self.process.log_tail(lines)
    }

    /// Asks the program for its current objects.
    pub(crate) async fn dump(&mut self) -> anyhow::Result<Value> {
        self.input.write_all(b"dump\n").context("write to the client")?;
        self.wait_for("dump", DUMP_TIMEOUT).await
    }

    /// Ends the program, and checks that its exit code is 0.
    pub(crate) async fn exit(mut self) -> anyhow::Result<()> {
        self.input.write_all(b"exit\n").context("write to the client")?;
        let status = self.process.wait(DUMP_TIMEOUT).await?;
        if !status.success() {
            bail!("the client ended with {status}\n{}", self.process.log_tail(30));
        }
        Ok(())
    }

    /// Waits until the program ends by itself, and returns all lines of its output.
    pub(crate) async fn all_lines(&mut self, patience: Duration) -> anyhow::Result<Vec<Value>> {
        let status = self.process.wait(patience).await?;
        if !status.success() {
            bail!("the client ended with {status}\n{}", self.process.log_tail(30));
        }
        let mut lines = Vec::new();
        while let Some(line) = self.next_line()? {
            lines.push(line);
        }
        Ok(lines)
    }
}

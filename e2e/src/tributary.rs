//! Runs the `tributary` binary in the same way as a user.

use crate::kubeconfig::ContextParts;
use crate::{HttpClient, Kubectl, Process, Tools, built, guard, kubectl::KubectlOutput};
use anyhow::{Context, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

/// Timeout for the line `ready:` at the start. Unreachable members must not delay the start for longer.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// The timeout for a run that is expected to fail.
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);

/// The timeout for a drain after SIGTERM.
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// Path of the binary: `TRIBUTARY_BIN`, or the binary in the target folder of the test program. The first call checks
/// that the binary is up to date with its sources.
///
/// # Errors
/// If there is no binary, or a source has changed since the build. The message contains the build command.
pub fn binary() -> anyhow::Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    if let Some(path) = std::env::var_os("TRIBUTARY_BIN") {
        return Ok(path.into());
    }
    let built = BUILT.get_or_init(|| built_binary().map_err(|error| format!("{error:#}")));
    built.clone().map_err(anyhow::Error::msg)
}

fn built_binary() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("find the target folder")?;
    let binary = own
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("tributary"))
        .find(|path| path.is_file())
        .with_context(|| format!("no tributary binary in the target folder: {}", built::REMEDY))?;
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace has no folder")?;
    built::ensure_up_to_date(&binary, workspace)?;
    Ok(binary)
}

/// Runs the binary with these arguments until it ends. Tests use it for commands that are expected to fail, so a failed
/// command is an output, not an error.
///
/// # Errors
/// If the binary cannot be started or still runs after 60 s.
pub async fn run(arguments: &[&str]) -> anyhow::Result<KubectlOutput> {
    run_with(arguments, &[]).await
}

/// Runs the binary like [`run`], with additional environment variables.
///
/// # Errors
/// If the binary cannot be started or still runs after 60 s.
pub async fn run_with(arguments: &[&str], environment: &[(&str, &OsString)]) -> anyhow::Result<KubectlOutput> {
    let folder = guard::temporary_folder("run")?;
    let mut command = Command::new(binary()?);
    command.args(arguments).envs(environment.iter().copied()).current_dir(folder.path());
    let (out, err) = (folder.path().join("out"), folder.path().join("err"));
    let mut process = Process::spawn_with("tributary", command, &out, &err, Stdio::null())?;
    match process.wait(EXIT_TIMEOUT).await {
        Ok(status) => Ok(KubectlOutput {
            command: format!("tributary {}", arguments.join(" ")),
            code: status.code(),
            stdout: process.output(),
            stderr: process.errors(),
        }),
        Err(error) => bail!("{error:#}\nstdout: {}\nstderr: {}", process.output(), process.errors()),
    }
}

/// Configures and starts a `tributary serve`.
#[derive(Clone, Debug)]
pub struct TributaryBuilder {
    /// Kubeconfig that the server reads, and the names of the contexts to serve.
    contexts: Option<(PathBuf, Vec<String>)>,
    /// The path of the binary; `None` runs the binary that [`binary`] returns.
    program: Option<PathBuf>,
    arguments: Vec<String>,
    environment: Vec<(String, OsString)>,
    folder: Option<PathBuf>,
    listen: String,
    shared: bool,
}

impl TributaryBuilder {
    /// Runs the server in shared mode with client certificates of this certificate authority. The server writes no
    /// kubeconfig; [`Tributary::kubeconfig_of`] writes one for a user.
    #[must_use]
    pub fn shared(self, client_ca_file: &Path) -> Self {
        self.in_shared_mode().argument(format!("--client-ca-file={}", client_ca_file.display()))
    }

    /// Runs the server in shared mode, without a way to authenticate users. The caller adds the arguments for
    /// authentication. The server writes no kubeconfig.
    #[must_use]
    pub fn in_shared_mode(mut self) -> Self {
        self.shared = true;
        self
    }

    /// Runs the binary at `path` instead of [`binary`], for example one of another version.
    #[must_use]
    pub fn program(mut self, path: &Path) -> Self {
        self.program = Some(path.to_owned());
        self
    }

    /// Listens on this address instead of a free port of 127.0.0.1.
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = address.into();
        self
    }

    /// Adds a command line argument.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds several command line arguments.
    #[must_use]
    pub fn arguments<'a>(mut self, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        self.arguments.extend(arguments.into_iter().map(str::to_owned));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn environment(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Uses this folder for the server's data, log and kubeconfig. A second start in the same folder finds these files.
    #[must_use]
    pub fn folder(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Starts the server and waits for the line `ready: <url>`.
    ///
    /// # Errors
    /// When the process ends, or does not print the line within 60 s; the message has the end of its log.
    pub async fn start(self) -> anyhow::Result<Tributary> {
        let temporary = match &self.folder {
            Some(_) => None,
            None => Some(guard::temporary_folder("tributary")?),
        };
        let folder = self
            .folder
            .clone()
            .or_else(|| temporary.as_ref().map(|folder| folder.path().to_owned()))
            .context("no folder")?;
        let kubeconfig = folder.join("all.kubeconfig");
        let mut command = Command::new(self.program.map_or_else(binary, Ok)?);
        command
            .arg("serve")
            .args(["--listen", &self.listen])
            .arg("--data-dir")
            .arg(folder.join("data"))
            .args(&self.arguments)
            .envs(self.environment)
            .current_dir(&folder);
        if let Some((kubeconfig, contexts)) = &self.contexts {
            command.arg("--kubeconfig").arg(kubeconfig).args(["--contexts", &contexts.join(",")]);
        }
        if !self.shared {
            command.arg("--write-kubeconfig").arg(&kubeconfig);
        }
        let (out, log) = (folder.join("tributary.out"), folder.join("tributary.log"));
        // Without this removal, the `ready:` line of an earlier start in the same folder could be read as the line of
        // this start.
        let _absent = std::fs::remove_file(&out);
        let mut process = Process::spawn_with("tributary", command, &out, &log, Stdio::null())?;
        let output = process.wait_for_output(READY_TIMEOUT, |text| ready_url(text).is_some()).await?;
        let url = ready_url(&output).context("the ready line is gone")?;
        Ok(Tributary { process, _temporary: temporary, folder, kubeconfig, url })
    }
}

/// The URL of a complete `ready: <url> …` line.
fn ready_url(output: &str) -> Option<String> {
    let (line, _rest) = output.split_once("ready: ")?.1.split_once('\n')?;
    line.split_whitespace().next().map(str::to_owned)
}

/// A running `tributary serve`. Dropping it kills the process.
#[derive(Debug)]
pub struct Tributary {
    process: Process,
    // The temporary folder is declared after `process`, so that the process ends before the folder is removed.
    _temporary: Option<tempfile::TempDir>,
    folder: PathBuf,
    kubeconfig: PathBuf,
    url: String,
}

impl Tributary {
    /// Configures a `tributary serve` of these contexts of a kubeconfig.
    #[must_use]
    pub fn builder<'a>(kubeconfig: &Path, contexts: impl IntoIterator<Item = &'a str>) -> TributaryBuilder {
        let contexts = contexts.into_iter().map(str::to_owned).collect();
        TributaryBuilder { contexts: Some((kubeconfig.to_owned(), contexts)), ..Self::of_configuration() }
    }

    fn of_configuration() -> TributaryBuilder {
        TributaryBuilder {
            contexts: None,
            program: None,
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: None,
            listen: "127.0.0.1:0".to_owned(),
            shared: false,
        }
    }

    /// Configures a `tributary serve` that reads its clusters from the UpstreamCluster files in a folder, and not from
    /// a kubeconfig.
    #[must_use]
    pub fn configured(folder: &Path) -> TributaryBuilder {
        Self::of_configuration().argument("--config").argument(folder.display().to_string())
    }

    /// Configures a `tributary serve` that reads its clusters only from a hub. The caller configures the authentication
    /// of users.
    #[must_use]
    pub fn in_hub_mode(hub_kubeconfig: &Path) -> TributaryBuilder {
        Self::of_configuration().argument("--hub-kubeconfig").argument(hub_kubeconfig.display().to_string())
    }

    /// Writes a kubeconfig for a user: the context `all`, and one context for each of these clusters.
    ///
    /// # Errors
    /// If the certificate authority of the serving certificate cannot be read, or the file cannot be written.
    pub fn kubeconfig_of(&self, path: &Path, user: &Value, clusters: &[&str]) -> anyhow::Result<()> {
        let authority = std::fs::read(self.folder.join("data/ca.crt")).context("read the serving authority")?;
        let entries = |name: &str, path: String| ContextParts {
            name: name.to_owned(),
            cluster: json!({
                "server": format!("{}{path}", self.url),
                "certificate-authority-data": STANDARD.encode(&authority),
            }),
            user: user.clone(),
        };
        let own = clusters.iter().map(|cluster| entries(cluster, format!("/clusters/{cluster}")));
        let all: Vec<_> = std::iter::once(entries("all", String::new())).chain(own).collect();
        crate::kubeconfig::write_entries(path, &all)
    }

    /// URL of the Tributary endpoint.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Folder with the server's log, data and kubeconfig.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The kubeconfig that the server wrote. It has the current context `all`, and one context per cluster.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The id of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Creates an HTTP client of the merged view.
    ///
    /// # Errors
    /// If the server's kubeconfig cannot be used.
    pub async fn http(&self) -> anyhow::Result<HttpClient> {
        HttpClient::from_kubeconfig(&self.kubeconfig, None).await
    }

    /// Creates an HTTP client of one cluster's path at Tributary, with the kubeconfig context of the same name.
    ///
    /// # Errors
    /// If the server's kubeconfig cannot be used.
    pub async fn http_of(&self, cluster: &str) -> anyhow::Result<HttpClient> {
        HttpClient::from_kubeconfig(&self.kubeconfig, Some(cluster)).await
    }

    /// Creates a client of the merged view, with the crate `kube`.
    ///
    /// # Errors
    /// If the server's kubeconfig cannot be used.
    pub async fn client(&self) -> anyhow::Result<kube::Client> {
        let config = crate::kubeconfig::config(&self.kubeconfig, None).await?;
        kube::Client::try_from(config).context("make a client")
    }

    /// kubectl with the kubeconfig of the server.
    ///
    /// # Errors
    /// When no temporary folder can be made.
    pub fn kubectl(&self, tools: &Tools) -> anyhow::Result<Kubectl> {
        Kubectl::new(tools, &self.kubeconfig)
    }

    /// Reads the complete log that the server has written until now.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.errors()
    }

    /// The last lines of the log.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        self.process.log_tail(lines)
    }

    /// Returns whether the process is still running.
    pub fn is_running(&mut self) -> bool {
        self.process.exit_status().is_none()
    }

    /// Reloads the configuration with SIGHUP.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn reload(&self) -> anyhow::Result<()> {
        self.process.signal(Signal::HUP)
    }

    /// Stops the server with SIGTERM, and returns the exit status.
    ///
    /// # Errors
    /// When the process does not end.
    pub async fn stop(mut self) -> anyhow::Result<std::process::ExitStatus> {
        self.process.terminate(STOP_PATIENCE).await
    }
}

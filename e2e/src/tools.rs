//! Finds the real servers and clients. `e2e/tools/build.sh` builds them once and caches them outside the checkout.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// Folders of the built programs.
#[derive(Clone, Debug)]
pub struct Tools {
    servers: PathBuf,
    clients: PathBuf,
    helm: PathBuf,
    kwok_stages: PathBuf,
}

impl Tools {
    /// Runs `tools/build.sh`. The script builds missing programs, which takes minutes, and otherwise returns at once.
    ///
    /// # Errors
    /// If Go is missing or a build fails. The error contains the script's message.
    pub async fn locate() -> anyhow::Result<Self> {
        let script = script();
        let servers = run(Command::new(&script).arg("servers")).await?;
        let clients = run(Command::new(&script).arg("clients")).await?;
        let helm = run(Command::new(&script).arg("helm")).await?;
        let stages = run(Command::new(&script).arg("kwok-stages")).await?;
        Ok(Self { servers: servers.into(), clients: clients.into(), helm: helm.into(), kwok_stages: stages.into() })
    }

    /// The folder of Kubernetes' own specs: `e2e.test` and `kube-scheduler`. Built on first use, because few tests need
    /// it.
    ///
    /// # Errors
    /// When Go is missing or a build fails; the script's message is passed on.
    pub async fn specs(&self) -> anyhow::Result<PathBuf> {
        Ok(run(Command::new(script()).arg("specs")).await?.into())
    }

    /// k9s. Built on first use, because one test needs it.
    ///
    /// # Errors
    /// When Go is missing or a build fails; the script's message is passed on.
    pub async fn k9s(&self) -> anyhow::Result<PathBuf> {
        Ok(Path::new(&run(Command::new(script()).arg("k9s")).await?).join("k9s"))
    }

    /// The folder of `promtool` and of `collector`, a minimal OpenTelemetry collector. Built on first use, because few
    /// tests need it.
    ///
    /// # Errors
    /// When Go is missing or a build fails; the script's message is passed on.
    pub async fn observability(&self) -> anyhow::Result<PathBuf> {
        Ok(run(Command::new(script()).arg("observability")).await?.into())
    }

    /// The folder of `issuer`, an OpenID Connect issuer, with a client that signs users in. Built on first use, because
    /// one test needs it.
    ///
    /// # Errors
    ///
    /// When Go is missing or a build fails; the script's message is passed on.
    pub async fn issuer(&self) -> anyhow::Result<PathBuf> {
        Ok(run(Command::new(script()).arg("issuer")).await?.into())
    }

    /// The folder of third-party CustomResourceDefinitions for which the chart makes objects, from the Prometheus
    /// Operator and cert-manager. Fetched on first use, because one test needs it.
    ///
    /// # Errors
    /// When Go is missing or the files cannot be fetched; the script's message is passed on.
    pub async fn definitions(&self) -> anyhow::Result<PathBuf> {
        Ok(run(Command::new(script()).arg("definitions")).await?.into())
    }

    /// The Python interpreter of an environment with the Kubernetes client; `None` without python3. Installed on first
    /// use.
    ///
    /// # Errors
    /// When the client cannot be installed; the script's message is passed on.
    pub async fn python(&self) -> anyhow::Result<Option<PathBuf>> {
        let path = run(Command::new(script()).arg("python")).await?;
        Ok((!path.is_empty()).then(|| path.into()))
    }

    /// The path of haproxy, a plain reverse proxy for comparisons in benchmarks: the installed program, or the program
    /// of Debian's package. The package is fetched on first use.
    ///
    /// # Errors
    ///
    /// When haproxy is neither installed nor available; the script's message is passed on.
    pub async fn haproxy(&self) -> anyhow::Result<PathBuf> {
        Ok(run(Command::new(script()).arg("haproxy")).await?.into())
    }

    /// Path of one of the programs `kube-apiserver`, `kubectl`, `etcd`, `kube-controller-manager` and `kwok`.
    #[must_use]
    pub fn server(&self, name: &str) -> PathBuf {
        self.servers.join(name)
    }

    /// Path of the Go program that runs client-go and controller-runtime clients.
    #[must_use]
    pub fn clients(&self) -> PathBuf {
        self.clients.join("tributary-e2e-clients")
    }

    /// Path of the Go program that runs a controller-runtime client which reads its own writes.
    #[must_use]
    pub fn consistent_client(&self) -> PathBuf {
        self.clients.join("tributary-e2e-consistent")
    }

    /// Path of Helm with this major version (3 or 4).
    #[must_use]
    pub fn helm(&self, version: u8) -> PathBuf {
        self.helm.join(format!("helm{version}"))
    }

    /// Folder with kwok's predefined stages, which simulate the lifecycle of nodes and pods.
    #[must_use]
    pub fn kwok_stages(&self) -> &Path {
        &self.kwok_stages
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/build.sh")
}

/// Runs a command and returns the last line of its output. The standard error of the command, which reports the
/// progress of builds, goes to the standard error of this process.
async fn run(command: &mut Command) -> anyhow::Result<String> {
    let shown = format!("{:?}", command.as_std());
    let output =
        command.stderr(std::process::Stdio::inherit()).output().await.with_context(|| format!("run {shown}"))?;
    if !output.status.success() {
        bail!("{shown} failed: {}", output.status);
    }
    let text = String::from_utf8(output.stdout).with_context(|| format!("read the output of {shown}"))?;
    text.lines().last().map(str::to_owned).with_context(|| format!("{shown} printed nothing"))
}

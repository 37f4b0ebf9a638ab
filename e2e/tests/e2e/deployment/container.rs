//! Tests that the container image is complete. The program runs as the image's user, in a root folder without other
//! files. It resolves names with the files that a kubelet provides, `/etc/hosts` and `/etc/resolv.conf`.

use super::{deploy, name_server::NameServer};
use crate::context::{Case, TestContext, eventually};
use anyhow::{Context as _, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;
use std::{
    fs::{self, Permissions},
    net::Ipv4Addr,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};
use tributary_e2e::{
    HttpClient, PeopleAuthority, Process, TestCluster, guard, kubeconfig, kubeconfig::ContextParts, ports,
};

/// User ID in the container image.
const USER: u32 = 65_532;

/// Longest duration of the test. The test compiles the whole program, which takes five minutes on two idle cores.
const PATIENCE: Duration = Duration::from_secs(50 * 60);

pub(super) fn cases() -> Vec<Case> {
    let name = "deployment::container::proof_program_of_the_image_starts_in_a_file_system_without_other_files";
    vec![Case::new(name, proof_program_of_the_image_starts_in_a_file_system_without_other_files).patience(PATIENCE)]
}

/// Builds the container image with `deploy/container/build.sh`, or copies a built image from the folder in
/// `TRIBUTARY_STATIC`.
async fn image(folder: &Path) -> anyhow::Result<()> {
    let made = match std::env::var_os("TRIBUTARY_STATIC") {
        Some(made) => PathBuf::from(made),
        None => {
            let mut command = Command::new(deploy("container/build.sh"));
            command.arg(folder).env("PROFILE", "dev");
            let log = folder.join("build.log");
            let mut build = Process::spawn("build.sh", command, &log)?;
            let status = build.wait(PATIENCE).await?;
            ensure!(status.success(), "build.sh: {status}\n{}", build.log_tail(30));
            return fs::remove_file(log).context("remove the log");
        }
    };
    fs::copy(made.join("tributary"), folder.join("tributary"))?;
    fs::create_dir(folder.join("etc"))?;
    Ok(())
}

/// Host names of the member, one in `/etc/hosts` and one only in DNS. The program must resolve both names without
/// shared libraries, because the image has none. A program with a C library would load such libraries at run time.
const IN_HOSTS: &str = "member.internal";
const IN_DNS: &str = "member.tributary.test";

/// Longest time until an answer after failed DNS lookups. A C library waits 5 s for each attempt.
const SOON: Duration = Duration::from_secs(60);

/// Writes a file that the image's user can read.
fn lay(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    fs::write(folder.join(name), text).with_context(|| format!("write {name}"))?;
    chown(folder.join(name), Some(USER), Some(USER)).with_context(|| format!("give {name} away"))
}

/// Writes the files that the program's flags name.
fn configure(folder: &Path, member: &TestCluster, people: &PeopleAuthority) -> anyhow::Result<()> {
    let (certificate, key) = people.serving(&["127.0.0.1"])?;
    for (name, text) in [
        ("ca.crt", &*member.access().certificate_authority),
        ("token", &member.access().token),
        ("people.crt", people.pem()),
        ("tls.crt", &certificate),
        ("tls.key", &key),
    ] {
        lay(folder, name, text)?;
    }
    let data = folder.join("data");
    fs::create_dir(&data)?;
    chown(&data, Some(USER), Some(USER)).context("give the data directory away")
}

/// Writes a kubeconfig in which the member has this host name.
fn name_member(folder: &Path, member: &TestCluster, name: &str) -> anyhow::Result<()> {
    let server = member.access().server.replace("127.0.0.1", name);
    let object = json!({"apiVersion": "tributary.dev/v1alpha1", "kind": "UpstreamCluster", "metadata": {"name": "own"},
        "spec": {"endpoints": [server], "caFile": "/ca.crt", "tlsServerName": "127.0.0.1",
            "credentials": {"tokenFile": "/token"}}});
    lay(folder, "own.json", &object.to_string())
}

struct Contained {
    process: Process,
    http: HttpClient,
    _outside: tempfile::TempDir,
}

impl Contained {
    async fn start(root: &Path, people: &PeopleAuthority) -> anyhow::Result<Self> {
        let port = ports::free_port()?;
        let mut command = Command::new("chroot");
        // The command needs the PATH only to find `chroot`.
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.arg(format!("--userspec={USER}:{USER}")).arg(root).args(["/tributary", "serve"]);
        command.args(["--config=/own.json", "--client-ca-file=/people.crt", "--data-dir=/data"]);
        command.args(["--tls-cert-file=/tls.crt", "--tls-private-key-file=/tls.key"]);
        command.arg(format!("--listen=127.0.0.1:{port}"));
        let outside = guard::temporary_folder("container")?;
        let (out, err) = (outside.path().join("out"), outside.path().join("err"));
        let process = Process::spawn_with("tributary", command, &out, &err, Stdio::null())?;

        let kubeconfig = outside.path().join("kubeconfig");
        let authority = STANDARD.encode(people.pem());
        let cluster = json!({"server": format!("https://127.0.0.1:{port}"), "certificate-authority-data": authority});
        let user = people.user("somebody", &[])?;
        kubeconfig::write_entries(&kubeconfig, &[ContextParts { name: "own".to_owned(), cluster, user }])?;
        let http = HttpClient::from_kubeconfig(&kubeconfig, None).await?;
        Ok(Self { process, http, _outside: outside })
    }

    /// Waits until the program serves, and answers this status to a request that it forwards to the member.
    async fn answers(&self, status: u16) -> anyhow::Result<()> {
        let http = &self.http;
        eventually(SOON, async || {
            http.get("/livez").send().await?.expect(200)?;
            http.get("/clusters/own/version").send().await?.expect(status).map(drop)
        })
        .await
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        let status = self.process.terminate(Duration::from_secs(20)).await?;
        ensure!(status.success(), "{status}: {}", self.process.errors());
        Ok(())
    }
}

async fn proof_program_of_the_image_starts_in_a_file_system_without_other_files(
    context: TestContext,
) -> anyhow::Result<()> {
    ensure!(
        rustix::process::getuid().is_root(),
        "only root may change the root directory of a process: run it as root"
    );
    let member = context.fixture.bare().await?;
    let (folder, people) = (guard::temporary_folder("root")?, PeopleAuthority::new("people and servers")?);
    let root = folder.path();
    fs::set_permissions(root, Permissions::from_mode(0o755))?;
    image(root).await?;
    configure(root, &member, &people)?;
    lay(root, "etc/hosts", &format!("127.0.0.1 {IN_HOSTS}\n"))?;
    name_member(root, &member, IN_HOSTS)?;
    let contained = Contained::start(root, &people).await?;
    contained.answers(200).await.with_context(|| contained.process.errors())?;
    contained.stop().await?;

    fs::remove_file(root.join("etc/hosts"))?;
    name_member(root, &member, IN_DNS)?;
    let contained = Contained::start(root, &people).await?;
    resolves_by_dns(root, &contained).await.with_context(|| contained.process.errors())?;
    contained.stop().await?;

    // The program in the image has no `demo` command.
    let version = Command::new(root.join("tributary")).arg("demo").output()?;
    ensure!(!version.status.success(), "the image has the demo");
    Ok(())
}

/// Without `resolv.conf`, the program serves but cannot reach a member whose name is only in DNS. After the test writes
/// a name server to `resolv.conf`, the member is reachable without a restart.
async fn resolves_by_dns(root: &Path, contained: &Contained) -> anyhow::Result<()> {
    let server = NameServer::start(IN_DNS, Ipv4Addr::LOCALHOST).await?;
    contained.answers(503).await?;
    ensure!(server.asked().is_empty(), "nobody has named it: {:?}", server.asked());
    lay(root, "etc/resolv.conf", &format!("nameserver {}\n", server.address))?;
    contained.answers(200).await?;
    ensure!(server.asked().iter().any(|name| name == IN_DNS), "{:?}", server.asked());
    Ok(())
}

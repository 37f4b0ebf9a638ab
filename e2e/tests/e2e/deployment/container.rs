//! What the container's image holds is enough: the program starts where there is nothing else, as the image's user.

use super::deploy;
use crate::context::{Case, TestContext, eventually};
use anyhow::{Context as _, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;
use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};
use tributary_e2e::{HttpClient, PeopleAuthority, Process, TestCluster, guard, kubeconfig, kubeconfig::Entries, ports};

/// The user of the image.
const USER: u32 = 65_532;

/// Everything is compiled anew for it: five minutes on two cores that have nothing else to do.
const PATIENCE: Duration = Duration::from_secs(50 * 60);

pub(super) fn cases() -> Vec<Case> {
    let name = "deployment::container::proof_it_starts_where_there_is_nothing_else";
    vec![Case::new(name, proof_it_starts_where_there_is_nothing_else).patience(PATIENCE)]
}

/// What `deploy/container/build.sh` makes; `TRIBUTARY_STATIC` names a folder where it is already.
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

/// Lays the files that the program is told of.
fn configure(folder: &Path, member: &TestCluster, people: &PeopleAuthority) -> anyhow::Result<()> {
    let (certificate, key) = people.serving(&["127.0.0.1"])?;
    // By a name, so that it has to be resolved without the parts that a C library loads when it runs.
    let server = member.access().server.replace("127.0.0.1", "member.internal");
    let object = json!({"apiVersion": "tributary.dev/v1alpha1", "kind": "UpstreamCluster", "metadata": {"name": "own"},
        "spec": {"endpoints": [server], "caFile": "/ca.crt", "tlsServerName": "127.0.0.1",
            "credentials": {"tokenFile": "/token"}}});
    for (name, text) in [
        ("own.json", object.to_string()),
        ("ca.crt", member.access().certificate_authority),
        ("token", member.access().token),
        ("people.crt", people.pem().to_owned()),
        ("tls.crt", certificate),
        ("tls.key", key),
        ("etc/hosts", "127.0.0.1 member.internal\n".to_owned()),
    ] {
        fs::write(folder.join(name), text).with_context(|| format!("write {name}"))?;
        chown(folder.join(name), Some(USER), Some(USER))?;
    }
    let data = folder.join("data");
    fs::create_dir(&data)?;
    chown(&data, Some(USER), Some(USER)).context("give the data directory away")
}

async fn proof_it_starts_where_there_is_nothing_else(context: TestContext) -> anyhow::Result<()> {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root may change the root directory of a process");
        return Ok(());
    }
    let member = context.fixture.bare().await?;
    let (folder, people) = (guard::temporary_folder("root")?, PeopleAuthority::new("people and servers")?);
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
    image(folder.path()).await?;
    configure(folder.path(), &member, &people)?;
    let port = ports::free_port()?;
    let mut command = Command::new("chroot");
    // By which chroot itself is found.
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.arg(format!("--userspec={USER}:{USER}")).arg(folder.path()).args(["/tributary", "serve"]);
    command.args(["--config=/own.json", "--client-ca-file=/people.crt", "--data-dir=/data"]);
    command.args(["--tls-cert-file=/tls.crt", "--tls-private-key-file=/tls.key"]);
    command.arg(format!("--listen=127.0.0.1:{port}"));
    let outside = guard::temporary_folder("container")?;
    let (out, err) = (outside.path().join("out"), outside.path().join("err"));
    let mut process = Process::spawn_with("tributary", command, &out, &err, Stdio::null())?;

    let kubeconfig = outside.path().join("kubeconfig");
    let cluster = json!({"server": format!("https://127.0.0.1:{port}"), "certificate-authority-data": STANDARD.encode(people.pem())});
    let user = people.user("somebody", &[])?;
    kubeconfig::write_entries(&kubeconfig, &[Entries { name: "own".to_owned(), cluster, user }])?;
    let http = HttpClient::from_kubeconfig(&kubeconfig, None).await?;
    let answered = eventually(Duration::from_secs(30), async || {
        http.get("/livez").send().await?.expect(200)?;
        http.get("/clusters/own/version").send().await?.expect(200).map(drop)
    });
    answered.await.with_context(|| process.errors())?;
    let status = process.terminate(Duration::from_secs(20)).await?;
    ensure!(status.success(), "{status}: {}", process.errors());
    // It has no simulator.
    let version = Command::new(folder.path().join("tributary")).arg("demo").output()?;
    ensure!(!version.status.success(), "the image has the demo");
    Ok(())
}

//! Tests protocol upgrades by the real kubectl: `cp`, `exec` and `port-forward`, over WebSocket and SPDY. Tributary
//! connects to the members directly, and through each kind of proxy.

use super::{Setup, pods};
use crate::context::{Case, TestContext, cases};
use anyhow::{Context, ensure};
use std::{fs, path::Path, sync::Arc};
use tributary_e2e::{
    Kubectl, Tributary, guard, kubeconfig,
    tunnel_proxy::{ProxyKind, TunnelProxy},
};

/// Size in bytes of the largest copied file. It needs many frames, and exceeds all buffers between kubectl and the pod.
const FILE_BYTES: usize = 8 << 20;

pub(super) fn cases() -> Vec<Case> {
    cases!["kubectl";
        kubectl_cp_works_directly_at_a_member, kubectl_cp_works_through_tributary,
        protocol_upgrades_work_through_an_http_proxy, protocol_upgrades_work_through_an_https_proxy,
        protocol_upgrades_work_through_a_socks5_proxy,
    ]
}

async fn kubectl_cp_works_directly_at_a_member(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::of_a_member(&context).await?;
    setup.running_pod(0, "one").await?;
    check_copies(&setup, "one").await
}

async fn kubectl_cp_works_through_tributary(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(1, "two").await?;
    check_copies(&setup, "two").await
}

async fn protocol_upgrades_work_through_an_http_proxy(context: TestContext) -> anyhow::Result<()> {
    check_through(&context, ProxyKind::Http).await
}

async fn protocol_upgrades_work_through_an_https_proxy(context: TestContext) -> anyhow::Result<()> {
    check_through(&context, ProxyKind::Https).await
}

async fn protocol_upgrades_work_through_a_socks5_proxy(context: TestContext) -> anyhow::Result<()> {
    check_through(&context, ProxyKind::Socks5).await
}

/// Tests all protocol upgrades to a member that only a proxy can reach.
async fn check_through(context: &TestContext, kind: ProxyKind) -> anyhow::Result<()> {
    let (members, folder) = (context.fixture.pair().await?.clone(), guard::temporary_folder("proxied")?);
    let proxy = TunnelProxy::start(kind).await?;
    let mut entries = members[1].access().entries();
    entries.cluster["proxy-url"] = proxy.url().into();
    let (path, roots) = (folder.path().join("kubeconfig"), folder.path().join("proxy.ca"));
    kubeconfig::write_entries(&path, &[entries])?;
    fs::write(&roots, proxy.authority())?;
    // Tributary verifies a proxy's certificate with the system's roots, which this environment variable replaces.
    let tributary = Tributary::builder(&path, [members[1].name()]).environment("SSL_CERT_FILE", &roots).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let kubectl: Kubectl = tributary.kubectl(context.fixture.tools().await?)?;
    let namespace = context.namespace("proxied", &members).await?;
    let setup = Setup { kubectl, namespace, members, _tributary: Some(Arc::clone(&tributary)) };
    setup.running_pod(1, "two").await?;
    let before = proxy.connections();
    ensure!(before > 0, "the member is not reached by the proxy");
    pods::check_exec(&setup, "two", 1).await?;
    check_copies(&setup, "two").await?;
    pods::check_port_forward(&setup, "two").await?;
    // Each upgraded request needs a separate connection through the proxy.
    let switched = proxy.connections() - before;
    ensure!(switched >= 8, "{switched} connections were made by the proxy");
    Ok(())
}

/// Copies a file and a folder into a pod and back, over WebSocket and over SPDY. The pod's files are on this machine.
pub(crate) async fn check_copies(setup: &Setup, pod: &str) -> anyhow::Result<()> {
    for websockets in [true, false] {
        let folder = guard::temporary_folder("copied")?;
        let at = |name: &str| folder.path().join(name);
        let bytes: Vec<u8> = (0..FILE_BYTES).map(|_| rand::random()).collect();
        fs::create_dir_all(at("from/inner")).context("make a folder")?;
        fs::create_dir_all(at("pod")).context("make a folder")?;
        fs::write(at("from/large"), &bytes).context("write a file")?;
        fs::write(at("from/inner/small"), "small").context("write a file")?;
        let in_pod = |name: &str| format!("{pod}:{}", at("pod").join(name).display());
        copy(setup, websockets, &at("from/large").display().to_string(), &in_pod("file")).await?;
        ensure!(fs::read(at("pod/file")).context("the file in the pod")? == bytes, "a file came otherwise");
        copy(setup, websockets, &in_pod("file"), &at("back").display().to_string()).await?;
        ensure!(fs::read(at("back")).context("the file that came back")? == bytes, "a file came back otherwise");
        copy(setup, websockets, &at("from").display().to_string(), &in_pod("all")).await?;
        copy(setup, websockets, &in_pod("all"), &at("all-back").display().to_string()).await?;
        for folder in [at("pod/all"), at("all-back")] {
            is_whole(&folder, &bytes)?;
        }
    }
    Ok(())
}

fn is_whole(folder: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let read = |name: &str| fs::read(folder.join(name)).with_context(|| format!("{name} in {}", folder.display()));
    ensure!(read("large")? == bytes && read("inner/small")? == b"small", "{} is not whole", folder.display());
    Ok(())
}

async fn copy(setup: &Setup, websockets: bool, from: &str, to: &str) -> anyhow::Result<()> {
    // Without retries, an incomplete copy is an error of kubectl.
    let mut command = setup.kubectl.command(&setup.arguments(&["cp", "--retries=0", from, to]));
    command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets.to_string());
    setup.kubectl.run_with(command, None).await?.success().map(drop)
}

//! Runs the commands of `docs/hub.md` in their order. They set up the hub and its first member.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tributary_e2e::kubeconfig::{ContextParts, write_entries};
use tributary_e2e::{Kubectl, PeopleAuthority, TestCluster, Tributary, guard, tributary};

use super::{deploy, render};
use crate::context::{Case, TestContext, cases, eventually};

const SOON: Duration = Duration::from_secs(60);

pub(super) fn cases() -> Vec<Case> {
    cases!["deployment::documented_hub"; commands_in_the_documentation_set_up_a_hub_with_a_member]
}

/// Returns the first code block of the document that contains this text. The indentation of a block in a list is
/// removed.
pub(crate) fn code_block(document: &str, text: &str) -> anyhow::Result<String> {
    let mut blocks = document.split("```").skip(1).step_by(2);
    let block = blocks.find(|block| block.contains(text)).with_context(|| format!("no code block has {text:?}"))?;
    let indent = block.lines().last().filter(|line| line.trim().is_empty()).unwrap_or_default().len();
    let lines = block.lines().skip(1).map(|line| line.get(indent..).unwrap_or_default());
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// In this test, the hub is also its own member. Tributary's ServiceAccount has only the rights of
/// `deploy/hub/rbac.yaml`.
async fn commands_in_the_documentation_set_up_a_hub_with_a_member(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let tools = context.fixture.tools().await?;
    let hub = TestCluster::builder("hub").controllers(true).start(tools).await?;
    let (folder, server) = (guard::temporary_folder("documented")?, hub.access().server);
    let place = |name: &str| folder.path().join(name);
    let document = fs::read_to_string(deploy("../docs/hub.md"))?;
    std::os::unix::fs::symlink(deploy(""), place("deploy"))?;
    let entries = |name: &str| ContextParts { name: name.to_owned(), ..hub.access().entries() };
    write_entries(&place("kubeconfig"), &[entries("hub"), entries("eu-admin")])?;
    let kubectl = Kubectl::new(tools, &place("kubeconfig"))?;
    let programs = [tools.server("kubectl"), tributary::binary()?];
    let programs = programs.iter().filter_map(|program| program.parent()).map(ToOwned::to_owned);
    let path =
        std::env::join_paths(programs.chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())))?;
    let run = async |commands: &str| {
        let mut command = Command::new("bash");
        command.args(["-ec", commands]).current_dir(folder.path());
        command.env("KUBECONFIG", place("kubeconfig")).env("PATH", &path);
        kubectl.run_with(command, None).await?.success()
    };

    run(&code_block(&document, "deploy/hub/rbac.yaml")?).await?;
    run(&code_block(&document, "create token")?).await?;
    let kubeconfig = code_block(&document, "tokenFile: hub.token")?.replace("https://hub.example.com:6443", &server);
    fs::write(place("hub.kubeconfig"), kubeconfig)?;
    fs::write(place("users-ca.crt"), PeopleAuthority::new("the users of the hub")?.pem())?;
    let builder = Tributary::in_hub_mode(&place("hub.kubeconfig")).shared(&place("users-ca.crt"));
    let builder = builder.argument("--hub-allow-cidr=127.0.0.0/8");
    let _tributary = context.fixture.watch_log(builder.start().await?).await;

    // Without a terminal, `join` cannot ask for confirmation before it changes the member, so the test adds a flag.
    run(&code_block(&document, "tributary join")?.replace("tributary join", "tributary join --yes")).await?;
    let host = server.parse::<http::Uri>()?.host().context("no host")?.to_owned();
    run(&code_block(&document, "create secret")?.replace("eu.example.com", &host)).await?;
    let mut objects = render::objects(&code_block(&document, "kind: UpstreamCluster")?)?;
    let [cluster] = &mut objects[..] else { anyhow::bail!("{objects:?}") };
    cluster["spec"]["endpoints"] = json!([server]);
    let file = kubectl.file("cluster.json", &cluster.to_string())?;
    kubectl.ok(&["apply", "-f", &file]).await?;
    eventually(SOON, async || {
        let object: Value = serde_json::from_str(&kubectl.ok(&["get", "upstreamcluster", "eu", "-o", "json"]).await?)?;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let fulfilled: Vec<_> =
            conditions.iter().filter(|one| one["status"] == "True").map(|one| &one["type"]).collect();
        ensure!(fulfilled == ["Accepted", "ResolvedRefs", "Ready", "Synced", "UniqueUID"], "{conditions:?}");
        Ok(())
    })
    .await
}

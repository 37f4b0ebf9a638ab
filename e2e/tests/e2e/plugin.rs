//! Runs `kubectl tributary` with the real kubectl over two members. The test installs the plugin from an archive like
//! the archive of a release.
//!
//! krew is not available as a Go module, so the test does the work of krew. It checks the manifest against krew's rules
//! and the archive against the manifest, and links the program into a folder of the PATH. Source: krew
//! `internal/index/validation/validate.go`, `internal/installation`.

use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};
use tributary_e2e::{Kubectl, TestCluster, guard, kubectl::KubectlOutput, tributary};

const SOON: Duration = Duration::from_secs(60);

const PROGRAM: &str = "kubectl-tributary";

pub(crate) fn cases() -> Vec<Case> {
    cases!["plugin";
        plugin_is_installed_from_its_krew_manifest, plugin_commands_which_and_diff_compare_a_name_of_two_clusters,
        plugin_errors_name_missing_objects_kinds_and_clusters, plugin_status_lists_the_members,
        plugin_runs_kubectl_commands_in_one_cluster,
    ]
}

/// Runs a command, which must succeed, and returns its standard output.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {output:?}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Makes an archive like the archive of a release, and the manifest with its checksum.
fn release(folder: &Path) -> anyhow::Result<(PathBuf, Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no root")?;
    let (files, archive) = (folder.join("files"), folder.join("tributary.tar.gz"));
    std::fs::create_dir(&files)?;
    // The program with debug symbols is too large to copy. A hard link would change the file's metadata while tar reads
    // the file in another test.
    symlink(std::path::absolute(tributary::binary()?)?, files.join(PROGRAM))?;
    std::fs::copy(root.join("LICENSE"), files.join("LICENSE"))?;
    output(
        Command::new("tar")
            .env("GZIP", "-1")
            .arg("-czhf")
            .arg(&archive)
            .arg("-C")
            .arg(&files)
            .args([PROGRAM, "LICENSE"]),
    )?;
    let digest = sha256(&archive)?;
    let mut text = std::fs::read_to_string(root.join("deploy/krew/tributary.yaml"))?;
    for (name, value) in [("VERSION", env!("CARGO_PKG_VERSION")), ("URL", "https://example.test/release")] {
        text = text.replace(&format!("${{{name}}}"), value);
    }
    for platform in ["LINUX_AMD64", "LINUX_ARM64", "DARWIN_AMD64", "DARWIN_ARM64"] {
        text = text.replace(&format!("${{SHA256_{platform}}}"), &digest);
    }
    let manifest: Value = serde_saphyr::from_str(&text).context("read the manifest")?;
    Ok((archive, manifest))
}

fn sha256(path: &Path) -> anyhow::Result<String> {
    let printed = output(Command::new("sha256sum").arg(path))?;
    printed.split_whitespace().next().map(str::to_owned).context("no digest")
}

/// Installs the archive into a folder in the same way as krew. Returns the folder to add to the PATH.
fn install(folder: &Path) -> anyhow::Result<PathBuf> {
    let (archive, manifest) = release(folder)?;
    check_manifest(&manifest)?;
    let platform = &manifest["spec"]["platforms"][0];
    ensure!(platform["sha256"] == json!(sha256(&archive)?), "{platform}");
    let (store, bin) = (folder.join("store/tributary"), folder.join("bin"));
    std::fs::create_dir_all(&store)?;
    std::fs::create_dir(&bin)?;
    output(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&store))?;
    let program = store.join(platform["bin"].as_str().context("no bin")?);
    // kubectl finds a plugin by the prefix `kubectl-` of its file name.
    let name = manifest["metadata"]["name"].as_str().context("no name")?;
    symlink(program, bin.join(format!("kubectl-{}", name.replace('-', "_"))))?;
    Ok(bin)
}

/// Checks a manifest against the rules of krew.
fn check_manifest(manifest: &Value) -> anyhow::Result<()> {
    ensure!(manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2", "{manifest}");
    ensure!(manifest["kind"] == "Plugin" && manifest["metadata"]["name"] == "tributary", "{manifest}");
    let spec = &manifest["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let short = text(&spec["shortDescription"]);
    ensure!(!short.is_empty() && !short.contains('\n'), "{spec}");
    let version = text(&spec["version"]);
    let numbers = version.strip_prefix('v').context("a version begins with v")?;
    ensure!(numbers.split('.').count() == 3 && !numbers.contains('$'), "{version}");
    let platforms = spec["platforms"].as_array().context("no platforms")?;
    ensure!(platforms.len() == 4, "{platforms:?}");
    for platform in platforms {
        let digest = text(&platform["sha256"]);
        ensure!(
            digest.len() == 64 && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')),
            "{platform}"
        );
        let labels = &platform["selector"]["matchLabels"];
        let (os, arch) = (text(&labels["os"]), text(&labels["arch"]));
        ensure!(labels.as_object().is_some_and(|labels| labels.len() == 2), "{platform}");
        let expected = format!("https://example.test/release/tributary-{os}-{arch}.tar.gz");
        ensure!(platform["uri"] == expected && platform["bin"] == PROGRAM, "{platform}");
    }
    ensure!(!manifest.to_string().contains("${"), "something is not filled in: {manifest}");
    Ok(())
}

struct Setup {
    kubectl: Kubectl,
    path: OsString,
    namespace: String,
    members: [Arc<TestCluster>; 2],
    _folder: tempfile::TempDir,
}

impl Setup {
    async fn new(context: &TestContext) -> anyhow::Result<Self> {
        let folder = guard::temporary_folder("plugin")?;
        let bin = install(folder.path())?;
        // The plugin finds kubectl in the PATH.
        symlink(context.fixture.tools().await?.server("kubectl"), bin.join("kubectl"))?;
        let path = std::env::join_paths(
            [bin].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
        )?;
        let kubectl = context.fixture.over_two().await?.kubectl(context.fixture.tools().await?)?;
        let members = context.fixture.pair().await?.clone();
        let namespace = context.namespace("plugin", &members).await?;
        Ok(Self { kubectl, path, namespace, members, _folder: folder })
    }

    /// Runs `kubectl tributary` with these arguments and with the plugin in the PATH.
    async fn run(&self, arguments: &[&str]) -> anyhow::Result<KubectlOutput> {
        let mut command = self.kubectl.command(&[&["tributary"], arguments].concat());
        command.env("PATH", &self.path);
        self.kubectl.run_with(command, None).await
    }

    async fn ok(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.run(arguments).await?.success()
    }

    /// Creates a ConfigMap with this text in a member.
    async fn map(&self, member: usize, name: &str, text: &str) -> anyhow::Result<()> {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text, "same": "yes"},
        });
        let path = format!("/api/v1/namespaces/{}/configmaps", self.namespace);
        self.members[member].http().post(&path, &object).send().await?.expect(201)?;
        Ok(())
    }
}

async fn plugin_is_installed_from_its_krew_manifest(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let mut list = setup.kubectl.command(&["plugin", "list"]);
    list.env("PATH", &setup.path);
    let listed = setup.kubectl.run_with(list, None).await?.success()?;
    ensure!(listed.contains("/bin/kubectl-tributary"), "{listed}");
    let help = setup.ok(&["--help"]).await?;
    for part in ["kubectl tributary <COMMAND>", "which", "diff", "status", "rv"] {
        ensure!(help.contains(part), "{part} in {help}");
    }
    let decoded = setup.ok(&["rv", "decode", "eyJtZW1iZXIxIjoiMTIifQ"]).await?;
    ensure!(decoded == "CLUSTER   RESOURCEVERSION\nmember1   12\n", "{decoded}");
    Ok(())
}

async fn plugin_commands_which_and_diff_compare_a_name_of_two_clusters(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(0, "twin", "one\ntwo\n\u{1b}[31m").await?;
    setup.map(1, "twin", "one\nthree\n\u{1b}[31m").await?;
    setup.map(1, "single", "x").await?;
    let namespace = ["-n", setup.namespace.as_str()];
    let with_namespace = |arguments: &[&'static str]| [arguments, &namespace[..]].concat();
    eventually(SOON, async || {
        let names = setup.ok(&with_namespace(&["which", "cm/twin", "-o", "name"])).await?;
        ensure!(names == "member1\nmember2\n", "{names}");
        Ok(())
    })
    .await?;
    let table = setup.ok(&with_namespace(&["which", "ConfigMap", "single"])).await?;
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    ensure!(lines.len() == 2 && lines[0][..3] == ["CLUSTER", "NAMESPACE", "NAME"], "{table}");
    ensure!(lines[1][..3] == ["member2", &setup.namespace, "single"], "{table}");
    eventually(SOON, async || {
        let namespaces = setup.ok(&["which", "ns", &setup.namespace, "-o", "name"]).await?;
        ensure!(namespaces == "member1\nmember2\n", "of no namespace itself: {namespaces}");
        Ok(())
    })
    .await?;

    let differences = setup.run(&with_namespace(&["diff", "configmap/twin"])).await?;
    ensure!(differences.code == Some(1), "{differences:?}");
    let label = format!("configmaps/{}/twin", setup.namespace);
    let begin = format!("--- member1/{label}\n+++ member2/{label}\n@@ ");
    ensure!(differences.stdout.starts_with(&begin), "{}", differences.stdout);
    ensure!(!differences.stdout.contains('\u{1b}'), "a terminal would obey: {}", differences.stdout);
    for (part, is_there) in [("two", true), ("three", true), ("uid", false), ("resourceVersion", false)] {
        ensure!(differences.stdout.contains(part) == is_there, "{part} in {}", differences.stdout);
    }
    let turned = setup.run(&with_namespace(&["diff", "cm/twin", "--clusters", "member2,member1"])).await?;
    ensure!(turned.stdout.starts_with("--- member2/"), "{turned:?}");
    let every = setup.run(&with_namespace(&["diff", "cm/twin", "--all-fields"])).await?;
    ensure!(every.stdout.contains("uid") && every.stdout.contains("resourceVersion"), "{every:?}");
    // Controllers create objects in each namespace. These objects differ only in fields that each cluster sets itself,
    // which the `diff` command must ignore.
    eventually(SOON, async || {
        let alike = setup.run(&with_namespace(&["diff", "serviceaccount/default"])).await?;
        ensure!(alike.code == Some(0) && alike.stdout.is_empty(), "{alike:?}");
        Ok(())
    })
    .await
}

async fn plugin_errors_name_missing_objects_kinds_and_clusters(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(0, "single", "x").await?;
    let namespace = ["-n", setup.namespace.as_str()];
    eventually(SOON, async || {
        let found = setup.ok(&[&["which", "cm/single", "-o", "name"], &namespace[..]].concat()).await?;
        ensure!(found == "member1\n", "{found}");
        Ok(())
    })
    .await?;
    for (arguments, code, part) in [
        (&["which", "cm/nowhere"][..], 1, "no cluster has configmaps \"nowhere\" in namespace"),
        (&["diff", "cm/nowhere"], 2, "no cluster has configmaps \"nowhere\""),
        (&["diff", "cm/single"], 2, "only member1 has configmaps \"single\""),
        (&["diff", "cm/single", "--clusters", "member2"], 2, "member2 does not have"),
        (&["which", "wombats/x"], 2, "no resource type \"wombats\""),
        (&["which", "cm"], 2, "names no object; write TYPE/NAME"),
        (&["which", "cm/single", "--context", "nope"], 2, "has no context \"nope\""),
        (&["which", "cm/single", "--context", "member1"], 2, "does not lead to Tributary's merged view"),
        (&["which", "cm/nowhere", "--context", "member1"], 2, "does not lead to Tributary's merged view"),
        (&["which", "cm/single", "--kubeconfig", "/no/such/file"], 2, "/no/such/file cannot be read"),
    ] {
        let output = setup.run(&[arguments, &namespace[..]].concat()).await?;
        ensure!(output.code == Some(code), "{output:?}");
        ensure!(output.stderr.contains(part) && output.stdout.is_empty(), "{part} in {output:?}");
        ensure!(output.stderr.starts_with("error: ") && output.stderr.lines().count() == 1, "one sentence: {output:?}");
    }
    Ok(())
}

/// Without a terminal, `tributary status` prints once and ends. The command must also work with the context of one
/// cluster.
async fn plugin_status_lists_the_members(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    for arguments in [&["status"][..], &["status", "--once"], &["status", "--context", "member2"]] {
        let screen = setup.ok(arguments).await?;
        let lines: Vec<Vec<&str>> = screen.lines().map(|line| line.split_whitespace().collect()).collect();
        for member in ["member1", "member2"] {
            let is_ready = |line: &Vec<&str>| line.len() > 2 && line[..2] == [member, "ready"];
            ensure!(lines.iter().any(is_ready), "{arguments:?}: {screen}");
        }
    }
    let report: Value = serde_json::from_str(&setup.ok(&["status", "-o", "json"]).await?)?;
    ensure!(report["clusters"].as_array().is_some_and(|clusters| clusters.len() == 2), "{report}");
    let refused = setup.run(&["status", "--context", "nope"]).await?;
    ensure!(refused.code == Some(2) && refused.stderr.contains("has no context \"nope\""), "{refused:?}");
    ensure!(refused.stderr.contains("it has: all, member1, member2"), "{refused:?}");
    Ok(())
}

/// The second member has a Deployment, and both members have pods that match its selector. The plugin must use only the
/// pods of the cluster in the command. If both members have an object of the name, the plugin must use the object of
/// this cluster.
async fn plugin_runs_kubectl_commands_in_one_cluster(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let namespace = setup.namespace.clone();
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "example.test/main:1"}]}},
        },
    });
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    setup.members[1].http().post(&path, &deployment).send().await?.expect(201)?;
    for (member, name) in [(0, "a-web"), (1, "b-web")] {
        let mut pod = crate::kubectl::pod(name, &format!("{}-node-0", setup.members[member].name()));
        pod["metadata"]["labels"]["app"] = "web".into();
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        setup.members[member].http().post(&path, &pod).send().await?.expect(201)?;
        eventually(SOON, async || {
            let pod = setup.members[member].http().get(&format!("{path}/{name}")).send().await?.expect(200)?.json()?;
            ensure!(pod["status"]["phase"] == "Running", "{pod}");
            Ok(())
        })
        .await?;
    }
    let in_member2 = ["-n", namespace.as_str(), "--cluster", "member2"];
    let at = |arguments: &[&'static str], behind: &[&'static str]| [arguments, &in_member2[..], behind].concat();
    for _ in 0..3 {
        let logs = setup.ok(&at(&["logs", "deploy/web"], &[])).await?;
        ensure!(logs.contains("hello from member2"), "{logs}");
        let printed = setup.ok(&at(&["exec", "deploy/web"], &["--", "sh", "-c", "echo $MEMBER --cluster"])).await?;
        ensure!(printed == "member2 --cluster\n", "{printed}");
    }
    let mut forward =
        setup.kubectl.command(&[&["tributary"], &at(&["port-forward", "deploy/web"], &[":8080"])[..]].concat());
    forward.env("PATH", &setup.path);
    let mut forwarding = setup.kubectl.spawn_command(forward)?;
    forwarding.wait_for_output(SOON, |text| text.contains("Forwarding from 127.0.0.1")).await?;
    drop(forwarding);

    setup.map(0, "twin", "one").await?;
    setup.map(1, "twin", "two").await?;
    let text = setup.ok(&at(&["get", "cm/twin"], &["-o", "jsonpath={.data.text}"])).await?;
    ensure!(text == "two", "{text}");
    // The plugin connects to the server with any context, here `member1`. The command must still use the cluster that
    // its arguments name.
    let described = setup.ok(&at(&["describe", "cm/twin", "--context", "member1"], &[])).await?;
    let has = |text: &str| described.lines().any(|line| line == text);
    ensure!(has("two") && !has("one"), "{described}");
    let deleted = setup.ok(&at(&["delete", "configmap", "twin"], &[])).await?;
    ensure!(deleted.contains("\"twin\" deleted"), "{deleted}");
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/twin");
    setup.members[0].http().get(&path).send().await?.expect(200)?;
    setup.members[1].http().get(&path).send().await?.expect(404)?;

    for (arguments, part) in [
        (&["get", "pods", "--cluster", "member3"][..], "no cluster \"member3\"; the clusters are: member1, member2"),
        (&["logs", "deploy/web"], "--cluster is missing"),
        (&["exec", "deploy/web", "--cluster"], "--cluster has no value"),
        (&["get", "pods", "--cluster", "member1", "--server", "https://127.0.0.1:1"], "--server cannot be combined"),
    ] {
        let refused = setup.run(arguments).await?;
        ensure!(refused.code == Some(2) && refused.stderr.contains(part), "{part} in {refused:?}");
        ensure!(refused.stderr.lines().count() == 1, "one sentence: {refused:?}");
    }
    // Output and exit code must be the same as without the plugin.
    let missing = setup.run(&at(&["get", "pod/nowhere"], &[])).await?;
    ensure!(missing.code == Some(1) && missing.stderr.contains("pods \"nowhere\" not found"), "{missing:?}");
    Ok(())
}

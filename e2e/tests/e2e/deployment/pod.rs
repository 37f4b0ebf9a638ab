//! Runs the chart's pod as a process on this machine. The process has the flags, files, user, probes and grace period
//! of the rendered Deployment. The pod's paths are in a folder of the test.

use super::{deploy, helm, render, volumes};
use crate::context::{Case, TestContext, cases, eventually};
use crate::shared_mode::{grant, make_config_map, reads_config_maps};
use anyhow::{Context as _, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;
use tributary_e2e::{
    HttpClient, PeopleAuthority, Process, TestCluster, guard, kubeconfig, kubeconfig::ContextParts, namespace, ports,
    tributary,
};
use volumes::Files;

const SOON: Duration = Duration::from_secs(60);

pub(super) fn cases() -> Vec<Case> {
    cases!["deployment::pod";
        pod_rendered_from_the_chart_starts_and_serves_requests, tributary_serves_clusters_from_a_secret_written_by_join,
        flags_rendered_from_the_chart_are_accepted_by_the_program,
    ]
}

struct Kubelet {
    root: tempfile::TempDir,
    spec: Value,
    /// Files of each ConfigMap and Secret. The keys are `configMap/NAME` and `secret/NAME`.
    sources: BTreeMap<String, Files>,
    /// User ID of the pod. `None` if the test does not run as root, because only root may change the user.
    user: Option<u32>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Kubelet {
    fn new(objects: &[Value], given: &[(&str, &[(&str, &str)])]) -> anyhow::Result<Self> {
        let root = guard::temporary_folder("pod")?;
        fs::set_permissions(root.path(), Permissions::from_mode(0o755))?;
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").context("no Deployment")?;
        let spec = deployment["spec"]["template"]["spec"].clone();
        let user = spec["securityContext"]["runAsUser"].as_u64().context("no user")?;
        let user = rustix::process::getuid().is_root().then_some(u32::try_from(user)?);
        let mut sources = BTreeMap::new();
        for map in objects.iter().filter(|object| object["kind"] == "ConfigMap") {
            let data = map["data"].as_object().into_iter().flatten();
            let files: Files = data.map(|(name, content)| (name.clone(), text(content))).collect();
            sources.insert(format!("configMap/{}", text(&map["metadata"]["name"])), files);
        }
        for (source, files) in given {
            let files = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
            sources.insert((*source).to_owned(), files);
        }
        Ok(Self { root, spec, sources, user })
    }

    /// Returns the path on this machine for a path in the pod.
    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    /// Replaces paths in the pod by paths on this machine.
    fn placed(&self, text: &str) -> String {
        let root = self.root.path().display().to_string();
        ["/etc/tributary/", "/var/lib/tributary"]
            .iter()
            .fold(text.to_owned(), |text, path| text.replace(path, &format!("{root}{path}")))
    }

    fn container(&self) -> &Value {
        &self.spec["containers"][0]
    }

    /// Writes the files of all volumes to the container's mount paths.
    fn mount(&self) -> anyhow::Result<()> {
        let group = self.user.map(|_| self.spec["securityContext"]["fsGroup"].as_u64().unwrap_or_default());
        let group = group.map(u32::try_from).transpose()?;
        for mount in self.container()["volumeMounts"].as_array().into_iter().flatten() {
            ensure!(mount["subPath"].is_null(), "the kubelet never renews a file that is mounted by itself: {mount}");
            let folder = self.path(&text(&mount["mountPath"]));
            let volumes = self.spec["volumes"].as_array().into_iter().flatten();
            let volume = volumes.clone().find(|volume| volume["name"] == mount["name"]).context("no such volume")?;
            if volume["emptyDir"].is_object() {
                // A real kubelet also creates the folder of an `emptyDir` volume and gives it to the pod's group.
                fs::create_dir_all(&folder)?;
                chown(&folder, None, group)?;
                fs::set_permissions(&folder, Permissions::from_mode(0o2777))?;
                continue;
            }
            volumes::lay(&folder, &self.files(volume)?, group)?;
        }
        Ok(())
    }

    fn files(&self, volume: &Value) -> anyhow::Result<Files> {
        let (source, spec) = match volume["secret"].as_object() {
            Some(_) => (format!("secret/{}", text(&volume["secret"]["secretName"])), &volume["secret"]),
            None => (format!("configMap/{}", text(&volume["configMap"]["name"])), &volume["configMap"]),
        };
        let all = self.sources.get(&source).with_context(|| format!("nobody gave {source}"))?;
        let all = all.iter().map(|(name, text)| (name.clone(), self.placed(text)));
        let Some(items) = spec["items"].as_array() else { return Ok(all.collect()) };
        let chosen = all.filter_map(|(name, content)| {
            let item = items.iter().find(|item| item["key"] == name.as_str())?;
            Some((text(&item["path"]), content))
        });
        Ok(chosen.collect())
    }

    fn start(&self) -> anyhow::Result<Process> {
        let container = self.container();
        ensure!(container["command"].is_null(), "the image's own program is run: {container}");
        let arguments = container["args"].as_array().into_iter().flatten().map(|word| self.placed(&text(word)));
        // Copies the program into this folder, because every user can read it.
        let program = self.path("/tributary");
        fs::copy(tributary::binary()?, &program).context("copy the program")?;
        let mut command = Command::new(program);
        command.args(arguments).env_clear().current_dir("/");
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        Process::spawn_with("pod", command, &self.path("/out"), &self.path("/err"), Stdio::null())
    }

    /// Returns the path of a probe, and the time after which its failures take effect. The probe must use the
    /// container's port.
    fn probe(&self, name: &str) -> anyhow::Result<(String, Duration)> {
        let probe = &self.container()[name];
        let get = &probe["httpGet"];
        ensure!(get["scheme"] == "HTTPS" && get["port"] == self.container()["ports"][0]["name"], "{probe}");
        let seconds = |field: &str| probe[field].as_u64().unwrap_or(1);
        Ok((text(&get["path"]), Duration::from_secs(seconds("periodSeconds") * seconds("failureThreshold"))))
    }
}

/// Address of the running pod, and the certificate authority for its clients.
struct Reached {
    people: PeopleAuthority,
    server: String,
    folder: tempfile::TempDir,
}

impl Reached {
    async fn client(&self, user: Value) -> anyhow::Result<HttpClient> {
        let path = self.folder.path().join(namespace::unique_name("kubeconfig"));
        let authority = STANDARD.encode(self.people.pem());
        let cluster = json!({"server": self.server, "certificate-authority-data": authority});
        kubeconfig::write_entries(&path, &[ContextParts { name: "pod".to_owned(), cluster, user }])?;
        HttpClient::from_kubeconfig(&path, None).await
    }
}

/// Returns chart values for one real member. The pod listens on this free port of the machine.
fn chosen(member: &TestCluster, name: &str, port: u16) -> Value {
    let object = json!({"apiVersion": "tributary.dev/v1alpha1", "kind": "UpstreamCluster", "metadata": {"name": name},
        "spec": {"endpoints": [member.access().server], "caFile": "/etc/tributary/members/own/ca.crt",
            "credentials": {"tokenFile": "/etc/tributary/members/own/token"}}});
    json!({
        "configuration": {"objects": [object]},
        "members": [{"name": "own", "secretName": "member"}],
        "serving": {"secretName": "serving"},
        "authentication": {"clientCA": {"configMapName": "people", "key": "people.crt"}, "deniedUsers": ["mallory"]},
        "audit": {"policy": {"rules": [{"level": "Metadata"}]}},
        "accessLog": {"path": "-"},
        // No collector receives the traces. The loss of traces must not delay a request.
        "tracing": {"configuration": {"endpoint": "127.0.0.1:1", "samplingRatePerMillion": 1_000_000}},
        "listenAddress": "127.0.0.1", "containerPort": port, "shutdownDelaySeconds": 2,
    })
}

async fn rendered(context: &TestContext, values: &Value) -> anyhow::Result<Vec<Value>> {
    let helm = helm(context, 4).await?;
    let file = helm.file("values.json", &values.to_string())?;
    render::chart(&helm, &["--values", &file]).await
}

async fn pod_rendered_from_the_chart_starts_and_serves_requests(context: TestContext) -> anyhow::Result<()> {
    let member = context.fixture.bare().await?;
    let own = context.namespace("pod", &[Arc::clone(&member)]).await?;
    let ann = namespace::unique_name("ann");
    grant(&member, &own, &ann, &ann, reads_config_maps()).await?;
    make_config_map(&member, &own, "seen", 1).await?;

    let port = ports::free_port()?;
    let people = PeopleAuthority::new("people and servers")?;
    let (certificate, key) = people.serving(&["127.0.0.1"])?;
    let access = member.access();
    let objects = rendered(&context, &chosen(&member, "first", port)).await?;
    let kubelet = Kubelet::new(
        &objects,
        &[
            ("secret/member", &[("ca.crt", &access.certificate_authority), ("token", &access.token)]),
            ("secret/serving", &[("tls.crt", &certificate), ("tls.key", &key)]),
            ("configMap/people", &[("people.crt", people.pem())]),
        ],
    )?;
    kubelet.mount()?;
    let mut process = kubelet.start()?;
    let reached =
        Reached { people, server: format!("https://127.0.0.1:{port}"), folder: guard::temporary_folder("pod")? };
    let outcome = as_rendered(&context, &kubelet, &mut process, &reached, (&own, &ann, &member)).await;
    outcome.with_context(|| format!("the pod's log: {}", process.errors()))
}

async fn as_rendered(
    context: &TestContext,
    kubelet: &Kubelet,
    process: &mut Process,
    reached: &Reached,
    (own, ann, member): (&str, &str, &TestCluster),
) -> anyhow::Result<()> {
    // The kubelet sends probes without a credential.
    let nobody = reached.client(json!({})).await?;
    let (startup, patience) = kubelet.probe("startupProbe")?;
    eventually(patience, async || nobody.get(&startup).send().await?.expect(200).map(drop)).await?;
    let (livez, readyz) = (kubelet.probe("livenessProbe")?.0, kubelet.probe("readinessProbe")?.0);
    for path in [&livez, &readyz] {
        nobody.get(path).send().await?.expect(200)?;
    }
    let http = reached.client(reached.people.user(ann, &[])?).await?;
    let maps = format!("/api/v1/namespaces/{own}/configmaps/seen");
    eventually(SOON, async || http.get(&maps).send().await?.expect(200).map(drop)).await?;
    // If the audit policy takes effect, standard output has a line of JSON for the request.
    ensure!(process.output().contains("\"audit.k8s.io/v1\""), "{}", process.output());
    // The access log must have the trace ID of each request.
    eventually(SOON, async || {
        let (output, path) = (process.output(), format!("\"path\":\"{maps}\""));
        let is_told = |line: &str| line.contains("\"decision\":\"memory\"") && line.contains("\"traceId\":\"");
        ensure!(output.lines().any(|line| line.contains(&path) && is_told(line)), "{output}");
        Ok(())
    })
    .await?;

    // The running process must notice files that the kubelet updates.
    let port = u16::try_from(kubelet.container()["ports"][0]["containerPort"].as_u64().context("no port")?)?;
    looks_for_replicas(process).await?;
    let mut values = chosen(member, "second", port);
    http.get("/clusters/second/version").send().await?.expect(404)?;
    brings(kubelet, &rendered(context, &values).await?)?;
    eventually(SOON, async || http.get("/clusters/second/version").send().await?.expect(200).map(drop)).await?;
    values["authentication"]["deniedUsers"] = json!(["mallory", ann]);
    brings(kubelet, &rendered(context, &values).await?)?;
    eventually(SOON, async || http.get(&maps).send().await?.expect(403).map(drop)).await?;

    ends(kubelet, process, &nobody, [&livez, &readyz]).await
}

/// Runs `tributary join` for a member with a unique account name. Returns the files that the command writes, including
/// a new token, as the contents of a Secret.
async fn joined(context: &TestContext, member: &TestCluster, directory: &Path, account: &str) -> anyhow::Result<Files> {
    let kubeconfig = context.fixture.pair_kubeconfig().await?.display().to_string();
    let config = directory.display().to_string();
    let join = ["join", member.name(), "--kubeconfig", &kubeconfig, "--config", &config, "--yes"];
    let account = ["--account", account, "--namespace", account, "--token-lifetime", "1h"];
    tributary::run(&[&join[..], &account].concat()).await?.success()?;
    let mut files = Files::new();
    for file in fs::read_dir(directory)? {
        let file = file?;
        files.insert(file.file_name().display().to_string(), fs::read_to_string(file.path())?);
    }
    Ok(files)
}

/// Follows `deploy/README.md`. The Secret contains the directory that `tributary join` writes: an UpstreamCluster, and
/// the file of its token. The chart values are those of the committed manifests, except for the pod's address.
async fn tributary_serves_clusters_from_a_secret_written_by_join(context: TestContext) -> anyhow::Result<()> {
    let member = Arc::clone(&context.fixture.pair().await?[0]);
    let own = context.namespace("documented", &[Arc::clone(&member)]).await?;
    let (ann, account) = (namespace::unique_name("ann"), namespace::unique_name("tributary"));
    grant(&member, &own, &ann, &ann, reads_config_maps()).await?;
    make_config_map(&member, &own, "seen", 1).await?;
    let clusters = guard::temporary_folder("clusters")?;
    let written = joined(&context, &member, clusters.path(), &account).await?;
    let token = format!("{}.token", member.name());
    let cluster = written.get(&format!("{}.yaml", member.name())).context("no UpstreamCluster is written")?;
    let is_relative =
        cluster.contains("tokenFile") && cluster.contains(&token) && !cluster.contains(&format!("/{token}"));
    ensure!(is_relative && written.contains_key(&token), "{cluster}");

    let port = ports::free_port()?;
    let helm = helm(&context, 4).await?;
    let set = format!("listenAddress=127.0.0.1,containerPort={port}");
    let values = deploy("manifests/values.yaml");
    let objects = render::chart(&helm, &["--values", &values, "--set", &set]).await?;
    let people = PeopleAuthority::new("people and servers")?;
    let (certificate, key) = people.serving(&["127.0.0.1"])?;
    let files: Vec<(&str, &str)> = written.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let kubelet = Kubelet::new(
        &objects,
        &[
            ("secret/tributary-clusters", &files[..]),
            ("secret/tributary-serving", &[("tls.crt", &certificate), ("tls.key", &key)]),
            ("configMap/tributary-people", &[("ca.crt", people.pem())]),
        ],
    )?;
    kubelet.mount()?;
    let process = kubelet.start()?;
    let reached =
        Reached { people, server: format!("https://127.0.0.1:{port}"), folder: guard::temporary_folder("pod")? };
    let maps = format!("/api/v1/namespaces/{own}/configmaps/seen");
    let http = reached.client(reached.people.user(&ann, &[])?).await?;
    let outcome = with_tokens_exchanged(&context, &kubelet, (&http, &maps), (&member, clusters.path(), &account)).await;
    outcome.with_context(|| format!("the pod's log: {}", process.errors()))
}

/// Checks that the pod uses the first token, and uses the next token after the kubelet has written it.
async fn with_tokens_exchanged(
    context: &TestContext,
    kubelet: &Kubelet,
    (http, maps): (&HttpClient, &str),
    (member, directory, account): (&TestCluster, &Path, &str),
) -> anyhow::Result<()> {
    let forwarded = format!("/clusters/{}{maps}", member.name());
    // The process may not accept connections yet, so the first requests may fail.
    for path in [maps, &forwarded] {
        eventually(SOON, async || http.get(path).send().await?.expect(200).map(drop)).await?;
    }
    // The test deletes the account and creates it again. A token of the deleted account is invalid for the new account.
    let path = format!("/api/v1/namespaces/{account}/serviceaccounts/{account}");
    member.http().delete(&path).send().await?.expect(200)?;
    eventually(SOON, async || {
        let answer = http.get(&forwarded).send().await?;
        ensure!(answer.status.as_u16() >= 500, "{} by the token of an account that is gone", answer.status);
        Ok(())
    })
    .await?;
    let next = joined(context, member, directory, account).await?;
    volumes::lay(&kubelet.path("/etc/tributary/configuration"), &next, kubelet.user)?;
    eventually(SOON * 2, async || http.get(&forwarded).send().await?.expect(200).map(drop)).await?;
    eventually(SOON, async || http.get(maps).send().await?.expect(200).map(drop)).await
}

/// Checks that the process looks up the other replicas by a DNS name. The lookup fails, because this machine cannot
/// resolve the name.
async fn looks_for_replicas(process: &Process) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let (errors, name) = (process.errors(), "tributary-replicas.tributary.svc");
        ensure!(errors.lines().any(|line| line.contains("cannot be resolved") && line.contains(name)), "{errors}");
        Ok(())
    })
    .await
}

async fn flags_rendered_from_the_chart_are_accepted_by_the_program(context: TestContext) -> anyhow::Result<()> {
    let helm = helm(&context, 4).await?;
    // The program must accept the flags, and must stop because a file is missing.
    for (values, absent) in [
        ("everything", "/etc/tributary/configuration"),
        ("hub-elsewhere", "/etc/tributary/configuration"),
        ("hub", "/etc/tributary/serving/tls.crt"),
        ("aggregation", "/etc/tributary/serving/tls.crt"),
        ("doors", "/etc/tributary/serving/tls.crt"),
        ("karmada", "/etc/tributary/serving/tls.crt"),
    ] {
        let objects = render::chart(&helm, &["--values", &super::values(values)]).await?;
        let kubelet = Kubelet::new(&objects, &[])?;
        let arguments = kubelet.container()["args"].as_array().into_iter().flatten();
        let arguments: Vec<String> = arguments.map(|word| kubelet.placed(&text(word))).collect();
        ensure!(arguments.len() > 12, "{arguments:?}");
        let output = tributary::run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        let absent = kubelet.placed(absent);
        ensure!(output.code != Some(0) && output.stderr.contains(&absent), "{values}: {}", output.stderr);
    }
    Ok(())
}

/// Updates the files of the mounted ConfigMaps to the contents in `objects`, as a kubelet does.
fn brings(kubelet: &Kubelet, objects: &[Value]) -> anyhow::Result<()> {
    for (mounted, source) in [("configuration", "tributary-configuration"), ("files", "tributary-files")] {
        let map = objects.iter().find(|object| object["kind"] == "ConfigMap" && object["metadata"]["name"] == source);
        let data = map.with_context(|| format!("no {source}"))?["data"].as_object().cloned().unwrap_or_default();
        let files: Files = data.iter().map(|(name, content)| (name.clone(), kubelet.placed(&text(content)))).collect();
        let folder = kubelet.path(&format!("/etc/tributary/{mounted}"));
        volumes::lay(Path::new(&folder), &files, kubelet.user)?;
    }
    Ok(())
}

/// Sends SIGTERM. The process must become unready at once, serve until its delay ends, and exit within the grace
/// period.
async fn ends(
    kubelet: &Kubelet,
    process: &mut Process,
    nobody: &HttpClient,
    [livez, readyz]: [&str; 2],
) -> anyhow::Result<()> {
    let grace = kubelet.spec["terminationGracePeriodSeconds"].as_u64().context("no grace period")?;
    let told = Instant::now();
    process.signal(rustix::process::Signal::TERM)?;
    eventually(Duration::from_secs(1), async || nobody.get(readyz).send().await?.expect(500).map(drop)).await?;
    nobody.get(livez).send().await?.expect(200)?;
    let status = process.wait(Duration::from_secs(grace)).await?;
    ensure!(status.success(), "{status}");
    ensure!(told.elapsed() >= Duration::from_secs(2), "no delay: {:?}", told.elapsed());
    Ok(())
}

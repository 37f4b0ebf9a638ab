//! Tests the files in `deploy`. The real Helm and a real kube-apiserver must accept the chart and the manifests, and
//! the rendered pod must run. Other tests replace replicas under load, and run the static program without other files.

pub(crate) mod balancer;
mod container;
pub(crate) mod documented_hub;
mod name_server;
mod pod;
mod references;
pub(crate) mod render;
pub(crate) mod rolling;
mod unit;
mod upgrade;
mod volumes;

use crate::context::{Case, TestContext, cases};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::{path::PathBuf, process::Command};
use tributary_e2e::{Kubectl, TestCluster, guard, kubectl::KubectlOutput, tributary};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = cases!["deployment";
        helm_renders_valid_values_and_refuses_invalid_values, helm_chart_renders_text_values_as_yaml_strings,
        committed_manifests_equal_the_rendered_chart, kube_apiserver_accepts_all_objects_rendered_from_the_chart,
        documented_installation_works_in_a_joined_cluster,
    ];
    cases.extend(pod::cases());
    cases.extend(references::cases());
    cases.extend(documented_hub::cases());
    cases.extend(rolling::cases());
    cases.extend(container::cases());
    cases.extend(unit::cases());
    cases.extend(upgrade::cases());
    cases
}

pub(crate) fn deploy(path: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(path).display().to_string()
}

pub(crate) async fn helm(context: &TestContext, version: u8) -> anyhow::Result<Kubectl> {
    Kubectl::helm(context.fixture.tools().await?, version, &context.fixture.bare().await?.kubeconfig())
}

/// Names of the values files with which the tests render the chart.
pub(crate) const VALUES: [&str; 8] =
    ["minimal", "everything", "hub", "aggregation", "hub-elsewhere", "publish", "doors", "karmada"];

/// Values files with which the pods have RBAC rights in the cluster where they run, which is the hub.
pub(crate) const VALUES_WITH_RIGHTS: [&str; 4] = ["hub", "aggregation", "publish", "doors"];

pub(crate) fn values(name: &str) -> String {
    deploy(&format!("helm/tributary/ci/{name}-values.yaml"))
}

/// Values that the chart refuses, each with a part of the expected error.
const REFUSED: [(&str, &str); 42] = [
    ("publish.clusterProfilesNamespace=fleet", "publish: Tributary publishes clusters in a hub; set hub.enabled"),
    (
        "publish.clusterProfilesNamespace=fleet,hub.enabled=true,configuration.objects=null",
        "publish.address: give the URL of Tributary",
    ),
    (
        "publish.argoCDSecretsNamespace=argocd,publish.address=https://t,hub.enabled=true,configuration.objects=null",
        "publish.serviceAccount: published Secrets contain a token",
    ),
    (
        "hub.enabled=true,configuration.objects=null,hub.kubeconfigSecret=x,hub.sourceSecretNamespaces[0]=a",
        "hub.sourceLists, hub.sourceSecretNamespaces: the chart creates no rights",
    ),
    ("configuration.objects=null", "configuration: give exactly one of objects"),
    ("configuration.existingSecret=clusters", "configuration: give exactly one of objects"),
    ("serving.secretName=", "serving.secretName: name a Secret"),
    ("serving.certificate.create=true", "serving.certificate.issuerRef.name: name the Issuer"),
    ("authentication.clientCA.secretName=x", "leave out configMapName or secretName"),
    ("hub.enabled=true,configuration.existingSecret=x", "configuration: give at most one of objects"),
    ("hub.allowCIDRs[0]=localhost", "allowCIDRs"),
    ("aggregation.enabled=true", "aggregation.enabled, ocm.enabled: the hub authenticates the users"),
    ("ocm.enabled=true", "aggregation.enabled, ocm.enabled: the hub authenticates the users"),
    (
        "aggregation.enabled=true,hub.enabled=true,hub.kubeconfigSecret=x,aggregation.servingSecretName=x,aggregation.caBundle=eA==",
        "aggregation.caBundle, aggregation.apiServiceAnnotations: the APIService is in the hub",
    ),
    ("aggregation.doors[0]=karmada", "the doors are paths of the aggregated API"),
    ("aggregation.doors[0]=ocm", "doors"),
    (
        "aggregation.enabled=true,hub.enabled=true,aggregation.karmadaServers.search\\.karmada\\.io=x",
        "add karmada to aggregation.doors",
    ),
    ("aggregation.karmadaServers.apps=x", "karmadaServers"),
    ("ocm.enabled=true,ocm.port=6443,hub.enabled=true", "aggregation.port, ocm.port: containerPort"),
    ("aggregation.caBundle=eA==", "aggregation.caBundle: Tributary makes the certificate"),
    ("aggregation.servingSecretName=x", "aggregation.servingSecretName: give the authority"),
    ("aggregation.port=6443,aggregation.enabled=true,hub.enabled=true", "aggregation.port, ocm.port: containerPort"),
    ("aggregation.port=443", "port"),
    ("shutdownDelaySeconds=20", "30 is too short"),
    ("nonsense=1", "nonsense"),
    ("replicas=0", "replicas"),
    ("image.digest=latest", "digest"),
    ("configuration.objects[0].kind=Pod", "objects"),
    ("containerPort=443", "containerPort"),
    ("accessLog.path=access.log", "path"),
    ("tracing.configuration.kind=TracingConfiguration", "kind"),
    ("tracing.configuration.samplingRatePerMillion=1000001", "samplingRatePerMillion"),
    ("fullnameOverride=a.b", "fullnameOverride"),
    ("nameOverride=My App", "nameOverride"),
    ("listenAddress=fleet.example.com", "listenAddress"),
    ("configuration.objects[0].spec.credentials.token=t", "eu has a secret in spec.credentials.token,"),
    ("configuration.objects[0].spec.credentials.clientKeyData=k", "eu has a secret in spec.credentials.clientKeyData,"),
    ("configuration.objects[0].spec.secureServing.keyData=k", "eu has a secret in spec.secureServing.keyData,"),
    ("configuration.objects[0].spec.proxyURL=http://user:pw@proxy:3128", "eu has a secret in spec.proxyURL,"),
    (
        "configuration.objects[0].spec.proxyURL=socks5h://key@proxy",
        "by spec.kubeconfig.path, with the user in its proxy-url",
    ),
    (
        "configuration.objects[0].spec.endpoints[0]=https://user:pw@eu",
        "eu has a user in spec.endpoints[0]; write endpoints without one",
    ),
    (
        "configuration.objects[0].spec.credentials.token=t,configuration.objects[0].spec.proxyURL=http://u:p@proxy",
        "eu has a secret in spec.credentials.token, spec.proxyURL,",
    ),
];

async fn helm_renders_valid_values_and_refuses_invalid_values(context: TestContext) -> anyhow::Result<()> {
    let minimal = values("minimal");
    for version in [3, 4] {
        let helm = helm(&context, version).await?;
        for values in VALUES.map(values) {
            helm.ok(&["lint", "--strict", &deploy("helm/tributary"), "--values", &values]).await?;
            let objects = render::chart(&helm, &["--values", &values]).await?;
            let deployment = objects.iter().find(|object| object["kind"] == "Deployment").context("no Deployment")?;
            let container = &deployment["spec"]["template"]["spec"]["containers"][0];
            ensure!(container["resources"]["limits"]["memory"].is_string(), "no limit of memory: {container}");
            // The chart must not set the memory for collections, because the program derives it from the limit of its
            // cgroup. A number in the arguments would be wrong after a change of the limit.
            let arguments = container["args"].as_array().context("arguments")?;
            let says_how_much = |one: &Value| one.as_str().is_some_and(|text| text.contains("collection-bytes"));
            ensure!(!arguments.iter().any(says_how_much), "{arguments:?}");
        }
        for (value, expected) in REFUSED {
            let refused = render::run(&helm, "tributary", &["--values", &minimal, "--set", value]).await?;
            let words = refused.failure()?;
            ensure!(words.contains(expected), "helm {version}, {value}: {words}");
        }
        let words = render::run(&helm, "a.b", &["--values", &minimal]).await?.failure()?;
        ensure!(words.contains("a.b-tributary, which the release gives"), "helm {version}: {words}");
    }
    Ok(())
}

/// The chart must neither cut a string value nor turn a string into a number. For example, a changed name of a front
/// proxy would change which client may send user names in headers.
async fn helm_chart_renders_text_values_as_yaml_strings(context: TestContext) -> anyhow::Result<()> {
    for version in [3, 4] {
        let helm = helm(&context, version).await?;
        let objects = render::chart(&helm, &["--values", &values("texts"), "--namespace", "123"]).await?;
        for object in &objects {
            let metadata = &object["metadata"];
            let name = metadata["name"].as_str().context("a name that is no text")?;
            ensure!(name == "null" || name.starts_with("null-"), "helm {version}: {metadata}");
            ensure!(metadata["namespace"] == "123", "helm {version}: {metadata}");
            ensure!(metadata["labels"]["app.kubernetes.io/name"] == "7", "helm {version}: {metadata}");
        }
        let of_kind = |kind: &str| objects.iter().find(|object| object["kind"] == kind).context("an object is missing");
        ensure!(of_kind("PodDisruptionBudget")?["spec"]["maxUnavailable"] == "50%", "helm {version}");
        let pod = &of_kind("Deployment")?["spec"]["template"]["spec"];
        let arguments = pod["containers"][0]["args"].as_array().context("arguments")?;
        for expected in [
            "--requestheader-allowed-names=Proxy #1,a: b",
            "--listen=[::]:6443",
            "--replica-dns-name=null-replicas.123.svc",
            "--merged-host=*,true",
            "--token-review-cluster=eu #2",
            "--audit-log-path=/logs/a #1",
            "--access-log-path=/logs/b: c",
        ] {
            ensure!(arguments.iter().any(|one| one == expected), "helm {version}, {expected}: {arguments:?}");
        }
        ensure!(
            pod["serviceAccountName"] == "null-server" && pod["priorityClassName"] == "56",
            "helm {version}: {pod}"
        );
        let volumes = pod["volumes"].as_array().context("volumes")?;
        for (volume, source, expected) in [
            ("configuration", "/secret/secretName", "123"),
            ("serving", "/secret/secretName", "1e3"),
            ("member-1", "/secret/secretName", "0x1f"),
            ("client-ca", "/configMap/name", "456"),
            ("requestheader-client-ca", "/secret/secretName", "789"),
            ("data", "/persistentVolumeClaim/claimName", "34"),
        ] {
            let found = volumes.iter().find(|one| one["name"] == volume).and_then(|one| one.pointer(source));
            ensure!(found.is_some_and(|name| name == expected), "helm {version}, {volume}: {found:?}");
        }
    }
    Ok(())
}

async fn committed_manifests_equal_the_rendered_chart(context: TestContext) -> anyhow::Result<()> {
    let committed = std::fs::read_to_string(deploy("manifests/tributary.yaml")).context("read the manifests")?;
    for version in [3, 4] {
        let program = context.fixture.tools().await?.helm(version);
        let output = Command::new(deploy("manifests/generate.sh")).env("HELM", program).output().context("generate")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        ensure!(
            output.stdout == committed.as_bytes(),
            "deploy/manifests/tributary.yaml is not what helm {version} makes of the chart; run \
             `deploy/manifests/generate.sh > deploy/manifests/tributary.yaml` and commit the result"
        );
    }
    Ok(())
}

/// Runs a kubectl command. The command must succeed and must print no warning, for example of an unknown field or a
/// violated pod security profile.
async fn without_a_warning(kubectl: &Kubectl, arguments: &[&str]) -> anyhow::Result<()> {
    let output = kubectl.run(arguments).await?;
    ensure!(output.code == Some(0) && !output.stderr.contains("Warning"), "{}: {}", output.command, output.stderr);
    Ok(())
}

/// API versions and kinds of other projects of which the chart makes objects.
const OF_OTHERS: [(&str, &str); 3] = [
    ("Certificate", "cert-manager.io/v1"),
    ("PrometheusRule", "monitoring.coreos.com/v1"),
    ("ServiceMonitor", "monitoring.coreos.com/v1"),
];

/// Installs the CustomResourceDefinitions of other projects in a member, so that the member validates the chart's
/// objects of these kinds.
async fn serve_kinds_of_others(context: &TestContext, kubectl: &Kubectl) -> anyhow::Result<()> {
    let definitions = context.fixture.tools().await?.definitions().await?.display().to_string();
    kubectl.ok(&["apply", "--server-side", "-f", &definitions]).await?;
    kubectl.ok(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]).await?;
    Ok(())
}

/// Runs a server-side apply as a dry run, in which an unknown field is an error.
async fn apply_strictly(kubectl: &Kubectl, file: &str) -> anyhow::Result<KubectlOutput> {
    kubectl.run(&["apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", file]).await
}

/// Checks that the chart with all features makes an object of each kind in [`OF_OTHERS`]. The kind's
/// CustomResourceDefinition must accept the object, and refuse an unknown field.
async fn kinds_of_others_are_judged(context: &TestContext, kubectl: &Kubectl) -> anyhow::Result<()> {
    let objects = render::chart(&helm(context, 4).await?, &["--values", &values("everything")]).await?;
    for (kind, version) in OF_OTHERS {
        let is_one = |object: &&Value| object["kind"] == kind && object["apiVersion"] == version;
        let object = objects.iter().find(is_one).with_context(|| format!("no {kind} of {version}"))?;
        let file = kubectl.file("of-others.json", &object.to_string())?;
        let taken = apply_strictly(kubectl, &file).await?;
        ensure!(taken.code == Some(0) && !taken.stderr.contains("Warning"), "{object}: {}", taken.stderr);
        let mut misspelt = object.clone();
        misspelt["spec"]["unheardOf"] = "x".into();
        let file = kubectl.file("misspelt.json", &misspelt.to_string())?;
        let words = apply_strictly(kubectl, &file).await?.failure()?;
        ensure!(words.contains("spec.unheardOf"), "{kind}: {words}");
    }
    Ok(())
}

async fn kube_apiserver_accepts_all_objects_rendered_from_the_chart(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let tools = context.fixture.tools().await?;
    // The manifest creates a namespace with a fixed name, so the test starts a separate member.
    let member = TestCluster::builder("stage").start(tools).await?;
    let kubectl = Kubectl::new(tools, &member.kubeconfig())?;
    serve_kinds_of_others(&context, &kubectl).await?;
    // The namespace in these manifests enforces the pod security profile `restricted`.
    without_a_warning(&kubectl, &["apply", "--validate=strict", "-f", &deploy("manifests/tributary.yaml")]).await?;
    kinds_of_others_are_judged(&context, &kubectl).await?;
    // The namespaces of published objects, and of the Secrets of a source.
    for namespace in ["fleet", "argocd", "vela-system"] {
        kubectl.ok(&["create", "namespace", namespace]).await?;
    }
    for version in [3, 4] {
        let helm = Kubectl::helm(tools, version, &member.kubeconfig())?;
        for (name, values) in VALUES.map(|name| (name, values(name))) {
            let release = format!("{name}-{version}");
            // Helm retains some objects after an uninstall, for example a PersistentVolumeClaim. The release's name in
            // their names prevents conflicts between releases.
            let set = format!("fullnameOverride={release}");
            let chosen = ["--values", &values, "--set", &set];
            let rendered = render::run(&helm, &release, &chosen).await?.success()?;
            let file = kubectl.file("rendered.yaml", &rendered)?;
            let apply = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", &file];
            without_a_warning(&kubectl, &apply).await?;
            let of = |verb: &'static str| {
                [verb, &release, &deploy("helm/tributary"), "--namespace", "tributary"].map(str::to_owned)
            };
            let install = of("install");
            let install: Vec<&str> = install.iter().map(String::as_str).chain(chosen).collect();
            without_a_warning(&helm, &install).await?;
            let notes = helm.ok(&["get", "notes", &release, "--namespace", "tributary"]).await?;
            let says_of_spans = notes.contains("Spans are sent to collector.observability.svc:4317. Add its port to");
            ensure!(says_of_spans == (name == "everything"), "{release}: {notes}");
            if name == "aggregation" {
                account_may_write_its_certificate(&kubectl, &format!("{release}-server")).await?;
            }
            let upgrade = of("upgrade");
            let upgrade: Vec<&str> =
                upgrade.iter().map(String::as_str).chain(chosen).chain(["--set", "replicas=4"]).collect();
            without_a_warning(&helm, &upgrade).await?;
            helm.ok(&["rollback", &release, "--namespace", "tributary"]).await?;
            helm.ok(&["uninstall", &release, "--namespace", "tributary"]).await?;
        }
    }
    Ok(())
}

/// Checks that the pods' ServiceAccount may write the Secret with the generated certificate and the CA in the
/// APIService, but no other Secret.
async fn account_may_write_its_certificate(kubectl: &Kubectl, account: &str) -> anyhow::Result<()> {
    let user = format!("--as=system:serviceaccount:tributary:{account}");
    for (name, is_own) in [("tributary-aggregated-serving", true), ("tributary-serving", false)] {
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "tributary"}});
        let file = kubectl.file("secret.json", &secret.to_string())?;
        let output = kubectl.run(&["apply", "--server-side", "-f", &file, &user]).await?;
        ensure!((output.code == Some(0)) == is_own, "{name}: {}", output.stderr);
        ensure!(is_own || output.stderr.contains("forbidden"), "{name}: {}", output.stderr);
    }
    kubectl.ok(&["-n", "tributary", "delete", "secret", "tributary-aggregated-serving"]).await?;
    let (api_service, patch) = ("v1alpha1.aggregation.tributary.dev", r#"{"spec": {"caBundle": "eA=="}}"#);
    kubectl.ok(&["patch", "apiservice", api_service, "--type=merge", "-p", patch, &user]).await?;
    let read = ["-n", "kube-system", "get", "configmap", "extension-apiserver-authentication", &user];
    kubectl.ok(&read).await.map(drop)
}

/// Tributary runs in a cluster that it also serves. `tributary join` creates Tributary's ServiceAccount in the chart's
/// namespace.
async fn documented_installation_works_in_a_joined_cluster(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let tools = context.fixture.tools().await?;
    let hub = TestCluster::builder("stage").start(tools).await?;
    let kubectl = Kubectl::new(tools, &hub.kubeconfig())?;
    let directory = guard::temporary_folder("recipe")?;
    let (kubeconfig, clusters) = (hub.kubeconfig().display().to_string(), directory.path().display().to_string());
    let join =
        ["join", hub.name(), "--kubeconfig", &kubeconfig, "--config", &clusters, "--yes", "--token-lifetime", "1h"];
    let made = tributary::run(&join).await?;
    ensure!(made.code == Some(0), "{}\n{}", made.stdout, made.stderr);
    let namespace = ["create", "namespace", "tributary", "--dry-run=client", "--output=yaml"];
    let namespace = kubectl.file("namespace.yaml", &kubectl.ok(&namespace).await?)?;
    kubectl.ok(&["apply", "--server-side", "-f", &namespace]).await?;
    let from = format!("--from-file={clusters}");
    kubectl.ok(&["-n", "tributary", "create", "secret", "generic", "tributary-clusters", &from]).await?;
    for version in [3, 4] {
        let helm = Kubectl::helm(tools, version, &hub.kubeconfig())?;
        let (chart, values) = (deploy("helm/tributary"), deploy("manifests/values.yaml"));
        let install = ["upgrade", "--install", "tributary", &chart, "--namespace", "tributary", "--values", &values];
        without_a_warning(&helm, &install).await?;
        pods_have_no_rights(&kubectl).await?;
        helm.ok(&["uninstall", "tributary", "--namespace", "tributary"]).await?;
    }
    kubectl.ok(&["apply", "-f", &deploy("manifests/tributary.yaml")]).await?;
    pods_have_no_rights(&kubectl).await?;
    // A second `join` must not change the ServiceAccount.
    let again = tributary::run(&join).await?;
    ensure!(again.code == Some(0), "{}\n{}", again.stdout, again.stderr);
    ensure!(!again.stdout.contains("create ") && !again.stdout.contains("change "), "{}", again.stdout);
    Ok(())
}

/// Checks that the ServiceAccount of the Deployment's pods exists, and that no role binding names it.
async fn pods_have_no_rights(kubectl: &Kubectl) -> anyhow::Result<()> {
    let account = "jsonpath={.spec.template.spec.serviceAccountName}";
    let account = kubectl.ok(&["-n", "tributary", "get", "deployment", "tributary", "-o", account]).await?;
    kubectl.ok(&["-n", "tributary", "get", "serviceaccount", &account]).await?;
    let bound = kubectl.ok(&["get", "clusterrolebindings", "-o", "jsonpath={.items[*].subjects[*].name}"]).await?;
    ensure!(bound.split(' ').any(|name| name == "tributary"), "join binds its account: {bound}");
    ensure!(!bound.split(' ').any(|name| name == account), "{account} is bound: {bound}");
    Ok(())
}

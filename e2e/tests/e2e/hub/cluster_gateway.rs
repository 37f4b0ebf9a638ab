//! Tests the door of cluster-gateway. Clients use cluster-gateway's paths to reach the members that cluster-gateway's
//! Secrets describe.

use std::sync::Arc;

use anyhow::ensure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use tributary_e2e::{Kubectl, TestCluster, Tributary, namespace};

use super::SOON;
use super::aggregated::Aggregated;
use crate::context::{Case, TestContext, cases, eventually};
use crate::kubectl::{Setup, pods};
use crate::shared_mode::grant;

/// Namespace of KubeVela, with the Service and the Secrets of cluster-gateway.
pub(super) const VELA: &str = "vela-system";

pub(super) const GATEWAYS: &str = "/apis/cluster.core.oam.dev/v1alpha1/clustergateways";

/// Member whose name is not a valid cluster name of Tributary. Requests reach this member as the caller.
const EU: &str = "eu.example";

/// Member that requests reach as the user of the member's Secret.
const US: &str = "us";

pub(super) fn cases() -> Vec<Case> {
    cases!["hub::cluster_gateway";
        kubectl_uses_members_of_cluster_gateway_through_the_hub,
        user_mapping_and_hub_rights_depend_on_the_cluster_name_in_the_path,
    ]
}

/// Creates a Secret in the form that KubeVela's command `cluster join` writes.
pub(super) async fn join(hub: &TestCluster, name: &str, kind: &str, data: &[(&str, &str)]) -> anyhow::Result<()> {
    let data: Map<_, _> = data.iter().map(|(key, text)| ((*key).to_owned(), json!(STANDARD.encode(text)))).collect();
    let labels = json!({"cluster.core.oam.dev/cluster-credential-type": kind, "mode": name});
    let metadata =
        json!({"name": name, "labels": labels, "annotations": {"cluster.core.oam.dev/cluster-alias": "alias"}});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data});
    hub.http().post(&format!("/api/v1/namespaces/{VELA}/secrets"), &secret).send().await?.expect(201).map(drop)
}

/// Starts Tributary with two members from Secrets, and registers the door in place of cluster-gateway. Returns the
/// private key of the certificate in the second Secret.
async fn serve(context: &TestContext, aggregated: &Aggregated) -> anyhow::Result<(Arc<Tributary>, String)> {
    let hub = &aggregated.hub;
    let http = hub.server.http();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": VELA}});
    http.post("/api/v1/namespaces", &namespace).send().await?.expect(201)?;
    let (first, second) = (hub.members[0].access(), &hub.members[1]);
    let (endpoint, authority) = (format!("{}\n", first.server), &first.certificate_authority);
    let data: [(&str, &str); 3] = [("endpoint", &endpoint), ("ca.crt", authority), ("token", &first.token)];
    join(&hub.server, EU, "ServiceAccountToken", &data).await?;
    let (certificate, key) = second.people().client("tributary", &["system:masters"])?;
    let (endpoint, authority) = (second.access().server, second.access().certificate_authority);
    let data: [(&str, &str); 4] =
        [("endpoint", &endpoint), ("ca.crt", &authority), ("tls.crt", &certificate), ("tls.key", &key)];
    join(&hub.server, US, "X509Certificate", &data).await?;
    for (name, member, identity) in [("callers", EU, "Impersonate"), ("stored", US, "Stored")] {
        let source = json!({
            "apiVersion": "tributary.dev/v1alpha1", "kind": "ClusterSource", "metadata": {"name": name},
            "spec": {
                "clusterGatewaySecrets": {"namespace": VELA, "labelSelector": {"matchLabels": {"mode": member}}},
                "identity": {"type": identity},
            },
        });
        http.post("/apis/tributary.dev/v1alpha1/clustersources", &source).send().await?.expect(201)?;
    }
    let tributary = aggregated.builder().argument("--door=cluster-gateway").start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "kubevela-cluster-gateway-service"},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": aggregated.port}]},
    });
    http.post(&format!("/api/v1/namespaces/{VELA}/services"), &service).send().await?.expect(201)?;
    // The chart of cluster-gateway has the same APIService.
    let api_service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1alpha1.cluster.core.oam.dev"},
        "spec": {
            "group": "cluster.core.oam.dev", "version": "v1alpha1", "groupPriorityMinimum": 2000,
            "versionPriority": 10, "insecureSkipTLSVerify": true,
            "service": {"namespace": VELA, "name": "kubevela-cluster-gateway-service", "port": aggregated.port},
        },
    });
    http.post("/apis/apiregistration.k8s.io/v1/apiservices", &api_service).send().await?.expect(201)?;
    for name in [EU, US] {
        eventually(SOON, async || {
            let path = format!("{GATEWAYS}/{name}");
            let gateway = http.get(&path).send().await?.expect(200)?.json()?;
            ensure!(gateway["status"]["healthy"] == true, "{gateway}");
            Ok(())
        })
        .await?;
    }
    Ok((tributary, key))
}

/// Returns the RBAC rules that allow a user to use the proxies of these clusters.
pub(super) fn uses_proxies(names: &[&str]) -> Value {
    json!([{
        "apiGroups": ["cluster.core.oam.dev"], "resources": ["clustergateways/proxy"], "resourceNames": names,
        "verbs": ["get", "create", "update", "patch", "delete"],
    }])
}

async fn kubectl_uses_members_of_cluster_gateway_through_the_hub(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let aggregated = Aggregated::start(&context).await?;
    let (_tributary, key) = serve(&context, &aggregated).await?;
    let hub = &aggregated.hub;
    let user = aggregated.user_of_all_members().await?;
    grant(&hub.server, "", &format!("{user}-gateways"), &user, uses_proxies(&[EU, US])).await?;

    let admin = Kubectl::new(context.fixture.tools().await?, &hub.server.kubeconfig())?;
    let table = admin.ok(&["get", "clustergateways"]).await?;
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected = [
        vec!["NAME", "PROVIDER", "CREDENTIAL-TYPE", "ENDPOINT-TYPE", "HEALTHY"],
        vec![EU, "ServiceAccountToken", "Const", "true"],
        vec![US, "X509Certificate", "Const", "true"],
    ];
    ensure!(rows == expected, "{table}");
    for plural in ["virtualclusters", "vc", "virtual-clusters"] {
        let table = admin.ok(&["get", plural]).await?;
        let first = table.lines().next().unwrap_or_default();
        let headings: Vec<_> = first.split_whitespace().collect();
        ensure!(headings == ["NAME", "ALIAS", "CREDENTIAL_TYPE", "ENDPOINT", "ACCEPTED", "LABELS"], "{table}");
        ensure!(table.lines().nth(1).is_some_and(|line| line.starts_with("local ")), "{table}");
        ensure!(table.contains(&hub.members[0].access().server) && table.contains("mode=us"), "{table}");
    }
    // The test searches for single lines of the key, which have 64 characters. The first line is skipped, because it is
    // the same for all keys of a kind.
    let lines = key.lines().filter(|line| !line.starts_with("-----")).skip(1).map(str::to_owned);
    let token = hub.members[0].access().token;
    let encoded = [STANDARD.encode(&key), STANDARD.encode(&token)];
    let credentials: Vec<String> = lines.chain([token]).chain(encoded).collect();
    for path in
        [GATEWAYS.to_owned(), format!("{GATEWAYS}/{EU}"), format!("{GATEWAYS}/{US}"), format!("{GATEWAYS}/{US}/health")]
    {
        for accept in ["application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"] {
            let path = format!("{path}?includeObject=Object");
            let answer = hub.server.http().get(&path).accept(accept).send().await?.expect(200)?.text();
            ensure!(!credentials.iter().any(|credential| answer.contains(credential)), "{path}: {answer}");
        }
    }

    for (name, member, pod) in [(EU, 0, "one"), (US, 1, "two")] {
        let path = format!("{GATEWAYS}/{name}/proxy");
        let kubectl = aggregated.kubectl(&context, &user, &path).await?;
        let (namespace, members) = (hub.namespace.clone(), hub.members.clone());
        let setup = Setup { kubectl, namespace: namespace.clone(), members, _tributary: None };
        setup.running_pod(member, pod).await?;
        pods::check_logs(&setup, pod, member).await?;
        pods::check_exec(&setup, pod, member).await?;
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied", "namespace": namespace},
            "data": {"step": "1"},
        });
        let file = setup.kubectl.file("map.json", &map.to_string())?;
        setup.kubectl.ok(&["apply", "-f", &file]).await?;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/applied");
        hub.members[member].http().get(&path).send().await?.expect(200)?;
        hub.members[1 - member].http().delete(&path).send().await?;
    }
    Ok(())
}

async fn user_mapping_and_hub_rights_depend_on_the_cluster_name_in_the_path(
    context: TestContext,
) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let aggregated = Aggregated::start(&context).await?;
    let _tributary = serve(&context, &aggregated).await?;
    let hub = &aggregated.hub;
    let user = namespace::unique_name("bob");
    grant(&hub.server, "", &format!("{user}-us"), &user, uses_proxies(&[US, "unknown"])).await?;
    let login = hub.server.people().user(&user, &[])?;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let who = |name: &str| format!("{GATEWAYS}/{name}/proxy/apis/authentication.k8s.io/v1/selfsubjectreviews");
    for http in [aggregated.http(&login, "").await?, aggregated.direct(&login).await?] {
        // The hub's authorizer receives the new RBAC right with a delay.
        let path = who(US);
        eventually(SOON, async || http.post(&path, &review).send().await?.expect(201).map(drop)).await?;
        let seen = http.post(&path, &review).send().await?.expect(201)?.json()?;
        ensure!(seen["status"]["userInfo"]["username"] == "tributary", "{seen}");
        let path = format!("{}?impersonate=true", who(US));
        let seen = http.post(&path, &review).send().await?.expect(201)?.json()?;
        ensure!(seen["status"]["userInfo"]["username"] == *user, "{seen}");
        for name in [EU, "US", "us.", "us;x"] {
            http.post(&who(name), &review).send().await?.expect(403)?;
        }
        let refused = http.get(&format!("{GATEWAYS}/unknown/proxy/api")).send().await?.expect(500)?.text();
        ensure!(refused.contains("no such cluster unknown"), "{refused}");
        http.get(GATEWAYS).send().await?.expect(403)?;
    }
    let direct = aggregated.direct(&login).await?;
    let forged = [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")];
    let mut request = direct.post(&who(EU), &review);
    for (name, value) in forged {
        request = request.header(name, value);
    }
    request.send().await?.expect(403)?;
    let request = direct.post(&who(US), &review).header("Impersonate-User", "admin");
    let refused = request.send().await?.expect(403)?.text();
    ensure!(refused.contains("Impersonate"), "{refused}");

    // The controller of KubeVela also uses a ServiceAccount of the hub.
    let accounts = format!("/api/v1/namespaces/{VELA}/serviceaccounts");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "kubevela-vela-core"}});
    hub.server.http().post(&accounts, &account).send().await?.expect(201)?;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = format!("{accounts}/kubevela-vela-core/token");
    let token = hub.server.http().post(&path, &request).send().await?.expect(201)?.json()?;
    let controller = aggregated.direct(&json!({"token": token["status"]["token"]})).await?;
    let name = format!("system:serviceaccount:{VELA}:kubevela-vela-core");
    grant(&hub.server, "", "vela", &name, uses_proxies(&[EU, US])).await?;
    for (cluster, expected) in [(EU, format!("cluster:hub:{name}")), (US, "tributary".to_owned())] {
        let path = who(cluster);
        eventually(SOON, async || {
            let seen = controller.post(&path, &review).send().await?.expect(201)?.json()?;
            ensure!(seen["status"]["userInfo"]["username"] == *expected, "{seen}");
            Ok(())
        })
        .await?;
    }

    // After the deletion of its Secret, the member must disappear.
    let secret = format!("/api/v1/namespaces/{VELA}/secrets/{US}");
    hub.server.http().delete(&secret).send().await?.expect(200)?;
    eventually(SOON, async || {
        let gone = controller.get(&format!("{GATEWAYS}/{US}/proxy/api")).send().await?.expect(500)?.text();
        ensure!(gone.contains("no such cluster us"), "{gone}");
        Ok(())
    })
    .await
}

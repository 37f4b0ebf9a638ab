//! Items of ClusterSources whose credential a command prints.

use super::*;

/// A file of access providers.
pub(super) const PROVIDERS: &str = r#"{"providers": [{"name": "provider", "execConfig": {
    "apiVersion": "client.authentication.k8s.io/v1", "command": "/usr/bin/provider", "provideClusterInfo": true,
    "env": [{"name": "REGION", "value": "eu"}]}}]}"#;

impl Hub {
    pub(super) fn allow(&mut self, commands: &[&str]) {
        self.allowed_commands = commands.iter().map(|command| (*command).to_owned()).collect();
    }

    pub(super) fn put_profile(&mut self, name: &str, healthy: &str, server: &str) {
        let cluster = json!({"server": server, "certificate-authority-data": authority()});
        let status = json!({
            "conditions": [{"type": "ControlPlaneHealthy", "status": healthy}],
            "accessProviders": [{"name": "provider", "cluster": cluster}],
        });
        self.put_item("fleet", name, json!({"metadata": {"namespace": "fleet"}, "status": status}));
    }

    /// Creates or changes a Secret of cluster-gateway with a command.
    fn put_command(&mut self, name: &str, command: &str) {
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": command, "args": ["get"]});
        let data = json!({
            "endpoint": STANDARD.encode("https://eu.example:6443"), "ca.crt": authority(),
            "exec": STANDARD.encode(exec.to_string()),
        });
        let metadata = json!({"namespace": "vela-system", "labels": {GATEWAY_TYPE: "Dynamic"}});
        self.put_item("kubevela", name, json!({"metadata": metadata, "data": data}));
    }

    fn command_of(&self, member: &str) -> kube::config::ExecConfig {
        let spec = self.in_force.members[member].spec.as_ref().unwrap();
        assert!(spec.command_policy.is_some(), "each run is checked");
        spec.config.as_ref().unwrap().auth_info.exec.clone().unwrap()
    }
}

#[tokio::test]
async fn command_of_an_item_needs_the_flag() {
    let mut hub = Hub::default();
    hub.put_gateway_source("kubevela");
    hub.put_command("eu", "/usr/bin/provider");
    let accepted = hub.accept().await;
    assert_eq!(items(&accepted, "kubevela"), ["eu - ExecNotAllowed"]);
    let verdict = accepted.verdicts[0].source.clone().unwrap();
    let message = &verdict.items.as_ref().unwrap()[0].accepted.message;
    assert!(message.contains("\"/usr/bin/provider\" is not allowed") && message.contains("--exec-allow"), "{message}");

    let mut hub = Hub { objects: hub.objects, lists: hub.lists, ..Hub::default() };
    hub.allow(&["/usr/bin/provider"]);
    let accepted = hub.accept().await;
    assert_eq!(items(&accepted, "kubevela"), ["eu eu Accepted"]);
    assert_eq!(accepted.configuration.foreign[0].gateway.as_ref().unwrap().credential_type, "Dynamic");
    let command = hub.command_of("eu");
    assert_eq!((command.command.as_deref(), command.args), (Some("/usr/bin/provider"), Some(vec!["get".to_owned()])));
    assert!(command.env.unwrap().is_empty() && command.cluster.is_none());

    // A hostile change keeps the earlier command.
    for (command, reason) in [("/bin/sh", "ExecNotAllowed"), ("provider", "InvalidExec")] {
        hub.put_command("eu", command);
        assert_eq!(items(&hub.accept().await, "kubevela"), [format!("eu eu {reason}")]);
        assert_eq!(hub.command_of("eu").command.as_deref(), Some("/usr/bin/provider"));
    }
}

#[tokio::test]
async fn command_that_a_flag_no_longer_allows_ends_its_member() {
    let mut hub = Hub::default();
    hub.allow(&["/usr/bin/provider"]);
    hub.put_gateway_source("kubevela");
    hub.put_command("eu", "/usr/bin/provider");
    hub.accept().await;
    let text = serde_json::to_string(&hub.in_force).unwrap();
    let restored = |allowed: &str| {
        let (objects, lists) = (hub.objects.clone(), hub.lists.clone());
        let allowed_commands = vec![allowed.to_owned()];
        Hub { in_force: serde_json::from_str(&text).unwrap(), objects, lists, allowed_commands, ..Hub::default() }
    };
    let accepted = restored("/usr/bin/provider").accept().await;
    assert_outcome(&accepted, &["eu"], &[]);
    assert_outcome(
        &restored("/usr/bin/provider").accept_snapshot(&HubSnapshot::default(), &|_| Ok(())).await,
        &["eu"],
        &[],
    );
    let accepted = restored("/usr/bin/other").accept().await;
    assert_eq!(items(&accepted, "kubevela"), ["eu - ExecNotAllowed"]);
    assert_outcome(&accepted, &[], &[]);
    let accepted = restored("/usr/bin/other").accept_snapshot(&HubSnapshot::default(), &|_| Ok(())).await;
    assert_outcome(&accepted, &[], &[]);
}

#[tokio::test]
async fn command_with_a_different_digest_is_refused() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let mut hub = Hub::default();
    hub.put_gateway_source("kubevela");
    hub.put_command("eu", path);
    hub.allow(&[&format!("{path}@sha256:{}", "0".repeat(64))]);
    let accepted = hub.accept().await;
    assert_eq!(items(&accepted, "kubevela"), ["eu - ExecNotAllowed"]);
    let verdict = accepted.verdicts[0].source.clone().unwrap();
    let message = &verdict.items.as_ref().unwrap()[0].accepted.message;
    assert!(message.contains("has the digest sha256:"), "{message}");
}

#[tokio::test]
async fn aws_of_argo_cd_runs_the_allowed_command_of_its_name() {
    let mut hub = Hub::default();
    hub.put_source("argo", json!({"argoCDSecrets": {"namespace": "argocd"}}));
    let config = json!({"awsAuthConfig": {"clusterName": "eu-1"}, "tlsClientConfig": {"caData": authority()}});
    let data = json!({"server": STANDARD.encode("https://eu.example"), "config": STANDARD.encode(config.to_string())});
    hub.put_item("argo", "eu", json!({"metadata": {"namespace": "argocd"}, "data": data}));
    hub.allow(&["/usr/bin/provider"]);
    assert_eq!(items(&hub.accept().await, "argo"), ["eu - ExecNotAllowed"]);
    let mut hub = Hub { objects: hub.objects, lists: hub.lists, ..Hub::default() };
    hub.allow(&["/opt/argo/argocd-k8s-auth"]);
    assert_eq!(items(&hub.accept().await, "argo"), ["eu eu Accepted"]);
    let command = hub.command_of("eu");
    assert_eq!(command.command.as_deref(), Some("/opt/argo/argocd-k8s-auth"));
    assert_eq!(command.args.unwrap(), ["aws", "--cluster-name", "eu-1"]);
}

#[tokio::test]
async fn profile_that_was_a_member_stays_while_its_control_plane_is_unhealthy() {
    let mut hub = Hub::default();
    hub.allow(&["/usr/bin/provider"]);
    hub.put_source("fleet", json!({"clusterProfiles": {"namespace": "fleet"}}));
    hub.put_profile("eu", "False", "https://eu.example:6443");
    assert_eq!(items(&hub.accept().await, "fleet"), ["eu - NotReady"]);
    hub.put_profile("eu", "True", "https://eu.example:6443");
    let accepted = hub.accept().await;
    let member = accepted.configuration.clusters[0].name.to_string();
    assert_eq!(items(&accepted, "fleet"), [format!("eu {member} Accepted")]);
    let command = hub.command_of(&member);
    let info = command.cluster.unwrap();
    assert_eq!(info.server.as_deref(), Some("https://eu.example:6443"));
    assert!(info.certificate_authority_data.unwrap().starts_with(b"-----BEGIN"));
    assert_eq!(command.env.unwrap()[0]["value"], "eu");

    hub.put_profile("eu", "False", "https://eu.example:6443");
    let accepted = hub.accept().await;
    assert_eq!(items(&accepted, "fleet"), [format!("eu {member} Accepted")]);
    assert!(!accepted.is_changed, "the state of a control plane changes no member");
    // The manager may move an unhealthy cluster.
    hub.put_profile("eu", "False", "https://moved.example:6443");
    hub.accept().await;
    let spec = hub.in_force.members[&member].spec.clone().unwrap();
    assert_eq!(spec.config.as_ref().unwrap().cluster_url.host(), Some("moved.example"));
    // An address of this machine is refused, and the member keeps its form.
    hub.put_profile("eu", "True", "https://127.0.0.1:6443");
    assert_eq!(items(&hub.accept().await, "fleet"), [format!("eu {member} RefusedAddress")]);
}

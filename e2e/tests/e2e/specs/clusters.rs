//! Starts the members and the `tributary` processes of the specs' targets.

use super::Target;
use anyhow::Context;
use serde_json::json;
use std::{path::PathBuf, time::Duration};
use tokio::time::{Instant, sleep};
use tributary_e2e::{MemberBuilder, TestCluster, Tools, Tributary, guard, kubeconfig};

/// The controllers that the API machinery specs need: namespaces with a service account and the root certificate,
/// garbage collection and Deployments. Without the publisher of the root certificate, the framework waits two minutes
/// before each spec.
const FEW_CONTROLLERS: &str = "namespace-controller,serviceaccount-controller,garbage-collector-controller,\
                               root-ca-certificate-publisher-controller,replicaset-controller,deployment-controller,\
                               resourcequota-controller";

/// The controllers of the member that gets no writes.
const SPECTATOR_CONTROLLERS: &str = "namespace-controller,garbage-collector-controller";

/// Number of nodes of the member that specs write to. Conformance requires two.
const NODES: usize = 2;

/// Longest time until a member has freed a name, or created a service account.
const PATIENCE: Duration = Duration::from_secs(60);

/// The members of a target, and the Tributary in front of them (except for `Bare`).
pub(crate) struct Clusters {
    // Rust drops fields in the order of their declaration: the client (Tributary) stops before the servers.
    tributary: Option<Tributary>,
    members: Vec<TestCluster>,
    _folder: Option<tempfile::TempDir>,
}

impl Clusters {
    /// Starts the servers of a target. With `whole`, the member that specs write to has all controllers, a scheduler,
    /// service accounts and a second node.
    pub(crate) async fn start(tools: &Tools, target: Target, whole: bool) -> anyhow::Result<Self> {
        let first = if whole { whole_member(tools).await? } else { small_member(tools).await? };
        match target {
            Target::Bare => Ok(Self { tributary: None, members: vec![first], _folder: None }),
            Target::OverOne => {
                let tributary = Tributary::builder(&first.kubeconfig(), [first.name()]).start().await?;
                Ok(Self { tributary: Some(tributary), members: vec![first], _folder: None })
            }
            Target::OverTwo => {
                let second = spectator(tools).await?;
                let folder = guard::temporary_folder("specs-two")?;
                let path = folder.path().join("kubeconfig");
                kubeconfig::write(&path, &[&first.access(), &second.access()])?;
                // Some specs compare an object's version in a list with the version in its event. With composite
                // versions, these differ by design.
                let builder = Tributary::builder(&path, [first.name(), second.name()])
                    .arguments(["--create-in=member1", "--item-resource-versions=Integer"]);
                let tributary = Some(builder.start().await?);
                Ok(Self { tributary, members: vec![first, second], _folder: Some(folder) })
            }
        }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        match &self.tributary {
            Some(tributary) => tributary.kubeconfig().to_owned(),
            None => self.members[0].kubeconfig(),
        }
    }

    /// Checks that the target still answers.
    ///
    /// # Errors
    /// If the target does not answer.
    pub(crate) async fn check(&self) -> anyhow::Result<()> {
        let http = match &self.tributary {
            Some(tributary) => tributary.http().await?,
            None => self.members[0].http().clone(),
        };
        http.get("/readyz")
            .send()
            .await
            .context("the target is gone")?
            .expect(200)
            .context("the target is not ready")?;
        Ok(())
    }

    pub(crate) fn log_tail(&self) -> String {
        self.tributary.as_ref().map(|tributary| tributary.log_tail(40)).unwrap_or_default()
    }
}

/// A member for the API machinery specs.
async fn small_member(tools: &Tools) -> anyhow::Result<TestCluster> {
    with_nodes(TestCluster::builder("member1").controllers_named(FEW_CONTROLLERS), 1).start(tools).await
}

/// A member with all default controllers of kube-controller-manager, a scheduler, service accounts and nodes.
async fn whole_member(tools: &Tools) -> anyhow::Result<TestCluster> {
    let scheduler = tools.specs().await?.join("kube-scheduler");
    let builder = TestCluster::builder("member1").controllers_named("*").scheduler(&scheduler).service_accounts(true);
    let member = with_nodes(builder, NODES).apiserver_argument("--allow-privileged=true").start(tools).await?;
    for node in 0..NODES {
        create_system_pod(&member, node).await?;
    }
    Ok(member)
}

/// Creates a system pod on a node. Specs of the scheduler wait up to a minute for system pods with certain names on
/// every node. One pod may satisfy all of these names.
async fn create_system_pod(member: &TestCluster, node: usize) -> anyhow::Result<()> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("kube-proxy-fluentd-elasticsearch-node-problem-detector-{node}")},
        "spec": {
            // The pod gets its node by a node selector instead of `nodeName`, because only a scheduler sets the
            // condition PodScheduled.
            "nodeSelector": {"kubernetes.io/hostname": format!("{}-node-{node}", member.name())},
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "played", "image": "played"}],
        },
    });
    let deadline = Instant::now() + PATIENCE;
    // The server refuses the pod until the namespace has its service account.
    while member.http().post("/api/v1/namespaces/kube-system/pods", &pod).send().await?.status != 201 {
        anyhow::ensure!(Instant::now() < deadline, "{} takes no pod of the system", member.name());
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

fn with_nodes(builder: MemberBuilder, count: usize) -> MemberBuilder {
    builder.kwok(true).nodes(count).schedulable(true)
}

/// Starts the second of two members, which gets no writes. It has no node, because pods of the first member could not
/// be bound to that node. It has no Service `kubernetes`: every run reads this Service first, and a repeated name is a
/// 409.
async fn spectator(tools: &Tools) -> anyhow::Result<TestCluster> {
    let member = TestCluster::builder("member2").controllers_named(SPECTATOR_CONTROLLERS).start(tools).await?;
    let admission = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-service-kubernetes"},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["services"]},
            ]},
            "validations": [{"expression": "object.metadata.name != 'kubernetes'"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-service-kubernetes"},
        "spec": {"policyName": "no-service-kubernetes", "validationActions": ["Deny"]},
    });
    let http = member.http();
    http.post(&format!("{admission}/validatingadmissionpolicies"), &policy).send().await?.expect(201)?;
    http.post(&format!("{admission}/validatingadmissionpolicybindings"), &binding).send().await?.expect(201)?;
    let deadline = Instant::now() + PATIENCE;
    // The policy takes effect with a delay. Until then kube-apiserver recreates the Service every ten seconds.
    let probe = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kubernetes", "namespace": "kube-system"}, "spec": {"ports": [{"port": 1}]}});
    while http.post("/api/v1/namespaces/kube-system/services?dryRun=All", &probe).send().await?.status == 201 {
        anyhow::ensure!(Instant::now() < deadline, "the policy of {} does not hold", member.name());
        sleep(Duration::from_millis(100)).await;
    }
    http.delete("/api/v1/namespaces/default/services/kubernetes")
        .send()
        .await?
        .expect(200)
        .context("delete the Service")?;
    Ok(member)
}

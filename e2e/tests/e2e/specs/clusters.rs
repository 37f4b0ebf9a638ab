//! Starts the members and the `tributary` processes for the targets of the specs.

use super::Target;
use anyhow::Context;
use serde_json::json;
use std::{path::PathBuf, time::Duration};
use tokio::time::{Instant, sleep};
use tributary_e2e::{MemberBuilder, TestCluster, Tools, Tributary, guard, kubeconfig};

/// Controllers that the API machinery specs need: for namespaces with a service account and the root certificate,
/// garbage collection and Deployments. Without the publisher of the root certificate, the test framework waits two
/// minutes before each spec.
const FEW_CONTROLLERS: &str = "namespace-controller,serviceaccount-controller,garbage-collector-controller,\
                               root-ca-certificate-publisher-controller,replicaset-controller,deployment-controller,\
                               resourcequota-controller";

/// Controllers of the member to which no spec writes.
const SPECTATOR_CONTROLLERS: &str = "namespace-controller,garbage-collector-controller";

/// Number of nodes of the member to which specs write. The conformance specs require two nodes.
const NODES: usize = 2;

/// Longest time until a member has deleted an object, or has created a service account.
const PATIENCE: Duration = Duration::from_secs(60);

/// Members of a target, and the Tributary in front of them. `Bare` has no Tributary.
pub(crate) struct Clusters {
    // Rust drops fields in the order of their declaration. Tributary is declared first, because it must stop before the
    // members.
    tributary: Option<Tributary>,
    members: Vec<TestCluster>,
    _folder: Option<tempfile::TempDir>,
}

impl Clusters {
    /// Starts the servers of a target. If `whole` is true, the member to which specs write has all controllers, a
    /// scheduler, service accounts and a second node.
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
                // Some specs compare the version of an object in a list with the version in its event. With composite
                // versions, the two differ by design, so the target uses integer versions.
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

/// Starts a member for the API machinery specs.
async fn small_member(tools: &Tools) -> anyhow::Result<TestCluster> {
    with_nodes(TestCluster::builder("member1").controllers_named(FEW_CONTROLLERS), 1).start(tools).await
}

/// Starts a member with all default controllers of kube-controller-manager, a scheduler, service accounts and nodes.
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
/// every node. The name of this one pod matches all of them.
async fn create_system_pod(member: &TestCluster, node: usize) -> anyhow::Result<()> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("kube-proxy-fluentd-elasticsearch-node-problem-detector-{node}")},
        "spec": {
            // A node selector is used instead of `nodeName`, so that the scheduler binds the pod. Only a scheduler sets
            // the condition PodScheduled.
            "nodeSelector": {"kubernetes.io/hostname": format!("{}-node-{node}", member.name())},
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "played", "image": "played"}],
        },
    });
    let deadline = Instant::now() + PATIENCE;
    // The server refuses the pod until a controller has created the service account of the namespace.
    while member.http().post("/api/v1/namespaces/kube-system/pods", &pod).send().await?.status != 201 {
        anyhow::ensure!(Instant::now() < deadline, "{} takes no pod of the system", member.name());
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

fn with_nodes(builder: MemberBuilder, count: usize) -> MemberBuilder {
    builder.kwok(true).nodes(count).schedulable(true)
}

/// Starts the second of two members, to which no spec writes. It has no node, because the scheduler of the first member
/// would assign pods to that node. It has no Service `kubernetes`, because every run reads this Service first, and a
/// name in two members is a 409.
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
    // The policy that forbids the Service takes effect with a delay. Until then, kube-apiserver recreates the Service
    // every ten seconds.
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

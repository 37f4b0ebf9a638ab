//! The members and the `tributary` processes that the specs run against.

use super::Target;
use anyhow::Context;
use serde_json::json;
use std::{path::PathBuf, time::Duration};
use tokio::time::{Instant, sleep};
use tributary_e2e::{MemberBuilder, TestCluster, Tools, Tributary, guard, kubeconfig};

/// What the API machinery's own specs need: namespaces with a service account and the root certificate in each, garbage
/// collection and Deployments. Without the root certificate's publisher the framework waits for two
/// minutes before each spec.
const FEW_CONTROLLERS: &str = "namespace-controller,serviceaccount-controller,garbage-collector-controller,\
                               root-ca-certificate-publisher-controller,replicaset-controller,deployment-controller,\
                               resourcequota-controller";

/// What takes place in the member that specs write nothing to.
const SPECTATOR_CONTROLLERS: &str = "namespace-controller,garbage-collector-controller";

/// How many nodes the member has that specs write to: conformance asks for two.
const NODES: usize = 2;

/// How long a member may take to let go of a name, or to make a service account.
const PATIENCE: Duration = Duration::from_secs(60);

/// Members and, but for the bare one, what serves them as one.
pub(crate) struct Clusters {
    // In the order of dropping: clients before servers.
    tributary: Option<Tributary>,
    members: Vec<TestCluster>,
    _folder: Option<tempfile::TempDir>,
}

impl Clusters {
    /// Starts what a target is made of; `whole` says whether the member that specs write to has every controller, a
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
                // With Composite ones an object's version in a list differs from that in its event, by design;
                // specs compare them.
                let builder = Tributary::builder(&path, [first.name(), second.name()])
                    .arguments(["--create-in=member1", "--item-resource-versions=Integer"]);
                let tributary = Some(builder.start().await?);
                Ok(Self { tributary, members: vec![first, second], _folder: Some(folder) })
            }
        }
    }

    /// The kubeconfig of a client of this target.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        match &self.tributary {
            Some(tributary) => tributary.kubeconfig().to_owned(),
            None => self.members[0].kubeconfig(),
        }
    }

    /// Whether the target still answers.
    ///
    /// # Errors
    /// When it does not.
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

    /// The end of Tributary's log.
    pub(crate) fn log_tail(&self) -> String {
        self.tributary.as_ref().map(|tributary| tributary.log_tail(40)).unwrap_or_default()
    }
}

/// A member for the API machinery's own specs.
async fn small_member(tools: &Tools) -> anyhow::Result<TestCluster> {
    with_nodes(TestCluster::builder("member1").controllers_named(FEW_CONTROLLERS), 1).start(tools).await
}

/// A member with every controller that kube-controller-manager runs by default, a scheduler, service accounts and
/// nodes.
async fn whole_member(tools: &Tools) -> anyhow::Result<TestCluster> {
    let scheduler = tools.specs().await?.join("kube-scheduler");
    let builder = TestCluster::builder("member1").controllers_named("*").scheduler(&scheduler).service_accounts(true);
    let member = with_nodes(builder, NODES).apiserver_argument("--allow-privileged=true").start(tools).await?;
    for node in 0..NODES {
        create_system_pod(&member, node).await?;
    }
    Ok(member)
}

/// Specs of the scheduler wait for a minute each until every node has certain pods. One may have all their names.
async fn create_system_pod(member: &TestCluster, node: usize) -> anyhow::Result<()> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("kube-proxy-fluentd-elasticsearch-node-problem-detector-{node}")},
        "spec": {
            // Not by its name, for then no scheduler says in the pod's status that it is scheduled.
            "nodeSelector": {"kubernetes.io/hostname": format!("{}-node-{node}", member.name())},
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "played", "image": "played"}],
        },
    });
    let deadline = Instant::now() + PATIENCE;
    // Refused until the namespace has its service account.
    while member.http().post("/api/v1/namespaces/kube-system/pods", &pod).send().await?.status != 201 {
        anyhow::ensure!(Instant::now() < deadline, "{} takes no pod of the system", member.name());
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

fn with_nodes(builder: MemberBuilder, count: usize) -> MemberBuilder {
    builder.kwok(true).nodes(count).schedulable(true)
}

/// The second of two members, which nothing is written to. It has no node, for a pod of the first could not be bound to
/// it, and no Service `kubernetes`: every run reads it first, and a name that both have is a 409.
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
    // The policy takes a moment to hold. Until then kube-apiserver makes the Service anew,
    // each ten seconds at the latest.
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

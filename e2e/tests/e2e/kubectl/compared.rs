//! Runs the same commands at a bare member and at Tributary over this member. kubectl's output and exit code must be
//! the same, apart from Tributary's deliberate additions (the CLUSTER column, the annotation, the format of versions).

mod output;
mod reads;
mod writes;

use crate::context::{Case, TestContext};
use std::sync::Arc;
use tributary_e2e::{Kubectl, TestCluster, kubectl::KubectlOutput};

const SHOP: &str = include_str!("compared/shop.yaml");

pub(super) fn cases() -> Vec<Case> {
    [reads::cases(), writes::cases()].into_iter().flatten().collect()
}

/// kubectl with one of the two servers, and the namespace of its commands.
struct Side {
    kubectl: Kubectl,
    namespace: String,
    server: String,
}

impl Side {
    /// Writes a manifest into kubectl's working directory, so that commands can use the file name without a path.
    fn file(&self, name: &str, text: &str) -> anyhow::Result<()> {
        self.kubectl.file(name, text).map(drop)
    }

    async fn run(&self, arguments: &[&str]) -> anyhow::Result<KubectlOutput> {
        self.kubectl.run(&[&["-n", self.namespace.as_str()], arguments].concat()).await
    }
}

/// Bare member, a kubectl for this member, and a kubectl for Tributary over this member.
struct Sides {
    member: Arc<TestCluster>,
    own: Side,
    shown: Side,
}

impl Sides {
    /// Makes two sides with the same namespace, for commands that only read.
    async fn in_one_namespace(context: &TestContext) -> anyhow::Result<Self> {
        let member = context.fixture.bare().await?;
        let namespace = context.namespace("kubectl", &[member]).await?;
        Self::new(context, namespace.clone(), namespace).await
    }

    /// Makes two sides with different namespaces, for commands that write.
    async fn in_two_namespaces(context: &TestContext) -> anyhow::Result<Self> {
        let member = [context.fixture.bare().await?];
        let (own, shown) = (context.namespace("kubectl", &member).await?, context.namespace("kubectl", &member).await?);
        Self::new(context, own, shown).await
    }

    async fn new(context: &TestContext, own: String, shown: String) -> anyhow::Result<Self> {
        let tools = context.fixture.tools().await?;
        let (member, tributary) = (context.fixture.bare().await?, context.fixture.over_one().await?);
        let server = member.access().server;
        let own = Side { kubectl: Kubectl::new(tools, &member.kubeconfig())?, namespace: own, server };
        let server = tributary.url().to_owned();
        let shown = Side { kubectl: tributary.kubectl(tools)?, namespace: shown, server };
        Ok(Self { member, own, shown })
    }

    /// Runs a command against the member and against Tributary, and compares the outputs.
    async fn same(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let (own, shown) = tokio::try_join!(self.own.run(arguments), self.shown.run(arguments))?;
        output::compare((&self.own, &own), (&self.shown, &shown))
    }
}

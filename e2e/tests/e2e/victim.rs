//! Member of a single test, behind a relay that the test can cut. Tributary serves this member and `member2`.

use crate::context::TestContext;
use serde_json::json;
use std::sync::Arc;
use tributary_e2e::{TestCluster, Tributary, guard, kubeconfig};
use tributary_simulator::{Relay, RelayMode};

/// Fault that a test causes at a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    Killed,
    /// The member's kube-apiserver is suspended (SIGSTOP), with its connections open.
    Frozen,
    /// The relay closes every connection to the member before an answer.
    Cut,
}

impl Harm {
    /// All faults, each with a word for the name of a test.
    pub(crate) const ALL: [(Self, &'static str); 3] =
        [(Self::Killed, "killed"), (Self::Frozen, "frozen"), (Self::Cut, "cut_off")];
}

pub(crate) struct Victim {
    pub(crate) member: Arc<TestCluster>,
    pub(crate) other: Arc<TestCluster>,
    pub(crate) tributary: Arc<Tributary>,
    wire: Relay,
    _folder: tempfile::TempDir,
}

impl Victim {
    /// Starts the member and Tributary. Tributary's contexts are `victim` and `member2`.
    pub(crate) async fn start(context: &TestContext, arguments: &[&str]) -> anyhow::Result<Self> {
        let member = Arc::new(TestCluster::builder("victim").start(context.fixture.tools().await?).await?);
        let other = Arc::clone(&context.fixture.pair().await?[1]);
        let wire = Relay::start(member.apiserver_port(), 0).await?;
        let mut entries = member.access().entries();
        entries.cluster["server"] = json!(format!("https://127.0.0.1:{}", wire.port()));
        let folder = guard::temporary_folder("victim")?;
        let path = folder.path().join("kubeconfig");
        kubeconfig::write_entries(&path, &[entries, other.access().entries()])?;
        let builder = Tributary::builder(&path, ["victim", "member2"]).arguments(arguments.iter().copied());
        let tributary = context.fixture.watch_log(builder.start().await?).await;
        Ok(Self { member, other, tributary, wire, _folder: folder })
    }

    /// Starts the fault, which lasts until a call of [`Self::recover`].
    pub(crate) async fn suffer(&self, harm: Harm) -> anyhow::Result<()> {
        match harm {
            Harm::Killed => self.member.kill9().await,
            Harm::Frozen => self.member.freeze().await,
            Harm::Cut => {
                self.wire.set(RelayMode::Cut { within: 0 });
                self.wire.cut();
                Ok(())
            }
        }
    }

    /// Ends the fault, but does not wait until the member is ready.
    pub(crate) async fn recover(&self, harm: Harm) -> anyhow::Result<()> {
        match harm {
            Harm::Killed => self.member.start_again().await,
            Harm::Frozen => self.member.thaw().await,
            Harm::Cut => {
                self.wire.set(RelayMode::Clear);
                Ok(())
            }
        }
    }
}

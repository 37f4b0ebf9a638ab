//! The servers that all tests share. The first test that needs a server starts it.

use std::{fmt::Write as _, path::PathBuf, sync::Arc};
use tokio::sync::{Mutex, OnceCell, Semaphore, SemaphorePermit};
use tributary_e2e::{MetricsServer, TestCluster, Tools, Tributary, guard, kubeconfig};

/// Server that the first test that needs it starts. A failed start is not repeated: later tests fail at once with its
/// message.
struct Shared<T>(OnceCell<Result<T, String>>);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(OnceCell::new())
    }
}

impl<T> Shared<T> {
    async fn get_or_start(&self, start: impl AsyncFnOnce() -> anyhow::Result<T>) -> anyhow::Result<&T> {
        let started = self.0.get_or_init(async || start().await.map_err(|error| format!("{error:#}"))).await;
        started.as_ref().map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// Returns the server if it has already started successfully.
    fn get(&self) -> Option<&T> {
        self.0.get()?.as_ref().ok()
    }
}

/// Servers that tests share. The member `bare` has no controllers and is the reference of the conformance suite.
/// `member1` and `member2` have controllers and kwok, and Tributary merges them.
pub(crate) struct Fixture {
    tools: Shared<Tools>,
    bare: Shared<Arc<TestCluster>>,
    pair: Shared<[Arc<TestCluster>; 2]>,
    over_one: Shared<Arc<Tributary>>,
    over_two: Shared<Arc<Tributary>>,
    over_two_integers: Shared<Arc<Tributary>>,
    differing: Shared<Arc<Differing>>,
    folder: OnceCell<tempfile::TempDir>,
    /// Kubeconfig of `member1` and `member2`. It is written only once, so that no test reads a half-written file.
    pair_kubeconfig: OnceCell<PathBuf>,
    /// Tributary processes that single tests have started. A failed test prints their logs.
    extra: Mutex<Vec<std::sync::Weak<Tributary>>>,
    /// Limits the number of concurrent tests that start members. Each member needs 300 MB of memory and several seconds
    /// of two cores.
    pub(crate) own_members: Semaphore,
    /// Lets only one test at a time put load on the members that it starts, because these tests require a rate of
    /// answers.
    loads: Semaphore,
}

/// Two members with different APIs (`differing_apis::definitions`), each with a metrics server and a node, and
/// Tributary over both. Objects without a cluster are created in `south`.
pub(crate) struct Differing {
    // Tributary is declared before the members, because it must end before the servers that it uses.
    pub(crate) tributary: Arc<Tributary>,
    pub(crate) members: [Arc<TestCluster>; 2],
    pub(crate) metrics: [MetricsServer; 2],
    _folder: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            tools: Shared::default(),
            bare: Shared::default(),
            pair: Shared::default(),
            over_one: Shared::default(),
            over_two: Shared::default(),
            over_two_integers: Shared::default(),
            differing: Shared::default(),
            folder: OnceCell::new(),
            pair_kubeconfig: OnceCell::new(),
            extra: Mutex::default(),
            own_members: Semaphore::new(3),
            loads: Semaphore::new(1),
        })
    }

    /// Waits for two permits: to start a member, and to put load on it. All tests acquire the permits in this order, so
    /// that a test that waits for the load permit does not block tests without load.
    pub(crate) async fn load_on_own_member(&self) -> anyhow::Result<[SemaphorePermit<'_>; 2]> {
        let load = self.loads.acquire().await?;
        Ok([load, self.own_members.acquire().await?])
    }

    pub(crate) async fn tools(&self) -> anyhow::Result<&Tools> {
        self.tools.get_or_start(Tools::locate).await
    }

    /// Starts or returns a kube-apiserver without controllers and kubelets, so that only tests change its objects.
    pub(crate) async fn bare(&self) -> anyhow::Result<Arc<TestCluster>> {
        let start = async || {
            let member = TestCluster::builder("bare").start(self.tools().await?).await?;
            anyhow::Ok(Arc::new(member))
        };
        self.bare.get_or_start(start).await.cloned()
    }

    /// Starts or returns `member1` and `member2`, each with controllers, kwok and one node.
    pub(crate) async fn pair(&self) -> anyhow::Result<&[Arc<TestCluster>; 2]> {
        let start = async || {
            let tools = self.tools().await?;
            let one = TestCluster::builder("member1").controllers(true).kwok(true).nodes(1).start(tools);
            let two = TestCluster::builder("member2").controllers(true).kwok(true).nodes(1).start(tools);
            let (one, two) = tokio::try_join!(one, two)?;
            anyhow::Ok([Arc::new(one), Arc::new(two)])
        };
        self.pair.get_or_start(start).await
    }

    async fn folder(&self) -> anyhow::Result<PathBuf> {
        let folder = self.folder.get_or_try_init(async || guard::temporary_folder("fixture")).await?;
        Ok(folder.path().to_owned())
    }

    /// Writes or returns the kubeconfig with the contexts `member1` and `member2`.
    pub(crate) async fn pair_kubeconfig(&self) -> anyhow::Result<PathBuf> {
        let write = async || {
            let path = self.folder().await?.join("pair.kubeconfig");
            let [one, two] = self.pair().await?;
            kubeconfig::write(&path, &[&one.access(), &two.access()])?;
            anyhow::Ok(path)
        };
        self.pair_kubeconfig.get_or_try_init(write).await.cloned()
    }

    /// Starts or returns Tributary over `bare` only.
    pub(crate) async fn over_one(&self) -> anyhow::Result<Arc<Tributary>> {
        let start = async || {
            let bare = self.bare().await?;
            let tributary =
                Tributary::builder(&bare.kubeconfig(), ["bare"]).argument("--create-in=bare").start().await?;
            anyhow::Ok(Arc::new(tributary))
        };
        self.over_one.get_or_start(start).await.cloned()
    }

    /// Starts or returns Tributary over `member1` and `member2`. Objects without a cluster are created in `member1`.
    pub(crate) async fn over_two(&self) -> anyhow::Result<Arc<Tributary>> {
        let start = async || {
            let kubeconfig = self.pair_kubeconfig().await?;
            let builder = Tributary::builder(&kubeconfig, ["member1", "member2"]).argument("--create-in=member1");
            anyhow::Ok(Arc::new(builder.start().await?))
        };
        self.over_two.get_or_start(start).await.cloned()
    }

    /// Starts or returns Tributary like [`over_two`](Self::over_two), but with integer versions of objects.
    pub(crate) async fn over_two_integers(&self) -> anyhow::Result<Arc<Tributary>> {
        let start = async || {
            let kubeconfig = self.pair_kubeconfig().await?;
            let builder = Tributary::builder(&kubeconfig, ["member1", "member2"])
                .arguments(["--create-in=member1", "--item-resource-versions=Integer"]);
            anyhow::Ok(Arc::new(builder.start().await?))
        };
        self.over_two_integers.get_or_start(start).await.cloned()
    }

    /// Starts or returns the members `north` and `south`, which have different APIs, with Tributary over both.
    pub(crate) async fn differing(&self) -> anyhow::Result<Arc<Differing>> {
        let start = async || {
            let tools = self.tools().await?;
            let (north, south) = tokio::try_join!(
                TestCluster::builder("north").nodes(1).start(tools),
                TestCluster::builder("south").nodes(1).start(tools),
            )?;
            let metrics = [MetricsServer::start().await?, MetricsServer::start().await?];
            for ((member, metrics), definitions) in
                [&north, &south].into_iter().zip(&metrics).zip(crate::differing_apis::definitions())
            {
                metrics.register(member).await?;
                let size = serde_json::json!({"status": {"allocatable": {"cpu": "2", "memory": "4Gi"}}});
                let node = format!("/api/v1/nodes/{}-node-0/status", member.name());
                member.http().patch(&node, "strategic-merge-patch+json", &size).send().await?.expect(200)?;
                for definition in definitions {
                    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
                    member.http().post(path, &definition).send().await?.expect(201)?;
                }
            }
            let folder = guard::temporary_folder("differing")?;
            let kubeconfig = folder.path().join("kubeconfig");
            kubeconfig::write(&kubeconfig, &[&north.access(), &south.access()])?;
            let tributary = Tributary::builder(&kubeconfig, ["north", "south"]).argument("--create-in=south");
            let tributary = self.watch_log(tributary.start().await?).await;
            let members = [Arc::new(north), Arc::new(south)];
            anyhow::Ok(Arc::new(Differing { tributary, members, metrics, _folder: folder }))
        };
        self.differing.get_or_start(start).await.cloned()
    }

    /// Starts a member that the test may harm, and Tributary over this member and `member2`.
    pub(crate) async fn over_a_victim(&self) -> anyhow::Result<(Arc<TestCluster>, Arc<TestCluster>, Arc<Tributary>)> {
        let victim = Arc::new(TestCluster::builder("victim").start(self.tools().await?).await?);
        let other = Arc::clone(&self.pair().await?[1]);
        let path = victim.folder().join("both.kubeconfig");
        kubeconfig::write(&path, &[&victim.access(), &other.access()])?;
        let tributary = Tributary::builder(&path, ["victim", "member2"]).start().await?;
        Ok((victim, other, self.watch_log(tributary).await))
    }

    /// Registers a Tributary process of a test, so that a failed test prints its log.
    pub(crate) async fn watch_log(&self, tributary: Tributary) -> Arc<Tributary> {
        let tributary = Arc::new(tributary);
        self.extra.lock().await.push(Arc::downgrade(&tributary));
        tributary
    }

    /// Returns the last log lines of all running Tributary processes.
    pub(crate) async fn logs(&self) -> String {
        let mut text = String::new();
        let shared = [
            ("over one", self.over_one.get()),
            ("over two", self.over_two.get()),
            ("over two, integers", self.over_two_integers.get()),
        ];
        for (name, tributary) in shared.into_iter().filter_map(|(name, cell)| Some((name, cell?))) {
            let _infallible = writeln!(text, "--- tributary {name}\n{}", tributary.log_tail(20));
        }
        for tributary in self.extra.lock().await.iter().filter_map(std::sync::Weak::upgrade) {
            let _infallible = writeln!(text, "--- tributary of a test\n{}", tributary.log_tail(20));
        }
        let pair = self.pair.get().into_iter().flatten();
        for member in pair.chain(self.bare.get()) {
            let log = member.log_tail("kube-apiserver");
            let end: Vec<&str> = log.lines().rev().take(4).collect();
            let _infallible = writeln!(text, "--- kube-apiserver of {}\n{}", member.name(), end.join("\n"));
        }
        text
    }

    pub(crate) async fn shut_down(self: Arc<Self>) {
        // No test runs at this point, so this is the only owner of the fixture.
        drop(Arc::into_inner(self));
    }
}

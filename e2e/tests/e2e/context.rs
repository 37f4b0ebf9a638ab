//! Context of a test: its name, function and namespaces, and the output that a failure prints.

use crate::fixture::Fixture;
use anyhow::Context as _;
use futures::future::BoxFuture;
use std::{
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::{Instant, sleep};
use tributary_e2e::{TestCluster, namespace};

/// Longest duration of one test. A test that takes longer fails and prints its dump, and the other tests continue.
const TEST_TIMEOUT: Duration = Duration::from_secs(420);

/// A test that lasts at least this long prints its duration.
const LONG: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub(crate) struct TestContext {
    pub(crate) fixture: Arc<Fixture>,
    namespaces: Arc<Mutex<Vec<OwnNamespace>>>,
}

/// Name of a namespace that a test uses, and a member with this namespace.
type OwnNamespace = (String, Arc<TestCluster>);

impl TestContext {
    /// Creates a namespace with a unique name in each of these members.
    pub(crate) async fn namespace(&self, prefix: &str, members: &[Arc<TestCluster>]) -> anyhow::Result<String> {
        let name = namespace::unique_name(prefix);
        for member in members {
            namespace::create(&name, &[member]).await?;
            self.namespaces.lock().unwrap().push((name.clone(), Arc::clone(member)));
        }
        Ok(name)
    }

    async fn dump(&self) -> String {
        let namespaces = self.namespaces.lock().unwrap().clone();
        let mut text = String::from("--- what was there\n");
        for (name, member) in &namespaces {
            text.push_str(&namespace::dump(name, member).await);
        }
        text.push_str(&self.fixture.logs().await);
        text
    }
}

type Run = Box<dyn Fn(TestContext) -> BoxFuture<'static, anyhow::Result<()>> + Send + Sync>;

pub(crate) struct Case {
    /// Path of the test, for example `kubectl::get_shows_the_cluster_column`.
    pub(crate) name: String,
    patience: Duration,
    /// True if this machine has the programs that the test needs.
    is_possible: bool,
    run: Run,
}

impl Case {
    pub(crate) fn new<F, R>(name: impl Into<String>, run: F) -> Self
    where
        F: Fn(TestContext) -> R + Send + Sync + 'static,
        R: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let run: Run = Box::new(move |context| Box::pin(run(context)));
        Self { name: name.into(), patience: TEST_TIMEOUT, is_possible: true, run }
    }

    /// Sets a different longest duration than [`TEST_TIMEOUT`].
    pub(crate) fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Ignores the test on a machine without this program, because the tests do not install the program.
    pub(crate) fn only_with(mut self, program: &str) -> Self {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        self.is_possible &= std::env::split_paths(&folders).any(|folder| folder.join(program).is_file());
        self
    }

    /// Returns whether the test is listed as ignored. A test is ignored if it is too long for continuous integration
    /// (its name or module begins with `proof_`), or if the machine lacks a program. Ignored tests run with
    /// `--ignored`.
    pub(crate) fn is_ignored(&self) -> bool {
        !self.is_possible || self.name.split("::").any(|part| part.starts_with("proof_"))
    }

    /// Runs the test. A panic and a timeout are also failures, and every failure prints a dump. Prints the duration of
    /// a long test, including the wait for permits.
    pub(crate) async fn run(&self, fixture: Arc<Fixture>) -> Result<(), String> {
        use futures::FutureExt;
        let begun = Instant::now();
        let context = TestContext { fixture, namespaces: Arc::default() };
        let test = AssertUnwindSafe((self.run)(context.clone())).catch_unwind();
        let outcome = match tokio::time::timeout(self.patience, test).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panic)) => Err(anyhow::anyhow!("panicked: {}", panic_message(panic.as_ref()))),
            Err(_) => Err(anyhow::anyhow!("not done after {:?}", self.patience)),
        };
        if begun.elapsed() >= LONG {
            println!("{}: {:.0} s", self.name, begun.elapsed().as_secs_f64());
        }
        match outcome {
            Ok(()) => Ok(()),
            // The error comes last, because test output that is too long is cut at its beginning.
            Err(error) => Err(format!("{}\n--- why {} failed\n{error:#}", context.dump().await, self.name)),
        }
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}

/// Lists the test functions of a module: `cases!["kubectl"; get, describe]`.
macro_rules! cases {
    [$module:literal; $($function:ident),* $(,)?] => {
        vec![$($crate::context::Case::new(concat!($module, "::", stringify!($function)), $function)),*]
    };
}
pub(crate) use cases;

/// Repeats `check` until it succeeds. After `patience`, returns the last error.
pub(crate) async fn eventually<F, R, T>(patience: Duration, mut check: F) -> anyhow::Result<T>
where
    F: FnMut() -> R,
    R: Future<Output = anyhow::Result<T>>,
{
    let deadline = Instant::now() + patience;
    loop {
        match check().await {
            Ok(checked) => return Ok(checked),
            Err(error) if Instant::now() > deadline => {
                return Err(error).with_context(|| format!("still not so after {patience:?}"));
            }
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}

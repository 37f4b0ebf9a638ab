//! The conformance suite. Each case runs against a bare kube-apiserver (the reference), Tributary over one member, and
//! Tributary over two members with integer or composite resourceVersions.
//!
//! A case asserts the answer of Kubernetes. [`differences`] lists the deliberate differences of Tributary with their
//! reasons, and a case checks them with [`Target::differs`]. All other answers must be the same, except that objects
//! come from several members and are ordered by cluster first.

mod aggregated;
mod compact;
mod custom;
pub(crate) mod differences;
mod discovery;
mod get;
mod list;
mod output;
mod paths;
mod protobuf;
mod rights;
mod subresources;
mod tables;
pub(crate) mod target;
mod watch;
mod websocket;
mod writes;
mod yaml;

use crate::context::{Case, TestContext};
use futures::future::BoxFuture;
use std::sync::Arc;
use target::{Kind, Target};

/// Name and function of a case. The function gets a target with a separate namespace.
pub(crate) struct Conformance {
    name: String,
    run: Arc<dyn Fn(Target) -> BoxFuture<'static, anyhow::Result<()>> + Send + Sync>,
}

impl Conformance {
    fn new<F, R>(name: impl Into<String>, run: F) -> Self
    where
        F: Fn(Target) -> R + Send + Sync + 'static,
        R: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        Self { name: name.into(), run: Arc::new(move |target| Box::pin(run(target))) }
    }
}

/// Lists the test functions of a module: `conformance!["get"; found, missing]`.
macro_rules! conformance {
    [$module:literal; $($function:ident),* $(,)?] => {
        vec![$($crate::conformance::Conformance::new(concat!($module, "::", stringify!($function)), $function)),*]
    };
}
use conformance;

/// Returns one test for each combination of case and target, with a name such as `conformance::bare::get::head`.
pub(crate) fn cases() -> Vec<Case> {
    let all: Vec<Conformance> = [
        aggregated::cases(),
        discovery::cases(),
        list::cases(),
        get::cases(),
        watch::cases(),
        output::cases(),
        protobuf::cases(),
        paths::cases(),
        writes::cases(),
        subresources::cases(),
        tables::cases(),
        websocket::cases(),
        compact::cases(),
        custom::cases(),
        yaml::cases(),
        rights::cases(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut cases = Vec::new();
    for kind in [Kind::Bare, Kind::OverOne, Kind::OverTwo, Kind::OverTwoIntegers] {
        for case in &all {
            let run = Arc::clone(&case.run);
            cases.push(Case::new(
                format!("conformance::{}::{}", kind.name(), case.name),
                move |context: TestContext| {
                    let run = Arc::clone(&run);
                    async move { run(Target::new(kind, &context).await?).await }
                },
            ));
        }
    }
    cases
}

//! Fixtures of the end-to-end tests and the benchmarks: real members (etcd and kube-apiserver, optionally a controller
//! manager and kwok), the `tributary` binary in front of members, kubectl, and a plain HTTP client.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use tributary_e2e::{TestCluster, Tools, Tributary, kubeconfig};
//!
//! let tools = Tools::locate().await?;
//! let member = TestCluster::builder("member1").kwok(true).nodes(1).start(&tools).await?;
//! let file = member.folder().join("members.kubeconfig");
//! kubeconfig::write(&file, &[&member.access()])?;
//! let tributary = Tributary::builder(&file, ["member1"]).start().await?;
//! let pods = tributary.http().await?.get("/api/v1/pods").send().await?.json()?;
//! # Ok(()) }
//! ```
//!
//! All servers listen on free ports of 127.0.0.1 and use temporary folders. Dropping a fixture kills its processes. If
//! the test process dies without dropping its fixtures, a guard process ([`guard`]) kills the processes and removes the
//! folders.

pub mod aggregated_server;
mod built;
pub mod certificates;
pub mod guard;
pub mod http;
pub mod kubeconfig;
pub mod kubectl;
pub mod kubelet;
mod kwok;
pub mod member;
pub mod metrics_server;
pub mod namespace;
pub mod person;
pub mod ports;
pub mod process;
pub mod rights_gate;
pub mod tools;
pub mod tributary;
pub mod tunnel_proxy;
pub mod user_server;
pub mod websocket;

pub use self::{
    aggregated_server::AggregatedServer,
    http::{EventStream, HttpClient, HttpResponse},
    kubeconfig::Access,
    kubectl::Kubectl,
    member::{MemberBuilder, TestCluster},
    metrics_server::MetricsServer,
    person::PeopleAuthority,
    process::Process,
    rights_gate::{RightsGate, RightsPassage},
    tools::Tools,
    tributary::{Tributary, TributaryBuilder},
};

/// Makes aws-lc-rs the TLS provider of the process. Each test binary calls this function first. Later calls have no
/// effect.
pub fn install_crypto_provider() {
    let _already_installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

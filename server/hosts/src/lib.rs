//! Which API stands at the root of a request's host, and how TLS is spoken there.
//!
//! ```text
//! Host, :authority ─▶ named ─┬─▶ table: --merged-host, spec.serverNames ─▶ Place: the merged view, one cluster, or only
//! SNI ───────────────────────┘                                             what this process tells of itself
//!                                                                      └▶ 400, 421, 503
//! ```
//!
//! The host says which API is meant; the SNI said which certificate the client was shown and which authorities it was
//! asked for. Where these are of different clusters the connection is not one for the request. Where nobody names a
//! host (no `--merged-host`, no `serverNames`), none of this is looked at.

mod named;
mod named_certificates;
mod refusal;
mod serving;
mod table;
mod tls;

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::request::Parts;
use tributary_apimachinery::{ClusterName, HostName, Mount};
use tributary_authentication::ClientCertificates;

pub use named::NamedHost;
pub use named_certificates::{CertificateName, NamedCertificates};
pub use refusal::HostRefusal;
pub use serving::{ServingCertificateError, certified_key, doubts};
pub use table::{ClusterHosts, HostConflict, HostTable, HostTarget};
pub use tls::{HostTls, is_for};

/// The hosts of the moment, shared by all connections.
#[derive(Debug, Default)]
pub struct Hosts(ArcSwap<HostTable>);

impl Hosts {
    /// Takes over other hosts. Requests on open connections go by them.
    pub fn replace(&self, table: HostTable) {
        self.0.store(Arc::new(table));
    }

    /// The hosts as they are now.
    pub fn table(&self) -> Arc<HostTable> {
        self.0.load_full()
    }

    /// The API that a request is for, by its host and by the name that its connection asked for.
    ///
    /// # Errors
    /// [`HostRefusal`].
    pub fn mount(&self, head: &Parts, server_name: Option<&HostName>) -> Result<Mount, HostRefusal> {
        let table = self.0.load();
        if !table.tells_hosts_apart() {
            return Ok(Mount::Merged);
        }
        match table.place(&NamedHost::from_head(head)?, server_name)? {
            HostTarget::At(mount) => Ok(mount.clone()),
            HostTarget::Own if is_own(head.uri.path()) => Ok(Mount::Merged),
            HostTarget::Own => Err(HostRefusal::Unknown),
        }
    }

    /// The authorities that vouch for clients at a cluster's own hosts, if it has some of its own.
    pub fn authorities(&self, cluster: &ClusterName) -> Option<Arc<ClientCertificates>> {
        self.0.load().tls(cluster)?.client_authorities.clone()
    }
}

/// Whether a path is one of those by which a process tells of itself: a scraper and a kubelet come by its address.
fn is_own(path: &str) -> bool {
    let first = path.split('/').nth(1).unwrap_or_default();
    matches!(first, "metrics" | "tributary" | "healthz" | "livez" | "readyz")
}

/// Whether a request is for a host of one cluster, where none of the process's own paths are.
pub fn is_of_cluster(mount: &Mount) -> bool {
    matches!(mount, Mount::Cluster(_))
}

//! Selects the API and the TLS settings of a request by its host.
//!
//! ```text
//! Host, :authority ─▶ named ─┬─▶ table: --merged-host, spec.serverNames ─▶ HostTarget: the merged view, one cluster,
//! or SNI ───────────────────────┘                                             only the paths of this process itself └▶
//! 400, 421, 503 ```
//!
//! The request's host selects the API. The connection's SNI selects the serving certificate and the authorities for
//! client certificates. If host and SNI belong to different clusters, the request is refused. Without `--merged-host`
//! and `serverNames`, every request gets the merged view.

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
pub use serving::{ServingCertificateError, certificate_warnings, certified_key};
pub use table::{ClusterHosts, HostConflict, HostTable, HostTarget};
pub use tls::{HostTls, is_valid_for};

/// The current host table, shared by all connections.
#[derive(Debug, Default)]
pub struct Hosts(ArcSwap<HostTable>);

impl Hosts {
    /// Replaces the host table. An open connection uses the new table from its next request on.
    pub fn replace(&self, table: HostTable) {
        self.0.store(Arc::new(table));
    }

    /// Returns the current host table.
    pub fn table(&self) -> Arc<HostTable> {
        self.0.load_full()
    }

    /// Returns the API of a request, selected by the request's host and the connection's SNI.
    ///
    /// # Errors
    /// [`HostRefusal`].
    pub fn mount(&self, head: &Parts, server_name: Option<&HostName>) -> Result<Mount, HostRefusal> {
        let table = self.0.load();
        if !table.has_any_host() {
            return Ok(Mount::Merged);
        }
        match table.find_target(&NamedHost::from_head(head)?, server_name)? {
            HostTarget::Api(mount) => Ok(mount.clone()),
            HostTarget::Own if is_own(head.uri.path()) => Ok(Mount::Merged),
            HostTarget::Own => Err(HostRefusal::Unknown),
        }
    }

    /// Returns the CAs that verify client certificates at the hosts of one cluster. `None` if the cluster has no CAs of
    /// its own.
    pub fn authorities(&self, cluster: &ClusterName) -> Option<Arc<ClientCertificates>> {
        self.0.load().tls(cluster)?.client_authorities.clone()
    }
}

/// Returns whether a path belongs to this process itself, such as `/metrics` and `/readyz`. Scrapers and kubelets
/// request these paths by IP address, without a configured host.
fn is_own(path: &str) -> bool {
    let first = path.split('/').nth(1).unwrap_or_default();
    matches!(first, "metrics" | "tributary" | "healthz" | "livez" | "readyz")
}

/// Returns whether a request is for a host of one cluster. A cluster's host does not serve paths of this process, such
/// as `/metrics`.
pub fn is_cluster_host(mount: &Mount) -> bool {
    matches!(mount, Mount::Cluster(_))
}

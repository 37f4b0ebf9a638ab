//! Creates a cluster's endpoints from the addresses in its configuration.

use std::sync::Arc;

use http::HeaderValue;
use tributary_apimachinery::ClusterName;

use crate::cluster_uid::KnownCluster;
use crate::credentials::certificate::Certificate;
use crate::credentials::user::CurrentUser;
use crate::endpoints::endpoint::Endpoint;
use crate::error::ConnectError;
use crate::health::observer::Observer;
use crate::pool::Pool;
use crate::pool::dial::{Connector, Dialer, Route};
use crate::pool::server_identities::ServerIdentities;
use crate::pool::tls::TlsSource;
use crate::pool::uid_request::UidRequest;
use crate::target::Target;
use crate::tuning::ClientTuning;

/// Settings that all endpoints of a cluster share.
pub(crate) struct EndpointMaker<'a> {
    pub(crate) cluster: &'a ClusterName,
    pub(crate) config: &'a kube::Config,
    pub(crate) tuning: &'a ClientTuning,
    pub(crate) certificate: &'a Certificate,
    /// The expected cluster, and the user that reads the cluster's uid. `None` for connections with users' own tokens.
    pub(crate) uid: Option<(&'a Arc<KnownCluster>, &'a CurrentUser)>,
    pub(crate) server_identities: &'a Arc<ServerIdentities>,
    pub(crate) connector: Option<&'a Connector>,
    pub(crate) member: &'a Arc<Observer>,
    /// Whether the cluster may have several endpoints, so that each endpoint needs a separate observer.
    pub(crate) is_one_of_several: bool,
}

impl EndpointMaker<'_> {
    /// Creates the endpoint of an address. Sends nothing.
    ///
    /// # Errors
    /// An error about the invalid part of the configuration.
    pub(crate) async fn make(&self, Target { server, proxy }: Target) -> Result<Arc<Endpoint>, ConnectError> {
        let cluster = self.cluster;
        let host = HeaderValue::from_str(server.authority().as_str()).map_err(|error| ConnectError::Header {
            cluster: cluster.clone(),
            field: "server",
            problem: error.to_string(),
        })?;
        let server = Arc::new(server);
        let tls = TlsSource::new(cluster, self.config, &server).await?;
        let dialer = Dialer::new(
            cluster.clone(),
            server.clone(),
            Route { proxy: proxy.as_ref(), connector: self.connector.cloned() },
            self.tuning,
            tls,
            self.server_identities.clone(),
        )?;
        dialer.check(self.certificate).await?;
        let (observer, of) = match self.is_one_of_several {
            true => (Arc::new(Observer::new(cluster.clone(), self.tuning.breaker.clone())), Some(self.member.clone())),
            false => (self.member.clone(), None),
        };
        let uid_request = self.uid.map(|(known, user)| UidRequest {
            cluster: cluster.clone(),
            target: server.clone(),
            user: user.clone(),
            extra_headers: self.config.headers.iter().cloned().collect(),
            known: known.clone(),
            timeout: self.tuning.connect_timeout,
        });
        let pool = Pool::new(cluster.clone(), dialer, uid_request, observer.clone(), self.tuning.clone());
        Ok(Arc::new(Endpoint::new(server, proxy, host, pool, observer, of)))
    }
}

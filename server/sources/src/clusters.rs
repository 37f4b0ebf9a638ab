//! The HTTP clients for the configured clusters. A cluster with an unchanged description keeps its client.

pub mod indices;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use tokio_util::sync::CancellationToken;
use tributary_apimachinery::{ClusterName, explain};
use tributary_crds::SecretText;
use tributary_proxy::{Address, BreakerTuning, ClientTuning, ClusterClient, ConnectError, Probe};
use tributary_router::{ClusterAddress, ClusterSetup, SetupRevision};

use crate::ClusterSpec;
use crate::kubeconfig::write::ClientContext;

/// The configured clusters with their clients.
pub struct Clusters {
    tuning: ClientTuning,
    known: BTreeMap<ClusterName, ConnectedCluster>,
    /// The default namespaces of clusters' kubeconfig contexts. Contexts with the namespace `default` are omitted.
    namespaces: BTreeMap<ClusterName, String>,
    /// The number of clients that were created for clusters. The current number becomes the generation of a new client.
    clients: u64,
}

struct ConnectedCluster {
    origin: String,
    /// The address in the cluster's current description. `setup` contains the address for which the client was created,
    /// which may be older.
    address: ClusterAddress,
    /// The fingerprint of the connection settings without the servers' addresses.
    connection_fingerprint: Option<ClusterAddress>,
    /// The health probe with which the client was created. A changed probe or circuit breaker needs a new client.
    probe: Probe,
    breaker: BreakerTuning,
    user_fingerprint: String,
    /// The reason why the credentials in the cluster's current description are unusable. The client then uses its
    /// previous credentials. `None` if the client uses the described credentials.
    refused_user: Option<String>,
    /// The token that ends the cluster's streams when the cluster is removed from the configuration.
    shutdown: CancellationToken,
    /// If this cluster is refused as a duplicate, the name under which the same cluster is already configured.
    duplicate_of: Option<ClusterName>,
    /// The client of a refused duplicate, for requests that must use the credential of this name.
    refused_client: Option<ClusterClient>,
    /// True if users' bearer tokens are forwarded to the cluster. The client opens separate connections for these
    /// tokens.
    passes_tokens: bool,
    /// Headers of CONNECT requests to the proxy. Changing them needs a new client.
    proxy_headers: HeaderMap,
    setup: ClusterSetup,
}

impl Clusters {
    /// Creates an empty list of clusters. All clients use this `tuning`. Cancelling the `shutdown` in `tuning` ends the
    /// streams of all clusters.
    pub fn new(tuning: ClientTuning) -> Self {
        Self { tuning, known: BTreeMap::new(), namespaces: BTreeMap::new(), clients: 0 }
    }

    /// Applies new descriptions. An unchanged cluster keeps its client and connections; a new user replaces the
    /// client's credentials. A cluster without a usable client is listed with the reason, and each update retries to
    /// create the client. The streams of a removed cluster end.
    pub async fn update(&mut self, specs: Vec<Arc<ClusterSpec>>) {
        let names: Vec<ClusterName> = specs.iter().map(|spec| spec.name.clone()).collect();
        self.namespaces = specs.iter().filter_map(|spec| Some((spec.name.clone(), context_namespace(spec)?))).collect();
        let mut known = BTreeMap::new();
        for spec in specs {
            // Draining takes effect before the new addresses, so that a drained endpoint gets no request.
            if let Some(Ok(client)) = self.known.get(&spec.name).map(|known| &known.setup.client) {
                client.set_drained(&spec.drained_endpoints);
            }
            let entry = match self.known.remove(&spec.name) {
                Some(same) if same.matches_spec(&spec, &names) => same.apply_user(&spec).await,
                Some(moved) if moved.differs_only_in_endpoints(&spec) => match moved.apply_endpoints(&spec).await {
                    Ok(same) => same.apply_user(&spec).await,
                    Err(before) => self.connect(&spec, Some(*before)).await,
                },
                before => self.connect(&spec, before).await,
            };
            entry.set_impersonator(spec.impersonator.as_ref());
            known.insert(entry.setup.name.clone(), entry);
        }
        for gone in std::mem::replace(&mut self.known, known).into_values() {
            gone.shutdown.cancel();
        }
    }

    /// Creates a cluster's client. Repeated failures with the same reason are logged once.
    async fn connect(&mut self, spec: &ClusterSpec, before: Option<ConnectedCluster>) -> ConnectedCluster {
        let ClusterSpec { name, origin, probe, breaker, proxy_headers, passes_tokens, .. } = spec;
        for problem in &spec.warnings {
            tracing::warn!(cluster = %name, origin, problem, "the cluster is used, though its configuration is dangerous");
        }
        let shutdown = before.as_ref().map(|known| known.shutdown.clone());
        let shutdown = shutdown.unwrap_or_else(|| self.tuning.shutdown.child_token());
        let client = match &spec.config {
            Ok(config) => {
                let tuning = ClientTuning {
                    shutdown: shutdown.clone(),
                    probe: probe.clone(),
                    breaker: breaker.clone(),
                    proxy_headers: proxy_headers.clone(),
                    dial_policy: spec.dial_policy.clone(),
                    command_policy: spec.command_policy.clone(),
                    ..self.tuning.clone()
                };
                let client = connected(name.clone(), config, &spec.further_endpoints, tuning, *passes_tokens);
                client.await.map_err(|e| explain(&e))
            }
            Err(reason) => Err(reason.clone()),
        };
        if let Ok(client) = &client {
            client.set_drained(&spec.drained_endpoints);
        }
        let said = before.and_then(|known| known.setup.client.err());
        match &client {
            Err(reason) if said.as_ref() != Some(reason) => {
                tracing::error!(cluster = %name, origin, reason, "the cluster cannot be used; the others are served");
            }
            Ok(_) if said.is_some() => tracing::info!(cluster = %name, origin, "the cluster can be used now"),
            _ => {}
        }
        // Only usable clients are counted, so a failed attempt to create a client begins no new client generation.
        self.clients += u64::from(client.is_ok());
        let setup = ClusterSetup {
            name: name.clone(),
            client,
            client_generation: self.clients,
            address: spec.address.clone(),
            index: spec.index,
            impersonation: spec.impersonation.clone(),
            authorization: spec.authorization,
        };
        ConnectedCluster {
            origin: origin.clone(),
            address: spec.address.clone(),
            connection_fingerprint: spec.connection_fingerprint.clone(),
            probe: probe.clone(),
            breaker: breaker.clone(),
            user_fingerprint: spec.user_fingerprint.clone(),
            refused_user: None,
            shutdown,
            duplicate_of: None,
            refused_client: None,
            passes_tokens: *passes_tokens,
            proxy_headers: proxy_headers.clone(),
            setup,
        }
    }

    /// Returns the setups of all clusters for the router.
    pub fn setups(&self) -> Vec<ClusterSetup> {
        self.known.values().map(|known| known.setup.clone()).collect()
    }

    /// Returns the names of all clusters, sorted.
    pub fn names(&self) -> Vec<ClusterName> {
        self.known.keys().cloned().collect()
    }

    /// Returns the contexts of clients' kubeconfigs, sorted by cluster name.
    pub fn client_contexts(&self) -> Vec<ClientContext> {
        let context = |cluster: &ClusterName| ClientContext {
            cluster: cluster.clone(),
            namespace: self.namespaces.get(cluster).cloned(),
        };
        self.known.keys().map(context).collect()
    }

    /// Returns the revisions of all clusters and the fingerprints of their users. Every change of the configuration
    /// changes the result.
    pub fn revisions(&self) -> Vec<(SetupRevision, String)> {
        let both = |known: &ConnectedCluster| (known.setup.revision(), known.user_fingerprint.clone());
        self.known.values().map(both).collect()
    }

    /// Returns whether a cluster of this name is configured.
    pub fn contains(&self, name: &ClusterName) -> bool {
        self.known.contains_key(name)
    }

    /// Returns the source of a cluster's description, for messages.
    pub fn origin(&self, name: &ClusterName) -> &str {
        self.known.get(name).map_or("", |known| &known.origin)
    }

    /// Returns whether a client could not be created, or could not use the credentials in its cluster's description, so
    /// that a retry may succeed.
    pub fn any_failed(&self) -> bool {
        let without_client = |known: &ConnectedCluster| known.setup.client.is_err() && known.duplicate_of.is_none();
        self.known.values().any(|known| without_client(known) || known.refused_user.is_some())
    }

    /// Refuses a cluster entry, because `duplicate_of` is the same cluster under another name. The refusal lasts until
    /// one of the two descriptions changes.
    pub fn refuse(&mut self, name: &ClusterName, duplicate_of: &ClusterName, reason: String) {
        if let Some(known) = self.known.get_mut(name) {
            known.refused_client = std::mem::replace(&mut known.setup.client, Err(reason)).ok();
            known.duplicate_of = Some(duplicate_of.clone());
        }
    }

    /// Returns the name under which the same cluster is already configured, if this cluster was refused as a duplicate.
    pub fn duplicate_of(&self, name: &ClusterName) -> Option<&ClusterName> {
        self.known.get(name)?.duplicate_of.as_ref()
    }

    /// Returns the client of a refused second name of a cluster, with the credential of this name, and its generation.
    pub fn refused_client(&self, name: &ClusterName) -> Option<(ClusterClient, u64)> {
        let known = self.known.get(name)?;
        Some((known.refused_client.clone()?, known.setup.client_generation))
    }
}

/// Returns the default namespace of a cluster's kubeconfig context; `None` for `default`.
fn context_namespace(spec: &ClusterSpec) -> Option<String> {
    let namespace = &spec.config.as_ref().ok()?.default_namespace;
    (namespace != "default").then(|| namespace.clone())
}

/// Creates a client, with support for users' bearer tokens if configured.
async fn connected(
    name: ClusterName,
    config: &kube::Config,
    further: &[Address],
    tuning: ClientTuning,
    passes_tokens: bool,
) -> Result<ClusterClient, ConnectError> {
    let client = ClusterClient::connect_to_all(name, config.clone(), further, tuning.clone()).await?;
    if passes_tokens { client.enable_user_tokens(config, further, tuning).await } else { Ok(client) }
}

impl ConnectedCluster {
    /// Applies the credentials of a cluster's new description to its client. If the new credentials are unusable, the
    /// client keeps the previous credentials, because a certificate and its key may be replaced one after the other.
    async fn apply_user(self, spec: &ClusterSpec) -> Self {
        let (name, origin) = (&self.setup.name, spec.origin.clone());
        let client = self.refused_client.as_ref().or(self.setup.client.as_ref().ok());
        let (Some(client), Ok(config)) = (client, &spec.config) else { return Self { origin, ..self } };
        if self.user_fingerprint == spec.user_fingerprint && self.refused_user.is_none() {
            return Self { origin, ..self };
        }
        if self.user_fingerprint == spec.user_fingerprint {
            tracing::info!(cluster = %name, origin, "the cluster's user is the previous one again");
            return Self { origin, refused_user: None, ..self };
        }
        match client.set_user(config).await {
            Ok(()) => {
                tracing::info!(cluster = %name, origin, "the cluster's credentials are renewed");
                Self { origin, user_fingerprint: spec.user_fingerprint.clone(), refused_user: None, ..self }
            }
            Err(error) => {
                let reason = explain(&error);
                if self.refused_user.as_ref() != Some(&reason) {
                    tracing::error!(cluster = %name, origin, reason,
                        "the cluster's new user is refused; the previous one stays in use");
                }
                Self { origin, refused_user: Some(reason), ..self }
            }
        }
    }

    /// Applies the token of the member's impersonator to the client. The client keeps the previous token if the new one
    /// is unusable.
    fn set_impersonator(&self, token: Option<&SecretText>) {
        let Ok(client) = &self.setup.client else { return };
        if let Err(error) = client.set_impersonator(token.map(SecretText::expose)) {
            let (cluster, origin, reason) = (&self.setup.name, &self.origin, explain(&error));
            tracing::error!(%cluster, origin, reason, "the impersonator's token is refused");
        }
    }

    /// Applies the described server addresses to the client. Removed addresses get no new requests, and their open
    /// requests continue.
    ///
    /// # Errors
    /// Returns the unchanged cluster if the change needs a new client.
    async fn apply_endpoints(mut self, spec: &ClusterSpec) -> Result<Self, Box<Self>> {
        let (Ok(client), Ok(config)) = (&self.setup.client, &spec.config) else { return Err(Box::new(self)) };
        match client.set_addresses(config, &spec.further_endpoints).await {
            Ok(true) => {
                tracing::info!(cluster = %self.setup.name, origin = spec.origin, "the cluster has other endpoints");
                self.address = spec.address.clone();
                Ok(self)
            }
            Ok(false) | Err(_) => Err(Box::new(self)),
        }
    }

    fn matches_spec(&self, spec: &ClusterSpec, names: &[ClusterName]) -> bool {
        let usable = match &self.duplicate_of {
            None => self.setup.client.is_ok(),
            Some(duplicate_of) => names.contains(duplicate_of),
        };
        usable && self.address == spec.address && self.is_set_up_as(spec)
    }

    /// Returns whether only the servers' addresses have changed in the description.
    fn differs_only_in_endpoints(&self, spec: &ClusterSpec) -> bool {
        let is_known = self.connection_fingerprint.is_some();
        self.duplicate_of.is_none()
            && is_known
            && self.connection_fingerprint == spec.connection_fingerprint
            && self.is_set_up_as(spec)
    }

    fn is_set_up_as(&self, spec: &ClusterSpec) -> bool {
        self.setup.index == spec.index
            && self.setup.impersonation == spec.impersonation
            && self.setup.authorization == spec.authorization
            && self.passes_tokens == spec.passes_tokens
            && self.probe == spec.probe
            && self.breaker == spec.breaker
            && self.proxy_headers == spec.proxy_headers
    }
}

#[cfg(test)]
mod tests {
    use tributary_router::{ClusterAuthorization, MemberRules};

    use super::*;

    async fn update(clusters: &mut Clusters, specs: impl IntoIterator<Item = ClusterSpec>) {
        clusters.update(specs.into_iter().map(Arc::new).collect()).await;
    }

    fn spec(name: &str, address: &str) -> ClusterSpec {
        ClusterSpec { address: ClusterAddress::from_description(address), ..ClusterSpec::named(name) }
    }

    /// Returns the address of each cluster. For a cluster without a client, also returns the reason.
    fn addresses_and_problems(clusters: &Clusters) -> Vec<(ClusterAddress, Option<String>)> {
        clusters.setups().into_iter().map(|setup| (setup.address, setup.client.err())).collect()
    }

    fn with_token(name: &str, address: &str, token: &str) -> ClusterSpec {
        let mut spec = spec(name, address);
        spec.config.as_mut().unwrap().auth_info.token = Some(token.to_owned().into());
        ClusterSpec { user_fingerprint: token.to_owned(), ..spec }
    }

    #[tokio::test]
    async fn new_credentials_keep_the_cluster_client() {
        let mut clusters = Clusters::new(ClientTuning::default());
        update(&mut clusters, [with_token("a", "1", "t")]).await;
        let client = clusters.setups()[0].client.clone().unwrap();
        update(&mut clusters, [with_token("a", "1", "t")]).await;
        assert_eq!(client.renewals(), 0, "nothing has changed");
        update(&mut clusters, [with_token("a", "1", "u")]).await;
        assert_eq!((client.renewals(), clusters.any_failed()), (1, false));
        assert_eq!(clusters.revisions().pop().map(|(_, user)| user), Some("u".to_owned()));
        // The new bearer token is invalid in an HTTP header, so the client keeps its previous credentials.
        update(&mut clusters, [with_token("a", "1", "a\nb")]).await;
        assert_eq!((client.renewals(), clusters.any_failed()), (1, true), "the old one stays, and it is tried again");
        assert!(clusters.setups()[0].client.is_ok());
        update(&mut clusters, [with_token("a", "1", "u")]).await;
        assert_eq!((client.renewals(), clusters.any_failed()), (1, false));
    }

    #[tokio::test]
    async fn client_context_namespace_follows_the_cluster_description() {
        let mut clusters = Clusters::new(ClientTuning::default());
        let namespaces = |clusters: &Clusters| -> Vec<_> {
            clusters
                .client_contexts()
                .into_iter()
                .map(|context| (context.cluster.to_string(), context.namespace))
                .collect()
        };
        for (described, expected) in [("shop", Some("shop")), ("team", Some("team")), ("default", None)] {
            let mut spec = spec("a", "1");
            spec.config.as_mut().unwrap().default_namespace = described.to_owned();
            update(&mut clusters, [spec]).await;
            assert_eq!(namespaces(&clusters), [("a".to_owned(), expected.map(str::to_owned))]);
        }
    }

    /// Describes a cluster with servers at these local ports.
    fn at(ports: &[u16]) -> ClusterSpec {
        let url = |port: &u16| -> http::Uri { format!("https://127.0.0.1:{port}").parse().unwrap() };
        ClusterSpec {
            config: Ok(kube::Config::new(url(&ports[0]))),
            further_endpoints: ports[1..].iter().map(|port| url(port).into()).collect(),
            connection_fingerprint: Some(ClusterAddress::from_description("all")),
            ..spec("a", &format!("{ports:?}"))
        }
    }

    #[tokio::test]
    async fn changed_endpoints_keep_the_cluster_client_while_one_endpoint_stays() {
        let mut clusters = Clusters::new(ClientTuning::default());
        let addresses = |clusters: &Clusters| -> Vec<String> {
            let client = clusters.setups()[0].client.clone().unwrap();
            client.endpoints().iter().map(|endpoint| endpoint.address.replace("127.0.0.1:", "")).collect()
        };
        let mut seen: Vec<SetupRevision> = Vec::new();
        for (ports, is_kept) in [
            (&[1_u16, 2, 3][..], false),
            (&[1, 3], true),
            (&[3, 4], true),
            // The client is also kept when a single address remains.
            (&[4], true),
            (&[4, 1], true),
            (&[5, 6], false),
            (&[6, 7], true),
            // An earlier update has removed the address for which the client was created, so a new client is needed.
            (&[5], false),
            (&[5, 6], false),
        ] {
            update(&mut clusters, [at(ports)]).await;
            assert_eq!(addresses(&clusters), ports.iter().map(u16::to_string).collect::<Vec<_>>());
            let revision = clusters.setups()[0].revision();
            let is_same = seen.last() == Some(&revision);
            assert_eq!(is_same, is_kept, "{ports:?}, after {} others", seen.len());
            seen.push(revision);
        }
        let other = ClusterSpec {
            connection_fingerprint: Some(ClusterAddress::from_description("another authority")),
            ..at(&[5, 6, 7])
        };
        update(&mut clusters, [other]).await;
        assert!(seen.last() != Some(&clusters.setups()[0].revision()));
    }

    #[tokio::test]
    async fn changes_of_other_cluster_settings_make_a_new_client() {
        let mut clusters = Clusters::new(ClientTuning::default());
        let mut last = None;
        for (name, described) in [
            ("nothing", spec("a", "1")),
            ("its index", ClusterSpec { index: Some(7), ..spec("a", "1") }),
            (
                "its rules",
                ClusterSpec { impersonation: MemberRules { uid: true, ..MemberRules::default() }, ..spec("a", "1") },
            ),
            ("its authorization", ClusterSpec { authorization: ClusterAuthorization::Review, ..spec("a", "1") }),
            ("its tokens", ClusterSpec { passes_tokens: true, ..spec("a", "1") }),
            ("its probe", ClusterSpec { probe: Probe { failure_threshold: 9, ..Probe::default() }, ..spec("a", "1") }),
            (
                "its breaker",
                ClusterSpec {
                    breaker: BreakerTuning { max_in_flight: Some(9), ..BreakerTuning::default() },
                    ..spec("a", "1")
                },
            ),
        ] {
            update(&mut clusters, [described]).await;
            let setup = clusters.setups().remove(0);
            assert_eq!(setup.address, ClusterAddress::from_description("1"), "{name}");
            let revision = Some(setup.revision());
            assert!(revision != last, "{name}");
            last = revision;
        }
    }

    #[tokio::test]
    async fn endpoints_configured_as_drained_get_no_requests_of_existing_and_new_clients() {
        let mut clusters = Clusters::new(ClientTuning::default());
        let draining = |ports: &[u16], drained: u16| ClusterSpec {
            drained_endpoints: tributary_proxy::EndpointSubset::new(&[format!("https://127.0.0.1:{drained}/")]),
            ..at(ports)
        };
        let drained = |clusters: &Clusters| -> Vec<String> {
            let endpoints = clusters.setups()[0].client.clone().unwrap().endpoints();
            let drained = endpoints.into_iter().filter(|endpoint| {
                endpoint.left_out.as_ref().is_some_and(|why| why.reason == tributary_proxy::LeftOutReason::Drain)
            });
            drained.map(|endpoint| endpoint.address.replace("127.0.0.1:", "")).collect()
        };
        update(&mut clusters, [draining(&[1, 2], 2)]).await;
        assert_eq!(drained(&clusters), ["2"], "from the beginning");
        let first = clusters.revisions();
        update(&mut clusters, [draining(&[1, 2], 1)]).await;
        assert_eq!(drained(&clusters), ["1"]);
        assert!(clusters.revisions() == first);
        // The same update adds and drains an endpoint.
        update(&mut clusters, [draining(&[1, 2, 3], 3)]).await;
        assert_eq!(drained(&clusters), ["3"]);
        assert!(clusters.revisions() == first);
        update(&mut clusters, [at(&[1, 2, 3])]).await;
        assert_eq!(drained(&clusters), Vec::<String>::new());
        assert!(clusters.revisions() == first);
        // The only endpoint of a cluster can be drained, too.
        update(&mut clusters, [draining(&[7], 7)]).await;
        assert_eq!(drained(&clusters), ["7"]);
    }

    #[tokio::test]
    async fn connections_to_a_cluster_end_when_it_is_removed() {
        let tuning = ClientTuning::default();
        let mut clusters = Clusters::new(tuning.clone());
        update(&mut clusters, [with_token("a", "1", "t"), spec("b", "1")]).await;
        let ends = |clusters: &Clusters, name: &str| clusters.known[&ClusterName::new(name).unwrap()].shutdown.clone();
        let (a, b) = (ends(&clusters, "a"), ends(&clusters, "b"));
        update(&mut clusters, [with_token("a", "1", "u"), spec("b", "1")]).await;
        update(&mut clusters, [with_token("a", "another address", "u"), spec("b", "1")]).await;
        assert!(!a.is_cancelled() && !b.is_cancelled());
        update(&mut clusters, [spec("b", "1")]).await;
        assert!(a.is_cancelled() && !b.is_cancelled());
        tuning.shutdown.cancel();
        assert!(b.is_cancelled(), "all of them end with the process");
    }

    #[tokio::test]
    async fn refused_duplicate_cluster_is_accepted_after_removal_of_its_twin() {
        let [a, b] = ["a", "b"].map(|name| ClusterName::new(name).unwrap());
        let mut clusters = Clusters::new(ClientTuning::default());
        update(&mut clusters, [spec("a", "1"), spec("b", "2")]).await;
        let [first, second] = ["1", "2"].map(ClusterAddress::from_description);
        assert_eq!(addresses_and_problems(&clusters), [(first.clone(), None), (second.clone(), None)]);
        clusters.refuse(&b, &a, "same".to_owned());
        let refused = clusters.revisions();
        assert_eq!(addresses_and_problems(&clusters), [(first, None), (second.clone(), Some("same".to_owned()))]);
        assert!(!clusters.any_failed(), "another try would not help");
        update(&mut clusters, [spec("a", "1"), spec("b", "2")]).await;
        assert!(clusters.revisions() == refused, "an unchanged configuration changes nothing");
        update(&mut clusters, [spec("b", "2")]).await;
        assert_eq!(addresses_and_problems(&clusters), [(second, None)]);
        assert!(clusters.setups()[0].client.is_ok());
    }

    #[tokio::test]
    async fn cluster_with_a_broken_configuration_stays_listed_with_its_error() {
        let mut broken = spec("a", "1");
        broken.config = Ok(kube::Config::new("ftp://127.0.0.1".parse().unwrap()));
        let mut clusters = Clusters::new(ClientTuning::default());
        update(&mut clusters, [broken]).await;
        assert!(clusters.any_failed());
        assert_eq!(clusters.names().len(), 1);
        assert!(clusters.setups()[0].client.is_err());
        let first = clusters.revisions();
        let unreadable = ClusterSpec { config: Err("no such file".to_owned()), ..spec("a", "1") };
        update(&mut clusters, [unreadable]).await;
        assert_eq!(clusters.setups()[0].client.as_ref().unwrap_err(), "no such file");
        assert!(clusters.revisions() != first, "another reason is news");
    }
}

//! Configuration files with `UpstreamCluster` and `ResourceRegistry` objects, and the client configuration of an
//! `UpstreamCluster`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};
use tributary_apimachinery::ClusterName;
use tributary_crds::upstream_cluster::INDEX_MAX;
use tributary_crds::{
    Credentials, KubeconfigReference, SecretText, Severity, UpstreamCluster, UpstreamClusterSpec, ValidationProblem,
};
use tributary_proxy::{Address, BreakerTuning, EndpointSubset, Probe, without_user_info};
use tributary_router::{ClusterAddress, MemberRules};

use crate::kubeconfig::{ContextProblem, ContextTarget, KubeconfigFiles, KubeconfigLoadError, Kubeconfigs};
use crate::secure_serving::cluster_hosts;
use crate::{ClusterSpec, LoadedConfiguration};

/// The name of the cluster, user and context in a kubeconfig that is built from an UpstreamCluster.
const ENTRY_NAME: &str = "upstream";

/// A placeholder for the server's address in a fingerprint without addresses.
const ADDRESS_PLACEHOLDER: &str = "https://endpoint.invalid";

/// The reason why an UpstreamCluster cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamClusterError {
    /// The name of the object is not a valid cluster name.
    #[error("metadata.name")]
    Name(#[source] tributary_apimachinery::InvalidClusterName),
    /// A field is invalid, or a file that the field names is unusable.
    #[error("{field}: {problem}; {remedy}")]
    Field {
        /// The invalid field, for example `spec.caFile`.
        field: String,
        /// The problem with the invalid field.
        problem: String,
        /// The remedy for the problem with the field.
        remedy: String,
    },
    /// The kubeconfig that `spec.kubeconfig` names cannot be read.
    #[error("spec.kubeconfig.path")]
    Kubeconfig(#[source] KubeconfigLoadError),
    /// The context that `spec.kubeconfig` names is invalid.
    #[error("spec.kubeconfig")]
    Context(#[source] ContextProblem),
}

/// Reads a file or directory of configuration objects.
#[derive(Clone, Debug)]
pub struct FileSource {
    path: PathBuf,
}

impl FileSource {
    /// Creates a source that reads the file or directory at this path.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns the path of the configuration file or directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all files again. `contexts` contains the clusters of the kubeconfig, which the registries of the files may
    /// name.
    ///
    /// # Errors
    /// All validation errors, or the first cluster without a valid client configuration.
    pub async fn read(&self, contexts: &[Arc<ClusterSpec>]) -> anyhow::Result<LoadedConfiguration> {
        let objects = tributary_crds::load(&self.path)?;
        let (errors, warnings): (Vec<_>, Vec<_>) =
            problems(&objects, contexts).into_iter().partition(|problem| problem.severity == Severity::Error);
        anyhow::ensure!(errors.is_empty(), lines(&errors));
        for problem in warnings {
            tracing::warn!(%problem, "configuration");
        }
        let (mut clusters, mut files) = (Vec::new(), vec![self.path.clone()]);
        for cluster in &objects.clusters {
            let name = cluster.metadata.name.as_deref().unwrap_or_default();
            let (spec, more) =
                cluster_spec(cluster, self.base()).await.with_context(|| format!("UpstreamCluster {name}"))?;
            clusters.push(Arc::new(spec));
            files.extend(more);
        }
        Ok(LoadedConfiguration::new(clusters, objects, files))
    }

    /// Returns the base directory of relative paths in the configuration objects.
    pub fn base(&self) -> &Path {
        match self.path.is_dir() {
            true => &self.path,
            false => self.path.parent().unwrap_or(Path::new("")),
        }
    }
}

/// Returns the message for a file or directory without configuration objects.
pub fn no_objects_message(path: &Path) -> String {
    let (at, directory) = match path.is_dir() {
        true => (format!("{} has no .yaml, .yml or .json file with a configuration object", path.display()), path),
        false => (format!("{} has no configuration object", path.display()), path.parent().unwrap_or(Path::new("."))),
    };
    format!(
        "{at}; write an UpstreamCluster there (tributary check --help shows one), or have one written by tributary join \
         CONTEXT --config {}",
        directory.display()
    )
}

/// Validates objects together with the clusters of `contexts`. Returns errors and warnings.
fn problems(objects: &tributary_crds::ConfigurationObjects, contexts: &[Arc<ClusterSpec>]) -> Vec<ValidationProblem> {
    let taken: BTreeSet<_> = objects.clusters.iter().filter_map(|cluster| cluster.spec.index).collect();
    let known = stand_ins(contexts, &taken);
    let mut all = objects.clone();
    all.clusters.extend(known);
    let about_context = |problem: &ValidationProblem| {
        contexts.iter().any(|context| problem.object == format!("UpstreamCluster \"{}\"", context.name))
    };
    all.validate().into_iter().filter(|problem| !about_context(problem)).collect()
}

/// Returns an UpstreamCluster for each cluster, with its name, labels and index, for the validation of registries. A
/// cluster without an index gets any unused index here, so that the validation accepts the cluster: a context gets its
/// index later, and registries omit a member without an index.
pub fn known_clusters(clusters: &[Arc<ClusterSpec>]) -> Vec<UpstreamCluster> {
    stand_ins(clusters, &clusters.iter().filter_map(|cluster| cluster.index).collect())
}

fn stand_ins(clusters: &[Arc<ClusterSpec>], taken: &BTreeSet<u16>) -> Vec<UpstreamCluster> {
    let mut free = (0..=INDEX_MAX).filter(|index| !taken.contains(index));
    let stand_in = |cluster: &Arc<ClusterSpec>| {
        let reference = KubeconfigReference { path: cluster.origin.clone(), context: None };
        let index = cluster.index.or_else(|| free.next());
        let spec = UpstreamClusterSpec { kubeconfig: Some(reference), index, ..UpstreamClusterSpec::default() };
        let mut stand_in = UpstreamCluster::new(cluster.name.as_str(), spec);
        stand_in.metadata.labels = Some(cluster.labels.clone());
        stand_in
    };
    clusters.iter().map(stand_in).collect()
}

fn lines(problems: &[ValidationProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Converts an UpstreamCluster into the description of a cluster. Also returns the files to which the UpstreamCluster
/// refers.
///
/// # Errors
/// [`UpstreamClusterError`].
pub async fn cluster_spec(
    cluster: &UpstreamCluster,
    base: &Path,
) -> Result<(ClusterSpec, Vec<PathBuf>), UpstreamClusterError> {
    let text = cluster.metadata.name.as_deref().unwrap_or_default();
    let name = ClusterName::new(text).map_err(UpstreamClusterError::Name)?;
    let target = match &cluster.spec.kubeconfig {
        Some(reference) => referenced(reference, base).await?,
        None => described(&cluster.spec, base).await?,
    };
    let mut files = target.files;
    if let Some(reference) = &cluster.spec.kubeconfig {
        files.push(base.join(&reference.path));
    }
    let (hosts, of_hosts) = cluster_hosts(&cluster.spec, base)
        .map_err(|(field, problem, remedy)| field_error(&format!("spec.{field}"), &problem, &remedy))?;
    files.extend(of_hosts);
    let further_endpoints: Vec<Address> = further_endpoints(&cluster.spec)?
        .into_iter()
        .map(|url| Address { proxy: target.proxies.proxy_for(&url), url })
        .collect();
    let (probe, breaker) = (probe(&cluster.spec)?, breaker(&cluster.spec));
    let address = further_endpoints.iter().fold(target.fingerprint, |text, more| format!("{text} {}", more.url));
    let connection_fingerprint = match cluster.spec.endpoints.is_empty() {
        true => None,
        false => Some(ClusterAddress::from_description(&connection_fingerprint(&cluster.spec, base).await?)),
    };
    let told = &cluster.spec.impersonation;
    let spec = ClusterSpec {
        origin: format!("UpstreamCluster {name}"),
        config: Ok(target.config),
        address: ClusterAddress::from_description(&address),
        connection_fingerprint,
        probe,
        breaker,
        user_fingerprint: target.user_fingerprint,
        // Validation has already reported warnings about the object's own fields, so only the warnings of a referenced
        // kubeconfig are added.
        warnings: cluster.spec.kubeconfig.as_ref().map(|_| target.warnings).unwrap_or_default(),
        further_endpoints,
        drained_endpoints: EndpointSubset::new(&cluster.spec.drained_endpoints),
        index: cluster.spec.index,
        impersonation: MemberRules { uid: told.uid, extra: told.extra.iter().cloned().collect() },
        authorization: cluster.spec.authorization,
        token_review: cluster.spec.token_review,
        passes_tokens: cluster.spec.token_pass_through,
        hosts,
        labels: cluster.metadata.labels.clone().unwrap_or_default(),
        is_from_hub: false,
        impersonator: None,
        proxy_headers: http::HeaderMap::new(),
        dial_policy: None,
        command_policy: None,
        name,
    };
    Ok((spec, files))
}

/// Returns the client configuration of the context that `spec.kubeconfig` names.
async fn referenced(reference: &KubeconfigReference, base: &Path) -> Result<ContextTarget, UpstreamClusterError> {
    let path = base.join(&reference.path);
    let files = KubeconfigFiles::one(path);
    let configs = Kubeconfigs::load(&files).map_err(UpstreamClusterError::Kubeconfig)?;
    let context = reference.context.as_deref().or(configs.current_context()).ok_or_else(|| {
        field_error(
            "spec.kubeconfig.context",
            "the field is missing, and the kubeconfig has no current context",
            "name a context",
        )
    })?;
    if !configs.context_names().iter().any(|known| known == context) {
        let problem =
            format!("there is no context {context:?}; the kubeconfig has {}", configs.context_names().join(", "));
        return Err(field_error("spec.kubeconfig.context", &problem, "name one of them"));
    }
    configs.target(context).await.map_err(UpstreamClusterError::Context)
}

/// Returns the client configuration for an UpstreamCluster's first endpoint, checked like a kubeconfig context.
async fn described(spec: &UpstreamClusterSpec, base: &Path) -> Result<ContextTarget, UpstreamClusterError> {
    let configs = Kubeconfigs::from_parts(PathBuf::new(), as_kubeconfig(spec, base));
    configs.target(ENTRY_NAME).await.map_err(|problem| UpstreamClusterError::Field {
        field: field(&problem.field),
        problem: problem.problem,
        remedy: problem.remedy,
    })
}

/// Returns the fingerprint of an UpstreamCluster's connection settings without the addresses.
async fn connection_fingerprint(spec: &UpstreamClusterSpec, base: &Path) -> Result<String, UpstreamClusterError> {
    let anywhere = UpstreamClusterSpec { endpoints: vec![ADDRESS_PLACEHOLDER.to_owned()], ..spec.clone() };
    Ok(described(&anywhere, base).await?.fingerprint)
}

fn breaker(spec: &UpstreamClusterSpec) -> BreakerTuning {
    let Some(given) = &spec.circuit_breaker else { return BreakerTuning::default() };
    let number = |given: u32| usize::try_from(given).unwrap_or(usize::MAX);
    BreakerTuning {
        consecutive_failures: given.consecutive_failures,
        open_for: Duration::from_secs(given.open_seconds.into()),
        max_in_flight: given.max_requests_inflight.map(number),
        max_in_flight_per_endpoint: given.max_requests_inflight_per_endpoint.map(number),
    }
}

fn probe(spec: &UpstreamClusterSpec) -> Result<Probe, UpstreamClusterError> {
    let Some(given) = &spec.endpoint_probe else { return Ok(Probe::default()) };
    let path = given.path.parse().map_err(|error| {
        let problem = format!("{:?}: {error}", given.path);
        field_error("spec.endpointProbe.path", &problem, "give a path, as /readyz")
    })?;
    Ok(Probe {
        path,
        interval: Duration::from_secs(given.period_seconds.into()),
        answer_within: Duration::from_secs(given.timeout_seconds.into()),
        success_threshold: given.success_threshold,
        failure_threshold: given.failure_threshold,
    })
}

/// Returns the endpoints after the first, without duplicates.
fn further_endpoints(spec: &UpstreamClusterSpec) -> Result<Vec<http::Uri>, UpstreamClusterError> {
    let mut endpoints = Vec::new();
    for (index, endpoint) in spec.endpoints.iter().enumerate().skip(1) {
        if spec.endpoints[..index].contains(endpoint) {
            continue;
        }
        let parsed = endpoint.parse().map_err(|error| {
            field_error(
                &format!("spec.endpoints[{index}]"),
                &format!("{:?}: {error}", without_user_info(endpoint)),
                "give https://host:port",
            )
        })?;
        endpoints.push(parsed);
    }
    Ok(endpoints)
}

fn as_kubeconfig(spec: &UpstreamClusterSpec, base: &Path) -> Kubeconfig {
    let file = |path: &Option<String>| path.as_ref().map(|path| base.join(path).to_string_lossy().into_owned());
    let cluster = Cluster {
        server: spec.endpoints.first().cloned(),
        insecure_skip_tls_verify: spec.insecure_skip_verify.then_some(true),
        certificate_authority: file(&spec.ca_file),
        certificate_authority_data: spec.ca_data.clone(),
        proxy_url: spec.proxy_url.clone(),
        tls_server_name: spec.tls_server_name.clone(),
        ..Cluster::default()
    };
    let secret = |secret: &Option<SecretText>| secret.as_ref().map(|secret| secret.expose().to_owned().into());
    let user = |credentials: &Credentials| AuthInfo {
        token: secret(&credentials.token),
        token_file: file(&credentials.token_file),
        client_certificate: file(&credentials.client_certificate_file),
        client_certificate_data: credentials.client_certificate_data.clone(),
        client_key: file(&credentials.client_key_file),
        client_key_data: secret(&credentials.client_key_data),
        ..AuthInfo::default()
    };
    let user = spec.credentials.as_ref().map(user);
    let context = Context {
        cluster: ENTRY_NAME.to_owned(),
        user: user.as_ref().map(|_| ENTRY_NAME.to_owned()),
        ..Context::default()
    };
    Kubeconfig {
        clusters: vec![NamedCluster { name: ENTRY_NAME.to_owned(), cluster: Some(cluster), ..NamedCluster::default() }],
        contexts: vec![NamedContext { name: ENTRY_NAME.to_owned(), context: Some(context), ..NamedContext::default() }],
        auth_infos: user
            .into_iter()
            .map(|user| NamedAuthInfo {
                name: ENTRY_NAME.to_owned(),
                auth_info: Some(user),
                ..NamedAuthInfo::default()
            })
            .collect(),
        ..Kubeconfig::default()
    }
}

/// Converts the name of a kubeconfig field into the name of the UpstreamCluster's field.
fn field(kubeconfig_field: &str) -> String {
    let last = kubeconfig_field.rsplit('.').next().unwrap_or(kubeconfig_field);
    let name = match last {
        "server" => "endpoints[0]",
        "certificate-authority" => "caFile",
        "certificate-authority-data" => "caData",
        "client-certificate" => "credentials.clientCertificateFile",
        "client-certificate-data" => "credentials.clientCertificateData",
        "client-key" => "credentials.clientKeyFile",
        "client-key-data" => "credentials.clientKeyData",
        "tokenFile" => "credentials.tokenFile",
        other => other,
    };
    format!("spec.{name}")
}

fn field_error(field: &str, problem: &str, remedy: &str) -> UpstreamClusterError {
    UpstreamClusterError::Field { field: field.to_owned(), problem: problem.to_owned(), remedy: remedy.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority() -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        rcgen::CertificateParams::default().self_signed(&key).unwrap().pem()
    }

    fn upstream(spec: serde_json::Value) -> UpstreamCluster {
        UpstreamCluster::new("eu", serde_json::from_value(spec).unwrap())
    }

    #[tokio::test]
    async fn upstream_cluster_fields_become_a_client_configuration() {
        let base = tempfile::tempdir().unwrap();
        std::fs::write(base.path().join("ca.pem"), authority()).unwrap();
        let cluster = upstream(serde_json::json!({
            "endpoints": ["https://eu.example.com:6443"],
            "caFile": "ca.pem",
            "tlsServerName": "kubernetes",
            "credentials": { "token": "t" },
            "index": 7,
        }));
        let (spec, files) = cluster_spec(&cluster, base.path()).await.unwrap();
        let config = spec.config.as_ref().unwrap();
        assert_eq!(config.cluster_url.to_string(), "https://eu.example.com:6443/");
        assert_eq!(config.root_cert.as_ref().map(Vec::len), Some(1));
        assert_eq!(config.tls_server_name.as_deref(), Some("kubernetes"));
        assert!(config.auth_info.token.is_some());
        assert_eq!(spec.index, Some(7));
        assert_eq!(files, [base.path().join("ca.pem")]);
        let (again, _) = cluster_spec(&cluster, base.path()).await.unwrap();
        assert_eq!(spec.address, again.address);
        std::fs::write(base.path().join("ca.pem"), authority()).unwrap();
        let (rotated, _) = cluster_spec(&cluster, base.path()).await.unwrap();
        assert_ne!(spec.address, rotated.address, "the contents of files count");
    }

    #[tokio::test]
    async fn token_file_with_invalid_characters_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("token");
        let cluster = upstream(serde_json::json!({
            "endpoints": ["https://a"], "insecureSkipVerify": true, "credentials": {"tokenFile": "token"},
        }));
        for (text, is_taken) in [("t\n", true), (" t \r\n", true), ("", true), ("a\nb", false), ("a\u{0}b", false)] {
            std::fs::write(&path, text).unwrap();
            let problem = cluster_spec(&cluster, base.path()).await.err().map(|error| error.to_string());
            let says = format!(
                "spec.credentials.tokenFile: {} has a character that is not allowed in a token",
                path.display()
            );
            assert_eq!(problem.is_none(), is_taken, "{text:?}: {problem:?}");
            assert!(problem.is_none_or(|problem| problem.starts_with(&says)), "{text:?}");
        }
    }

    #[tokio::test]
    async fn endpoint_probe_fields_become_probe_settings() {
        let of = async |given: serde_json::Value| {
            let mut fields = serde_json::json!({"endpoints": ["https://a"], "insecureSkipVerify": true});
            fields.as_object_mut().unwrap().extend(given.as_object().unwrap().clone());
            cluster_spec(&upstream(fields), Path::new("")).await.map(|(spec, _)| (spec.probe, spec.address))
        };
        let (nothing, unnamed) = of(serde_json::json!({})).await.unwrap();
        assert_eq!(nothing, Probe::default());
        let (empty, same) = of(serde_json::json!({"endpointProbe": {}})).await.unwrap();
        assert_eq!((empty, same), (Probe::default(), unnamed.clone()), "what is not given is as for all others");
        let given = serde_json::json!({"endpointProbe": {
            "path": "/healthz?exclude=etcd", "periodSeconds": 7, "timeoutSeconds": 3, "successThreshold": 2, "failureThreshold": 4,
        }});
        let (probe, other) = of(given).await.unwrap();
        let expected = Probe {
            path: "/healthz?exclude=etcd".parse().unwrap(),
            interval: Duration::from_secs(7),
            answer_within: Duration::from_secs(3),
            success_threshold: 2,
            failure_threshold: 4,
        };
        assert_eq!(probe, expected);
        assert_eq!(other, unnamed, "it is reached in the same way");
        let error = of(serde_json::json!({"endpointProbe": {"path": "/a b"}})).await.unwrap_err().to_string();
        assert!(error.starts_with("spec.endpointProbe.path: \"/a b\""), "{error}");
    }

    #[tokio::test]
    async fn circuit_breaker_fields_become_breaker_settings() {
        let of = async |given: serde_json::Value| {
            let mut fields = serde_json::json!({"endpoints": ["https://a"], "insecureSkipVerify": true});
            fields.as_object_mut().unwrap().extend(given.as_object().unwrap().clone());
            cluster_spec(&upstream(fields), Path::new("")).await.unwrap().0
        };
        let (nothing, empty) = (of(serde_json::json!({})).await, of(serde_json::json!({"circuitBreaker": {}})).await);
        assert_eq!((&nothing.breaker, &empty.breaker), (&BreakerTuning::default(), &BreakerTuning::default()));
        assert_eq!(nothing.address, empty.address);
        let given = of(serde_json::json!({"circuitBreaker": {
            "consecutiveFailures": 3, "openSeconds": 7, "maxRequestsInflight": 400, "maxRequestsInflightPerEndpoint": 200,
        }}))
        .await;
        let expected = BreakerTuning {
            consecutive_failures: 3,
            open_for: Duration::from_secs(7),
            max_in_flight: Some(400),
            max_in_flight_per_endpoint: Some(200),
        };
        assert_eq!(given.breaker, expected);
        assert_eq!(given.address, nothing.address, "it is reached in the same way");
    }

    #[tokio::test]
    async fn fingerprint_without_addresses_ignores_endpoint_changes() {
        let of = async |fields: serde_json::Value| {
            let (spec, _) = cluster_spec(&upstream(fields), Path::new("")).await.unwrap();
            (spec.address, spec.connection_fingerprint.unwrap())
        };
        let both = of(serde_json::json!({"endpoints": ["https://a", "https://b"], "insecureSkipVerify": true})).await;
        let other = of(serde_json::json!({"endpoints": ["https://c"], "insecureSkipVerify": true})).await;
        assert!(both.0 != other.0 && both.1 == other.1, "{both:?} {other:?}");
        let named = serde_json::json!({"endpoints": ["https://c"], "insecureSkipVerify": true, "tlsServerName": "d"});
        assert_ne!(of(named).await.1, other.1);
    }

    #[tokio::test]
    async fn new_credentials_keep_the_cluster_address() {
        let base = tempfile::tempdir().unwrap();
        std::fs::write(base.path().join("ca.pem"), authority()).unwrap();
        let fingerprints = async |token: &str, server: &str| {
            let given = upstream(serde_json::json!({
                "endpoints": [server], "caFile": "ca.pem", "credentials": {"token": token},
            }));
            let (spec, _) = cluster_spec(&given, base.path()).await.unwrap();
            (spec.address, spec.user_fingerprint)
        };
        let before = fingerprints("t", "https://a").await;
        let (renewed, moved) = (fingerprints("u", "https://a").await, fingerprints("t", "https://b").await);
        assert!(renewed.0 == before.0 && renewed.1 != before.1);
        assert!(moved.0 != before.0 && moved.1 == before.1);
    }

    #[tokio::test]
    async fn duplicate_endpoints_are_ignored() {
        let base = tempfile::tempdir().unwrap();
        let cluster = |endpoints: serde_json::Value| {
            upstream(serde_json::json!({ "endpoints": endpoints, "insecureSkipVerify": true }))
        };
        let given = cluster(serde_json::json!(["https://a", "https://b:6443", "https://a", "https://c"]));
        let (spec, _) = cluster_spec(&given, base.path()).await.unwrap();
        assert_eq!(spec.config.as_ref().unwrap().cluster_url.to_string(), "https://a/");
        let further: Vec<_> = spec.further_endpoints.iter().map(|more| more.url.to_string()).collect();
        assert_eq!(further, ["https://b:6443/", "https://c/"]);
        let (fewer, _) = cluster_spec(&cluster(serde_json::json!(["https://a"])), base.path()).await.unwrap();
        assert!(fewer.further_endpoints.is_empty());
        assert_ne!(fewer.address, spec.address, "a new endpoint is a new configuration");
    }

    #[tokio::test]
    async fn upstream_cluster_errors_name_the_invalid_field() {
        for (spec, expected) in [
            (serde_json::json!({"endpoints": ["https://a"], "caFile": "none.pem"}), "spec.caFile: the file"),
            (serde_json::json!({"endpoints": ["https://a"]}), "spec.caFile: the field is missing"),
            (serde_json::json!({"endpoints": ["nonsense"], "insecureSkipVerify": true}), "spec.endpoints[0]"),
            (
                serde_json::json!({"endpoints": ["https://a", "https://[b"], "insecureSkipVerify": true}),
                "spec.endpoints[1]",
            ),
            (
                serde_json::json!({"endpoints": ["https://a"], "insecureSkipVerify": true, "credentials": {"clientKeyData": "eA=="}}),
                "spec.credentials.clientCertificateFile: the field is missing",
            ),
            (serde_json::json!({"kubeconfig": {"path": "none"}}), "spec.kubeconfig.path"),
        ] {
            let base = tempfile::tempdir().unwrap();
            let error = cluster_spec(&upstream(spec), base.path()).await.err().unwrap();
            assert!(error.to_string().contains(expected), "{expected} in {error}");
        }
    }
}

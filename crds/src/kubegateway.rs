//! KubeGateway's own manifests (`proxy.kubegateway.io/v1alpha1`) as ours, and what differs.
//!
//! The source is kubewharf/kubegateway `pkg/apis/proxy/v1alpha1`: `upstreamcluster_types.go` has the fields,
//! `evaluation_helpers.go` how its rules match.

mod manifest;
mod rules;

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tributary_apimachinery::HostName;

use crate::{
    Credentials, Deny, Dispatch, DispatchPolicy, DispatchRule, EndpointProbe, Exempt, FlowControl, FlowControlSchema,
    LogMode, Logging, MaxRequestsInflight, SecretText, TokenBucket, UpstreamCluster, UpstreamClusterSpec,
};
use manifest::{ClientConfig, GatewayManifest, GatewayPolicy, GatewaySchema, GatewaySecureServing, Spec};

/// What `apiVersion` says in KubeGateway's manifests.
pub const API_VERSION: &str = "proxy.kubegateway.io/v1alpha1";

/// The annotation by which KubeGateway is told how to treat a cluster.
const FEATURE_GATES: &str = "proxy.kubegateway.io/feature-gates";

/// The longest name that a cluster may have.
const NAME_MAX: usize = 63;

/// A cluster of ours, and what is not as it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Converted {
    /// The cluster.
    pub cluster: UpstreamCluster,
    /// What differs or is lost, each with its path in the manifest. No secrets.
    pub differences: Vec<String>,
}

/// Why a document cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConversionError {
    /// It is an object of another kind.
    #[error(
        "apiVersion {api_version:?} with kind {kind:?} is no manifest of KubeGateway's clusters; UpstreamCluster of {API_VERSION} is"
    )]
    Kind {
        /// What `apiVersion` says.
        api_version: String,
        /// What `kind` says.
        kind: String,
    },
    /// A field has a type that it cannot have.
    #[error("a field of the UpstreamCluster has a type that it does not have in {API_VERSION}")]
    Field(#[source] serde_json::Error),
}

/// Whether a document is one of KubeGateway's clusters, by what it says it is.
pub fn is_manifest(document: &Value) -> bool {
    let says = |key: &str, text: &str| document.get(key).and_then(Value::as_str) == Some(text);
    says("apiVersion", API_VERSION) && says("kind", "UpstreamCluster")
}

/// Converts a manifest.
///
/// # Errors
/// [`ConversionError`].
pub fn convert(document: Value) -> Result<Converted, ConversionError> {
    if !is_manifest(&document) {
        let text_of = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        return Err(ConversionError::Kind { api_version: text_of("apiVersion"), kind: text_of("kind") });
    }
    let manifest: GatewayManifest = serde_json::from_value(document).map_err(ConversionError::Field)?;
    Ok(Conversion::default().cluster(manifest))
}

/// Collects what differs.
#[derive(Default)]
struct Conversion {
    differences: Vec<String>,
}

impl Conversion {
    fn differs(&mut self, path: &str, what: impl AsRef<str>) {
        self.differences.push(format!("{path}: {}", what.as_ref()));
    }

    fn unknown(&mut self, path: &str, rest: &BTreeMap<String, Value>) {
        for field in rest.keys() {
            self.differs(&format!("{path}.{field}"), "is no field that is known here; left out");
        }
    }

    fn cluster(mut self, manifest: GatewayManifest) -> Converted {
        let GatewayManifest { metadata, spec, .. } = manifest;
        let name = self.name(&metadata.name);
        let mut annotations = metadata.annotations;
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        let dispatch = self.feature_gates(annotations.remove(FEATURE_GATES).unwrap_or_default());
        let spec = self.spec(&metadata.name, spec, dispatch);
        let mut cluster = UpstreamCluster::new(&name, spec);
        cluster.metadata.labels = Some(metadata.labels).filter(|labels| !labels.is_empty());
        cluster.metadata.annotations = Some(annotations).filter(|annotations| !annotations.is_empty());
        Converted { cluster, differences: self.differences }
    }

    /// KubeGateway's clusters are named by hosts, ours by labels.
    fn name(&mut self, given: &str) -> String {
        let lower = given.to_lowercase();
        let label: String = lower
            .chars()
            .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
            .take(NAME_MAX)
            .collect();
        let label = label.trim_matches('-').to_owned();
        if label != given {
            self.differs("metadata.name", format!("{given:?} becomes {label:?}: a cluster's name is a DNS-1123 label"));
        }
        if label == crate::MERGED_ENDPOINT {
            self.differs("metadata.name", "\"all\" is the name of the merged view; give the cluster another one");
        }
        label
    }

    fn feature_gates(&mut self, gates: String) -> Dispatch {
        let path = format!("metadata.annotations[{FEATURE_GATES}]");
        let mut dispatch = Dispatch::Policies;
        for gate in gates.split(',').map(str::trim).filter(|gate| !gate.is_empty()) {
            let (name, value) = gate.split_once('=').unwrap_or((gate, "true"));
            let is_on = matches!(value.trim().to_lowercase().as_str(), "true" | "t" | "1");
            match (name.trim(), is_on) {
                (_, false) => {}
                ("DenyAllRequests", true) => dispatch = Dispatch::DenyAll,
                ("CloseConnectionWhenIdle", true) => {
                    self.differs(&path, "CloseConnectionWhenIdle has no counterpart: connections are kept; left out");
                }
                ("GlobalRateLimiter", true) => {
                    self.differs(&path, "GlobalRateLimiter is no matter of one cluster here; left out");
                }
                ("Tracing", true) => self.differs(&path, "Tracing is no matter of one cluster here; left out"),
                (other, true) => self.differs(&path, format!("{other:?} is not known here; left out")),
            }
        }
        dispatch
    }

    fn spec(&mut self, name: &str, spec: Spec, dispatch: Dispatch) -> UpstreamClusterSpec {
        self.unknown("spec", &spec.rest);
        let (mut endpoints, mut drained_endpoints) = (Vec::new(), Vec::new());
        for (index, server) in spec.servers.into_iter().enumerate() {
            let path = format!("spec.servers[{index}]");
            self.unknown(&path, &server.rest);
            if server.disabled {
                self.differs(&path, format!("{:?} is disabled: it is drained, and still probed", server.endpoint));
                drained_endpoints.push(server.endpoint.clone());
            }
            endpoints.push(server.endpoint);
        }
        let mut policies = Vec::new();
        let there_are_some = !spec.dispatch_policies.is_empty();
        for (index, policy) in spec.dispatch_policies.into_iter().enumerate() {
            policies.extend(self.policy(policy, &format!("spec.dispatchPolicies[{index}]"), &endpoints));
        }
        if policies.is_empty() {
            policies.push(self.nothing_is_dispatched(there_are_some));
        }
        self.unknown("spec.logging", &spec.logging.rest);
        let mode = self.log_mode(&spec.logging.mode, "spec.logging.mode");
        let (server_names, secure_serving) = self.hosts(name, spec.secure_serving);
        let connection = self.client_config(name, spec.client_config);
        self.tokens_and_extras();
        UpstreamClusterSpec {
            endpoints,
            drained_endpoints,
            // There the Host's cluster is asked about every bearer token.
            token_review: true,
            dispatch,
            dispatch_policies: policies,
            flow_control: self.flow_control(spec.flow_control),
            logging: Logging { mode },
            endpoint_probe: Some(probe()),
            server_names,
            secure_serving,
            ..connection
        }
    }

    /// The hosts at which clients reach the cluster: its name, where that is one, and those that are named beside; and
    /// how TLS is spoken there.
    fn hosts(&mut self, name: &str, serving: GatewaySecureServing) -> (Vec<String>, Option<crate::SecureServing>) {
        let path = "spec.secureServing";
        self.unknown(path, &serving.rest);
        let mut hosts: Vec<String> = Vec::new();
        for (host, path) in std::iter::once((name.to_owned(), "metadata.name".to_owned())).chain(
            serving
                .server_names
                .into_iter()
                .enumerate()
                .map(|(index, host)| (host, format!("{path}.serverNames[{index}]"))),
        ) {
            match host.parse::<HostName>() {
                Ok(_) if hosts.iter().any(|other| other.eq_ignore_ascii_case(&host)) => {}
                Ok(_) => hosts.push(host),
                Err(error) => {
                    self.differs(&path, format!("{host:?} {error}, so it is no host of serverNames; left out"))
                }
            }
        }
        let (has_certificate, has_key) = (serving.cert_data.is_some(), serving.key_data.is_some());
        if has_certificate != has_key {
            self.differs(path, "has a certificate without its key, or a key without its certificate; left out");
        }
        let is_whole = has_certificate && has_key;
        let converted = crate::SecureServing {
            certificate_data: serving.cert_data.filter(|_| is_whole),
            key_data: serving.key_data.filter(|_| is_whole).map(SecretText::new),
            client_ca_data: serving.client_ca_data,
            ..crate::SecureServing::default()
        };
        (hosts, Some(converted).filter(|converted| *converted != crate::SecureServing::default()))
    }

    fn client_config(&mut self, name: &str, config: ClientConfig) -> UpstreamClusterSpec {
        let path = "spec.clientConfig";
        self.unknown(path, &config.rest);
        for (field, value) in [("qps", config.qps), ("burst", config.burst), ("qpsDivisor", config.qps_divisor)] {
            if value != 0 {
                let what = "slows the gateway's own calls, which are few here; left out";
                self.differs(&format!("{path}.{field}"), what);
            }
        }
        if config.insecure && config.ca_data.is_some() {
            self.differs(&format!("{path}.caData"), "means nothing beside insecure: true; left out");
        }
        let tls_server_name = match config.server_name {
            Some(given) if !given.is_empty() => Some(given),
            _ if config.insecure => None,
            // What KubeGateway expects the certificate to say, where nothing else is given.
            _ => {
                let what = format!(
                    "is missing, and KubeGateway then expects certificates for {name:?}; written as tlsServerName"
                );
                self.differs(&format!("{path}.serverName"), what);
                Some(name.to_owned())
            }
        };
        let token = config.bearer_token.filter(|token| !token.is_empty()).and_then(|token| self.token(&token, path));
        let key = config.key_data.map(SecretText::new);
        let has_certificate = config.cert_data.is_some() || key.is_some();
        if has_certificate && token.is_some() {
            self.differs(
                &format!("{path}.certData"),
                "is given beside a token, and one way to authenticate is enough; left out",
            );
        }
        let (certificate, key) = if token.is_some() { (None, None) } else { (config.cert_data, key) };
        let has_credentials = token.is_some() || certificate.is_some() || key.is_some();
        let credentials =
            Credentials { token, client_certificate_data: certificate, client_key_data: key, ..Credentials::default() };
        UpstreamClusterSpec {
            ca_data: config.ca_data.filter(|_| !config.insecure),
            insecure_skip_verify: config.insecure,
            tls_server_name,
            credentials: has_credentials.then_some(credentials),
            ..UpstreamClusterSpec::default()
        }
    }

    /// What is needed to know clients by tokens, and what of a user the cluster is told. No field of a manifest says
    /// either.
    fn tokens_and_extras(&mut self) {
        let path = "spec.clientConfig";
        self.differs(
            path,
            "clients' bearer tokens are reviewed by the cluster, as there, where many users are served and in no other \
             mode (tokenReview: true); its account needs create on tokenreviews.authentication.k8s.io, and impersonate on \
             serviceaccounts and on the uids and userextras that reviews name",
        );
        self.differs(
            path,
            "a user's extras are told to the cluster that said them in its review; other extras only where \
             impersonation.extra names them, and its account may impersonate these",
        );
    }

    /// Their token is base64, ours is the text.
    fn token(&mut self, token: &str, path: &str) -> Option<SecretText> {
        let bytes = STANDARD.decode(token.split_ascii_whitespace().collect::<String>()).ok();
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        if text.is_none() {
            self.differs(&format!("{path}.bearerToken"), "is not base64 of a text; left out");
        }
        text.map(|text| SecretText::new(text.trim()))
    }

    fn flow_control(&mut self, control: manifest::GatewayFlowControl) -> FlowControl {
        self.unknown("spec.flowControl", &control.rest);
        let schemas = control.flow_control_schemas.into_iter().enumerate();
        let converted = schemas
            .map(|(index, schema)| self.schema(schema, &format!("spec.flowControl.flowControlSchemas[{index}]")))
            .collect();
        FlowControl { flow_control_schemas: converted }
    }

    fn schema(&mut self, schema: GatewaySchema, path: &str) -> FlowControlSchema {
        self.unknown(path, &schema.rest);
        let is_global = !matches!(schema.strategy.as_str(), "" | "local");
        if is_global || schema.global_max_requests_inflight.is_some() || schema.global_token_bucket.is_some() {
            let what = "a limit over all replicas is left out; the local one stands, for each process, or with --replica-count \
                 for all of them together";
            self.differs(path, what);
        }
        let inflight = schema.max_requests_inflight.map(|limit| MaxRequestsInflight {
            max: self.count(limit.max, &format!("{path}.maxRequestsInflight.max"), 0),
            // There a watch holds its place like any other request.
            count_long_running: true,
            ..MaxRequestsInflight::default()
        });
        let bucket = schema.token_bucket.map(|bucket| TokenBucket {
            qps: self.count(bucket.qps, &format!("{path}.tokenBucket.qps"), 1),
            burst: (bucket.burst != 0).then(|| self.count(bucket.burst, &format!("{path}.tokenBucket.burst"), 1)),
            ..TokenBucket::default()
        });
        FlowControlSchema {
            name: schema.name,
            exempt: schema.exempt.map(|_| Exempt {}),
            max_requests_inflight: inflight,
            token_bucket: bucket,
        }
    }

    fn count(&mut self, given: i64, path: &str, least: u32) -> u32 {
        match u32::try_from(given) {
            Ok(count) if count >= least => count,
            _ => {
                self.differs(path, format!("{given} is no limit; written as {least}"));
                least
            }
        }
    }

    /// The policy of a cluster of which no policy ever takes a request. KubeGateway sends it nothing
    /// (`ErrNoRouterRuleMatches`), and here a cluster without policies is sent everything.
    fn nothing_is_dispatched(&mut self, there_are_some: bool) -> DispatchPolicy {
        let why = if there_are_some { "none of them ever matches here" } else { "is empty" };
        let what = "so that KubeGateway sends the cluster nothing, and here everything would go on: a policy that denies \
                    everything is written; put what is meant in its place";
        self.differs("spec.dispatchPolicies", format!("{why}, {what}"));
        let all = || vec!["*".to_owned()];
        let rule = DispatchRule {
            verbs: all(),
            api_groups: all(),
            resources: all(),
            non_resource_urls: all(),
            ..DispatchRule::default()
        };
        let message = "no dispatch policy of this cluster's KubeGateway manifest takes any request; its administrator \
                       writes one into spec.dispatchPolicies"
            .to_owned();
        DispatchPolicy { rules: vec![rule], deny: Some(Deny { message }), ..DispatchPolicy::default() }
    }

    /// A policy; none where no request could ever match its rules.
    fn policy(&mut self, policy: GatewayPolicy, path: &str, endpoints: &[String]) -> Option<DispatchPolicy> {
        self.unknown(path, &policy.rest);
        if !matches!(policy.strategy.as_str(), "" | "RoundRobin") {
            self.differs(&format!("{path}.strategy"), format!("{:?} is not known here; left out", policy.strategy));
        }
        let rules: Vec<_> = policy
            .rules
            .into_iter()
            .enumerate()
            .filter_map(|(index, rule)| self.rule(rule, &format!("{path}.rules[{index}]")))
            .collect();
        if rules.is_empty() {
            self.differs(path, "has no rule that ever matches here; left out");
            return None;
        }
        // The documentation has the field misspelled, the code has not.
        let subset = [policy.upstream_subset, policy.upsteam_subset].concat();
        let (known, other): (Vec<_>, Vec<_>) = subset.iter().cloned().partition(|one| endpoints.contains(one));
        if !other.is_empty() {
            let what = format!("{} is no server of the cluster; left out", other.join(", "));
            self.differs(&format!("{path}.upstreamSubset"), what);
        }
        let log_mode = self.log_mode(&policy.log_mode, &format!("{path}.logMode"));
        // An empty subset would be all endpoints.
        let deny = (!subset.is_empty() && known.is_empty()).then(|| {
            self.differs(path, "none of its upstreamSubset is a server of the cluster, so its requests are denied");
            Deny { message: "there is no endpoint that these requests may be sent to".to_owned() }
        });
        let schema = Some(policy.flow_control_schema_name).filter(|name| !name.is_empty() && deny.is_none());
        Some(DispatchPolicy {
            rules,
            deny,
            endpoints: known,
            flow_control_schema_name: schema,
            log_mode,
            ..DispatchPolicy::default()
        })
    }

    fn log_mode(&mut self, mode: &Value, path: &str) -> Option<LogMode> {
        match mode {
            // Without quotes YAML makes booleans of the words.
            Value::Bool(true) => Some(LogMode::Enabled),
            Value::Bool(false) => Some(LogMode::Disabled),
            Value::String(text) if text == "on" => Some(LogMode::Enabled),
            Value::String(text) if text == "off" => Some(LogMode::Disabled),
            Value::Null => None,
            Value::String(text) if text.is_empty() => None,
            other => {
                self.differs(path, format!("{other} is neither on nor off; left out"));
                None
            }
        }
    }
}

/// How KubeGateway probes: each 5 s, and one answer is enough.
fn probe() -> EndpointProbe {
    EndpointProbe {
        path: "/healthz".to_owned(),
        period_seconds: 5,
        timeout_seconds: 5,
        success_threshold: 1,
        failure_threshold: 1,
    }
}

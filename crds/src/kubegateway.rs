//! Converts manifests of KubeGateway (`proxy.kubegateway.io/v1alpha1`), and lists the differences.
//!
//! Source: kubewharf/kubegateway `pkg/apis/proxy/v1alpha1`. `upstreamcluster_types.go` has the fields, and
//! `evaluation_helpers.go` the evaluation of rules.

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

/// The `apiVersion` of KubeGateway's manifests.
pub const API_VERSION: &str = "proxy.kubegateway.io/v1alpha1";

/// The annotation of a KubeGateway cluster with its feature gates.
const FEATURE_GATES: &str = "proxy.kubegateway.io/feature-gates";

/// The maximum length of a cluster name, in characters.
const NAME_MAX: usize = 63;

/// A converted cluster, and the list of its differences from the manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Converted {
    /// The UpstreamCluster of Tributary.
    pub cluster: UpstreamCluster,
    /// The differences between the manifest and the converted cluster, including settings that the conversion drops.
    /// Each text names the path in the manifest. The texts contain no secrets.
    pub differences: Vec<String>,
}

/// An error in the conversion of a manifest.
#[derive(Debug, thiserror::Error)]
pub enum ConversionError {
    /// The document is an object of a different kind.
    #[error("apiVersion {api_version:?} with kind {kind:?} is not supported; give an UpstreamCluster of {API_VERSION}")]
    Kind {
        /// The `apiVersion` of the document.
        api_version: String,
        /// The `kind` of the document.
        kind: String,
    },
    /// A field has the wrong type.
    #[error("a field of the UpstreamCluster has the wrong type for {API_VERSION}")]
    Field(#[source] serde_json::Error),
}

/// Returns whether a document is an UpstreamCluster of KubeGateway, according to its `apiVersion` and `kind`.
pub fn is_manifest(document: &Value) -> bool {
    let says = |key: &str, text: &str| document.get(key).and_then(Value::as_str) == Some(text);
    says("apiVersion", API_VERSION) && says("kind", "UpstreamCluster")
}

/// Converts a KubeGateway manifest to an UpstreamCluster of Tributary.
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

#[derive(Default)]
struct Conversion {
    differences: Vec<String>,
}

impl Conversion {
    fn add_difference(&mut self, path: &str, what: impl AsRef<str>) {
        self.differences.push(format!("{path}: {}", what.as_ref()));
    }

    fn unknown(&mut self, path: &str, rest: &BTreeMap<String, Value>) {
        for field in rest.keys() {
            self.add_difference(&format!("{path}.{field}"), "unknown field; removed");
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

    /// Converts the name of the cluster. KubeGateway names clusters by hosts, Tributary by DNS labels.
    fn name(&mut self, given: &str) -> String {
        let lower = given.to_lowercase();
        let label: String = lower
            .chars()
            .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
            .take(NAME_MAX)
            .collect();
        let label = label.trim_matches('-').to_owned();
        if label != given {
            self.add_difference(
                "metadata.name",
                format!("{given:?} becomes {label:?}, because the name of a cluster is a DNS-1123 label"),
            );
        }
        if label == crate::MERGED_ENDPOINT {
            self.add_difference(
                "metadata.name",
                "\"all\" is the name of the merged view; give the cluster a different name",
            );
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
                    self.add_difference(
                        &path,
                        "CloseConnectionWhenIdle is not supported, because Tributary keeps connections open; removed",
                    );
                }
                ("GlobalRateLimiter", true) => {
                    self.add_difference(
                        &path,
                        "GlobalRateLimiter is not a setting of a single cluster in Tributary; removed",
                    );
                }
                ("Tracing", true) => {
                    self.add_difference(&path, "Tracing is not a setting of a single cluster in Tributary; removed")
                }
                (other, true) => self.add_difference(&path, format!("unknown feature gate {other:?}; removed")),
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
                self.add_difference(
                    &path,
                    format!(
                        "{:?} is disabled; it becomes a drained endpoint, which Tributary still probes",
                        server.endpoint
                    ),
                );
                drained_endpoints.push(server.endpoint.clone());
            }
            endpoints.push(server.endpoint);
        }
        let mut policies = Vec::new();
        let has_policies = !spec.dispatch_policies.is_empty();
        for (index, policy) in spec.dispatch_policies.into_iter().enumerate() {
            policies.extend(self.policy(policy, &format!("spec.dispatchPolicies[{index}]"), &endpoints));
        }
        if policies.is_empty() {
            policies.push(self.deny_all_policy(has_policies));
        }
        self.unknown("spec.logging", &spec.logging.rest);
        let mode = self.log_mode(&spec.logging.mode, "spec.logging.mode");
        let (server_names, secure_serving) = self.hosts(name, spec.secure_serving);
        let connection = self.client_config(name, spec.client_config);
        self.tokens_and_extras();
        UpstreamClusterSpec {
            endpoints,
            drained_endpoints,
            // KubeGateway authenticates every bearer token at the cluster of the request's host.
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

    /// Converts the hosts of the cluster and the TLS settings of these hosts. The hosts are the cluster's name (if the
    /// name is a host) and `serverNames`.
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
                Err(error) => self
                    .add_difference(&path, format!("{host:?} {error}, so it cannot be a host of serverNames; removed")),
            }
        }
        let (has_certificate, has_key) = (serving.cert_data.is_some(), serving.key_data.is_some());
        if has_certificate != has_key {
            self.add_difference(path, "has a certificate without its key, or a key without its certificate; removed");
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
                let what = "limits the requests of the gateway itself, which Tributary does not limit; removed";
                self.add_difference(&format!("{path}.{field}"), what);
            }
        }
        if config.insecure && config.ca_data.is_some() {
            self.add_difference(&format!("{path}.caData"), "has no effect with insecure: true; removed");
        }
        let tls_server_name = match config.server_name {
            Some(given) if !given.is_empty() => Some(given),
            _ if config.insecure => None,
            // KubeGateway expects the cluster's name in the certificate if the manifest has no `serverName`.
            _ => {
                let what = format!(
                    "is missing, and KubeGateway then expects certificates for {name:?}; tlsServerName is set to this name"
                );
                self.add_difference(&format!("{path}.serverName"), what);
                Some(name.to_owned())
            }
        };
        let token = config.bearer_token.filter(|token| !token.is_empty()).and_then(|token| self.token(&token, path));
        let key = config.key_data.map(SecretText::new);
        let has_certificate = config.cert_data.is_some() || key.is_some();
        if has_certificate && token.is_some() {
            self.add_difference(
                &format!("{path}.certData"),
                "is given together with a token, and only the token is used; removed",
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

    /// Reports differences for bearer tokens and extras, which no field of a manifest mentions.
    fn tokens_and_extras(&mut self) {
        let path = "spec.clientConfig";
        self.add_difference(
            path,
            "the cluster reviews bearer tokens of clients, as in KubeGateway, but only in shared mode (tokenReview: true); \
             Tributary's account needs create on tokenreviews.authentication.k8s.io, and impersonate on serviceaccounts \
             and on the uids and userextras of the reviews",
        );
        self.add_difference(
            path,
            "the cluster receives the extras of a user that its own review returned; add all further extras to \
             impersonation.extra, and give Tributary's account the right to impersonate them",
        );
    }

    /// Decodes a token, which is base64 in KubeGateway and plain text in Tributary.
    fn token(&mut self, token: &str, path: &str) -> Option<SecretText> {
        let bytes = STANDARD.decode(token.split_ascii_whitespace().collect::<String>()).ok();
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        if text.is_none() {
            self.add_difference(&format!("{path}.bearerToken"), "is not base64 of a text; removed");
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
            let what = "the limit over all replicas is removed; the local limit applies to each replica, or with --replica-count \
                 to all replicas together";
            self.add_difference(path, what);
        }
        let inflight = schema.max_requests_inflight.map(|limit| MaxRequestsInflight {
            max: self.count(limit.max, &format!("{path}.maxRequestsInflight.max"), 0),
            // In KubeGateway, a watch counts against the limit like any request.
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
                self.add_difference(path, format!("{given} is not a valid limit; set to {least}"));
                least
            }
        }
    }

    /// Returns a policy that denies all requests to the cluster. The policy is necessary if the cluster's policies
    /// never match: KubeGateway then refuses all requests (`ErrNoRouterRuleMatches`), but Tributary allows all requests
    /// to a cluster without policies.
    fn deny_all_policy(&mut self, has_policies: bool) -> DispatchPolicy {
        let why = if has_policies { "no policy ever matches" } else { "is empty" };
        let what = "so KubeGateway refuses all requests, but Tributary would allow all; a policy that denies all \
                    requests is added; replace it by the policies that you need";
        self.add_difference("spec.dispatchPolicies", format!("{why}, {what}"));
        let all = || vec!["*".to_owned()];
        let rule = DispatchRule {
            verbs: all(),
            api_groups: all(),
            resources: all(),
            non_resource_urls: all(),
            ..DispatchRule::default()
        };
        let message = "no dispatch policy in the KubeGateway manifest of this cluster matches any request; ask the \
                       administrator to add policies to spec.dispatchPolicies"
            .to_owned();
        DispatchPolicy { rules: vec![rule], deny: Some(Deny { message }), ..DispatchPolicy::default() }
    }

    /// Converts a policy; `None` if its rules can never match.
    fn policy(&mut self, policy: GatewayPolicy, path: &str, endpoints: &[String]) -> Option<DispatchPolicy> {
        self.unknown(path, &policy.rest);
        if !matches!(policy.strategy.as_str(), "" | "RoundRobin") {
            self.add_difference(
                &format!("{path}.strategy"),
                format!("unknown strategy {:?}; removed", policy.strategy),
            );
        }
        let rules: Vec<_> = policy
            .rules
            .into_iter()
            .enumerate()
            .filter_map(|(index, rule)| self.rule(rule, &format!("{path}.rules[{index}]")))
            .collect();
        if rules.is_empty() {
            self.add_difference(path, "has no rule that can match; removed");
            return None;
        }
        // The documentation of KubeGateway misspells the field, and the code does not.
        let subset = [policy.upstream_subset, policy.upsteam_subset].concat();
        let (known, other): (Vec<_>, Vec<_>) = subset.iter().cloned().partition(|one| endpoints.contains(one));
        if !other.is_empty() {
            let what = format!("{} is not a server of the cluster; removed", other.join(", "));
            self.add_difference(&format!("{path}.upstreamSubset"), what);
        }
        let log_mode = self.log_mode(&policy.log_mode, &format!("{path}.logMode"));
        // If no endpoint of the subset exists, the converted policy must deny requests. A policy without endpoints
        // would apply to all endpoints.
        let deny = (!subset.is_empty() && known.is_empty()).then(|| {
            self.add_difference(
                path,
                "no entry of upstreamSubset is a server of the cluster, so the policy denies its requests",
            );
            Deny { message: "the policy for this request has no endpoint".to_owned() }
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
            // YAML reads the unquoted words `on` and `off` as booleans.
            Value::Bool(true) => Some(LogMode::Enabled),
            Value::Bool(false) => Some(LogMode::Disabled),
            Value::String(text) if text == "on" => Some(LogMode::Enabled),
            Value::String(text) if text == "off" => Some(LogMode::Disabled),
            Value::Null => None,
            Value::String(text) if text.is_empty() => None,
            other => {
                self.add_difference(path, format!("{other} is neither on nor off; removed"));
                None
            }
        }
    }
}

/// Returns KubeGateway's health check: every 5 s, and one result changes the health.
fn probe() -> EndpointProbe {
    EndpointProbe {
        path: "/healthz".to_owned(),
        period_seconds: 5,
        timeout_seconds: 5,
        success_threshold: 1,
        failure_threshold: 1,
    }
}

//! `UpstreamCluster`: the address, credentials and policies of a cluster.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tributary_apimachinery::ClusterAuthorization;

use crate::flow_control::NAMED_SCHEMAS_EXIST;
use crate::patterns::{ENDPOINT, NO_FILES_OR_SECRETS, NO_FILES_OR_SECRETS_MESSAGE, PROXY, SERVER_NAME};
use crate::{
    CircuitBreaker, Dispatch, DispatchPolicy, EndpointProbe, FlowControl, Logging, SecretText, UpstreamClusterStatus,
};

/// The greatest [`UpstreamClusterSpec::index`]. 9,999: integer item versions have four decimal digits for the index.
pub const INDEX_MAX: u16 = 9_999;

/// The annotation with the uid of the namespace kube-system, which identifies the cluster. `tributary join` sets it.
pub const CLUSTER_UID: &str = "tributary.dev/cluster-uid";

/// The address, credentials and policies of a cluster. The name of the object is the name of the cluster. Registries
/// select clusters by its labels.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tributary.dev",
    version = "v1alpha1",
    kind = "UpstreamCluster",
    plural = "upstreamclusters",
    shortname = "upc",
    category = "tributary",
    derive = "PartialEq",
    status = "UpstreamClusterStatus",
    doc = "The address, credentials and policies of a cluster. The name of the object is the name of the cluster. ResourceRegistries select clusters by its labels.",
    validation = Rule::new("self.metadata.name != 'all' && size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')").message("the name of a cluster must have at most 63 characters and no dot, and must not be all, the name of the merged view"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Synced", type_ = "string", json_path = ".status.synced"),
    printcolumn(name = "Objects", type_ = "string", json_path = ".status.objects"),
    printcolumn(name = "Stale", type_ = "date", json_path = ".status.staleSince"),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".spec.endpoints[0]", priority = 1),
    printcolumn(name = "Index", type_ = "integer", json_path = ".spec.index", priority = 1),
    printcolumn(name = "Context", type_ = "string", json_path = ".spec.kubeconfig.context", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.kubeconfig) != (has(self.endpoints) && size(self.endpoints) > 0)",
     "message": "give exactly one of endpoints and kubeconfig"},
    {"rule": "!has(self.kubeconfig) || !(has(self.caData) || has(self.caFile) || has(self.tlsServerName) || has(self.proxyURL) || has(self.credentials) || (has(self.insecureSkipVerify) && self.insecureSkipVerify))",
     "message": "with kubeconfig, remove caData, caFile, tlsServerName, proxyURL, credentials and insecureSkipVerify; the kubeconfig has these settings"},
    {"rule": "!has(self.drainedEndpoints) || size(self.drainedEndpoints) == 0 || (has(self.endpoints) && size(self.endpoints) > 0)",
     "message": "drainedEndpoints must be entries of endpoints, which is empty"},
    {"rule": "!(has(self.caData) && has(self.caFile))",
     "message": "caData and caFile are both set; remove one of them"},
    {"rule": NO_FILES_OR_SECRETS, "message": NO_FILES_OR_SECRETS_MESSAGE},
    {"rule": "!has(self.endpoints) || self.endpoints.all(e, e.startsWith('https://') && !e.contains('@'))",
     "message": "objects in a hub need https:// endpoints without user and password"},
    {"rule": "!(has(self.proxyURL) && self.proxyURL.contains('@'))",
     "message": "proxyURL contains a user or a password, which an object in a hub may not contain"},
    {"rule": "has(self.kubeconfig) || has(self.caData) || has(self.caFile) || has(self.secretRef) || (has(self.insecureSkipVerify) && self.insecureSkipVerify)",
     "message": "the certificates of the servers cannot be verified; give caData, or secretRef with ca.crt"},
    {"rule": "!((has(self.caData) || has(self.caFile)) && has(self.insecureSkipVerify) && self.insecureSkipVerify)",
     "message": "insecureSkipVerify contradicts caData and caFile; remove one of them"},
    {"rule": "!(has(self.tokenPassThrough) && self.tokenPassThrough && has(self.insecureSkipVerify) && self.insecureSkipVerify)",
     "message": "tokenPassThrough would send tokens of users to unverified servers; give caData or caFile, or remove tokenPassThrough"},
    {"rule": "!has(self.secureServing) || (has(self.serverNames) && size(self.serverNames) > 0)",
     "message": "secureServing needs serverNames, which is empty"},
    {"rule": NAMED_SCHEMAS_EXIST,
     "message": "flowControlSchemaName must be a name in flowControl.flowControlSchemas"}
]))]
pub struct UpstreamClusterSpec {
    /// The servers of the cluster, each `https://host:port`. Requests are balanced over the healthy servers. A server
    /// that is removed from the list gets no new requests, and requests in flight continue. Required without
    /// `kubeconfig`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 2048), regex(pattern = ENDPOINT)))]
    pub endpoints: Vec<String>,
    /// Entries of `endpoints` that are drained for maintenance. A drained endpoint is probed, but gets no new requests;
    /// requests in flight continue for up to an hour. If all endpoints are drained, forwarded requests are refused
    /// (503), and reads from the cache continue.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drained_endpoints: Vec<String>,
    /// Certificate authorities of the servers: base64 of PEM text, as in a kubeconfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_data: Option<String>,
    /// A file with the certificate authorities of the servers, in PEM form. Reloaded when it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
    /// Disables verification of server certificates. Anyone on the network path can then read and change all data.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure_skip_verify: bool,
    /// The expected name in the servers' certificates, if it differs from the host of the endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_server_name: Option<String>,
    /// The credentials of Tributary in the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
    /// A Secret of the hub with the credentials of Tributary in the cluster. Only for objects in a hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
    /// A kubeconfig context with endpoint, certificate authorities and credentials. It replaces the fields for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<KubeconfigReference>,
    /// The number of the cluster in integer item versions. Unique; never reuse it for a different cluster. Required if
    /// a ResourceRegistry with `itemResourceVersions: Integer` selects the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 0, max = 9999))]
    pub index: Option<u16>,
    /// User information, besides name and groups, that the cluster receives in shared mode.
    #[serde(skip_serializing_if = "ImpersonationRules::is_default")]
    pub impersonation: ImpersonationRules,
    /// The source of access rules for cached objects of the cluster in shared mode. `RBAC`: its roles and bindings.
    /// `Review`: SubjectAccessReviews to the cluster. `Auto`: its roles and bindings if they alone decide in this
    /// cluster, otherwise SubjectAccessReviews. `Live`: cached objects are not shown; gets are forwarded, and users
    /// list under `/clusters/<name>`.
    #[serde(skip_serializing_if = "is_auto")]
    pub authorization: ClusterAuthorization,
    /// Whether the cluster reviews (TokenReview) bearer tokens of requests under `/clusters/<name>` and to
    /// `serverNames`, in shared mode. Its users are known in this cluster only. It never reviews tokens of configured
    /// issuers.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub token_review: bool,
    /// Whether requests under `/clusters/<name>` and to `serverNames` reach the cluster with the user's own bearer
    /// token, without impersonation, if the cluster authenticated the token (a ServiceAccount token, or `tokenReview`).
    /// Needs https endpoints with verified certificates.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub token_pass_through: bool,
    /// DNS names at which `/` is the API of this cluster, as `/clusters/<name>` is. A name can belong to only one
    /// cluster, and not to `--merged-host`. If any cluster has such a name, requests to unknown host names are answered
    /// 503.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(max = 253), regex(pattern = SERVER_NAME)))]
    pub server_names: Vec<String>,
    /// TLS settings for `serverNames` that differ from the settings for the remaining hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secure_serving: Option<SecureServing>,
    /// `Policies`: `dispatchPolicies` apply. `DenyAll`, for emergencies: requests for the cluster are answered 429
    /// before authentication, and reads from the cache continue. Tributary's own requests and TokenReviews for other
    /// requests still reach the cluster, at a limited rate.
    #[serde(skip_serializing_if = "Dispatch::is_by_policies")]
    pub dispatch: Dispatch,
    /// Policies for requests to the cluster. The first policy with a matching rule applies. They apply under
    /// `/clusters/<name>`, and in the merged view to requests that reach the cluster or read its objects. Without
    /// policies, all requests are allowed. With policies, a request without a matching policy is refused (500).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub dispatch_policies: Vec<DispatchPolicy>,
    /// Limits for requests.
    #[serde(skip_serializing_if = "FlowControl::is_empty")]
    pub flow_control: FlowControl,
    /// The requests to write to the access log.
    #[serde(skip_serializing_if = "Logging::is_empty")]
    pub logging: Logging,
    /// The health check of each endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_probe: Option<EndpointProbe>,
    /// The circuit breaker of each endpoint, and limits for requests in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub circuit_breaker: Option<CircuitBreaker>,
    /// A proxy to the servers: `http://`, `https://`, `socks5://` or `socks5h://`. Not with `kubeconfig`, which has
    /// `proxy-url`.
    #[serde(rename = "proxyURL", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = PROXY))]
    pub proxy_url: Option<String>,
}

fn is_auto(authorization: &ClusterAuthorization) -> bool {
    *authorization == ClusterAuthorization::Auto
}

/// User information, besides name and groups, that the cluster receives. The cluster that authenticated a user receives
/// all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ImpersonationRules {
    /// Whether the cluster receives the uid. Tributary's account needs the verb `impersonate` on `uids`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub uid: bool,
    /// Keys of the extras that the cluster receives, in lower case. Tributary's account needs the verb `impersonate` on
    /// `userextras/KEY`. Keys of kubernetes.io and k8s.io are not allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = "^[^A-Z]+$")))]
    pub extra: Vec<String>,
}

impl ImpersonationRules {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// TLS settings for the cluster's own hosts. Data is base64 of PEM text, as in a kubeconfig.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!(has(self.certificateData) && has(self.certificateFile)) && !(has(self.keyData) && has(self.keyFile)) && !(has(self.clientCAData) && has(self.clientCAFile))",
     "message": "a value is given both as data and as a file; remove one of them"},
    {"rule": "(has(self.certificateData) || has(self.certificateFile)) == (has(self.keyData) || has(self.keyFile))",
     "message": "give a serving certificate and its key together"}
]))]
pub struct SecureServing {
    /// The serving certificate, followed by its intermediates. If unset, `--tls-cert-file` is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_data: Option<String>,
    /// A file with the serving certificate. Reloaded when it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_file: Option<String>,
    /// The key of the serving certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_data: Option<SecretText>,
    /// A file with the key. Reloaded when it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<String>,
    /// Certificate authorities for clients at these hosts, in place of `--client-ca-file`. Their users are known in
    /// this cluster only. Enables shared mode.
    #[serde(rename = "clientCAData", skip_serializing_if = "Option::is_none")]
    pub client_ca_data: Option<String>,
    /// A file with the certificate authorities for clients. Reloaded when it changes.
    #[serde(rename = "clientCAFile", skip_serializing_if = "Option::is_none")]
    pub client_ca_file: Option<String>,
}

/// A bearer token, or a client certificate with its key. Data is base64 of PEM text, as in a kubeconfig.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!(has(self.token) && has(self.tokenFile)) && !(has(self.clientCertificateData) && has(self.clientCertificateFile)) && !(has(self.clientKeyData) && has(self.clientKeyFile))",
     "message": "a value is given both as data and as a file; remove one of them"},
    {"rule": "(has(self.clientCertificateData) || has(self.clientCertificateFile)) == (has(self.clientKeyData) || has(self.clientKeyFile))",
     "message": "give a client certificate and its key together"},
    {"rule": "!((has(self.token) || has(self.tokenFile)) && (has(self.clientCertificateData) || has(self.clientCertificateFile)))",
     "message": "a token and a client certificate are both set; remove one of them"}
]))]
pub struct Credentials {
    /// A bearer token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<SecretText>,
    /// A file with a bearer token. Reloaded when it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<String>,
    /// A client certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificate_data: Option<String>,
    /// A file with a client certificate. Reloaded when it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificate_file: Option<String>,
    /// The key of the client certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key_data: Option<SecretText>,
    /// A file with the key. Reloaded when it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key_file: Option<String>,
}

/// A Secret with credentials, and its keys. Without keys, the keys `token`, `tls.crt`, `tls.key` and `ca.crt` apply if
/// the Secret has them. A key that is named must exist.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.certificateKey) == has(self.keyKey)",
     "message": "name the keys of a client certificate and of its key together"},
    {"rule": "!(has(self.tokenKey) && has(self.certificateKey))",
     "message": "tokenKey and certificateKey are both set; remove one of them"}
]))]
pub struct SecretReference {
    /// The name of the Secret, in the namespace of `--hub-secret-namespace`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key with a bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub token_key: Option<String>,
    /// The key with a client certificate in PEM form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub certificate_key: Option<String>,
    /// The key with the private key of the client certificate in PEM form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub key_key: Option<String>,
    /// The key with the certificate authorities of the servers in PEM form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub ca_key: Option<String>,
}

/// A context of a kubeconfig.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeconfigReference {
    /// The path of the kubeconfig. Reloaded when it changes.
    #[schemars(length(min = 1))]
    pub path: String,
    /// The context. The current context if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

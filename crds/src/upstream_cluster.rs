//! `UpstreamCluster`: how a member cluster is reached.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tributary_apimachinery::ClusterAuthorization;

use crate::flow_control::NAMED_SCHEMAS_ARE_THERE;
use crate::patterns::{ENDPOINT, PROXY, SERVER_NAME};
use crate::{
    CircuitBreaker, ConfigurationStatus, Dispatch, DispatchPolicy, EndpointProbe, FlowControl, Logging, SecretText,
};

/// The greatest [`UpstreamClusterSpec::index`]: integer item versions leave it four decimal digits.
pub const INDEX_MAX: u16 = 9_999;

/// The annotation with the uid of the cluster's namespace kube-system, which tells clusters apart.
/// `tributary join` sets it.
pub const CLUSTER_UID: &str = "tributary.dev/cluster-uid";

/// How one member cluster is reached. The object's name is the cluster's name, its labels are what
/// registries select by.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tributary.dev",
    version = "v1alpha1",
    kind = "UpstreamCluster",
    plural = "upstreamclusters",
    shortname = "upc",
    category = "tributary",
    derive = "PartialEq",
    status = "ConfigurationStatus",
    doc = "How one member cluster is reached. The object's name is the cluster's name; its labels are what a ResourceRegistry selects by.",
    validation = Rule::new("self.metadata.name != 'all' && size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')").message("a cluster's name has at most 63 characters and no dot, and is not all, which names the merged view"),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".spec.endpoints[0]"),
    printcolumn(name = "Index", type_ = "integer", json_path = ".spec.index"),
    printcolumn(name = "Context", type_ = "string", json_path = ".spec.kubeconfig.context", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.kubeconfig) != (has(self.endpoints) && size(self.endpoints) > 0)",
     "message": "give endpoints or kubeconfig, one of the two"},
    {"rule": "!has(self.kubeconfig) || !(has(self.caData) || has(self.caFile) || has(self.tlsServerName) || has(self.proxyURL) || has(self.credentials) || (has(self.insecureSkipVerify) && self.insecureSkipVerify))",
     "message": "a kubeconfig has caData, caFile, tlsServerName, proxyURL, credentials and insecureSkipVerify itself; remove them"},
    {"rule": "!has(self.drainedEndpoints) || size(self.drainedEndpoints) == 0 || (has(self.endpoints) && size(self.endpoints) > 0)",
     "message": "drainedEndpoints are some of endpoints, of which there are none"},
    {"rule": "!(has(self.caData) && has(self.caFile))",
     "message": "caData and caFile are both given; remove one of the two"},
    {"rule": "has(self.kubeconfig) || has(self.caData) || has(self.caFile) || (has(self.insecureSkipVerify) && self.insecureSkipVerify)",
     "message": "the servers cannot be checked; give caData or caFile"},
    {"rule": "!((has(self.caData) || has(self.caFile)) && has(self.insecureSkipVerify) && self.insecureSkipVerify)",
     "message": "insecureSkipVerify contradicts the certificate authorities that are given; remove one of the two"},
    {"rule": "!(has(self.tokenPassThrough) && self.tokenPassThrough && has(self.insecureSkipVerify) && self.insecureSkipVerify)",
     "message": "tokenPassThrough sends users' tokens to servers that are not checked; give caData or caFile, or remove it"},
    {"rule": "!has(self.secureServing) || (has(self.serverNames) && size(self.serverNames) > 0)",
     "message": "secureServing is for the hosts of serverNames, of which there are none"},
    {"rule": NAMED_SCHEMAS_ARE_THERE,
     "message": "flowControlSchemaName names none of flowControl.flowControlSchemas"}
]))]
pub struct UpstreamClusterSpec {
    /// The cluster's servers, `https://host:port` each. Requests are balanced over those that are healthy. One that is
    /// taken out of the list is sent nothing more, and what is under way there may end. Required unless `kubeconfig` is
    /// given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = ENDPOINT)))]
    pub endpoints: Vec<String>,
    /// Those of `endpoints` that are drained, for maintenance: each is sent nothing new, is still probed, and what is
    /// under way there may end, for an hour at most. Nothing else changes. Where all are drained requests are refused
    /// (503), and what is held of the cluster in memory is still read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drained_endpoints: Vec<String>,
    /// The certificate authorities that the servers' certificates are checked against: base64 of PEM text, as in a
    /// kubeconfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_data: Option<String>,
    /// A file with the certificate authorities in PEM form. Read again when it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
    /// Whether the servers' certificates go unchecked. Anyone on the way can then read and change everything.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure_skip_verify: bool,
    /// The name that the servers' certificates must carry, where it is not the endpoint's host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_server_name: Option<String>,
    /// Who Tributary is to this cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
    /// Takes endpoint, certificate authorities and credentials from a kubeconfig instead of the fields above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<KubeconfigReference>,
    /// The cluster's number in integer item versions. Unique, and never given to another cluster later. Required where
    /// a ResourceRegistry with `itemResourceVersions: Integer` selects the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 0, max = 9999))]
    pub index: Option<u16>,
    /// What the cluster is told of users beyond their names and groups, where many users are served.
    #[serde(skip_serializing_if = "ImpersonationRules::is_default")]
    pub impersonation: ImpersonationRules,
    /// By what it is decided which of the cluster's objects users are shown from memory, where many users are served.
    /// `RBAC`: by its roles and bindings. `Review`: by asking it (SubjectAccessReview). `Auto`: by its roles and
    /// bindings as long as it is seen that it decides by these alone, else by asking it. `Live`: nothing of it is shown
    /// from memory; it is asked for single names, and its users list under `/clusters/<name>`.
    #[serde(skip_serializing_if = "is_auto")]
    pub authorization: ClusterAuthorization,
    /// Whether the cluster is asked (TokenReview) about bearer tokens of requests under `/clusters/<name>`, or to one
    /// of `serverNames`, where many users are served. Whom it knows is known in this cluster alone. Never asked about
    /// tokens of configured issuers.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub token_review: bool,
    /// Whether a user's own bearer token is passed on to the cluster, in the place of Tributary's credentials and of
    /// impersonation, where the cluster itself vouches for it (a ServiceAccount's, or by `tokenReview`) and the request
    /// is one under `/clusters/<name>`, or to one of `serverNames`. Over https with a checked certificate only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub token_pass_through: bool,
    /// DNS names of hosts whose requests are the cluster's own API at `/`, as `/clusters/<name>` is: kubeconfigs that
    /// have such a host need not know of other clusters. Each name is one cluster's, and none of `--merged-host`. As
    /// soon as a cluster has one, hosts that nobody names are answered 503.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(max = 253), regex(pattern = SERVER_NAME)))]
    pub server_names: Vec<String>,
    /// How TLS is spoken at `serverNames`, where it is not as at all other hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secure_serving: Option<SecureServing>,
    /// Whether requests to the cluster are dispatched at all: `Policies`, as `dispatchPolicies` say; `DenyAll`, none
    /// is, for emergencies: each is answered 429 before anybody asks whose it is. What is held of the cluster in memory
    /// is still read. What Tributary asks for itself goes on, and so do TokenReviews of requests that are not for the
    /// cluster, since those whom it makes known may be known in other clusters, too; both are bounded.
    #[serde(skip_serializing_if = "Dispatch::is_by_policies")]
    pub dispatch: Dispatch,
    /// Which requests to the cluster go on and which are refused; the first policy that takes a request decides. They
    /// hold for requests under `/clusters/<name>`, and for merged ones as far as they are sent to the cluster or shown
    /// objects of it. Without policies all go on. With policies a request that none takes is refused (500).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub dispatch_policies: Vec<DispatchPolicy>,
    /// How many requests go on.
    #[serde(skip_serializing_if = "FlowControl::is_empty")]
    pub flow_control: FlowControl,
    /// Which requests are written into the access log.
    #[serde(skip_serializing_if = "Logging::is_empty")]
    pub logging: Logging,
    /// How each endpoint is probed, where it is not as all others are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_probe: Option<EndpointProbe>,
    /// When endpoints that fail are sent nothing for a while, and how much may be in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub circuit_breaker: Option<CircuitBreaker>,
    /// A proxy on the way to the servers: `http://`, `https://`, `socks5://` or `socks5h://`. Not beside `kubeconfig`,
    /// which has its own (`proxy-url`).
    #[serde(rename = "proxyURL", skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = PROXY))]
    pub proxy_url: Option<String>,
}

fn is_auto(authorization: &ClusterAuthorization) -> bool {
    *authorization == ClusterAuthorization::Auto
}

/// What a cluster is told of users beyond their names and groups. The cluster that vouches for a user is told
/// everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ImpersonationRules {
    /// Whether it is told the user's uid. Tributary's account needs the verb `impersonate` on `uids` there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub uid: bool,
    /// The keys of extras that it is told, in lower case. Tributary's account needs the verb `impersonate` on
    /// `userextras/KEY` there. Keys of kubernetes.io and k8s.io are never told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = "^[^A-Z]+$")))]
    pub extra: Vec<String>,
}

impl ImpersonationRules {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How TLS is spoken with clients at a cluster's own hosts. Data is base64 of PEM text, as in a kubeconfig.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!(has(self.certificateData) && has(self.certificateFile)) && !(has(self.keyData) && has(self.keyFile)) && !(has(self.clientCAData) && has(self.clientCAFile))",
     "message": "one thing is given as data and as a file; remove one of the two"},
    {"rule": "(has(self.certificateData) || has(self.certificateFile)) == (has(self.keyData) || has(self.keyFile))",
     "message": "a serving certificate and its key go together"}
]))]
pub struct SecureServing {
    /// The certificate that clients see, followed by its intermediates; without it they see the one of
    /// `--tls-cert-file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_data: Option<String>,
    /// A file with the certificate. Read again when it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_file: Option<String>,
    /// The certificate's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_data: Option<SecretText>,
    /// A file with the certificate's key. Read again when it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<String>,
    /// The certificate authorities that vouch for clients at these hosts, in the place of those of `--client-ca-file`.
    /// Whom they name is known in this cluster alone. With it the endpoint is shared.
    #[serde(rename = "clientCAData", skip_serializing_if = "Option::is_none")]
    pub client_ca_data: Option<String>,
    /// A file with these authorities. Read again when it changes.
    #[serde(rename = "clientCAFile", skip_serializing_if = "Option::is_none")]
    pub client_ca_file: Option<String>,
}

/// A bearer token, or a client certificate with its key. Data is base64 of PEM text, as in a kubeconfig.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!(has(self.token) && has(self.tokenFile)) && !(has(self.clientCertificateData) && has(self.clientCertificateFile)) && !(has(self.clientKeyData) && has(self.clientKeyFile))",
     "message": "one thing is given as data and as a file; remove one of the two"},
    {"rule": "(has(self.clientCertificateData) || has(self.clientCertificateFile)) == (has(self.clientKeyData) || has(self.clientKeyFile))",
     "message": "a client certificate and its key go together"},
    {"rule": "!((has(self.token) || has(self.tokenFile)) && (has(self.clientCertificateData) || has(self.clientCertificateFile)))",
     "message": "there is a token and a client certificate; give only one way to authenticate"}
]))]
pub struct Credentials {
    /// A bearer token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<SecretText>,
    /// A file with a bearer token. Read again when it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<String>,
    /// The client certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificate_data: Option<String>,
    /// A file with the client certificate. Read again when it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificate_file: Option<String>,
    /// The client certificate's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key_data: Option<SecretText>,
    /// A file with the client certificate's key. Read again when it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key_file: Option<String>,
}

/// One context of a kubeconfig.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeconfigReference {
    /// The kubeconfig's path. Read again when it changes.
    #[schemars(length(min = 1))]
    pub path: String,
    /// The context; the kubeconfig's current one if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

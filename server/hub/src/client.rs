//! Requests to the hub with Tributary's own credentials.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, Uri};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::time::timeout;
use tributary_apimachinery::{ClusterName, body, explain};
use tributary_proxy::{ClientTuning, ClusterClient, RequestIdentity, Transport};
use tributary_sources::kubeconfig::{KubeconfigFiles, Kubeconfigs};

/// Time limit of a request, including its answer. 10 s, as in the delegating authentication of kube-apiserver's
/// library.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of an answer in bytes. 4 MiB: etcd stores objects up to 1.5 MiB.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// The name of the hub in logs and errors.
pub(crate) const NAME: &str = "hub";

/// Location of the hub and of Tributary's credentials for the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubAddress {
    /// A kubeconfig file, and one of its contexts; `None` for the current context.
    Kubeconfig {
        /// The path of the file.
        path: PathBuf,
        /// The name of the context.
        context: Option<String>,
    },
    /// The ServiceAccount of the Pod in which Tributary runs.
    InCluster,
}

/// The reason why a request to the hub failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HubError {
    /// The hub does not answer, or its answer is unreadable.
    #[error("the hub does not answer: {0}")]
    Unreachable(String),
    /// The hub refuses the request.
    #[error("the hub answers {code}: {message}")]
    Refused {
        /// The HTTP status code.
        code: u16,
        /// The `reason` of the Status; empty without a Status.
        reason: String,
        /// The `message` of the Status.
        message: String,
    },
}

impl HubError {
    /// Returns the reason for clients. The message of the hub is left out, because it could quote the request or name
    /// Tributary's account.
    pub(crate) fn reason_for_clients(&self) -> String {
        match self {
            Self::Unreachable(_) => "the hub does not answer".to_owned(),
            Self::Refused { code, reason, .. } => format!("the hub answers {code} {reason}"),
        }
    }

    /// Returns the HTTP status code of a refusal.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Unreachable(_) => None,
            Self::Refused { code, .. } => Some(*code),
        }
    }
}

/// A client of the hub. Renewed credentials (token files, credential plugins) take effect without a new client.
pub struct HubClient {
    client: ClusterClient,
    is_verified: bool,
    /// The URL of the hub.
    url: Uri,
    /// Clients of servers that serve an API group in the place of the hub.
    servers: BTreeMap<String, ClusterClient>,
}

impl fmt::Debug for HubClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HubClient").finish_non_exhaustive()
    }
}

impl HubClient {
    /// Creates a client. Sends nothing, so the hub may be unreachable.
    ///
    /// # Errors
    /// The kubeconfig, its context or the ServiceAccount's files are missing or invalid.
    pub async fn connect(address: &HubAddress) -> anyhow::Result<Self> {
        let config = match address {
            HubAddress::Kubeconfig { path, context } => {
                from_kubeconfig("--hub-kubeconfig", path, context.as_deref()).await?
            }
            HubAddress::InCluster => kube::Config::incluster().context("--hub-in-cluster")?,
        };
        let name = ClusterName::new(NAME)?;
        let is_verified = !config.accept_invalid_certs && config.cluster_url.scheme_str() == Some("https");
        let url = config.cluster_url.clone();
        let client = ClusterClient::connect(name, config, ClientTuning::default()).await?;
        Ok(Self { client, is_verified, url, servers: BTreeMap::new() })
    }

    /// Returns whether the certificate of the hub is verified. Without verification, an attacker on the network could
    /// replace the hub's list of front proxies, and so become any user of the aggregated API.
    pub fn is_verified(&self) -> bool {
        self.is_verified
    }

    /// Reads an API group from a different server than the hub, from the kubeconfig that a flag names. The hub may
    /// forward the requests of the group to Tributary.
    ///
    /// # Errors
    /// The kubeconfig or its context is missing or invalid, or has the address of the hub.
    pub async fn add_server(&mut self, flag: &str, group: &str, kubeconfig: &Path) -> anyhow::Result<()> {
        let config = from_kubeconfig(flag, kubeconfig, None).await?;
        anyhow::ensure!(
            config.cluster_url.authority() != self.url.authority(),
            "{flag} {}: {} is the address of the hub, which forwards the requests of {group} to Tributary; give the \
             address of the server behind the old Service of the group",
            kubeconfig.display(),
            config.cluster_url
        );
        anyhow::ensure!(
            !config.accept_invalid_certs && config.cluster_url.scheme_str() == Some("https"),
            "{flag} {}: the certificate of {} is not verified, and Tributary would send it the right to impersonate any \
             user; give https and certificate-authority, and remove insecure-skip-tls-verify",
            kubeconfig.display(),
            config.cluster_url
        );
        let client = ClusterClient::connect(ClusterName::new(NAME)?, config, ClientTuning::default()).await?;
        self.servers.insert(group.to_owned(), client);
        Ok(())
    }

    /// Returns the clients of servers that serve an API group in the place of the hub, by group.
    pub fn servers(&self) -> &BTreeMap<String, ClusterClient> {
        &self.servers
    }

    /// Returns the underlying client, for requests that impersonate a user.
    pub fn cluster_client(&self) -> &ClusterClient {
        &self.client
    }

    /// Returns the transport of a cacher.
    pub fn transport(&self) -> Transport {
        self.client.transport()
    }

    /// Sends a GET request and returns the answer's JSON.
    ///
    /// # Errors
    /// [`HubError`].
    pub async fn get(&self, path: &str) -> Result<Value, HubError> {
        self.send(Method::GET, path, "", None).await
    }

    /// Sends a request with an optional body of type `content_type` and returns the answer's JSON. Cancel: the request
    /// may have had its effect.
    ///
    /// # Errors
    /// [`HubError`].
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Value, HubError> {
        let body = body.map(Value::to_string);
        self.send_text(method, path.to_owned(), content_type.to_owned(), body).await
    }

    /// Sends a request. The arguments are owned and the future is boxed, so that the future is `Send` for every caller.
    fn send_text(
        &self,
        method: Method,
        path: String,
        content_type: String,
        body: Option<String>,
    ) -> BoxFuture<'static, Result<Value, HubError>> {
        let client = self.client.clone();
        async move {
            let mut request = Request::builder().method(method).uri(path).header(ACCEPT, "application/json");
            if body.is_some() {
                request = request.header(CONTENT_TYPE, content_type);
            }
            let bytes = body.map_or_else(body::empty, body::full);
            let request = request.body(bytes).map_err(|error| HubError::Unreachable(explain(&error)))?;
            match timeout(ANSWER_TIMEOUT, exchange(&client, request)).await {
                Ok(answer) => answer,
                Err(_) => Err(HubError::Unreachable(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()))),
            }
        }
        .boxed()
    }
}

async fn exchange(client: &ClusterClient, request: Request<body::Body>) -> Result<Value, HubError> {
    let answer = client.send_own_request(request, RequestIdentity::Member).await;
    let answer = answer.map_err(|error| HubError::Unreachable(explain(&error)))?;
    let status = answer.status();
    let mut body = answer.into_body();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| HubError::Unreachable(explain(&*error)))?;
        bytes.extend_from_slice(frame.data_ref().map(AsRef::as_ref).unwrap_or_default());
        if bytes.len() > ANSWER_BYTES_MAX {
            return Err(HubError::Unreachable(format!("the answer has more than {ANSWER_BYTES_MAX} bytes")));
        }
    }
    let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if status.is_success() {
        return Ok(value);
    }
    let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    Err(HubError::Refused { code: status.as_u16(), reason: text("reason"), message: text("message") })
}

async fn from_kubeconfig(flag: &str, path: &Path, context: Option<&str>) -> anyhow::Result<kube::Config> {
    let named = || format!("{flag} {}", path.display());
    // Checked before the kubeconfig is loaded, because the error of the loader would name a different flag.
    std::fs::metadata(path).with_context(|| format!("{} cannot be read; name another file", named()))?;
    let configs = Kubeconfigs::load(&KubeconfigFiles::one(path.to_owned())).with_context(named)?;
    let context = context.or(configs.current_context());
    let context = context.context("the kubeconfig has no current context; set one by kubectl config use-context");
    Ok(configs.target(context.with_context(named)?).await.with_context(named)?.config)
}

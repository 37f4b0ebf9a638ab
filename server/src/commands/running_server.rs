//! Fetches pages from a running server, which a kubeconfig context selects.

use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use tributary_apimachinery::body::{self, Body};
use tributary_apimachinery::{ClusterName, Status, explain};
use tributary_proxy::{ClientTuning, ClusterClient, ForwardError, RequestIdentity};
use tributary_sources::kubeconfig::ChosenContext;

use crate::exit::Failure;
use crate::output::terminal::plain;

/// The time limit of an answer. An answer takes milliseconds, plus the latency to a server on a different continent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The size limit of an answer, in bytes. The report of a thousand clusters with a hundred outdated collections each
/// fits into 64 MiB.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The size limit of a refusal, in bytes. A Status has a few hundred bytes.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// The remedy if the server of the context does not answer, or is not Tributary.
const REMEDY: &str = "name its kubeconfig (serve --write-kubeconfig) by --kubeconfig, or its context by --context";

/// A page of a running server.
pub(super) struct Page {
    /// The path of the server's page.
    pub(super) path: &'static str,
    /// The query of the server's page, or empty.
    pub(super) query: String,
    /// The page's name in messages, for example `its report`.
    pub(super) label: &'static str,
}

/// A client for a running server.
pub(super) struct RunningServer {
    client: ClusterClient,
    /// The server's address and the context, for messages.
    named: String,
}

impl RunningServer {
    /// Connects to the server of a kubeconfig context. Without arguments, uses the current context of `$KUBECONFIG` or
    /// `~/.kube/config`. The context of one of the server's clusters is also accepted.
    ///
    /// # Errors
    /// A usage failure with file, context and remedy.
    pub(super) async fn from_kubeconfig(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Self, Failure> {
        let chosen = ChosenContext::open(kubeconfig, context).await;
        let ChosenContext { files, context, target } = chosen.map_err(Failure::usage)?;
        let mut config = target.config;
        config.cluster_url = merged_view(&config.cluster_url);
        let named = format!("{} (context {context:?} of {files})", config.cluster_url);
        let name = ClusterName::new("tributary").map_err(Failure::runtime)?;
        let client = ClusterClient::connect(name, config, ClientTuning::default()).await.map_err(Failure::usage)?;
        Ok(Self { client, named })
    }

    /// Fetches the text of a page.
    ///
    /// # Errors
    /// A runtime failure with the address and the remedy, and a usage failure for an invalid query.
    pub(super) async fn fetch_page(&self, page: &Page) -> Result<String, Failure> {
        let timed_out = |_| Failure::runtime(anyhow!("{} does not answer within {ANSWER_TIMEOUT:?}", self.named));
        tokio::time::timeout(ANSWER_TIMEOUT, self.request_with_retries(page)).await.map_err(timed_out)?
    }

    async fn request_with_retries(&self, page: &Page) -> Result<String, Failure> {
        let uri = format!("{}?{}", page.path, page.query);
        let request = Request::get(uri.trim_end_matches('?')).body(body::empty()).map_err(Failure::runtime)?;
        let answer = self.client.forward(request, RequestIdentity::Member).await;
        let answer = answer.map_err(|error| unanswered(&self.named, &error))?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::TOO_MANY_REQUESTS => {
                return Err(Failure::runtime(anyhow!("{} is busy; try again", self.named)));
            }
            StatusCode::FORBIDDEN => {
                return Err(Failure::runtime(anyhow!("{}", forbidden(&self.named, page, &message(answer).await))));
            }
            StatusCode::BAD_REQUEST => {
                return Err(Failure::usage(anyhow!("{}: {}", self.named, plain(&message(answer).await))));
            }
            status => return Err(self.is_another(&format!("the server answered {status}"))),
        }
        let whole = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let whole = whole.map_err(|error| Failure::runtime(anyhow!("the answer of {}: {error}", self.named)))?;
        String::from_utf8(whole.to_bytes().to_vec()).map_err(|_| self.is_another("the answer is not text"))
    }

    /// Returns the error that the server is not Tributary, or is an older release of Tributary.
    pub(super) fn is_another(&self, why: &str) -> Failure {
        Failure::runtime(anyhow!("{} is not Tributary, or an older version: {why}; {REMEDY}", self.named))
    }
}

/// Rewrites the error of the HTTP client, because the original message calls the server a cluster.
fn unanswered(named: &str, error: &ForwardError) -> Failure {
    Failure::runtime(match error {
        ForwardError::Dial { source, .. } => anyhow!(
            "nothing answers at {named}: {}; start it by `tributary serve`, or {REMEDY}",
            plain(&explain(&**source))
        ),
        ForwardError::Tls { server_name, source, remedy, .. } => anyhow!(
            "{named} cannot be queried: TLS failed for server name {server_name}: {}; {remedy}",
            plain(&explain(&**source))
        ),
        ForwardError::Unauthorized { .. } => anyhow!(
            "{named} rejects the token of this context (401 Unauthorized); the server may use a different data \
             directory now: {REMEDY}"
        ),
        error => anyhow!("{named} cannot be queried: {}", plain(&explain(error))),
    })
}

/// Returns the message in the server's refusal.
async fn message(answer: Response<Body>) -> String {
    let code = answer.status().as_u16();
    let whole = Limited::new(answer.into_body(), REFUSAL_BYTES_MAX).collect().await;
    let text = whole.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Status::from_response(code, &text).message
}

/// Returns the error for a server in shared mode that authenticates the user and forbids the page. The error also
/// suggests a different kubeconfig or context, because a server that is not Tributary could send the same answer.
fn forbidden(named: &str, page: &Page, said: &str) -> String {
    format!(
        "{named} does not allow you to see {}: {}; each of its clusters must allow you to get {} \
         (docs/shared-mode.md); if the server is not Tributary, name the kubeconfig of Tributary by --kubeconfig, or \
         its context by --context",
        page.label,
        plain(said),
        page.path
    )
}

/// Returns the URL of the merged view. The URL of a cluster's context ends with `/clusters/NAME`, which is removed.
pub(super) fn merged_view(url: &Uri) -> Uri {
    let path = url.path().trim_end_matches('/');
    let base = path.rsplit_once('/').and_then(|(base, _)| base.strip_suffix("/clusters"));
    let Some(base) = base else { return url.clone() };
    let mut parts = url.clone().into_parts();
    parts.path_and_query = PathAndQuery::try_from(format!("{base}/")).ok();
    Uri::from_parts(parts).unwrap_or_else(|_| url.clone())
}

#[cfg(test)]
mod tests {
    use tributary_proxy::FailureClass;

    use super::*;

    #[test]
    fn forbidden_report_error_names_the_missing_permission() {
        let said = "forbidden: User \"ann\" cannot get path \"/tributary/status\"";
        let page = Page { path: "/tributary/status", query: String::new(), label: "its report" };
        let told = forbidden("https://host/ (context \"fleet\" of k)", &page, said);
        assert_eq!(
            told,
            "https://host/ (context \"fleet\" of k) does not allow you to see its report: forbidden: User \"ann\" \
             cannot get path \"/tributary/status\"; each of its clusters must allow you to get /tributary/status \
             (docs/shared-mode.md); if the server is not Tributary, name the kubeconfig of Tributary by --kubeconfig, \
             or its context by --context"
        );
    }

    #[test]
    fn tls_error_of_the_server_does_not_mention_a_cluster() {
        let error = ForwardError::Tls {
            cluster: ClusterName::new("tributary").unwrap(),
            address: "127.0.0.1:7443".into(),
            server_name: "127.0.0.1".into(),
            source: std::sync::Arc::new(std::io::Error::other("CaUsedAsEndEntity")),
            remedy: "the server shows a certificate authority's own certificate",
            failure_class: FailureClass::Trust,
        };
        assert_eq!(
            unanswered("https://127.0.0.1:7443/ (context \"all\" of k)", &error).to_string(),
            "https://127.0.0.1:7443/ (context \"all\" of k) cannot be queried: TLS failed for server name 127.0.0.1: \
             CaUsedAsEndEntity; the server shows a certificate authority's own certificate"
        );
    }

    #[test]
    fn cluster_context_url_converts_to_the_merged_view_url() {
        for (url, expected) in [
            ("https://127.0.0.1:7443", "https://127.0.0.1:7443/"),
            ("https://127.0.0.1:7443/clusters/eu", "https://127.0.0.1:7443/"),
            ("https://127.0.0.1:7443/clusters/eu/", "https://127.0.0.1:7443/"),
            ("https://host/base/clusters/eu", "https://host/base/"),
            ("https://host/base/clusters", "https://host/base/clusters"),
            ("https://host/base", "https://host/base"),
        ] {
            assert_eq!(merged_view(&url.parse().unwrap()).to_string(), expected, "{url}");
        }
    }
}

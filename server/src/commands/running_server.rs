//! The server that is asked for its report: where it is, by a kubeconfig, and what it says.

use std::time::Duration;

use anyhow::anyhow;
use http::uri::PathAndQuery;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use tributary_apimachinery::body;
use tributary_apimachinery::{ClusterName, Status, explain};
use tributary_proxy::{ClientTuning, ClusterClient, ForwardError, RequestIdentity};

use crate::cli::StatusArguments;
use crate::exit::Failure;
use crate::kubeconfig::ChosenContext;
use crate::terminal::plain;
use tributary_router::report;

/// How long an answer may take. 10 s: it is made in milliseconds, and the server may be on another continent.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The longest report, in bytes. 64 MiB: a thousand clusters, each of a hundred collections of which is behind.
const REPORT_BYTES_MAX: usize = 64 << 20;

/// The longest refusal that is read, in bytes. A Status is a few hundred.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// What to do where the server is not the one that was meant.
const REMEDY: &str = "name its kubeconfig (serve --write-kubeconfig) by --kubeconfig, or its context by --context";

/// A server, as a context of a kubeconfig names it.
pub(super) struct Server {
    client: ClusterClient,
    /// Its address and the context, for messages.
    named: String,
}

impl Server {
    /// The server of the kubeconfig and context that are named, else of the current context of `$KUBECONFIG` or
    /// `~/.kube/config`. The context of one cluster of it will do, too.
    ///
    /// # Errors
    /// A usage failure that names file, context and remedy.
    pub(super) async fn of(arguments: &StatusArguments) -> Result<Self, Failure> {
        let chosen = ChosenContext::open(arguments.kubeconfig.as_deref(), arguments.context.as_deref()).await;
        let ChosenContext { files, context, target } = chosen.map_err(Failure::usage)?;
        let mut config = target.config;
        config.cluster_url = merged_view(&config.cluster_url);
        let named = format!("{} (context {context:?} of {files})", config.cluster_url);
        let name = ClusterName::new("tributary").map_err(Failure::runtime)?;
        let client = ClusterClient::connect(name, config, ClientTuning::default()).await.map_err(Failure::usage)?;
        Ok(Self { client, named })
    }

    /// Its report, as it writes it.
    ///
    /// # Errors
    /// A runtime failure that names the address and what to do.
    pub(super) async fn ask(&self) -> Result<String, Failure> {
        let timed_out = |_| Failure::runtime(anyhow!("{} does not answer within {ANSWER_WITHIN:?}", self.named));
        tokio::time::timeout(ANSWER_WITHIN, self.ask_patiently()).await.map_err(timed_out)?
    }

    async fn ask_patiently(&self) -> Result<String, Failure> {
        let request = Request::get(report::PATH).body(body::empty()).map_err(Failure::runtime)?;
        let answer = self.client.forward(request, RequestIdentity::Member).await;
        let answer = answer.map_err(|error| self.unanswered(&error))?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::TOO_MANY_REQUESTS => {
                return Err(Failure::runtime(anyhow!("{} is busy; try again", self.named)));
            }
            StatusCode::FORBIDDEN => {
                let whole = Limited::new(answer.into_body(), REFUSAL_BYTES_MAX).collect().await;
                let text = whole.map(http_body_util::Collected::to_bytes).unwrap_or_default();
                return Err(Failure::runtime(anyhow!("{}", forbidden(&self.named, &text))));
            }
            status => return Err(self.is_another(&format!("it answered {status}"))),
        }
        let whole = Limited::new(answer.into_body(), REPORT_BYTES_MAX).collect().await;
        let whole = whole.map_err(|error| Failure::runtime(anyhow!("the answer of {}: {error}", self.named)))?;
        String::from_utf8(whole.to_bytes().to_vec()).map_err(|_| self.is_another("its answer is no text"))
    }

    fn unanswered(&self, error: &ForwardError) -> Failure {
        let named = &self.named;
        Failure::runtime(match error {
            ForwardError::Dial { source, .. } => anyhow!(
                "nothing answers at {named}: {}; start it by `tributary serve`, or {REMEDY}",
                plain(&explain(&**source))
            ),
            ForwardError::Unauthorized { .. } => anyhow!(
                "{named} does not take this context's token (401 Unauthorized); it may have another data directory by \
                 now: {REMEDY}"
            ),
            error => anyhow!("{named} cannot be asked: {}", plain(&explain(error))),
        })
    }

    /// What answers there is not a Tributary that gives reports.
    pub(super) fn is_another(&self, why: &str) -> Failure {
        Failure::runtime(anyhow!("{} is no Tributary, or an older one: {why}; {REMEDY}", self.named))
    }
}

/// What is told of a server that knows who asks, and does not let them see its report. Of another program, which says the
/// same of a path that it does not know, it is not told apart.
fn forbidden(named: &str, text: &[u8]) -> String {
    let said = Status::from_response(StatusCode::FORBIDDEN.as_u16(), text).message;
    format!(
        "{named} does not let you see its report: {}; each of its clusters has to let you get {} (docs/shared-mode.md); where it \
         is no Tributary, {REMEDY}",
        plain(&said),
        report::PATH
    )
}

/// The URL of the merged view: a context of one cluster of it ends with `/clusters/NAME`.
fn merged_view(url: &Uri) -> Uri {
    let path = url.path().trim_end_matches('/');
    let base = path.rsplit_once('/').and_then(|(base, _)| base.strip_suffix("/clusters"));
    let Some(base) = base else { return url.clone() };
    let mut parts = url.clone().into_parts();
    parts.path_and_query = PathAndQuery::try_from(format!("{base}/")).ok();
    Uri::from_parts(parts).unwrap_or_else(|_| url.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_see_the_report_is_told_what_lets_them() {
        let said = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden",
            "message":"forbidden: User \"ann\" cannot get path \"/tributary/status\""}"#;
        let told = forbidden("https://host/ (context \"fleet\" of k)", said.as_bytes());
        assert_eq!(
            told,
            "https://host/ (context \"fleet\" of k) does not let you see its report: forbidden: User \"ann\" cannot get path \
             \"/tributary/status\"; each of its clusters has to let you get /tributary/status (docs/shared-mode.md); where it is no \
             Tributary, name its kubeconfig (serve --write-kubeconfig) by --kubeconfig, or its context by --context"
        );
        assert!(forbidden("x", b"<html>").contains("docs/shared-mode.md"));
    }

    #[test]
    fn a_clusters_own_context_leads_to_the_merged_view() {
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

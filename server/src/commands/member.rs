//! Sends the requests of a `tributary` command directly to a cluster, with the credentials of a kubeconfig or of the
//! configuration.

use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::AuthInfo;
use kube::core::discovery::v2::APIGroupDiscoveryList;
use serde_json::Value;
use tributary_apimachinery::explain;
use tributary_apimachinery::text::printable;

/// The time limit of a cluster's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A client for a cluster, with credentials.
pub(super) struct ClusterAccess {
    pub(super) client: kube::Client,
    pub(super) url: String,
}

/// The error for an answer of the cluster with a status other than success.
#[derive(Debug, thiserror::Error)]
#[error("the cluster answers {code}: {message}")]
pub(super) struct MemberError {
    pub(super) code: StatusCode,
    pub(super) message: String,
}

/// Reads a token from a file and removes surrounding white space, as the server does. The crate `kube` would send the
/// newline at the end of the file as a part of the token.
fn take_token(user: &mut AuthInfo) -> anyhow::Result<()> {
    if user.token.is_some() {
        return Ok(());
    }
    let Some(path) = user.token_file.take() else { return Ok(()) };
    let text = std::fs::read_to_string(&path).with_context(|| format!("token file {path} cannot be read"))?;
    let token = text.trim();
    // The crate `kube` panics for a token that is invalid in a header. The token is checked here again, because the
    // file may have changed since the check of the configuration.
    ensure!(
        HeaderValue::from_bytes(token.as_bytes()).is_ok(),
        "token file {path} has a character that is not allowed in a token"
    );
    user.token = Some(token.to_owned().into());
    Ok(())
}

impl ClusterAccess {
    /// Creates the client from this configuration.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub(super) fn new(mut config: kube::Config) -> anyhow::Result<Self> {
        // The user at the terminal needs the error at once, without retries.
        config.default_retry = false;
        config.read_timeout = Some(ANSWER_TIMEOUT);
        take_token(&mut config.auth_info)?;
        let url = config.cluster_url.to_string();
        Ok(Self { client: kube::Client::try_from(config)?, url })
    }

    /// Fetches the discovery of the cluster.
    ///
    /// # Errors
    /// The reason for a missing answer.
    pub(super) async fn discovery(&self) -> anyhow::Result<[APIGroupDiscoveryList; 2]> {
        let core = self.client.list_core_api_versions_aggregated().await;
        let named = self.client.list_api_groups_aggregated().await;
        let said = |error: kube::Error| anyhow!("discovery of {} failed: {}", self.url, explain(&error));
        Ok([core.map_err(said)?, named.map_err(said)?])
    }

    /// Sends a request and returns the cluster's answer as JSON.
    ///
    /// # Errors
    /// [`MemberError`], or the reason for a missing answer.
    pub(super) async fn send_request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<Value> {
        let kind = if method == Method::PATCH { "application/apply-patch+yaml" } else { "application/json" };
        let mut request = Request::builder().method(method).uri(path).header("accept", "application/json");
        if body.is_some() {
            request = request.header("content-type", kind);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let text = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let answer = self.client.send(request.body(Body::from(text))?).await;
        let unasked = |error: &(dyn std::error::Error + 'static)| {
            anyhow!("{} cannot be queried: {}", self.url, printable(&explain(error)).replace('\n', " "))
        };
        let answer = answer.map_err(|error| match error {
            kube::Error::Service(error) => unasked(&*error),
            error => unasked(&error),
        })?;
        let code = answer.status();
        let text = answer.into_body().collect().await.map_err(|error| unasked(&error))?.to_bytes();
        let value: Value = serde_json::from_slice(&text).unwrap_or_default();
        if code.is_success() {
            return Ok(value);
        }
        let message = printable(value["message"].as_str().unwrap_or("no message")).replace('\n', " ");
        Err(MemberError { code, message }.into())
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn token_file_is_read_as_in_the_server() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "t\n").unwrap();
        let token_file = Some(path.display().to_string());
        for (token, expected) in [(None, "t"), (Some("own"), "own")] {
            let token = token.map(|token: &str| token.to_owned().into());
            let mut user = AuthInfo { token, token_file: token_file.clone(), ..AuthInfo::default() };
            take_token(&mut user).unwrap();
            assert_eq!(user.token.unwrap().expose_secret(), expected);
        }
        std::fs::write(&path, "a\nb").unwrap();
        let mut user = AuthInfo { token_file, ..AuthInfo::default() };
        let error = take_token(&mut user).unwrap_err().to_string();
        assert!(error.ends_with("has a character that is not allowed in a token"), "{error}");
    }
}

//! The endpoint of a kubeconfig context, requested as by kubectl: with the credentials of the context's user, and with
//! Warnings on standard error.

use std::time::Duration;

use anyhow::{Context, bail};
use http::header::WARNING;
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::core::discovery::v2::APIGroupDiscoveryList;
use serde_json::Value;
use tributary_apimachinery::explain;
use tributary_apimachinery::text::printable;
use tributary_sources::kubeconfig::ChosenContext;

use crate::cli::EndpointArguments;
use crate::exit::Failure;

/// The time limit of an answer. The endpoint itself gives up after 60 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);

/// A client for an endpoint, and the kubeconfig context.
pub(super) struct PluginEndpoint {
    client: kube::Client,
    context: String,
    server: http::Uri,
}

impl PluginEndpoint {
    /// Reads the kubeconfig.
    ///
    /// # Errors
    /// A usage failure for an invalid kubeconfig or context.
    pub(super) async fn open(arguments: &EndpointArguments) -> Result<Self, Failure> {
        let chosen = ChosenContext::open(arguments.kubeconfig.as_deref(), arguments.context.as_deref()).await;
        let ChosenContext { context, target, .. } = chosen.map_err(Failure::usage)?;
        let mut config = target.config;
        // The user at the terminal needs the error at once, without retries.
        config.default_retry = false;
        config.read_timeout = Some(ANSWER_TIMEOUT);
        let server = config.cluster_url.clone();
        let client = kube::Client::try_from(config).map_err(Failure::usage)?;
        Ok(Self { client, context, server })
    }

    /// Returns the name of the kubeconfig context.
    pub(super) fn context(&self) -> &str {
        &self.context
    }

    /// Returns the namespace of the kubeconfig context, or `default`.
    pub(super) fn namespace(&self) -> &str {
        self.client.default_namespace()
    }

    /// Fetches the endpoint's discovery of the core group and of the named groups.
    ///
    /// # Errors
    /// The reason for a missing answer.
    pub(super) async fn discovery(&self) -> anyhow::Result<(APIGroupDiscoveryList, APIGroupDiscoveryList)> {
        let core = self.client.list_core_api_versions_aggregated().await.map_err(|error| self.describe_error(error))?;
        let named = self.client.list_api_groups_aggregated().await.map_err(|error| self.describe_error(error))?;
        Ok((core, named))
    }

    /// Sends a GET for a path and prints the Warnings of the answer.
    ///
    /// # Errors
    /// The reason for a missing answer, or the endpoint's error.
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let request = Request::get(path).header("accept", "application/json").body(Body::empty());
        let answer = self.client.send(request.context("the request cannot be made")?).await;
        let answer = answer.map_err(|error| self.describe_error(error))?;
        for warning in warnings(answer.headers()) {
            eprintln!("{}", printable(&format!("Warning: {warning}")));
        }
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(|error| self.describe_error(error))?.to_bytes();
        let value: Option<Value> = serde_json::from_slice(&body).ok();
        match value {
            Some(value) if status.is_success() => Ok(value),
            Some(value) if value["message"].is_string() => {
                bail!(refusal(value["message"].as_str().unwrap_or_default()))
            }
            _ => bail!("context {:?} answered {status}, but not in the form of the Kubernetes API", self.context),
        }
    }

    fn describe_failure(&self, error: &(dyn std::error::Error + 'static)) -> anyhow::Error {
        let said = printable(&explain(error)).replace('\n', " ");
        anyhow::anyhow!("context {:?} ({}) cannot be queried: {said}", self.context, self.server)
    }

    /// Formats a client error as one sentence.
    fn describe_error(&self, error: kube::Error) -> anyhow::Error {
        match error {
            kube::Error::Api(status) => anyhow::anyhow!(refusal(&status.message)),
            kube::Error::Service(error) => self.describe_failure(&*error),
            error => self.describe_failure(&error),
        }
    }
}

/// Formats the message of a refusal on one line.
fn refusal(message: &str) -> String {
    printable(message).replace('\n', " ")
}

/// Returns the texts of the `Warning` headers, which have the form `299 - "text"`.
///
/// Source: RFC 7234, section 5.5; Kubernetes sends one text in each header.
fn warnings(headers: &HeaderMap) -> Vec<String> {
    let text = |value: &http::HeaderValue| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        let quoted = value.split_once('"')?.1.rsplit_once('"')?.0;
        let (mut text, mut characters) = (String::new(), quoted.chars());
        while let Some(c) = characters.next() {
            text.extend(if c == '\\' { characters.next() } else { Some(c) });
        }
        Some(text)
    };
    headers.get_all(WARNING).iter().filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_header_texts_are_parsed() {
        let mut headers = HeaderMap::new();
        headers.append(WARNING, r#"299 - "cluster \"us\" is down""#.parse().unwrap());
        headers.append(WARNING, "299 -".parse().unwrap());
        headers.append(WARNING, r#"299 tributary "two""#.parse().unwrap());
        assert_eq!(warnings(&headers), ["cluster \"us\" is down", "two"]);
    }
}

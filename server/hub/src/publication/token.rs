//! The token in published Secrets: a token of a ServiceAccount of the hub. A Secret of the hub keeps the token, so that
//! a new leader publishes the same one. Each new token makes readers of published Secrets connect anew.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tributary_crds::SecretText;

use super::settings::PublishedServiceAccount;
use crate::leadership::{Leadership, NotLeader};
use crate::status::format_time;
use crate::write_limits::{WRITE_TIMEOUT, no_answer};
use crate::{HubClient, HubError};

/// The name of the Secret with the token.
const SECRET_NAME: &str = "tributary-published-token";

/// The annotation of the Secret with the ServiceAccount and the audiences of the token.
const TOKEN_OF: &str = "tributary.dev/token-of";

/// The annotation of the Secret with the time at which the token is replaced.
const RENEW_AFTER: &str = "tributary.dev/renew-after";

/// The requested lifetime of a token in seconds: 7 days. The hub may give less. The token is replaced at half of its
/// lifetime, so the hub may fail for days.
const LIFETIME_SECONDS: i64 = 7 * 24 * 60 * 60;

/// The pause between two reads of the Secret, and after a failure. If a user deletes the Secret, the next read replaces
/// the token.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// Keeps the token of published Secrets.
pub(super) struct TokenKeeper {
    client: Arc<HubClient>,
    account: PublishedServiceAccount,
    audiences: Vec<String>,
    secret_path: String,
    current: Option<SecretText>,
    problem: Option<String>,
    next_check: Option<Instant>,
}

/// A token with the time at which it is replaced.
#[derive(Clone, PartialEq)]
struct StoredToken {
    token: SecretText,
    renew_after: Timestamp,
}

#[derive(Debug, thiserror::Error)]
enum PublishedTokenError {
    #[error("the Secret {SECRET_NAME} is not available: {0}")]
    Secret(HubError),
    #[error("the hub gives no token of ServiceAccount {account}: {error}")]
    Request { account: String, error: HubError },
    #[error("the hub's answer to the request for a token has no {0}")]
    Answer(&'static str),
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
}

impl TokenKeeper {
    /// Creates a keeper. `namespace` is the namespace of the Secret. Sends nothing.
    pub(super) fn new(
        client: Arc<HubClient>,
        account: PublishedServiceAccount,
        audiences: Vec<String>,
        namespace: &str,
    ) -> Self {
        let secret_path = format!("/api/v1/namespaces/{namespace}/secrets/{SECRET_NAME}");
        Self { client, account, audiences, secret_path, current: None, problem: None, next_check: None }
    }

    /// Returns the current token; `None` until the first token. Renews the token when it is due.
    pub(super) async fn current(&mut self, leadership: &Leadership) -> Option<&SecretText> {
        if self.next_check.is_none_or(|at| at <= Instant::now()) {
            let checked = timeout(WRITE_TIMEOUT, self.check(leadership, Timestamp::now())).await;
            let checked = checked.unwrap_or_else(|_| Err(PublishedTokenError::Secret(no_answer())));
            self.problem = checked.as_ref().err().map(ToString::to_string);
            if let Ok(token) = checked {
                self.current = Some(token);
            }
            self.next_check = Some(Instant::now() + POLL_INTERVAL);
        }
        self.current.as_ref()
    }

    /// Returns the reason why the token is missing or not renewed.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    async fn check(&self, leadership: &Leadership, now: Timestamp) -> Result<SecretText, PublishedTokenError> {
        let stored = match self.client.get(&self.secret_path).await {
            Ok(secret) => read_secret(&secret, &self.subject()),
            Err(error) if error.code() == Some(404) => None,
            Err(error) => return Err(PublishedTokenError::Secret(error)),
        };
        if let Some(stored) = stored.filter(|stored| now < stored.renew_after) {
            return Ok(stored.token);
        }
        let PublishedServiceAccount { namespace, name } = &self.account;
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let body = token_request(&self.audiences);
        let request = self.client.send(Method::POST, &path, "application/json", Some(&body));
        let answer = leadership.send(request).await?;
        let account = || format!("{namespace}/{name}");
        let answer = answer.map_err(|error| PublishedTokenError::Request { account: account(), error })?;
        let made = read_answer(&answer, now)?;
        let secret = secret_with(&made, &self.subject());
        let path = format!("{}?fieldManager=tributary&force=true", self.secret_path);
        // A server-side apply is sent, because a POST to the collection names no object, so RBAC could not limit the
        // right to this Secret.
        let request = self.client.send(Method::PATCH, &path, "application/apply-patch+yaml", Some(&secret));
        leadership.send(request).await?.map_err(PublishedTokenError::Secret)?;
        tracing::info!(account = account(), "the published Secrets get a new token");
        Ok(made.token)
    }

    /// Returns the account and the audiences of the token as one text, for the annotation of the Secret.
    fn subject(&self) -> String {
        let PublishedServiceAccount { namespace, name } = &self.account;
        let mut subject = format!("{namespace}/{name}");
        for audience in &self.audiences {
            subject.push(' ');
            subject.push_str(audience);
        }
        subject
    }
}

fn token_request(audiences: &[String]) -> Value {
    json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": audiences, "expirationSeconds": LIFETIME_SECONDS},
    })
}

fn read_answer(answer: &Value, now: Timestamp) -> Result<StoredToken, PublishedTokenError> {
    let token = answer["status"]["token"].as_str().filter(|token| !token.is_empty());
    let token = token.ok_or(PublishedTokenError::Answer("token"))?;
    let expires = answer["status"]["expirationTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let expires = expires.ok_or(PublishedTokenError::Answer("expirationTimestamp"))?;
    let half = SignedDuration::from_secs(expires.duration_since(now).as_secs() / 2);
    Ok(StoredToken { token: SecretText::new(token), renew_after: now + half })
}

/// Returns the token of the Secret; `None` for a token of a different account, and for unusable content.
fn read_secret(secret: &Value, subject: &str) -> Option<StoredToken> {
    let annotations = &secret["metadata"]["annotations"];
    if annotations[TOKEN_OF] != subject {
        return None;
    }
    let renew_after = annotations[RENEW_AFTER].as_str()?.parse().ok()?;
    let token = String::from_utf8(STANDARD.decode(secret["data"]["token"].as_str()?).ok()?).ok()?;
    (!token.is_empty()).then(|| StoredToken { token: SecretText::new(token), renew_after })
}

fn secret_with(stored: &StoredToken, subject: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": SECRET_NAME,
            "labels": {"app.kubernetes.io/managed-by": "tributary"},
            "annotations": {TOKEN_OF: subject, RENEW_AFTER: format_time(stored.renew_after)},
        },
        "type": "Opaque",
        "data": {"token": STANDARD.encode(stored.token.expose())},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_replaced_at_half_of_the_lifetime_that_the_hub_gives() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let answer = |status: Value| read_answer(&json!({"status": status}), now);
        let made = answer(json!({"token": "t", "expirationTimestamp": "2026-01-01T02:00:00Z"})).unwrap();
        assert_eq!(made.renew_after.to_string(), "2026-01-01T01:00:00Z");
        for (status, missing) in [
            (json!({"token": "", "expirationTimestamp": "2026-01-01T02:00:00Z"}), "token"),
            (json!({"token": "t"}), "expirationTimestamp"),
            (json!({"token": "t", "expirationTimestamp": "soon"}), "expirationTimestamp"),
            (Value::Null, "token"),
        ] {
            let error = answer(status).err().unwrap().to_string();
            assert!(error.ends_with(missing), "{error}");
        }
    }

    #[test]
    fn secret_keeps_the_token_of_its_account_and_audiences() {
        let stored =
            StoredToken { token: SecretText::new("hunter2"), renew_after: "2026-01-01T01:00:00Z".parse().unwrap() };
        let secret = secret_with(&stored, "fleet/reader tributary");
        assert!(read_secret(&secret, "fleet/reader tributary") == Some(stored));
        assert!(read_secret(&secret, "fleet/reader").is_none(), "the token has a different audience");
        for (pointer, value) in [
            ("/data/token", json!("!")),
            ("/data/token", json!("")),
            ("/metadata/annotations/tributary.dev~1renew-after", json!("later")),
        ] {
            let mut unusable = secret.clone();
            *unusable.pointer_mut(pointer).unwrap() = value;
            assert!(read_secret(&unusable, "fleet/reader tributary").is_none(), "{pointer}");
        }
    }
}

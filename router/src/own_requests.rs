//! Requests under Tributary's own account to clusters, to authenticate clients.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{Method, Request};
use tributary_apimachinery::ClusterName;
use tributary_sharing::body;

use crate::Router;
use crate::forward::send::look_up_with_own_account;

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// Path of the keys of a kube-apiserver's ServiceAccount tokens.
const SERVICE_ACCOUNT_KEYS: &str = "/openid/v1/jwks";
/// Maximal length of an answer in bytes: a user with some thousand groups, or some hundred keys.
const ANSWER_MAX: usize = 1 << 20;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Only media type of the key set: kube-apiserver answers 406 to a client that accepts only JSON.
const KEY_SET: HeaderValue = HeaderValue::from_static("application/jwk-set+json");

/// Error for a cluster without a usable answer to a request under Tributary's own account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// Cause, which quotes neither the request nor the cluster.
    pub reason: String,
    /// HTTP status code, if the cluster answered.
    pub status: Option<u16>,
}

impl Unanswered {
    /// Makes the error for a request without an answer.
    pub fn silent(reason: String) -> Self {
        Self { reason, status: None }
    }
}

impl Router {
    /// Returns the names of the clusters, sorted.
    pub fn cluster_names(&self) -> Vec<ClusterName> {
        self.fleet().clusters().keys().cloned().collect()
    }

    /// Posts a TokenReview to a cluster, and returns the TokenReview in its answer. The request gets a connection even
    /// if clients occupy all other connections, so the caller limits the number of concurrent reviews, and their time.
    /// A cluster with `dispatch: DenyAll` gets reviews, too: its users stay authenticated in other clusters, and one of
    /// them may have to repair the cluster. Cancellation is safe.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub async fn review_token(&self, cluster: &ClusterName, review: Vec<u8>) -> Result<Bytes, Unanswered> {
        self.send_with_own_account(cluster, (Method::POST, TOKEN_REVIEWS, JSON), body::full(Bytes::from(review))).await
    }

    /// Returns the keys of a cluster's ServiceAccounts, as a JSON Web Key Set. The request has a connection, limits and
    /// cancellation as in [`review_token`](Self::review_token).
    ///
    /// # Errors
    /// [`Unanswered`].
    pub async fn service_account_keys(&self, cluster: &ClusterName) -> Result<Bytes, Unanswered> {
        self.send_with_own_account(cluster, (Method::GET, SERVICE_ACCOUNT_KEYS, KEY_SET), body::empty()).await
    }

    async fn send_with_own_account(
        &self,
        name: &ClusterName,
        (method, path, accept): (Method, &str, HeaderValue),
        content: body::Body,
    ) -> Result<Bytes, Unanswered> {
        let cluster =
            self.fleet().cluster(name).ok_or_else(|| Unanswered::silent("there is no such cluster".to_owned()))?;
        let mut request = Request::new(content);
        *request.method_mut() = method;
        request.headers_mut().insert(ACCEPT, accept);
        request.headers_mut().insert(CONTENT_TYPE, JSON);
        let answer = look_up_with_own_account(&cluster, request, path).await;
        let answer = answer.map_err(|refusal| Unanswered::silent(refusal.to_string()))?;
        match answer.status().as_u16() {
            200 | 201 => {
                let text = body::whole_up_to(answer.into_body(), ANSWER_MAX).await;
                text.map_err(|_| Unanswered::silent("the answer broke off, or is too long".to_owned()))
            }
            code => Err(Unanswered { reason: unanswered(name, path, code), status: Some(code) }),
        }
    }
}

/// Returns the cause of an answer without success. An administrator can remedy a 401 and a 403, which do not depend on
/// a client.
fn unanswered(name: &ClusterName, path: &str, code: u16) -> String {
    match code {
        401 => "the cluster rejects Tributary's own credentials".to_owned(),
        403 => format!(
            "the cluster forbids Tributary's account to request {path}; allow it: tributary join CONTEXT --name \
             {name} --tokens"
        ),
        code => format!("the cluster answered {code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_refused_token_review_names_the_remedy() {
        let eu = ClusterName::new("eu").unwrap();
        let refused = unanswered(&eu, TOKEN_REVIEWS, 403);
        assert!(refused.ends_with("tokenreviews; allow it: tributary join CONTEXT --name eu --tokens"), "{refused}");
        assert_eq!(unanswered(&eu, TOKEN_REVIEWS, 500), "the cluster answered 500");
    }
}

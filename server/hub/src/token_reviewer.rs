//! Sends TokenReviews to the hub.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Method;
use serde_json::Value;
use tributary_apimachinery::ClusterName;
use tributary_authentication::TokenReviewer;

use crate::client::HubClient;

/// Sends TokenReviews to the hub, with Tributary's own account in the hub.
#[derive(Debug)]
pub struct HubTokenReviewer(pub Arc<HubClient>);

impl TokenReviewer for HubTokenReviewer {
    /// The name of the cluster is ignored: every review goes to the hub.
    fn review(&self, _: &ClusterName, body: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        let hub = Arc::clone(&self.0);
        async move {
            let review: Value = serde_json::from_slice(&body).map_err(|_| "the TokenReview is not JSON".to_owned())?;
            let path = "/apis/authentication.k8s.io/v1/tokenreviews";
            let answer = hub.send(Method::POST, path, "application/json", Some(&review)).await;
            answer.map(|answer| answer.to_string().into_bytes()).map_err(|error| error.reason_for_clients())
        }
        .boxed()
    }
}

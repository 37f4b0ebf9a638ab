//! Requests for a member's latest version of a collection, which concurrent reads share.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::time::timeout;
use tributary_apimachinery::{ResourceVersion, explain};
use tributary_cacher::Cacher;

/// Timeout of a request for the latest version. 3 s, as long as a read waits until the cache reaches a version.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// A request for the latest version, shared by all reads that started before the request was sent.
type SharedLatest = Shared<BoxFuture<'static, Result<ResourceVersion, Arc<str>>>>;

/// Sends requests for the latest version to one member, one at a time.
#[derive(Default)]
pub(super) struct LatestVersionRequests {
    next: Mutex<Option<SharedLatest>>,
    running: tokio::sync::Mutex<()>,
}

impl LatestVersionRequests {
    /// Returns the member's latest version of the collection. The version is at least as new as the start of this call.
    /// Cancellation is safe: other waiting reads continue the request.
    pub(super) async fn latest(self: &Arc<Self>, cacher: &Arc<Cacher>) -> Result<ResourceVersion, Arc<str>> {
        let start_request = self.next.lock().get_or_insert_with(|| self.start_request(Arc::clone(cacher))).clone();
        start_request.await
    }

    fn start_request(self: &Arc<Self>, cacher: Arc<Cacher>) -> SharedLatest {
        // Weak, because `next` stores the request: a strong reference would create a cycle.
        let latest_requests = Arc::downgrade(self);
        let start_request = async move {
            let Some(latest_requests) = latest_requests.upgrade() else {
                return Err("the collection is no longer cached".into());
            };
            let _turn = latest_requests.running.lock().await;
            // Reads that start from now on must share the next request, because the answer to this request may be older
            // than their start.
            latest_requests.next.lock().take();
            match timeout(ANSWER_WITHIN, cacher.latest()).await {
                Ok(answer) => answer.map_err(|error| explain(&error).into()),
                Err(_) => Err(format!("no answer within {} s", ANSWER_WITHIN.as_secs()).into()),
            }
        };
        start_request.boxed().shared()
    }
}

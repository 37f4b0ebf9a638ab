//! Requests for a member's latest version of a collection, which concurrent reads share.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::time::timeout;
use tributary_apimachinery::{ResourceVersion, explain};
use tributary_cacher::Cacher;

/// Timeout of a request for the latest version. A read waits equally long for a version.
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
    /// Returns the member's version of the collection, as of now or later. Cancellation is safe: other waiting reads
    /// continue the request.
    pub(super) async fn latest(self: &Arc<Self>, cacher: &Arc<Cacher>) -> Result<ResourceVersion, Arc<str>> {
        let start_request = self.next.lock().get_or_insert_with(|| self.start_request(Arc::clone(cacher))).clone();
        start_request.await
    }

    fn start_request(self: &Arc<Self>, cacher: Arc<Cacher>) -> SharedLatest {
        // A strong reference would create a cycle, because the request is stored in `next`.
        let latest_requests = Arc::downgrade(self);
        let start_request = async move {
            let Some(latest_requests) = latest_requests.upgrade() else {
                return Err("the collection is no longer cached".into());
            };
            let _turn = latest_requests.running.lock().await;
            // A read that starts after this line needs the next request.
            latest_requests.next.lock().take();
            match timeout(ANSWER_WITHIN, cacher.latest()).await {
                Ok(answer) => answer.map_err(|error| explain(&error).into()),
                Err(_) => Err(format!("no answer within {} s", ANSWER_WITHIN.as_secs()).into()),
            }
        };
        start_request.boxed().shared()
    }
}

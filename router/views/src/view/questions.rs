//! The question for a member's newest version, shared by all who ask for it.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::time::timeout;
use tributary_apimachinery::{ResourceVersion, explain};
use tributary_cacher::Cacher;

/// How long a member may take to say at which version it is. As long as a read waits for a version.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// One question, shared by all reads that came before it was put.
type SharedLatest = Shared<BoxFuture<'static, Result<ResourceVersion, Arc<str>>>>;

/// Asks one member, one question at a time.
#[derive(Default)]
pub(super) struct LatestVersionRequests {
    /// The one that has not been put yet.
    next: Mutex<Option<SharedLatest>>,
    /// Held while one is under way.
    turn: tokio::sync::Mutex<()>,
}

impl LatestVersionRequests {
    /// The member's version as of now or later. Cancelling is safe: others who wait go on with the question.
    pub(super) async fn latest(self: &Arc<Self>, cacher: &Arc<Cacher>) -> Result<ResourceVersion, Arc<str>> {
        let question = self.next.lock().get_or_insert_with(|| self.question(Arc::clone(cacher))).clone();
        question.await
    }

    fn question(self: &Arc<Self>, cacher: Arc<Cacher>) -> SharedLatest {
        // Not held by the question: it stands in there, and both would live for ever.
        let questions = Arc::downgrade(self);
        let question = async move {
            let Some(questions) = questions.upgrade() else { return Err("it is no longer held in memory".into()) };
            let _turn = questions.turn.lock().await;
            // Whoever comes from now on is not answered by this one.
            questions.next.lock().take();
            match timeout(ANSWER_WITHIN, cacher.latest()).await {
                Ok(answer) => answer.map_err(|error| explain(&error).into()),
                Err(_) => Err(format!("no answer within {} s", ANSWER_WITHIN.as_secs()).into()),
            }
        };
        question.boxed().shared()
    }
}

//! What the endpoint asks its clusters about clients' tokens: TokenReviews, and the keys of their ServiceAccounts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tributary_apimachinery::ClusterName;
use tributary_authentication::{JsonWebKeySet, TokenAuthenticator, TokenReviewer};
use tributary_router::Router;

/// How often is looked which keys are to be fetched. A new cluster's are known after that.
const ROUND: Duration = Duration::from_secs(10);
/// The age of keys at which they are fetched anew: a cluster that changes its key signs by the new one hours later, or
/// its own clients would be refused, too.
const KEYS_AGE: Duration = Duration::from_secs(300);
/// The same while tokens come whose keys no cluster is known to have, and after a failure.
const KEYS_AGE_WANTED: Duration = Duration::from_secs(30);
/// How long a cluster's troubles are told of once.
const SILENCE: Duration = Duration::from_secs(60);
/// Clusters that are asked at once, and how long each may take.
const AT_ONCE: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Has clusters review tokens, in the endpoint's own name.
pub struct ClusterReviewer(pub Arc<Router>);

impl fmt::Debug for ClusterReviewer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ClusterReviewer").finish_non_exhaustive()
    }
}

impl TokenReviewer for ClusterReviewer {
    fn review(&self, cluster: &ClusterName, body: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        let (router, cluster) = (Arc::clone(&self.0), cluster.clone());
        async move { router.review_token(&cluster, body).await.map(|answer| answer.to_vec()) }.boxed()
    }
}

/// Says when clusters' troubles with tokens are to be told: strangers, whose tokens meet them too, are not to fill the log.
#[derive(Debug, Default)]
pub struct ReviewTroubles(Mutex<BTreeMap<ClusterName, Instant>>);

impl ReviewTroubles {
    /// Whether none of this cluster's has been told for a minute. Then one is, now.
    pub fn is_news(&self, cluster: &ClusterName) -> bool {
        let mut told = self.0.lock();
        let is_news = told.get(cluster).is_none_or(|at| at.elapsed() >= SILENCE);
        if is_news {
            told.insert(cluster.clone(), Instant::now());
        }
        is_news
    }
}

/// What is known of a cluster's keys.
#[derive(Default)]
struct Known {
    keys: Option<(Bytes, JsonWebKeySet)>,
    asked: Option<Instant>,
    /// Why they could not be fetched the last time.
    problem: Option<String>,
}

impl Known {
    /// Whether they are to be fetched now.
    fn is_due(&self, wanted: bool) -> bool {
        let age = if wanted || self.problem.is_some() { KEYS_AGE_WANTED } else { KEYS_AGE };
        self.asked.is_none_or(|asked| asked.elapsed() >= age)
    }

    /// Takes over what a cluster said. Keys stay while it cannot be asked. Whether they are others now.
    fn take(&mut self, cluster: &ClusterName, answer: Result<Bytes, String>) -> bool {
        self.asked = Some(Instant::now());
        let read = answer.and_then(|text| match JsonWebKeySet::parse(&text) {
            Ok(keys) => Ok((text, keys)),
            Err(_) => Err("it serves no key set".to_owned()),
        });
        match read {
            Ok((text, keys)) => {
                self.problem = None;
                let changed = self.keys.as_ref().is_none_or(|(known, _)| *known != text);
                self.keys = Some((text, keys));
                changed
            }
            Err(problem) => {
                if self.problem.as_ref() != Some(&problem) {
                    tracing::info!(%cluster, problem, "the keys of the cluster's ServiceAccounts are not known; their \
                        tokens are nobody's here");
                }
                self.problem = Some(problem);
                false
            }
        }
    }
}

/// Keeps the authenticator told of the clusters' keys, for ever. Cancel: safe.
pub async fn follow_member_keys(router: Arc<Router>, tokens: Arc<TokenAuthenticator>) {
    let mut known: BTreeMap<ClusterName, Known> = BTreeMap::new();
    loop {
        let wanted = tokens.unknown_key().now_or_never().is_some();
        if round(&router, &mut known, wanted).await {
            let keys = |(name, known): (&ClusterName, &Known)| Some((name.clone(), known.keys.as_ref()?.1.clone()));
            tokens.set_member_keys(known.iter().filter_map(keys).collect());
        }
        sleep(ROUND).await;
    }
}

/// Fetches the keys that are due. Whether any are others now.
async fn round(router: &Router, known: &mut BTreeMap<ClusterName, Known>, wanted: bool) -> bool {
    let names = router.cluster_names();
    let before = known.len();
    known.retain(|name, _| names.contains(name));
    let mut changed = known.len() != before;
    let due = names.into_iter().filter(|name| known.get(name).is_none_or(|known| known.is_due(wanted)));
    let due: Vec<_> = due.collect();
    let mut answers = stream::iter(due)
        .map(|name| async move {
            let answer = timeout(TIMEOUT, router.service_account_keys(&name)).await;
            let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", TIMEOUT.as_secs())));
            (name, answer)
        })
        .buffer_unordered(AT_ONCE);
    while let Some((name, answer)) = answers.next().await {
        changed |= known.entry(name.clone()).or_default().take(&name, answer);
    }
    changed
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clusters_troubles_are_told_once_a_minute() {
        let (troubles, a) = (ReviewTroubles::default(), ClusterName::new("a").unwrap());
        assert!(troubles.is_news(&a) && !troubles.is_news(&a));
        assert!(troubles.is_news(&ClusterName::new("b").unwrap()));
        advance(SILENCE).await;
        assert!(troubles.is_news(&a) && !troubles.is_news(&a));
    }

    const SET: &str = r#"{"keys": []}"#;

    #[tokio::test(start_paused = true)]
    async fn keys_are_kept_while_a_cluster_is_down_and_asked_for_when_due() {
        let name = ClusterName::new("a").unwrap();
        let set = |text: &'static str| Ok(Bytes::from_static(text.as_bytes()));
        let mut known = Known::default();
        assert!(known.is_due(false));
        assert!(known.take(&name, set(SET)));
        assert!(!known.take(&name, set(SET)), "the same");
        assert!(!known.is_due(true));
        advance(KEYS_AGE_WANTED).await;
        assert_eq!((known.is_due(true), known.is_due(false)), (true, false));
        advance(KEYS_AGE).await;
        assert!(known.is_due(false));
        for broken in [Err("down".to_owned()), set("[]")] {
            assert!(!known.take(&name, broken));
            assert!(known.keys.is_some());
        }
        advance(KEYS_AGE_WANTED).await;
        assert!(known.is_due(false), "it is asked again sooner");
        assert!(known.take(&name, set(r#"{"keys": [ ]}"#)));
        assert_eq!(known.problem, None);
    }
}

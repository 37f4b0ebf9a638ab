//! Sends requests about clients' tokens to clusters. TokenReviews are repeated while long-running requests use the
//! token. Other requests fetch the keys that verify ServiceAccount tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use tributary_apimachinery::ClusterName;
use tributary_authentication::{JsonWebKeySet, MemberKeys, TokenAuthenticator, TokenReviewer};
use tributary_hub::HubClient;
use tributary_router::{Router, Unanswered};
use tributary_sources::data_directory::{DataDirectory, MEMBER_KEYS};

/// The interval of checks whether keys must be fetched or tokens must be reviewed again. The keys of a new cluster are
/// known after one interval.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// The age at which a cluster's keys are fetched again. A cluster signs with a new key only hours after publishing the
/// key, because its own API servers would otherwise refuse the new tokens.
const KEYS_AGE: Duration = Duration::from_secs(300);
/// The age at which a cluster's keys are fetched again in two cases: tokens with unknown keys arrive, or the last fetch
/// has failed.
const KEYS_AGE_WANTED: Duration = Duration::from_secs(30);
/// The least interval between two log lines about one cluster.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// The maximum number of concurrent fetches of clusters' keys.
const FETCHES_MAX: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(10);
/// The path of the hub's ServiceAccount keys. Each kube-apiserver serves its keys there.
const SERVICE_ACCOUNT_KEYS: &str = "/openid/v1/jwks";

/// Sends TokenReviews to clusters, with the endpoint's own credentials.
pub struct ClusterReviewer(pub Arc<Router>);

impl fmt::Debug for ClusterReviewer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ClusterReviewer").finish_non_exhaustive()
    }
}

impl TokenReviewer for ClusterReviewer {
    fn review(&self, cluster: &ClusterName, body: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        let (router, cluster) = (Arc::clone(&self.0), cluster.clone());
        async move {
            let answer = router.review_token(&cluster, body).await;
            answer.map(|answer| answer.to_vec()).map_err(|unanswered| unanswered.reason)
        }
        .boxed()
    }
}

/// Limits the log lines about clusters that fail to review tokens, because clients with invalid tokens must not fill
/// the log.
#[derive(Debug, Default)]
pub struct ReviewErrorLog(Mutex<BTreeMap<ClusterName, Instant>>);

impl ReviewErrorLog {
    /// Returns whether a log line about the cluster is due, and counts the line as written. A line about a cluster is
    /// due if the last one is at least a minute old.
    pub fn is_line_due(&self, cluster: &ClusterName) -> bool {
        let mut logged = self.0.lock();
        let is_line_due = logged.get(cluster).is_none_or(|at| at.elapsed() >= LOG_INTERVAL);
        if is_line_due {
            logged.insert(cluster.clone(), Instant::now());
        }
        is_line_due
    }
}

#[derive(Debug, PartialEq, Eq)]
enum MemberKeysAnswer {
    Served(JsonWebKeySet),
    /// The cluster serves no keys (404), or refuses them to this endpoint's account (403).
    None,
}

#[derive(Default)]
struct MemberKeyFetch {
    last_fetch: Option<Instant>,
    /// The reason why the last fetch of a cluster's keys failed.
    problem: Option<String>,
}

impl MemberKeyFetch {
    /// Returns whether a cluster's keys should be fetched now.
    fn is_due(&self, wanted: bool) -> bool {
        let age = if wanted || self.problem.is_some() { KEYS_AGE_WANTED } else { KEYS_AGE };
        self.last_fetch.is_none_or(|last_fetch| last_fetch.elapsed() >= age)
    }

    /// Records a cluster's answer to a request for its keys. Returns the keys; `None` if the cluster did not answer.
    fn record_keys(&mut self, cluster: &ClusterName, answer: Result<Bytes, Unanswered>) -> Option<MemberKeysAnswer> {
        self.record_answer(answer, |problem, is_answer| {
            let outcome = match is_answer {
                true => "their tokens are accepted only on the cluster's own path",
                false => {
                    "until the keys are known, ServiceAccount tokens of all clusters except the cluster of \
                     --token-review-cluster are refused on the merged endpoint"
                }
            };
            tracing::info!(%cluster, problem, "the keys of the cluster's ServiceAccounts cannot be read; {outcome}");
        })
    }

    /// Records an answer like [`Self::record_keys`]. Calls `log_problem` with each new problem, and with true if the
    /// cluster answered 403 or 404.
    fn record_answer(
        &mut self,
        answer: Result<Bytes, Unanswered>,
        log_problem: impl FnOnce(&str, bool),
    ) -> Option<MemberKeysAnswer> {
        self.last_fetch = Some(Instant::now());
        let (problem, is_answer) = match answer.as_deref().map(JsonWebKeySet::parse) {
            Ok(Ok(keys)) => {
                self.problem = None;
                return Some(MemberKeysAnswer::Served(keys));
            }
            // The answer may come from a proxy in front of the cluster, so the known keys stay.
            Ok(Err(_)) => ("the answer is not a key set".to_owned(), false),
            Err(unanswered) => (unanswered.reason.clone(), matches!(unanswered.status, Some(403 | 404))),
        };
        if self.problem.as_ref() != Some(&problem) {
            log_problem(&problem, is_answer);
        }
        self.problem = Some(problem);
        is_answer.then_some(MemberKeysAnswer::None)
    }
}

/// Repeats the TokenReviews for tokens of long-running requests. Long-running requests with a revoked token end. Never
/// completes. Cancel: safe.
pub async fn review_followed_tokens(router: Arc<Router>, tokens: Arc<TokenAuthenticator>) {
    loop {
        sleep(CHECK_INTERVAL).await;
        if tokens.review_followed().await {
            router.authentication_changed();
        }
    }
}

/// Fetches the ServiceAccount keys of all clusters repeatedly, and never completes. Passes the keys to the
/// authenticator and stores them in the data directory, so that the keys of an unreachable cluster are known after a
/// restart. Cancel: safe.
pub async fn follow_member_keys(router: Arc<Router>, tokens: Arc<TokenAuthenticator>, directory: DataDirectory) {
    let forgotten = forget_clusters(&router, &tokens);
    let mut keys = MEMBER_KEYS.read(&directory);
    let mut fetched: BTreeMap<ClusterName, MemberKeyFetch> = BTreeMap::new();
    let mut members_with_shared_keys = BTreeSet::new();
    let mut changes = router.cluster_changes();
    keys.follow(&router.cluster_names());
    tokens.set_member_keys(keys.clone());
    let mut are_others = false;
    loop {
        let wanted = tokens.unknown_key().now_or_never().is_some();
        changes.mark_unchanged();
        let names = router.cluster_names();
        fetched.retain(|name, _| names.contains(name));
        are_others |= forgotten.forget(&mut keys, &mut fetched);
        if keys.follow(&names) {
            // The authenticator must learn the names of new clusters before their keys are fetched. Otherwise, another
            // cluster that has a copy of a new cluster's key could review tokens of the new cluster.
            are_others = true;
            tokens.set_member_keys(keys.clone());
        }
        let followed = names.clone();
        are_others |= fetch_due(&router, names, &mut fetched, &mut keys, wanted).await;
        if forgotten.forget(&mut keys, &mut fetched) {
            // During the fetch, the cluster's name was reassigned to a different cluster, so the fetched keys may
            // belong to the previous cluster.
            are_others = true;
            continue;
        }
        if std::mem::take(&mut are_others) {
            tokens.set_member_keys(keys.clone());
            log_shared_keys(&keys, &mut members_with_shared_keys);
            let (directory, keys) = (directory.clone(), keys.clone());
            // `spawn_blocking` fails only at the end of the runtime.
            let _ = tokio::task::spawn_blocking(move || MEMBER_KEYS.write(&directory, &keys)).await;
        }
        // The next fetch of keys begins early if a cluster is new, or if a name was reassigned to a different cluster.
        let _ = timeout(CHECK_INTERVAL, async {
            tokio::select! {
                () = forgotten.wake.notified() => {}
                () = until_clusters_differ(&router, &mut changes, &followed) => {}
            }
        })
        .await;
    }
}

/// Fetches the ServiceAccount keys of the hub repeatedly, and passes them to the authenticator of the aggregated entry,
/// whose only cluster is `name`. A token with a valid signature spends nothing from the token bucket that all addresses
/// share. So random tokens of attackers do not block ServiceAccounts of the hub. Never completes. Cancel: safe.
pub async fn follow_hub_keys(hub: &HubClient, tokens: &TokenAuthenticator, name: ClusterName) {
    let (mut keys, mut fetch) = (MemberKeys::default(), MemberKeyFetch::default());
    loop {
        // The following fetch serves all tokens with unknown keys so far, so their notification is discarded.
        let _ = tokens.unknown_key().now_or_never();
        let answer = hub.get(SERVICE_ACCOUNT_KEYS).await.map(|keys| Bytes::from(keys.to_string()));
        let answer = answer.map_err(|error| Unanswered { reason: error.to_string(), status: error.code() });
        let answer = fetch.record_answer(answer, |problem, _| {
            tracing::info!(
                problem,
                "the keys of the hub's ServiceAccounts cannot be read: random tokens of other clients can delay their \
                 logins without the hub's kube-apiserver; allow GET of /openid/v1/jwks"
            );
        });
        let is_changed = match answer {
            Some(MemberKeysAnswer::Served(own)) => keys.set(name.clone(), own),
            Some(MemberKeysAnswer::None) => keys.set(name.clone(), JsonWebKeySet::default()),
            None => false,
        };
        if is_changed {
            tokens.set_member_keys(keys.clone());
        }
        sleep(KEYS_AGE_WANTED).await;
        if fetch.problem.is_none() {
            // The next fetch starts when this time has passed, or earlier when a token with an unknown key arrives.
            let _ = timeout(KEYS_AGE - KEYS_AGE_WANTED, tokens.unknown_key()).await;
        }
    }
}

/// Completes when the router's clusters differ from `followed`. Cancel: safe.
async fn until_clusters_differ(router: &Router, changes: &mut watch::Receiver<u64>, followed: &[ClusterName]) {
    while router.cluster_names() == followed {
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Cluster names that were reassigned to different clusters. The keys of the previous clusters must be removed.
#[derive(Default)]
struct ForgottenClusters {
    names: Mutex<Vec<ClusterName>>,
    wake: Notify,
}

impl ForgottenClusters {
    /// Removes the keys of clusters whose names were reassigned. Returns whether there were any such names.
    fn forget(&self, keys: &mut MemberKeys, fetched: &mut BTreeMap<ClusterName, MemberKeyFetch>) -> bool {
        let names = std::mem::take(&mut *self.names.lock());
        for cluster in &names {
            keys.forget(cluster);
            fetched.remove(cluster);
        }
        !names.is_empty()
    }
}

/// Registers a callback for the case that a name is reassigned to a different cluster. The callback removes the
/// previous cluster's tokens, and ends the streams that depend on these tokens.
fn forget_clusters(router: &Arc<Router>, tokens: &Arc<TokenAuthenticator>) -> Arc<ForgottenClusters> {
    let forgotten = Arc::<ForgottenClusters>::default();
    let (weak, tokens, noted) = (Arc::downgrade(router), Arc::clone(tokens), Arc::clone(&forgotten));
    router.on_cluster_forgotten(move |cluster| {
        noted.names.lock().push(cluster.clone());
        noted.wake.notify_one();
        if tokens.forget_cluster(cluster)
            && let Some(router) = weak.upgrade()
        {
            router.authentication_changed();
        }
    });
    forgotten
}

/// Logs pairs of clusters that begin or cease to share a key.
fn log_shared_keys(keys: &MemberKeys, logged: &mut BTreeSet<(ClusterName, ClusterName)>) {
    let now: BTreeSet<_> =
        keys.members_with_shared_keys().into_iter().map(|(one, other)| (one.clone(), other.clone())).collect();
    for (one, other) in now.difference(logged) {
        tracing::warn!(%one, %other,
            "two clusters have the same key for ServiceAccount tokens, so the key identifies neither; its tokens are \
             accepted only on the clusters' own paths, until one cluster is removed or has a different key");
    }
    for (one, other) in logged.difference(&now) {
        tracing::info!(%one, %other, "the two clusters no longer have the same key for ServiceAccount tokens");
    }
    *logged = now;
}

/// Fetches the keys that are due. If one of them is new, the keys of all other clusters are fetched, too: a key that
/// two clusters serve must never identify one of them. Returns whether any keys changed.
async fn fetch_due(
    router: &Router,
    names: Vec<ClusterName>,
    fetched: &mut BTreeMap<ClusterName, MemberKeyFetch>,
    keys: &mut MemberKeys,
    wanted: bool,
) -> bool {
    let is_due = |name: &ClusterName| fetched.get(name).is_none_or(|fetched| fetched.is_due(wanted));
    let (due, others): (Vec<_>, Vec<_>) = names.into_iter().partition(is_due);
    let mut said = fetch(router, due, fetched).await;
    let is_new = |(name, said): &(ClusterName, MemberKeysAnswer)| match said {
        MemberKeysAnswer::Served(own) => keys.differ(name, own),
        MemberKeysAnswer::None => false,
    };
    if said.iter().any(is_new) {
        said.extend(fetch(router, others, fetched).await);
    }
    let mut changed = false;
    for (name, said) in said {
        changed |= match said {
            MemberKeysAnswer::Served(own) => keys.set(name, own),
            MemberKeysAnswer::None => keys.set_without_keys(name),
        };
    }
    changed
}

/// Fetches the keys of these clusters. The result omits clusters that did not answer.
async fn fetch(
    router: &Router,
    names: Vec<ClusterName>,
    fetched: &mut BTreeMap<ClusterName, MemberKeyFetch>,
) -> Vec<(ClusterName, MemberKeysAnswer)> {
    let mut answers = stream::iter(names)
        .map(|name| async move {
            let answer = timeout(TIMEOUT, router.service_account_keys(&name)).await;
            let late = |_| Err(Unanswered::silent(format!("no answer within {} s", TIMEOUT.as_secs())));
            (name, answer.unwrap_or_else(late))
        })
        .buffer_unordered(FETCHES_MAX);
    let mut all = Vec::new();
    while let Some((name, answer)) = answers.next().await {
        let said = fetched.entry(name.clone()).or_default().record_keys(&name, answer);
        all.extend(said.map(|said| (name, said)));
    }
    all
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn token_review_failure_is_logged_once_a_minute_per_cluster() {
        let (review_errors, a) = (ReviewErrorLog::default(), ClusterName::new("a").unwrap());
        assert!(review_errors.is_line_due(&a) && !review_errors.is_line_due(&a));
        assert!(review_errors.is_line_due(&ClusterName::new("b").unwrap()));
        advance(LOG_INTERVAL).await;
        assert!(review_errors.is_line_due(&a) && !review_errors.is_line_due(&a));
    }

    const SET: &str = r#"{"keys": []}"#;

    #[tokio::test(start_paused = true)]
    async fn member_keys_are_fetched_again_sooner_after_a_failed_fetch() {
        let name = ClusterName::new("a").unwrap();
        let set = |text: &'static str| Ok(Bytes::from_static(text.as_bytes()));
        let mut fetched = MemberKeyFetch::default();
        assert!(fetched.is_due(false));
        assert!(matches!(fetched.record_keys(&name, set(SET)), Some(MemberKeysAnswer::Served(_))));
        assert!(!fetched.is_due(true));
        advance(KEYS_AGE_WANTED).await;
        assert_eq!((fetched.is_due(true), fetched.is_due(false)), (true, false));
        advance(KEYS_AGE).await;
        assert!(fetched.is_due(false));
        let refused = |status| Err(Unanswered { reason: "refused".to_owned(), status: Some(status) });
        for (answer, is_answer) in [
            (Err(Unanswered::silent("down".to_owned())), false),
            (refused(401), false),
            (refused(503), false),
            (refused(403), true),
            (refused(404), true),
            (set("[]"), false),
        ] {
            assert_eq!(fetched.record_keys(&name, answer), is_answer.then_some(MemberKeysAnswer::None));
        }
        advance(KEYS_AGE_WANTED).await;
        assert!(fetched.is_due(false), "it is asked again sooner");
        assert!(fetched.record_keys(&name, set(SET)).is_some());
        assert_eq!(fetched.problem, None);
    }
}

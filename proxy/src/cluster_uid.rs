//! Identity of the cluster behind the addresses: the uid of the namespace kube-system.
//!
//! An address can start to lead to a different cluster: a standby cluster takes over, or a cluster is created anew
//! under the same name. The new cluster's rights must not apply to objects, tokens and versions of the previous
//! cluster. So each new connection reads the uid before its first request (`pool/uid_request.rs`). A connection to a
//! different cluster is never used. The caller is notified ([`ClusterChanges`](crate::ClusterChanges)), forgets the
//! previous cluster, and then expects the new cluster
//! ([`ClusterClient::expect_cluster`](crate::ClusterClient::expect_cluster)).

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Duration, Instant};

/// The uid of the namespace kube-system, which identifies a cluster.
pub type ClusterUid = Arc<String>;

/// Maximal length of a uid, in bytes. Kubernetes generates uids of 36 bytes (RFC 4122).
const UID_BYTES_MAX: usize = 128;

/// Returns whether a text is a plausible uid. A cluster may report any text, and Tributary logs and stores uids.
pub fn is_uid(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !text.is_empty() && text.len() <= UID_BYTES_MAX && text.bytes().all(is_plain)
}

/// Time for which the servers of an expected cluster may refuse to report the uid (403, 404). After this time, they are
/// treated as a different cluster. Two minutes: a starting kube-apiserver forbids every request until it has read its
/// roles. Rights that an operator removed by mistake are usually restored within this time.
const WITHHELD_MAX: Duration = Duration::from_secs(120);

/// A cluster that answers at the client's addresses instead of the expected cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Successor {
    /// The new cluster has reported this uid.
    Uid(ClusterUid),
    /// The servers refuse to report a uid. Either another cluster answers, or the expected cluster no longer allows
    /// Tributary to read the uid.
    Withheld,
}

/// Result of the comparison of a reported uid with the expected uid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UidMatch {
    /// The connection leads to the expected cluster, or no cluster was expected before.
    Same,
    /// The connection leads to another cluster.
    Other,
}

/// The expected cluster of a client. All connections of the client share this state.
#[derive(Debug, Default)]
pub(crate) struct KnownCluster(watch::Sender<UidState>);

#[derive(Clone, Debug, Default)]
struct UidState {
    /// Whether new connections read the uid. False until the first `expect`.
    is_uid_required: bool,
    /// Whether every connection is refused, because the member's name is about to refer to another cluster.
    is_closed: bool,
    uid: Option<ClusterUid>,
    is_confirmed: bool,
    successor: Option<Successor>,
    /// Time at which the servers began to refuse to report the uid.
    withheld_since: Option<Instant>,
    /// Number of times that the member's name has started to refer to another cluster. A request that arrived before
    /// the last such change is refused.
    generation: u64,
}

impl KnownCluster {
    /// Makes each new connection read the uid of its cluster. With `None`, the first reported uid becomes the expected
    /// uid.
    pub(crate) fn expect(&self, uid: Option<ClusterUid>) {
        self.0.send_modify(|known| {
            let generation = known.generation;
            *known = UidState { is_uid_required: true, uid, generation, ..UidState::default() };
        });
    }

    /// Refuses every connection until the next [`expect`](Self::expect).
    pub(crate) fn close(&self) {
        self.0.send_modify(|known| {
            (known.is_uid_required, known.is_closed) = (true, true);
            known.generation += 1;
        });
    }

    pub(crate) fn is_uid_required(&self) -> bool {
        self.0.borrow().is_uid_required
    }

    /// Returns how often the member's name has started to refer to another cluster.
    pub(crate) fn generation(&self) -> u64 {
        self.0.borrow().generation
    }

    /// Returns whether a server that reports no uid is accepted, because no uid is expected yet.
    pub(crate) fn is_open_to_any(&self) -> bool {
        let known = self.0.borrow();
        known.uid.is_none() && !known.is_closed
    }

    pub(crate) fn uid(&self) -> Option<ClusterUid> {
        self.0.borrow().uid.clone()
    }

    pub(crate) fn is_confirmed(&self) -> bool {
        self.0.borrow().is_confirmed
    }

    /// Compares a reported uid with the expected uid. Without an expected uid, the reported uid becomes the expected
    /// uid.
    pub(crate) fn compare(&self, reported: &ClusterUid) -> UidMatch {
        let mut compared = UidMatch::Same;
        self.0.send_if_modified(|known| {
            if known.is_closed {
                compared = UidMatch::Other;
                return false;
            }
            match &known.uid {
                None => {
                    (known.uid, known.is_confirmed) = (Some(reported.clone()), true);
                    true
                }
                Some(uid) if uid == reported => {
                    known.withheld_since = None;
                    !std::mem::replace(&mut known.is_confirmed, true)
                }
                Some(_) => {
                    compared = UidMatch::Other;
                    let successor = Some(Successor::Uid(reported.clone()));
                    let is_news = known.successor != successor;
                    known.successor = successor;
                    is_news
                }
            }
        });
        compared
    }

    pub(crate) fn record_withheld(&self) {
        self.0.send_if_modified(|known| {
            if known.uid.is_none() || known.is_closed || known.successor.is_some() {
                return false;
            }
            let since = *known.withheld_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= WITHHELD_MAX {
                known.successor = Some(Successor::Withheld);
            }
            known.successor.is_some()
        });
    }

    pub(crate) fn successor(&self) -> Option<Successor> {
        self.0.borrow().successor.clone()
    }

    pub(crate) fn changes(&self) -> ClusterChanges {
        ClusterChanges(self.0.subscribe())
    }
}

/// A receiver of notifications that another cluster answers at a client's addresses.
#[derive(Debug)]
pub struct ClusterChanges(watch::Receiver<UidState>);

impl ClusterChanges {
    /// Waits until another cluster answers at the addresses. Pends for ever after the client is dropped. Cancel-safe.
    pub async fn succeeded(&mut self) {
        if self.0.wait_for(|known| known.successor.is_some()).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_with_another_uid_is_treated_as_a_new_cluster() {
        let known = KnownCluster::default();
        assert!(!known.is_uid_required());
        known.expect(None);
        let (a, b): (ClusterUid, ClusterUid) = (Arc::new("a".to_owned()), Arc::new("b".to_owned()));
        assert_eq!((known.compare(&a), known.uid()), (UidMatch::Same, Some(a.clone())));
        assert_eq!((known.compare(&a), known.successor()), (UidMatch::Same, None));
        assert_eq!((known.compare(&b), known.uid()), (UidMatch::Other, Some(a.clone())));
        assert_eq!(known.successor(), Some(Successor::Uid(b.clone())));
        known.expect(Some(b.clone()));
        assert_eq!((known.uid(), known.successor()), (Some(b.clone()), None));
        assert_eq!(known.compare(&a), UidMatch::Other);
        let before = known.generation();
        known.close();
        assert_eq!((known.compare(&a), known.compare(&b)), (UidMatch::Other, UidMatch::Other));
        known.expect(None);
        assert_eq!((known.compare(&a), known.generation()), (UidMatch::Same, before + 1));
    }

    #[tokio::test(start_paused = true)]
    async fn cluster_that_reports_no_uid_for_minutes_is_treated_as_a_new_cluster() {
        let known = KnownCluster::default();
        known.expect(None);
        known.record_withheld();
        assert_eq!(known.successor(), None, "nothing is known of it");
        let a: ClusterUid = Arc::new("a".to_owned());
        known.compare(&a);
        known.record_withheld();
        tokio::time::advance(WITHHELD_MAX / 2).await;
        known.compare(&a);
        known.record_withheld();
        tokio::time::advance(WITHHELD_MAX / 2).await;
        known.record_withheld();
        assert_eq!(known.successor(), None, "it has told its uid meanwhile");
        tokio::time::advance(WITHHELD_MAX / 2).await;
        known.record_withheld();
        assert_eq!(known.successor(), Some(Successor::Withheld));
    }

    #[test]
    fn cluster_uid_must_be_short_plain_text() {
        assert!(is_uid("0b4c7a2e-8f6d-4c4e-9d53-0d6c3f1e2a11"));
        for text in ["", "a b", "a\nb", "\u{e4}", &"a".repeat(UID_BYTES_MAX + 1)] {
            assert!(!is_uid(text), "{text:?}");
        }
    }
}

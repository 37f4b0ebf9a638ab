//! Identity of the cluster behind the addresses, by the uid of the namespace kube-system.
//!
//! An address can begin to lead to a different cluster: a standby takes over, or a cluster is created anew behind the
//! same name. Objects, tokens and versions of the earlier cluster must not meet the rights of its successor. So each
//! new connection asks for the uid before it carries a request (`pool/uid_question.rs`), and a connection to a
//! different cluster is never used. The caller learns of the successor ([`ClusterChanges`](crate::ClusterChanges)),
//! forgets the earlier cluster, and then expects the successor
//! ([`ClusterClient::expect_cluster`](crate::ClusterClient::expect_cluster)).

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Duration, Instant};

/// The uid of the namespace kube-system.
pub type ClusterUid = Arc<String>;

/// The longest uid that is taken, in bytes. Kubernetes' own have 36 (RFC 4122).
const UID_BYTES_MAX: usize = 128;

/// Whether a text can be a uid. A cluster may report any text, and uids are logged and stored.
pub fn is_uid(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !text.is_empty() && text.len() <= UID_BYTES_MAX && text.bytes().all(is_plain)
}

/// Time for which servers of a known cluster may refuse to report the uid (403, 404). Afterwards the cluster counts as
/// a different one. Two minutes: a kube-apiserver that has just started forbids everything until it has read its roles,
/// and rights that were removed by mistake are back by then.
const WITHHELD_MAX: Duration = Duration::from_secs(120);

/// A cluster that answers at the addresses of a client in the place of the known cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Successor {
    /// The successor has reported this uid.
    Uid(ClusterUid),
    /// The successor refuses to report its uid. The known cluster may have removed the right.
    Withheld,
}

/// Result of the comparison with the known cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UidMatch {
    /// The connection leads to the cluster that the client knows, or to the first cluster of the client.
    Same,
    /// The connection leads to another cluster.
    Other,
}

/// The cluster that a client knows; shared by all connections of the client.
#[derive(Debug, Default)]
pub(crate) struct KnownCluster(watch::Sender<UidState>);

#[derive(Clone, Debug, Default)]
struct UidState {
    /// Whether connections ask for the uid. A client does not until its caller wants it.
    is_asked: bool,
    /// Whether every connection is refused: the name is about to mean another cluster.
    is_closed: bool,
    uid: Option<ClusterUid>,
    /// Whether a connection has reported the uid.
    is_confirmed: bool,
    successor: Option<Successor>,
    /// Time since which servers have refused to report the known uid.
    withheld_since: Option<Instant>,
    /// Raised when the name begins to mean another cluster.
    generation: u64,
}

impl KnownCluster {
    /// Has each new connection ask for the uid, and expects this one; `None` expects the first that comes.
    pub(crate) fn expect(&self, uid: Option<ClusterUid>) {
        self.0.send_modify(|known| {
            let generation = known.generation;
            *known = UidState { is_asked: true, uid, generation, ..UidState::default() };
        });
    }

    /// Refuses every connection until a cluster is [expected](Self::expect).
    pub(crate) fn close(&self) {
        self.0.send_modify(|known| {
            (known.is_asked, known.is_closed) = (true, true);
            known.generation += 1;
        });
    }

    /// Whether connections ask for the uid.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.borrow().is_asked
    }

    /// Number of times that the name has changed its cluster.
    pub(crate) fn generation(&self) -> u64 {
        self.0.borrow().generation
    }

    /// Whether a cluster without a uid counts as the expected one: no uid is known.
    pub(crate) fn is_open_to_any(&self) -> bool {
        let known = self.0.borrow();
        known.uid.is_none() && !known.is_closed
    }

    /// uid of the cluster; `None` until it is reported.
    pub(crate) fn uid(&self) -> Option<ClusterUid> {
        self.0.borrow().uid.clone()
    }

    /// Whether a connection has proved that it leads to the expected cluster.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.0.borrow().is_confirmed
    }

    /// Compares a reported uid with that of the known cluster, and takes over the first one.
    pub(crate) fn compare(&self, told: &ClusterUid) -> UidMatch {
        let mut compared = UidMatch::Same;
        self.0.send_if_modified(|known| {
            if known.is_closed {
                compared = UidMatch::Other;
                return false;
            }
            match &known.uid {
                None => {
                    (known.uid, known.is_confirmed) = (Some(told.clone()), true);
                    true
                }
                Some(uid) if uid == told => {
                    known.withheld_since = None;
                    !std::mem::replace(&mut known.is_confirmed, true)
                }
                Some(_) => {
                    compared = UidMatch::Other;
                    let successor = Some(Successor::Uid(told.clone()));
                    let is_news = known.successor != successor;
                    known.successor = successor;
                    is_news
                }
            }
        });
        compared
    }

    /// Records that a server has refused to report the uid.
    pub(crate) fn note_withheld(&self) {
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

    /// The other cluster that answers at the addresses by now.
    pub(crate) fn successor(&self) -> Option<Successor> {
        self.0.borrow().successor.clone()
    }

    /// Notified when another cluster answers at the addresses.
    pub(crate) fn changes(&self) -> ClusterChanges {
        ClusterChanges(self.0.subscribe())
    }
}

/// Notified when another cluster answers at a client's addresses.
#[derive(Debug)]
pub struct ClusterChanges(watch::Receiver<UidState>);

impl ClusterChanges {
    /// Waits until another cluster answers at the addresses. Pends for ever once the client is gone. Cancel: nothing is
    /// lost.
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
    fn cluster_with_another_uid_is_a_successor() {
        let known = KnownCluster::default();
        assert!(!known.is_asked());
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
    async fn cluster_that_withholds_its_uid_for_long_counts_as_another() {
        let known = KnownCluster::default();
        known.expect(None);
        known.note_withheld();
        assert_eq!(known.successor(), None, "nothing is known of it");
        let a: ClusterUid = Arc::new("a".to_owned());
        known.compare(&a);
        known.note_withheld();
        tokio::time::advance(WITHHELD_MAX / 2).await;
        known.compare(&a);
        known.note_withheld();
        tokio::time::advance(WITHHELD_MAX / 2).await;
        known.note_withheld();
        assert_eq!(known.successor(), None, "it has told its uid meanwhile");
        tokio::time::advance(WITHHELD_MAX / 2).await;
        known.note_withheld();
        assert_eq!(known.successor(), Some(Successor::Withheld));
    }

    #[test]
    fn a_uid_is_short_and_plain() {
        assert!(is_uid("0b4c7a2e-8f6d-4c4e-9d53-0d6c3f1e2a11"));
        for text in ["", "a b", "a\nb", "\u{e4}", &"a".repeat(UID_BYTES_MAX + 1)] {
            assert!(!is_uid(text), "{text:?}");
        }
    }
}

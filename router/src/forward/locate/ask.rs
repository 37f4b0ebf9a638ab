//! The question where an object is, put to members that are asked live.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tributary_apimachinery::{ClusterName, Object, ObjectDecodeError, ObjectDecoder};

use crate::caller::CallerKey;
use crate::flow::fair_share::Portion;
use crate::flow::holder::Holder;
use crate::forward::ask::{Question, Reply, ask_each};
use crate::refusal::{Refusal, Trouble};
use crate::topology::Cluster;
use crate::view::standing::Standing;

/// The cluster that has an object, and the object as last seen; `None` where it has no version (a ComponentStatus,
/// for example).
pub(crate) type Found = (Arc<Cluster>, Option<Arc<Object>>);

/// Where an object of this name is.
#[derive(Clone, Default)]
pub(crate) struct Located {
    /// The clusters that have one, with the object as last seen.
    pub(crate) found: Vec<Found>,
    /// The clusters of which it is not known.
    pub(crate) unknown: Vec<ClusterName>,
    /// Whether some cluster may have one of which it is not known whether the caller may know of it: nobody is told its
    /// name.
    pub(crate) is_one_unknown: bool,
    /// What keeps some of those from being asked, as far as more is known than of the clusters as such.
    pub(crate) told: Vec<Trouble>,
    /// How clusters stand that count by what is held of them, and of which that is old or not all: an answer that the
    /// object is nowhere warns of these.
    pub(super) doubtful: Vec<(ClusterName, Standing)>,
    /// The clusters that forbid the client to ask for it. For a write of the name itself they are asked whether they
    /// forbid that, too, and count as not having it if they do; where it decides about something else they may have it.
    pub(crate) forbidden: Vec<ClusterName>,
    /// What one of those said.
    pub(super) denied: Option<Refusal>,
    /// Why one of the unknown clusters was not asked, where that is this process's own want of room: 429.
    pub(in crate::forward) not_put: Option<Refusal>,
    /// What the objects occupy of the bytes that may be held, as long as they are.
    pub(super) room: Vec<Arc<Portion>>,
}

impl Located {
    /// Whether nothing was found of which more could be said.
    pub(super) fn is_nowhere(&self) -> bool {
        self.found.is_empty()
    }

    /// Whether a cluster forbids to look, or was not asked: then that is told in the place of 404.
    pub(in crate::forward) fn is_refused(&self) -> bool {
        self.is_denied() || self.not_put.is_some()
    }

    /// Whether a cluster was asked for it and forbids that.
    pub(in crate::forward) fn is_denied(&self) -> bool {
        self.denied.is_some()
    }

    /// Whether a cluster has not said whether it has one, though it was asked.
    pub(super) fn lacks_answer_of(&self, cluster: &ClusterName) -> bool {
        self.unknown.contains(cluster) || self.forbidden.contains(cluster)
    }

    fn add(&mut self, cluster: Arc<Cluster>, object: Option<Arc<Object>>, room: Portion) {
        self.found.push((cluster, object));
        self.room.push(Arc::new(room));
    }

    pub(super) fn not_told(&mut self, cluster: &Cluster, cause: String) {
        self.told.push(Trouble { cluster: cluster.name().clone(), cause, age: None });
        self.unknown.push(cluster.name().clone());
    }

    pub(super) fn not_asked(&mut self, cluster: &Cluster, why: Refusal) {
        self.unknown.push(cluster.name().clone());
        self.not_put = Some(why);
    }

    /// Adds the answers of clusters that were asked because memory has no object of the name. A cluster with cached
    /// objects that does not answer counts by memory.
    pub(super) fn learn(&mut self, asked: Self, is_asked: impl Fn(&ClusterName) -> bool) {
        let answers = |name: &ClusterName| is_asked(name) && !asked.unknown.contains(name);
        let was_unknown = std::mem::take(&mut self.unknown);
        let is_new = |name: &ClusterName| was_unknown.contains(name);
        self.forbidden.extend(asked.forbidden.iter().filter(|name| is_new(name)).cloned());
        self.told.extend(asked.told.iter().filter(|trouble| is_new(&trouble.cluster)).cloned());
        self.doubtful.retain(|(name, _)| !is_asked(name) || asked.lacks_answer_of(name));
        self.unknown = was_unknown.iter().filter(|name| !answers(name)).cloned().collect();
        self.take(asked);
    }

    /// Takes over what was found, or refused, when it was asked for live. What is not known is judged by whoever asked.
    pub(super) fn take(&mut self, asked: Self) {
        (self.found, self.room) = (asked.found, asked.room);
        self.denied = self.denied.take().or(asked.denied);
        self.not_put = self.not_put.take().or(asked.not_put);
    }
}

/// What is asked of members, in whose name: requests of one client that ask the same share the question.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct LookupKey {
    /// Whose place in the line it takes. Another client's may be far behind: whoever asks for thousands of names would
    /// keep others from those.
    pub(super) holder: Holder,
    pub(super) path: Arc<str>,
    /// Who asks.
    pub(super) caller: CallerKey,
    pub(super) clusters: Box<[ClusterName]>,
    /// How long each may take.
    pub(super) within: Duration,
}

/// Asks these clusters where an object is.
pub(super) async fn ask(clusters: Vec<Arc<Cluster>>, question: Question) -> Located {
    let mut replies = ask_each(clusters, question).await;
    replies.sort_by(|(first, _), (second, _)| first.name().cmp(second.name()));
    let mut located = Located::default();
    for (cluster, reply) in replies {
        match reply {
            Reply::Answer(StatusCode::NOT_FOUND, ..) => {}
            Reply::Answer(StatusCode::OK, text, room) => match ObjectDecoder::for_forwarding().decode(&text) {
                Ok(object) => located.add(cluster, Some(Arc::new(object)), room),
                Err(ObjectDecodeError::Missing(_)) => located.add(cluster, None, room),
                Err(error) => located.not_told(&cluster, format!("its answer cannot be read: {error}")),
            },
            Reply::Forbidden(refusal) => {
                located.forbidden.push(cluster.name().clone());
                located.denied = Some(refusal);
            }
            Reply::Answer(code, ..) => located.not_told(&cluster, format!("it answered {code}")),
            Reply::Unanswered(cause) => located.not_told(&cluster, cause),
            Reply::NotPut(why) => located.not_asked(&cluster, why),
        }
    }
    located
}

#[cfg(test)]
mod tests {
    use http::{Extensions, HeaderMap, HeaderValue};
    use prometheus_client::metrics::counter::Counter;
    use tokio::time::timeout;

    use super::*;
    use crate::body::WHOLE_BODY_BYTES_MAX;
    use crate::caller::Caller;
    use crate::flow::fair_share::{FairShare, ShareMetrics};
    use crate::forward::ask::Patience;
    use crate::topology::{ClusterAddress, ClusterSetup, MemberShareMetrics, MemberUnreadBytes};
    use crate::{ClusterAuthorization, MemberRules};

    #[tokio::test(start_paused = true)]
    async fn who_was_not_asked_is_not_known() {
        let name = ClusterName::new("a").unwrap();
        let setup = ClusterSetup {
            name: name.clone(),
            client: Err("a test".to_owned()),
            client_generation: 0,
            address: ClusterAddress::of(""),
            index: None,
            impersonation: MemberRules::default(),
            authorization: ClusterAuthorization::Auto,
        };
        let cluster = Cluster::new(
            setup,
            Default::default(),
            &Arc::default(),
            &MemberUnreadBytes::default(),
            &MemberShareMetrics::default(),
        );
        let caller =
            Caller::of(&HeaderMap::new(), &Extensions::new(), &crate::User::named("test", "owner"), None).unwrap();
        let within = Duration::from_secs(3);
        let mut turns = Vec::new();
        while let Ok(turn) = timeout(within, cluster.question(caller.holder)).await {
            turns.push(turn);
        }
        let question = Question {
            path: "/api".into(),
            review: None,
            accept: HeaderValue::from_static("application/json"),
            caller,
            held_bytes: FairShare::new("bytes", WHOLE_BODY_BYTES_MAX, ShareMetrics::default()),
            answer_bytes_max: WHOLE_BODY_BYTES_MAX,
            patience: Patience::Each(within),
            put: Counter::default(),
        };
        let located = ask(vec![cluster], question).await;
        assert_eq!(located.unknown, [name]);
        let said = located.not_put.map(|refusal| refusal.status().code);
        assert_eq!(said, Some(429));
    }
}

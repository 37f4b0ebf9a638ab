//! The question where an object is, put to members that are asked live.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use http::{HeaderName, HeaderValue, Request, StatusCode, header};
use tributary_apimachinery::{ClusterName, Object, ObjectDecodeError, ObjectDecoder};

use crate::body::{self, WHOLE_BODY_BYTES_MAX};
use crate::caller::Caller;
use crate::flow::fair_share::{Exceeded, FairShare, Holder, Portion};
use crate::forward::send;
use crate::refusal::{LimitRefusal, MemberRefusal, Refusal, Trouble};
use crate::topology::Cluster;

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
    /// What keeps some of those from being asked, as far as more is known than of the clusters as such.
    pub(crate) told: Vec<Trouble>,
    /// The clusters that forbid the client to ask for it. Whoever may not get a name there cannot write it there, so that
    /// for a write of the name itself they count as not having it; where it decides about something else they may.
    pub(crate) forbidden: Vec<ClusterName>,
    /// What a cluster said that forbids the client to ask for it, or why one was not asked.
    pub(crate) refusal: Option<Refusal>,
    /// Why one of the unknown clusters was not asked, or its answer cannot be read.
    pub(super) unreadable: Option<Refusal>,
    /// What the objects occupy of the bytes that may be held, as long as they are.
    pub(super) room: Vec<Arc<Portion>>,
}

impl Located {
    /// Whether nothing was found of which more could be said.
    pub(super) fn is_nowhere(&self) -> bool {
        self.found.is_empty()
    }

    /// Takes over what was found, or refused, when it was asked for live. What is not known is judged by whoever asked.
    pub(super) fn take(&mut self, asked: Self) {
        (self.found, self.room) = (asked.found, asked.room);
        self.refusal = self.refusal.take().or(asked.refusal);
        self.unreadable = asked.unreadable;
    }
}

/// What is asked of members, in whose name: requests of one client that ask the same share the question.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct LookupKey {
    /// Whose place in the line it takes. Another client's may be far behind: whoever asks for thousands of names would
    /// keep others from those.
    pub(super) connection: Holder,
    pub(super) path: Arc<str>,
    /// Whom the client asks to be, if it does.
    pub(super) impersonation: Box<[(HeaderName, HeaderValue)]>,
    pub(super) clusters: Box<[ClusterName]>,
    /// How long each may take.
    pub(super) within: Duration,
}

/// Asks these clusters, some at once, each when it is the turn of the client whose request put the question.
pub(super) async fn ask(
    clusters: Vec<Arc<Cluster>>,
    path: Arc<str>,
    caller: Caller,
    bytes: Arc<FairShare>,
    within: Duration,
) -> Located {
    let asked = clusters.into_iter().map(|cluster| {
        let (path, caller, room) = (Arc::clone(&path), caller.clone(), bytes.take(caller.connection, 0));
        async move {
            let told = match tokio::time::timeout(within, cluster.question(caller.connection)).await {
                Ok(_turn) => match room {
                    Ok(room) => Box::pin(ask_one(&cluster, &path, &caller, room, within)).await,
                    Err(exceeded) => Told::NotAsked(no_room(&cluster, exceeded)),
                },
                // Nothing is known of it, not even that it does not answer.
                Err(_) => Told::NotAsked(LimitRefusal::Questions { cluster: cluster.name().clone() }.into()),
            };
            (told, cluster)
        }
    });
    let mut answers: Vec<_> = stream::iter(asked).buffer_unordered(ASKED_AT_ONCE).collect().await;
    answers.sort_by(|(_, first), (_, second)| first.name().cmp(second.name()));
    let mut located = Located::default();
    for (answer, cluster) in answers {
        match answer {
            Told::Object(object, room) => {
                located.found.push((cluster, object));
                located.room.push(Arc::new(room));
            }
            Told::None => {}
            Told::Forbidden(refusal) => {
                located.forbidden.push(cluster.name().clone());
                located.refusal = Some(refusal);
            }
            Told::NotAsked(why) => {
                located.unknown.push(cluster.name().clone());
                located.refusal = Some(why.clone());
                located.unreadable = Some(why);
            }
            Told::Unreadable(why) => {
                located.unknown.push(cluster.name().clone());
                located.unreadable = Some(why);
            }
            Told::Nothing(cause) => {
                located.told.push(Trouble { cluster: cluster.name().clone(), cause, age: Duration::ZERO });
                located.unknown.push(cluster.name().clone());
            }
        }
    }
    located
}

async fn ask_one(cluster: &Arc<Cluster>, path: &str, caller: &Caller, room: Portion, within: Duration) -> Told {
    let mut question = Request::new(body::empty());
    question.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let asked = async { told(cluster, send::ask(cluster, caller, question, path).await, room).await };
    let silent = |_| Told::Nothing(format!("it did not answer within {} s", within.as_secs()));
    tokio::time::timeout(within, asked).await.unwrap_or_else(silent)
}

/// How many members are asked at once for one object. 64: a fleet of 1,000 is asked in 16 rounds,
/// half a second at 30 ms each.
const ASKED_AT_ONCE: usize = 64;

/// What a cluster told of an object.
enum Told {
    /// It has one, with its version if it has that, and what that occupies.
    Object(Option<Arc<Object>>, Portion),
    /// It has none.
    None,
    /// It forbids to ask.
    Forbidden(Refusal),
    /// It was not its turn in time, or there was no room for what it says.
    NotAsked(Refusal),
    /// Its answer cannot be read, and why.
    Unreadable(Refusal),
    /// It gave no answer, and why.
    Nothing(String),
}

/// What an answer says, read whole in a room that grows with it.
async fn told(cluster: &Cluster, answer: Result<http::Response<body::Body>, Refusal>, mut room: Portion) -> Told {
    let answer = match answer {
        Ok(answer) => answer,
        Err(refusal) => return Told::Nothing(refusal.status().message),
    };
    let code = answer.status();
    if code == StatusCode::NOT_FOUND {
        return Told::None;
    }
    let text = match body::whole_within(answer.into_body(), WHOLE_BODY_BYTES_MAX, &mut room).await {
        Ok(text) => text,
        Err(error) => {
            return match error.downcast_ref::<Exceeded>() {
                Some(exceeded) => Told::NotAsked(no_room(cluster, *exceeded)),
                None => {
                    let cause = format_args!("its answer: {error}");
                    Told::Unreadable(MemberRefusal::unavailable(cluster.name(), cause).into())
                }
            };
        }
    };
    match code {
        StatusCode::OK => match ObjectDecoder::new("", "", Arc::default()).decode(&text) {
            Ok(object) => Told::Object(Some(Arc::new(object)), room),
            Err(ObjectDecodeError::Missing(_)) => Told::Object(None, room),
            Err(error) => Told::Nothing(format!("its answer cannot be read: {error}")),
        },
        StatusCode::FORBIDDEN => Told::Forbidden(Refusal::said(code, &text)),
        code => Told::Nothing(format!("it answered {code}")),
    }
}

/// 429: what a cluster says of an object cannot be held, so that it is not known.
fn no_room(cluster: &Cluster, exceeded: Exceeded) -> Refusal {
    LimitRefusal::ClusterAnswer { cluster: cluster.name().clone(), exceeded }.into()
}

#[cfg(test)]
mod tests {
    use http::{Extensions, HeaderMap};
    use tokio::time::timeout;

    use super::*;
    use crate::flow::fair_share::ShareMetrics;
    use crate::topology::{ClusterSetup, MemberShareMetrics};

    #[tokio::test(start_paused = true)]
    async fn who_was_not_asked_is_not_known() {
        let name = ClusterName::new("a").unwrap();
        let (client, fingerprint) = (Err("a test".to_owned()), String::new());
        let setup = ClusterSetup { name: name.clone(), client, fingerprint, index: None };
        let cluster = Cluster::new(setup, None, &Arc::default(), &MemberShareMetrics::default());
        let caller = Caller::of(&HeaderMap::new(), &Extensions::new()).unwrap();
        let within = Duration::from_secs(3);
        let mut turns = Vec::new();
        while let Ok(turn) = timeout(within, cluster.question(caller.connection)).await {
            turns.push(turn);
        }
        let bytes = FairShare::new("bytes", WHOLE_BODY_BYTES_MAX, ShareMetrics::default());
        let located = ask(vec![cluster], "/api".into(), caller, bytes, within).await;
        assert_eq!(located.unknown, [name]);
        let said = located.refusal.map(|refusal| refusal.status().code);
        assert_eq!(said, Some(429));
    }
}

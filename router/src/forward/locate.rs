//! Finding the cluster that owns an object.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header};
use tributary_apimachinery::{ClusterName, DecodeError, Object, ObjectDecoder, ResourceRequest, Status};

use crate::Router;
use crate::body::{self, WHOLE_BODY_BYTES_MAX};
use crate::discovery::ServedResource;
use crate::flow::fair_share::{Exceeded, FairShare, Holder, Portion};
use crate::forward::send::{self, impersonation};
use crate::topology::Cluster;
use crate::view::KNOWN_WITHIN;

/// The cluster that has an object, and the object as last seen; `None` where it has no version (a ComponentStatus, say).
pub type Found = (Arc<Cluster>, Option<Arc<Object>>);

/// Where an object of this name is.
#[derive(Clone, Default)]
pub struct Located {
    /// The clusters that have one, with the object as last seen.
    pub found: Vec<Found>,
    /// The clusters of which it is not known.
    pub unknown: Vec<ClusterName>,
    /// What a cluster said that forbids the client to ask for it.
    pub refusal: Option<Status>,
    /// Why the answer of one of the unknown clusters cannot be read.
    unreadable: Option<Status>,
    /// What the objects occupy of the bytes that may be held, as long as they are.
    room: Vec<Arc<Portion>>,
}

impl Located {
    /// The owner. `named` is the cluster that the body's annotation names: it chooses among several, and must be the owner.
    ///
    /// # Errors
    /// 409 where several have the name and none is chosen, or another is named than has it.
    pub fn owner(
        &self,
        router: &Router,
        request: &ResourceRequest,
        named: Option<&str>,
        path: &str,
    ) -> Result<Option<Found>, Status> {
        let name = request.name.as_deref().unwrap_or_default();
        if let Some(named) = named {
            let chosen = self.found.iter().find(|(cluster, _)| cluster.name().as_str() == named);
            return match (chosen, self.found.first()) {
                (Some((cluster, object)), _) => Ok(Some((Arc::clone(cluster), object.clone()))),
                (None, Some(_)) if self.unknown.iter().any(|unknown| unknown.as_str() == named) => {
                    Err(self.missing(router, request))
                }
                (None, Some((owner, _))) => Err(Status::wrong_cluster(&request.resource, name, named, owner.name())),
                (None, None) => Ok(None),
            };
        }
        match &self.found[..] {
            [] => Ok(None),
            [(cluster, object)] => Ok(Some((Arc::clone(cluster), object.clone()))),
            several => {
                let clusters: Vec<_> = several.iter().map(|(cluster, _)| cluster.name().clone()).collect();
                Err(Status::ambiguous(&request.resource, name, &clusters, path))
            }
        }
    }

    /// Whether nothing was found of which more could be said.
    fn is_nowhere(&self) -> bool {
        self.found.is_empty()
    }

    /// Why there is no owner: 503 while a cluster is unknown, 403 where one forbids to ask, or 404.
    pub fn missing(&self, router: &Router, request: &ResourceRequest) -> Status {
        let name = request.name.as_deref().unwrap_or_default();
        match (&self.unreadable, &self.refusal) {
            (Some(unreadable), _) if !self.unknown.is_empty() => unreadable.clone(),
            _ if !self.unknown.is_empty() => router.owner_unknown(&request.resource, name, &self.unknown),
            (_, Some(refusal)) => refusal.clone(),
            (_, None) => Status::not_found(&request.resource, name),
        }
    }

    /// Takes over what was found, or refused, when it was asked for live. What is not known is judged by whoever asked.
    fn take(&mut self, asked: Self) {
        (self.found, self.room) = (asked.found, asked.room);
        self.refusal = self.refusal.take().or(asked.refusal);
        self.unreadable = asked.unreadable;
    }
}

/// Who asks where an object is.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    /// What a request says of whom it is sent for.
    headers: &'a HeaderMap,
    /// Whose place in the line it takes.
    holder: Holder,
}

impl<'a> Asker<'a> {
    /// Who sent a request, by its parts.
    pub fn of(headers: &'a HeaderMap, extensions: &Extensions) -> Self {
        Self { headers, holder: extensions.get().copied() }
    }
}

/// Finds the clusters that have the object: in memory, or by asking each where it is not held.
///
/// # Errors
/// 504 where this process's own writes of the object are not seen within 3 s.
pub async fn locate(
    router: &Router,
    request: &ResourceRequest,
    served: &ServedResource,
    asker: Asker<'_>,
) -> Result<Located, Status> {
    if router.is_held(served, request.namespace.as_deref()) {
        let located = in_memory(router, request, served, asker.holder).await?;
        return Ok(if located.found.is_empty() {
            left_out(router, request, served, asker, located).await
        } else {
            located
        });
    }
    let mut located = live(router, request, served, asker, KNOWN_WITHIN, |_| true).await;
    located.unknown.extend(router.fleet().undiscovered().iter().map(|cluster| cluster.name().clone()));
    Ok(located)
}

/// As [`locate`], but an object of which memory knows nothing is asked for before it is said not to be there: it may have been
/// made past this process a moment ago.
///
/// # Errors
/// As [`locate`].
pub async fn locate_now(
    router: &Router,
    request: &ResourceRequest,
    served: &ServedResource,
    asker: Asker<'_>,
) -> Result<Located, Status> {
    let mut located = locate(router, request, served, asker).await?;
    if located.found.is_empty() && router.is_held(served, request.namespace.as_deref()) {
        let reachable =
            |cluster: &Arc<Cluster>| cluster.problem().is_none() && !located.unknown.contains(cluster.name());
        let asked = live(router, request, served, asker, ASKED_WITHIN, reachable);
        // Who does not answer in time is known by what memory says of it.
        located.take(asked.await);
    }
    Ok(located)
}

/// As [`locate`], for what is to be made where the object is, or because there is none: what memory does not know is asked for, and a
/// cluster that does not answer is unknown, whatever memory says of it. `is_meant` chooses among objects of one name.
///
/// # Errors
/// As [`locate`].
pub async fn locate_surely(
    router: &Router,
    request: &ResourceRequest,
    served: &ServedResource,
    asker: Asker<'_>,
    is_meant: impl Fn(&Found) -> bool,
) -> Result<Located, Status> {
    let mut located = locate(router, request, served, asker).await?;
    located.found.retain(&is_meant);
    // Where there is one cluster there is nothing to choose.
    let several = router.fleet().clusters().len() > 1;
    if several && located.found.is_empty() && router.is_held(served, request.namespace.as_deref()) {
        located = live(router, request, served, asker, ASKED_WITHIN, |_| true).await;
        located.found.retain(&is_meant);
        located.unknown.extend(router.fleet().undiscovered().iter().map(|cluster| cluster.name().clone()));
    }
    Ok(located)
}

/// Looks for an object that no cluster of the merged view has in the others. So a name of the view is an object of the view.
async fn left_out(
    router: &Router,
    request: &ResourceRequest,
    served: &ServedResource,
    asker: Asker<'_>,
    mut located: Located,
) -> Located {
    let names = router.left_out(served);
    if !names.is_empty() {
        let chosen = |cluster: &Arc<Cluster>| names.contains(cluster.name());
        let asked = live(router, request, served, asker, ASKED_WITHIN, chosen).await;
        let silent = names.into_iter().filter(|name| !served.clusters.contains(name));
        located.unknown.extend(asked.unknown.iter().cloned().chain(silent));
        located.take(asked);
    }
    located
}

/// Finds an object that is no longer where it was found a moment ago: asks the other clusters.
pub async fn locate_elsewhere(
    router: &Router,
    request: &ResourceRequest,
    served: &ServedResource,
    asker: Asker<'_>,
    before: &ClusterName,
) -> Located {
    let mut located = live(router, request, served, asker, ASKED_WITHIN, |cluster| cluster.name() != before).await;
    located.unknown.extend(router.fleet().undiscovered().iter().map(|cluster| cluster.name().clone()));
    located
}

async fn in_memory(
    router: &Router,
    request: &ResourceRequest,
    served: &ServedResource,
    holder: Holder,
) -> Result<Located, Status> {
    let (view, before) = router.view(served, request.namespace.as_deref(), holder).await?;
    let key = request.key();
    view.own_writes_of_seen(&key).await?;
    let (found, standings) = view.find(before, &key)?;
    let found =
        found.into_iter().filter_map(|(name, object)| Some((router.fleet().cluster(&name)?, Some(object)))).collect();
    let unknown = standings.unknown().cloned().collect();
    Ok(Located { found, unknown, ..Located::default() })
}

/// What is asked of members, in whose name: requests of one client that ask the same share the question.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Question {
    /// Whose place in the line it takes. Another client's may be far behind: who asks for thousands of names would keep others from those.
    holder: Holder,
    path: Arc<str>,
    /// Whom the client asks to be, if it does.
    impersonation: Box<[(HeaderName, HeaderValue)]>,
    clusters: Box<[ClusterName]>,
    /// How long each may take.
    within: Duration,
}

/// Asks each of the chosen clusters for the object, in the client's name, from now on: no answer is taken that was asked for before.
/// One that does not answer in time is among the unknown ones.
async fn live(
    router: &Router,
    request: &ResourceRequest,
    served: &ServedResource,
    asker: Asker<'_>,
    within: Duration,
    chosen: impl Fn(&Arc<Cluster>) -> bool,
) -> Located {
    let mut path = request.resource.path(request.namespace.as_deref());
    path.push('/');
    path.push_str(
        &percent_encoding::utf8_percent_encode(request.name.as_deref().unwrap_or_default(), PATH_SEGMENT).to_string(),
    );
    let clusters = served.clusters.iter().filter_map(|name| router.fleet().cluster(name)).filter(chosen);
    let clusters: Vec<_> = clusters.collect();
    let impersonation = impersonation(asker.headers);
    let question = Question {
        holder: asker.holder,
        path: path.into(),
        impersonation: impersonation.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        clusters: clusters.iter().map(|cluster| cluster.name().clone()).collect(),
        within,
    };
    let bytes = Arc::clone(router.held_bytes());
    let put = || ask(clusters, Arc::clone(&question.path), impersonation, asker.holder, bytes, within);
    router.locations().ask(question.clone(), put, Located::is_nowhere).await
}

/// Asks these clusters, some at once, each when it is the turn of the client whose request put the question.
async fn ask(
    clusters: Vec<Arc<Cluster>>,
    path: Arc<str>,
    impersonation: HeaderMap,
    holder: Holder,
    bytes: Arc<FairShare>,
    within: Duration,
) -> Located {
    let asked = clusters.into_iter().map(|cluster| {
        let (path, impersonation, room) = (Arc::clone(&path), impersonation.clone(), bytes.take(holder, 0));
        async move {
            let told = match tokio::time::timeout(within, cluster.question(holder)).await {
                Ok(_turn) => match room {
                    Ok(room) => Box::pin(ask_one(&cluster, &path, impersonation, room, within)).await,
                    Err(exceeded) => Told::Refusal(no_room(&cluster, exceeded)),
                },
                // It has not been asked, so that nothing is known of it, not even that it does not answer.
                Err(_) => Told::Refusal(Status::too_many_requests(
                    format!(
                        "cluster {} is asked for too many other objects by this connection, or by all",
                        cluster.name()
                    ),
                    1,
                )),
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
            Told::Refusal(refusal) => located.refusal = Some(refusal),
            Told::Unreadable(why) => {
                located.unknown.push(cluster.name().clone());
                located.unreadable = Some(why);
            }
            Told::Nothing => located.unknown.push(cluster.name().clone()),
        }
    }
    located
}

async fn ask_one(
    cluster: &Arc<Cluster>,
    path: &str,
    impersonation: HeaderMap,
    room: Portion,
    within: Duration,
) -> Told {
    let mut question = Request::new(body::empty());
    question.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    question.headers_mut().extend(impersonation);
    let asked = async { told(cluster, send::ask(cluster, question, path).await, room).await };
    tokio::time::timeout(within, asked).await.unwrap_or(Told::Nothing)
}

/// How many members are asked at once for one object. 64: a fleet of 1,000 is asked in 16 rounds, half a second at 30 ms each.
const ASKED_AT_ONCE: usize = 64;

/// How long members may take to say whether they have an object of which memory knows nothing, in seconds.
const ASKED_WITHIN: Duration = Duration::from_secs(3);

/// What must be escaped in a segment of a path (RFC 3986 `pchar`), for names that RBAC objects may have.
const PATH_SEGMENT: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// What a cluster told of an object.
enum Told {
    /// It has one, with its version if it has that, and what that occupies.
    Object(Option<Arc<Object>>, Portion),
    /// It has none.
    None,
    /// It forbids to ask, or there was no room to ask it.
    Refusal(Status),
    /// Its answer cannot be read, and why.
    Unreadable(Status),
    /// It gave no answer.
    Nothing,
}

/// What an answer says, read whole in a room that grows with it.
async fn told(cluster: &Cluster, answer: Result<http::Response<body::Body>, Status>, mut room: Portion) -> Told {
    let Ok(answer) = answer else { return Told::Nothing };
    let code = answer.status();
    if code == StatusCode::NOT_FOUND {
        return Told::None;
    }
    let text = match body::whole_within(answer.into_body(), WHOLE_BODY_BYTES_MAX, &mut room).await {
        Ok(text) => text,
        Err(error) => {
            return match error.downcast_ref::<Exceeded>() {
                Some(exceeded) => Told::Refusal(no_room(cluster, *exceeded)),
                None => Told::Unreadable(Status::cluster_unavailable(cluster.name(), format!("its answer: {error}"))),
            };
        }
    };
    match code {
        StatusCode::OK => match ObjectDecoder::new("", "", Arc::default()).decode(&text) {
            Ok(object) => Told::Object(Some(Arc::new(object)), room),
            Err(DecodeError::Missing(_)) => Told::Object(None, room),
            Err(_) => Told::Nothing,
        },
        StatusCode::FORBIDDEN => Told::Refusal(Status::from_response(code.as_u16(), &text)),
        _ => Told::Nothing,
    }
}

/// 429: what a cluster says of an object cannot be held, so that it is not known.
fn no_room(cluster: &Cluster, exceeded: Exceeded) -> Status {
    let mut status = Status::from(exceeded);
    status.message = format!("cluster {}: no room for what it says of the object: {exceeded}", cluster.name());
    status
}

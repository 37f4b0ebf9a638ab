//! Finding the cluster that owns an object.

mod ask;
mod may_write;
mod no_owner;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::{ClusterName, Object, Verb};
use tributary_fleet::metrics::QuestionAbout;
use tributary_fleet::topology::Cluster;
use tributary_merge::CompositeResourceVersion;
use tributary_sharing::body::WHOLE_BODY_BYTES_MAX;
use tributary_views::view::standing::{self, Standings};
use tributary_views::view::{KNOWN_WITHIN, View, WrittenBy};

pub(crate) use self::no_owner::unknown;
use super::ask::{Patience, Question};
use crate::grounds::{self, AnswerOrigin, Meaning, NoOwner};
pub(crate) use crate::located::{FoundObject, Located, LookupKey};
use crate::request::ClientRequest;
use crate::versions::ClientVersion;

impl Located {
    /// The owner, by what the request says of it.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn owner(&self, meaning: Meaning<'_>) -> Result<FoundObject, NoOwner> {
        let clusters: Vec<_> = self.found.iter().map(|(cluster, _)| cluster.name()).collect();
        let owner = grounds::owner(&clusters, self.unknown.iter(), meaning);
        let is_guess = |owner: &usize| match meaning {
            Meaning::Known | Meaning::Annotated(_) => false,
            Meaning::Only => true,
            Meaning::Of(cluster) => self.found[*owner].0.name() != cluster,
        };
        match owner {
            Err(NoOwner::Nowhere) if self.is_one_unknown => Err(NoOwner::RightsUnknown),
            Ok(owner) if self.is_one_unknown && is_guess(&owner) => Err(NoOwner::RightsUnknown),
            owner => Ok(self.found[owner?].clone()),
        }
    }

    /// The object of a cluster, as last seen.
    pub(crate) fn object_of(&self, cluster: &ClusterName) -> Option<Arc<Object>> {
        let (_, object) = self.found.iter().find(|(own, _)| own.name() == cluster)?;
        object.clone()
    }

    /// Whether it cannot be said of the object of a request that it is nowhere: a cluster forbids to look, or was not
    /// asked.
    pub(crate) fn leaves_open(&self, request: ClientRequest<'_>) -> bool {
        self.not_put.is_some() || self.denial_for_client(request).is_some()
    }

    /// Why there is no owner, as the client is told: that a cluster was not asked, which is worth to try again; or in
    /// the 403 of a cluster that forbids the get.
    pub(crate) fn refuse(&self, request: ClientRequest<'_>, none: NoOwner) -> Refusal {
        let denied = self.denial_for_client(request);
        match (grounds::choose_answer_origin(&none, self.not_put.is_some(), denied.is_some()), &self.not_put, denied) {
            (AnswerOrigin::NotAsked, Some(not_put), _) => not_put.clone(),
            (AnswerOrigin::Forbidding, _, Some(denied)) => denied.clone(),
            _ => none.refusal(request, &self.told).with_warnings(|| {
                let doubtful: Standings = self.doubtful.iter().cloned().collect();
                standing::warnings(&request.resource.resource, &doubtful)
            }),
        }
    }

    /// The 403 of a cluster, if the client gets it as the answer.
    fn denial_for_client(&self, request: ClientRequest<'_>) -> Option<&Refusal> {
        let is_get = request.info.verb == Verb::Get && request.resource.subresource.is_none();
        let is_shared = request.caller.rights().is_some();
        self.denied.as_ref().filter(|_| grounds::is_denial_told(is_shared, request.is_held(), is_get))
    }
}

/// How an object is looked for: by what its place is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup<'a> {
    /// What memory knows is enough.
    Held,
    /// The object is to be there: one of which memory knows nothing is asked for before it is said not to be there. It
    /// may have been made past this process a moment ago.
    Present,
    /// The object is made if there is none: as [`Present`](Self::Present), but a cluster that can be reached and does
    /// not answer is unknown, for it may have been made there a moment ago. One that is out of reach is known by what
    /// memory says of it, as where a new object is posted.
    ToMake,
    /// Something is to be made where the object is: what memory does not know is asked for, and a cluster that does not
    /// answer is unknown, whatever memory says of it.
    Surely {
        /// Which of the objects of this name is meant; `None` for any.
        uid: Option<&'a str>,
    },
    /// It is no longer in this cluster, where it was found a moment ago: the others are asked.
    Elsewhere(&'a ClusterName),
}

impl Lookup<'_> {
    /// Whether an object of the name is meant.
    fn means(self, (_, object): &FoundObject) -> bool {
        match self {
            Self::Surely { uid: Some(uid) } => object.as_ref().is_some_and(|object| object.uid() == uid),
            _ => true,
        }
    }
}

/// Finds the clusters that have the object: in memory, or by a request to each cluster whose objects memory lacks.
/// `seen` are the client's versions of the object: memory answers as soon as it is as new as they are. If no cluster
/// has the object, Tributary asks clusters for their discovery again, and new ones for the object.
///
/// # Errors
/// 504 if this process's own writes of the object do not appear within 3 s; 429 without room for a further namespace,
/// or if the request's schema has no room for a question to the clusters.
pub(crate) async fn locate(
    request: ClientRequest<'_>,
    lookup: Lookup<'_>,
    seen: &[ClientVersion],
) -> Result<Located, Refusal> {
    let mut found = located(request, lookup, seen).await?;
    if found.is_nowhere()
        && lookup != Lookup::Held
        && let Some(renewed) = Box::pin(request.renewed()).await
    {
        found = Box::pin(located(renewed.renew_request(request), lookup, seen)).await?;
    }
    Ok(Located { is_one_unknown: request.candidates.is_one_unknown(), ..found })
}

/// As [`locate`], among the clusters of which it is known that they are candidates.
async fn located(request: ClientRequest<'_>, lookup: Lookup<'_>, seen: &[ClientVersion]) -> Result<Located, Refusal> {
    if let Lookup::Elsewhere(before) = lookup {
        return asked_of_all(request, ASKED_WITHIN, |cluster| cluster.name() != before).await;
    }
    if !request.is_held() {
        let mut located = asked_of_all(request, KNOWN_WITHIN, |_| true).await?;
        located.found.retain(|found| lookup.means(found));
        return Ok(located);
    }
    let (view, mut located) = in_memory(request).await?;
    // While members are asked the view is left to others: one of a namespace counts as used as long as it is held.
    let mut view = Some(view);
    if located.found.is_empty() {
        view = None;
        located = left_out(request, located).await?;
    }
    located.found.retain(|found| lookup.means(found));
    if located.found.is_empty() {
        view = None;
        located = not_held(request, lookup, located).await?;
    }
    as_seen(request, view, located, seen).await
}

/// Finds out whether the object is the only one of its name, for what must not be done to one of several: asks the
/// clusters of which memory knows nothing, and which can be reached, whether they have one, too; and those that forbid
/// the client to ask whether they forbid the write as well.
///
/// # Errors
/// As [`ask_unknown`].
pub(crate) async fn only(request: ClientRequest<'_>, located: Located) -> Result<Located, Refusal> {
    let located = ask_unknown(request, located).await?;
    Ok(may_write::ask_forbidding_clusters(request, located).await)
}

/// Asks the reachable clusters whose objects memory lacks for an object of the name, too.
///
/// # Errors
/// 429 if the request's schema has no room for a question to the clusters.
pub(crate) async fn ask_unknown(request: ClientRequest<'_>, mut located: Located) -> Result<Located, Refusal> {
    let unknown = located.unknown.clone();
    let is_askable = |cluster: &Arc<Cluster>| unknown.contains(cluster.name()) && cluster.can_be_asked();
    if located.found.is_empty() || !request.is_held() || unknown.is_empty() {
        return Ok(located);
    }
    let asked: Vec<_> = request.clusters().into_iter().filter(|own| is_askable(own)).collect();
    let answers = live(request, ASKED_WITHIN, is_askable).await?;
    let has_answered = |name: &ClusterName| {
        request.served.clusters.contains(name)
            && asked.iter().any(|cluster| cluster.name() == name)
            && !answers.unknown.contains(name)
    };
    located.unknown.retain(|name| !has_answered(name));
    located.forbidden.extend(answers.forbidden);
    located.told.extend(answers.told);
    located.not_put = located.not_put.take().or(answers.not_put);
    located.found.extend(answers.found);
    located.room.extend(answers.room);
    Ok(located)
}

/// What memory knows of an object, and what it knows it from.
async fn in_memory(request: ClientRequest<'_>) -> Result<(Arc<View>, Located), Refusal> {
    let (view, before) = request.view().await?;
    let key = request.resource.key();
    let clusters = request.candidates.selector();
    view.writes_of_seen(WrittenBy::Anybody, &clusters, &key).await?;
    let (found, standings) = view.find(before, &key)?;
    let found: Vec<_> =
        found.into_iter().filter_map(|(name, object)| Some((request.cluster(&name)?, Some(object)))).collect();
    let unknown = standings.may_have().filter(|name| request.candidates.has(name)).cloned().collect();
    let mut told = standings.troubles();
    told.retain(|trouble| request.candidates.has(&trouble.cluster));
    let doubtful = standings.doubtful().filter(|(name, _)| request.candidates.has(name));
    let doubtful = doubtful.map(|(name, standing)| (name.clone(), standing.clone())).collect();
    Ok((view, Located { found, unknown, told, doubtful, ..Located::default() }))
}

/// Looks for an object that no cluster of the merged view has in the others.
/// So a name of the view is an object of the view.
async fn left_out(request: ClientRequest<'_>, mut located: Located) -> Result<Located, Refusal> {
    let names = request.left_out();
    if !names.is_empty() {
        let chosen = |cluster: &Arc<Cluster>| names.contains(cluster.name());
        let asked = live(request, ASKED_WITHIN, chosen).await?;
        let unasked = names.into_iter().filter(|name| !request.served.clusters.contains(name));
        located.unknown.extend(asked.unknown.iter().cloned().chain(unasked));
        located.forbidden.extend(asked.forbidden.iter().cloned());
        located.told.extend(asked.told.iter().cloned().chain(request.undescribed()));
        located.take_over(asked);
    }
    Ok(located)
}

/// Finds an object that memory does not have.
async fn not_held(request: ClientRequest<'_>, lookup: Lookup<'_>, mut located: Located) -> Result<Located, Refusal> {
    match lookup {
        Lookup::Present => {
            let is_asked: BTreeSet<_> = request.serving().filter(|name| request.can_ask(name)).cloned().collect();
            let asked = live(request, ASKED_WITHIN, |cluster| is_asked.contains(cluster.name())).await?;
            located.learn(asked, |name| is_asked.contains(name));
            Ok(located)
        }
        // A single cluster needs no question, unless memory cannot tell whether the cluster has the object.
        Lookup::ToMake if request.clusters().len() > 1 || !located.unknown.is_empty() => {
            asked_of_reachable(request, located).await
        }
        Lookup::Surely { .. } if request.clusters().len() > 1 || !located.unknown.is_empty() => {
            let mut asked = asked_of_all(request, ASKED_WITHIN, |_| true).await?;
            asked.found.retain(|found| lookup.means(found));
            Ok(asked)
        }
        Lookup::Held | Lookup::ToMake | Lookup::Surely { .. } | Lookup::Elsewhere(_) => Ok(located),
    }
}

/// Asks all clusters that can be reached. Of the others stays unknown what `located` says so of.
async fn asked_of_reachable(request: ClientRequest<'_>, located: Located) -> Result<Located, Refusal> {
    let mut asked = asked_of_all(request, ASKED_WITHIN, |cluster| cluster.can_be_asked()).await?;
    let is_out_of_reach = |name: &ClusterName| !request.cluster(name).is_some_and(|own| own.can_be_asked());
    asked.unknown.extend(located.unknown.into_iter().filter(is_out_of_reach));
    // The last discovery of a cluster out of reach counts, as cached objects of other clusters do.
    let serves_none = |cluster: &Arc<Cluster>| {
        cluster.is_out_of_reach() && request.configuration.is_unserved(cluster, request.served)
    };
    asked.unknown.retain(|name| !request.cluster(name).is_some_and(|own| serves_none(&own)));
    asked.unknown.sort();
    asked.unknown.dedup();
    asked.told.extend(located.told.into_iter().filter(|trouble| is_out_of_reach(&trouble.cluster)));
    asked.doubtful = located.doubtful.into_iter().filter(|(name, _)| is_out_of_reach(name)).collect();
    Ok(asked)
}

/// The object as it is once memory knows as much of its cluster as the client does, who may have it from a live read,
/// from an event of another process, or from a write past this one. Without this its fresh version
/// would be taken for a stale one.
///
/// # Errors
/// As [`locate`]. A version that does not come is no error here: the member judges what is sent.
async fn as_seen(
    request: ClientRequest<'_>,
    view: Option<Arc<View>>,
    located: Located,
    seen: &[ClientVersion],
) -> Result<Located, Refusal> {
    if seen.is_empty() || located.found.is_empty() {
        return Ok(located);
    }
    let view = match view {
        Some(view) => view,
        None => request.view().await?.0,
    };
    let of_owners = located.found.iter().flat_map(|(cluster, _)| {
        let name = cluster.name();
        seen.iter().filter_map(move |given| Some((name.clone(), given.component(name)?)))
    });
    let mut missing = CompositeResourceVersion::new();
    for (cluster, version) in of_owners {
        if view.version_of(&cluster).is_none_or(|own| own < version) {
            missing.raise(&cluster, version);
        }
    }
    if missing.is_empty() {
        return Ok(located);
    }
    let _ = view.reached(&missing).await;
    drop(view);
    let (_, again) = in_memory(request).await?;
    let again = if again.found.is_empty() { left_out(request, again).await? } else { again };
    Ok(if again.found.is_empty() { located } else { again })
}

/// Asks all chosen clusters. A cluster that may serve the resource without listing it may have the object, and so may a
/// cluster without a description of the version.
async fn asked_of_all(
    request: ClientRequest<'_>,
    within: Duration,
    chosen: impl Fn(&Arc<Cluster>) -> bool,
) -> Result<Located, Refusal> {
    let mut located = live(request, within, chosen).await?;
    located.unknown.extend(request.may_serve().iter().map(|cluster| cluster.name().clone()));
    located.unknown.extend(request.undescribed().iter().map(|trouble| trouble.cluster.clone()));
    located.told.extend(request.undescribed());
    Ok(located)
}

/// Asks each of the chosen clusters for the object, in the client's name, from now on: no answer is taken that was
/// asked for before. One that does not answer in time is among the unknown ones.
///
/// # Errors
/// 429 where the request's schema lets in no more for which clusters would be asked: then nobody is.
async fn live(
    request: ClientRequest<'_>,
    within: Duration,
    chosen: impl Fn(&Arc<Cluster>) -> bool,
) -> Result<Located, Refusal> {
    let ClientRequest { router, caller, resource, .. } = request;
    let escaped = |text: &str| percent_encoding::utf8_percent_encode(text, PATH_SEGMENT).to_string();
    let mut path = resource.resource.path(resource.namespace.as_deref().map(escaped).as_deref());
    path.push('/');
    path.push_str(&escaped(resource.name.as_deref().unwrap_or_default()));
    let clusters = request.serving().filter_map(|name| request.cluster(name)).filter(chosen);
    let clusters: Vec<_> = clusters.collect();
    if is_below_alone(request) {
        let is_read = request.info.verb == Verb::Get;
        match resource.subresource.as_deref().filter(|_| is_read && clusters.len() > 1) {
            Some(below) => path = format!("{path}/{below}"),
            None => {
                return Ok(Located {
                    found: clusters.into_iter().map(|own| (own, None)).collect(),
                    ..Default::default()
                });
            }
        }
    }
    let question = LookupKey {
        holder: caller.holder,
        path: path.into(),
        caller: caller.key(),
        clusters: clusters.iter().map(|cluster| cluster.name().clone()).collect(),
        within,
    };
    let put = || {
        let asked = Question {
            path: Arc::clone(&question.path),
            review: None,
            accept: HeaderValue::from_static("application/json"),
            caller: caller.of_shared_question(),
            held_bytes: Arc::clone(router.held_bytes()),
            answer_bytes_max: WHOLE_BODY_BYTES_MAX,
            patience: Patience::Each(within),
            put: router.metrics().questions(QuestionAbout::Name),
        };
        ask::ask_clusters(clusters, asked)
    };
    Ok(router.locations().share_question(question.clone(), put, Located::is_nowhere).await)
}

/// Whether a request is for a subresource whose object cannot be read: servers of custom metrics and of virtual
/// machines list subresources alone. Then each cluster that serves the subresource may have it, and a read tries
/// several.
fn is_below_alone(request: ClientRequest<'_>) -> bool {
    request.resource.subresource.is_some()
        && !request.resource.resource.is_built_in()
        && !request.served.description.has_verb("get")
}

/// How long members may take to say whether they have an object of which memory knows nothing.
const ASKED_WITHIN: Duration = Duration::from_secs(3);

/// Characters that need an escape in a segment of a path (RFC 3986 `pchar`). Names of RBAC objects may have them.
const PATH_SEGMENT: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'`')
    .add(b'{')
    .add(b'}');

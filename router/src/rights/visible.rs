//! What one caller may read of one resource, cluster by cluster, at one moment: made here, and nowhere else.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tributary_apimachinery::{ClusterName, GroupVersionResource, Partial, RequestInfo};
use tributary_authentication::{AUTHENTICATED_GROUP, MemberRules, NotSent, UserInfo};
use tributary_authorization::{Attributes, FleetRights, ResourceAttributes, User, Visible};

use super::actor::{Actor, Impersonated, Whom};
use super::audience::Audience;
use super::candidates::Candidates;
use super::judged::{Needed, Reviewed};
use super::mirror::{Decides, RightsMirror, RightsStamp};
use super::namespaces::NamespaceRights;
use super::read_place::ReadPlace;
use super::reviewed;
use super::reviews::Question;
use crate::authenticated::StillKnown;
use crate::refusal::{ClusterRefusal, ForbiddenPath, ForbiddenRequest, Refusal, RequestRefusal};
use crate::stream_over::StreamOver;

/// How often clusters are asked before a decision is made by what is known then. Five: first whether one may be somebody
/// else, then in which groups, then for a whole cluster, then for its namespaces, and once more where rights changed
/// meanwhile.
const ROUNDS_MAX: usize = 5;

/// The rights of whoever sends a request. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CallerRights {
    mirror: Arc<RightsMirror>,
    actor: Arc<Actor>,
    /// Whether the user is still known; `None` where that does not change.
    still_known: Option<StillKnown>,
    /// What a decision had to know of clusters that are asked, where somebody wants to know that.
    needed: Option<Arc<Mutex<Needed>>>,
}

/// Whether a cluster is there for somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Existence {
    /// It is told who acts, and lets them act as whom they ask to be.
    There,
    /// It is not, or does not.
    Nowhere,
    /// What it allows is not known.
    Unknown,
}

/// What somebody may do with a resource in each cluster. Where they may nothing, or that is not known, it is not among
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VisibleClusters {
    pub(super) by_name: BTreeMap<ClusterName, Visible>,
    /// Those of which it is not known. Nobody is told their names.
    pub(super) unknown: BTreeSet<ClusterName>,
}

/// How much of what is read somebody may see in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Extent {
    Nothing,
    /// Some namespaces of all.
    Some,
    /// A member would answer the request as it is.
    All,
}

/// A read that memory may answer, and with what.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    /// The clusters of which the answer may tell.
    pub(crate) only: Arc<BTreeSet<ClusterName>>,
    /// What it may show of each object, where it may not show all of these clusters.
    pub(crate) by_namespace: Option<Arc<NamespaceRights>>,
    /// The clusters that are left out of a watch, because what may be watched there may not be listed.
    pub(crate) only_watched: Arc<[ClusterName]>,
    /// Whether rights in some cluster are not known, so that it is left out.
    pub(crate) is_one_unknown: bool,
    /// Who else may be given the same texts.
    pub(crate) audience: Arc<Audience>,
}

impl Admission {
    /// Whether it shows, and says, what another one does.
    pub(crate) fn shows_what(&self, other: &Self) -> bool {
        self.only == other.only
            && self.by_namespace == other.by_namespace
            && self.only_watched == other.only_watched
            && self.is_one_unknown == other.is_one_unknown
            && self.audience.key() == other.audience.key()
    }
}

impl ReadPlace {
    fn extent(&self, visible: &Visible) -> Extent {
        if visible.allows(&self.namespace, &self.name) {
            return Extent::All;
        }
        let is_of_all = self.namespaced && self.namespace.is_empty();
        match visible {
            Visible::Part(part) if is_of_all => {
                let mut named = part.names_within.values();
                let is_some = !part.namespaces.is_empty() || named.any(|names| names.contains(self.name.as_str()));
                if is_some { Extent::Some } else { Extent::Nothing }
            }
            _ => Extent::Nothing,
        }
    }
}

impl VisibleClusters {
    /// How much of what is read may be seen in each cluster where something may be.
    fn extents(&self, place: &ReadPlace) -> impl Iterator<Item = (&ClusterName, &Visible, Extent)> {
        let extents = self.by_name.iter().map(|(cluster, visible)| (cluster, visible, place.extent(visible)));
        extents.filter(|(.., extent)| *extent > Extent::Nothing)
    }
}

impl CallerRights {
    /// Those of whoever acts.
    pub(crate) fn new(mirror: &Arc<RightsMirror>, actor: Actor) -> Self {
        Self { mirror: Arc::clone(mirror), actor: Arc::new(actor), still_known: None, needed: None }
    }

    fn judged<'a>(&'a self, fleet: &'a FleetRights, whom: Whom) -> Reviewed<'a> {
        Reviewed::new(&self.mirror, self.needed.as_deref(), fleet, &self.actor, whom)
    }

    /// A decision by what is known now, and what it had to know.
    pub(super) fn decided<T>(&self, decide: impl FnOnce(&Self) -> T) -> (T, Needed) {
        let needed = Arc::default();
        let decided = decide(&Self { needed: Some(Arc::clone(&needed)), ..self.clone() });
        let needed = std::mem::take(&mut *needed.lock());
        (decided, needed)
    }

    /// A decision, once the clusters whose word counts have been asked. Where roles and bindings decide it is made at once;
    /// a cluster that does not answer is unknown. Cancelling is safe.
    pub(crate) async fn settled<T>(&self, decide: impl Fn(&Self) -> T) -> T {
        for _ in 0..ROUNDS_MAX {
            let (decided, needed) = self.decided(&decide);
            if needed.open.is_empty() {
                return decided;
            }
            drop(decided);
            self.ask(needed.open).await;
        }
        decide(self)
    }

    /// Asks clusters what they have not said.
    pub(super) async fn ask(&self, questions: HashSet<(Question, u64)>) {
        self.mirror.reviews().ask(self.actor.holder(), questions).await;
    }

    /// What a decision had to know up to now, where somebody wants to know that: whether anything is to be asked first,
    /// and until when it holds.
    pub(super) fn needs(&self) -> (bool, Option<Instant>) {
        self.needed.as_ref().map_or((false, None), |needed| {
            let needed = needed.lock();
            (!needed.open.is_empty(), needed.until)
        })
    }

    /// The same, of somebody who is known as long as this says so.
    pub(crate) fn of(self, still_known: Option<StillKnown>) -> Self {
        Self { still_known, ..self }
    }

    /// Tells when they may have changed.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.mirror.changes()
    }

    /// As whom they act.
    pub(crate) fn acting_name(&self) -> &str {
        self.actor.name(Whom::Acting)
    }

    /// As whom they act, with the groups by which all members know them.
    pub(crate) fn acts_as(&self) -> (String, Vec<String>) {
        let User { name, groups } = self.actor.judged(Whom::Acting);
        (name.to_owned(), groups.to_vec())
    }

    /// Whose they are.
    pub(crate) fn actor(&self) -> &Arc<Actor> {
        &self.actor
    }

    /// What tells the rights of one moment from those of another. Costs a lookup for each group.
    pub(super) fn stamp(&self) -> RightsStamp {
        self.mirror.stamp([Whom::Acting, Whom::User].map(|whom| self.actor.judged_by_any(whom)))
    }

    /// The clusters that are configured now.
    pub(super) fn clusters(&self) -> Vec<ClusterName> {
        self.mirror.clusters()
    }

    /// Whether a cluster is there for the caller, by what is known of its rights.
    fn existence(&self, fleet: &FleetRights, cluster: &ClusterName) -> Existence {
        if self.actor.reaches(cluster).is_err() {
            return Existence::Nowhere;
        }
        let users = [Whom::Acting, Whom::User].map(|whom| self.actor.judged_by(cluster, whom));
        if self.mirror.decides(cluster).is_none() || users.into_iter().any(|user| fleet.is_beyond(cluster, user)) {
            return Existence::Unknown;
        }
        match self.lets_be(fleet, cluster) {
            Some(true) => Existence::There,
            Some(false) => Existence::Nowhere,
            None => Existence::Unknown,
        }
    }

    /// Whether a cluster lets the user act as whom they ask to be; `None` where that is not known. It is asked first who
    /// that is, and the rest of it together once that is allowed: who may be nobody costs it one question.
    fn lets_be(&self, fleet: &FleetRights, cluster: &ClusterName) -> Option<bool> {
        let (user, mut is_known) = (self.judged(fleet, Whom::User), true);
        for (place, asked) in self.actor.asks_to_be().enumerate() {
            match user.allows(cluster, &asked) {
                Some(true) => {}
                Some(false) => return Some(false),
                None if place == 0 => return None,
                None => is_known = false,
            }
        }
        is_known.then_some(true)
    }

    /// Why whatever they opened is over, if it is so for the user's own sake, whomever they ask to be.
    pub(super) fn over(&self) -> Option<StreamOver> {
        if self.mirror.denies(self.actor.name(Whom::User)) {
            return Some(StreamOver::Denied);
        }
        let is_known = self.still_known.as_ref().is_none_or(StillKnown::ask);
        (!is_known).then_some(StreamOver::Withdrawn)
    }

    /// How long what lasts may last.
    pub(crate) fn max_stream_age(&self) -> Option<Duration> {
        self.mirror.max_stream_age()
    }

    /// Whether a cluster lets the caller do something, by its roles and bindings or by its word; `None` where that is not
    /// known.
    pub(super) fn grants(&self, cluster: &ClusterName, asked: &Attributes<'_>) -> Option<bool> {
        let fleet = self.mirror.compiled();
        match self.existence(&fleet, cluster) {
            Existence::Unknown => None,
            Existence::Nowhere => Some(false),
            Existence::There => self.judged(&fleet, Whom::Acting).allows(cluster, asked),
        }
    }

    /// What a cluster would say to the caller itself, where it does not let them do what is asked; `None` where it does, or
    /// that is not known.
    pub(crate) fn refused_by(&self, cluster: &ClusterName, info: &RequestInfo) -> Option<Refusal> {
        let asked = Attributes::of(info);
        if self.grants(cluster, &asked) != Some(false) {
            return None;
        }
        match (asked, info.resource()) {
            (Attributes::Resource(asked), Some(request)) => Some(self.forbids_asked(&asked, &request.resource)),
            (Attributes::NonResource { verb: "get", path }, _) => Some(self.forbids_path(path.into_owned())),
            _ => None,
        }
    }

    /// As whom the caller acts in a cluster: nobody is sent whom the cluster does not let the caller be.
    ///
    /// # Errors
    /// 403 that says why the cluster is not told; 503 where what it allows is not known. 404 where another cluster vouches
    /// for the caller: this one is not there then.
    pub(crate) fn identity(&self, cluster: &ClusterName, rules: &MemberRules) -> Result<UserInfo, Refusal> {
        let told = self.actor.identity(cluster, rules).map_err(|why| match why {
            NotSent::OfAnotherCluster(_) => Refusal::from(ClusterRefusal::NotConfigured(cluster.clone())),
            why => RequestRefusal::NotSent(why).into(),
        })?;
        // Whoever acts as themselves is the cluster's own to judge.
        if self.actor.given().is_none() {
            return Ok(told);
        }
        let fleet = self.mirror.compiled();
        match self.existence(&fleet, cluster) {
            Existence::There => Ok(told),
            Existence::Nowhere => Err(self.not_let(&fleet, [cluster])),
            Existence::Unknown => {
                let (user, name) = (GroupVersionResource::new("", "v1", "users"), self.acting_name().to_owned());
                Err(ClusterRefusal::rights_unknown(user, name).into())
            }
        }
    }

    /// What may be done with a resource in each of these clusters now: where roles and bindings decide, with all of it;
    /// of a cluster that is asked, with this place of it. Costs a look at the user's grants in each.
    pub(super) fn visible<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        verb: &str,
        place: &ReadPlace,
    ) -> VisibleClusters {
        let mut visible = VisibleClusters::default();
        let fleet = self.mirror.compiled();
        let acting = self.judged(&fleet, Whom::Acting);
        for cluster in clusters {
            let rights = match self.existence(&fleet, cluster) {
                Existence::Nowhere => continue,
                Existence::Unknown => None,
                Existence::There => self.rights_in(&acting, cluster, verb, place),
            };
            match rights {
                None => drop(visible.unknown.insert(cluster.clone())),
                Some(rights) if rights.is_nothing() => {}
                Some(rights) => drop(visible.by_name.insert(cluster.clone(), rights)),
            }
        }
        visible
    }

    /// What may be watched of a place, and what may be listed of it in the clusters of which the former is known: a watch
    /// tells of these.
    pub(super) fn followed<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName> + Clone,
        place: &ReadPlace,
    ) -> (VisibleClusters, VisibleClusters) {
        // What is shown of a collection is what may be listed: versions speak of that. It is looked at after the rights to
        // watch, so that a change in between shows less, and never more.
        let watched = self.visible(clusters.clone(), "watch", place);
        let mut listed = self.visible(clusters, "list", place);
        listed.by_name.retain(|cluster, _| !watched.unknown.contains(cluster));
        (watched, listed)
    }

    /// What may be listed around one object: what the version says that it is read with, so that a watch of the object, or
    /// of all of its namespace, goes on from there. Of a cluster that is asked it is the namespace, or else the object alone,
    /// as such a watch finds it.
    fn listed_of<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName> + Clone,
        place: &ReadPlace,
    ) -> VisibleClusters {
        let mut listed = self.visible(clusters.clone(), "list", &place.of_all_names());
        if place.name.is_empty() {
            return listed;
        }
        let is_asked = |cluster: &&ClusterName| self.mirror.decides(cluster) == Some(Decides::Reviews);
        let is_nothing =
            |cluster: &&ClusterName| !listed.by_name.contains_key(*cluster) && !listed.unknown.contains(*cluster);
        let narrower: Vec<_> = clusters.into_iter().filter(is_asked).filter(is_nothing).collect();
        let narrower = self.visible(narrower, "list", place);
        listed.by_name.extend(narrower.by_name);
        listed.unknown.extend(narrower.unknown);
        listed
    }

    /// What may be done with a place of a cluster that is there; `None` where that is not known.
    fn rights_in(
        &self,
        acting: &Reviewed<'_>,
        cluster: &ClusterName,
        verb: &str,
        place: &ReadPlace,
    ) -> Option<Visible> {
        let GroupVersionResource { group, version, resource } = &place.resource;
        let by_rules = acting.fleet.rights(cluster, acting.user(cluster), verb, group, resource);
        match self.mirror.decides(cluster)? {
            Decides::Rules => Some(by_rules),
            Decides::Live => None,
            // Versions speak of what may be listed.
            Decides::Reviews => reviewed::visible(&by_rules, place, verb != "get", |namespace, name| {
                let asked = ResourceAttributes { verb, group, version, resource, subresource: "", namespace, name };
                acting.says(cluster, &Attributes::Resource(asked))
            }),
        }
    }

    /// The clusters that there are for a request: those where its caller may do any of what is asked.
    pub(crate) fn candidates<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        asked: &[Attributes<'_>],
    ) -> Candidates {
        let fleet = self.mirror.compiled();
        let allowing = fleet.allowing(self.actor.judged(Whom::Acting), asked);
        let acting = self.judged(&fleet, Whom::Acting);
        self.those(&fleet, clusters, |cluster| match self.mirror.decides(cluster)? {
            Decides::Rules if self.actor.is_vouched_by(cluster) => {
                Some(asked.iter().any(|asked| fleet.allows(cluster, acting.user(cluster), asked)))
            }
            Decides::Rules => Some(allowing.contains(cluster)),
            Decides::Reviews | Decides::Live => any(asked.iter().map(|asked| acting.says(cluster, asked))),
        })
    }

    /// Those of some clusters that are there for the caller and are wanted.
    fn those<'a>(
        &self,
        fleet: &FleetRights,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        is_wanted: impl Fn(&ClusterName) -> Option<bool>,
    ) -> Candidates {
        let (mut only, mut unknown) = (BTreeSet::new(), BTreeSet::new());
        for cluster in clusters {
            match self.existence(fleet, cluster) {
                Existence::Unknown => drop(unknown.insert(cluster.clone())),
                Existence::Nowhere => {}
                Existence::There => match is_wanted(cluster) {
                    None => drop(unknown.insert(cluster.clone())),
                    Some(true) => drop(only.insert(cluster.clone())),
                    Some(false) => {}
                },
            }
        }
        Candidates::these(only, unknown)
    }

    /// The clusters that are there for the caller at all.
    pub(crate) fn existing<'a>(&self, clusters: impl IntoIterator<Item = &'a ClusterName>) -> Candidates {
        self.those(&self.mirror.compiled(), clusters, |_| Some(true))
    }

    /// Those who may be given the same version of an object of a cluster, at this place.
    pub(crate) fn audience_of(&self, cluster: &ClusterName, place: &ReadPlace) -> Audience {
        let visible = self.listed_of([cluster], place);
        Audience::new(Arc::new([cluster.clone()].into()), visible.by_name)
    }

    /// The clusters that give the caller rules in a namespace which not everybody has there. Of one that is asked that is
    /// taken from its roles and bindings as well: nobody can ask it for a list of another's.
    pub(crate) fn with_rules<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        namespace: &str,
    ) -> Candidates {
        let (fleet, everybody) = (self.mirror.compiled(), [AUTHENTICATED_GROUP.to_owned()]);
        let anybody = User { name: "", groups: &everybody };
        let rules = |cluster: &ClusterName, user| fleet.rules(cluster, user, namespace).len();
        self.those(&fleet, clusters, |cluster| {
            let acting = self.actor.judged_by(cluster, Whom::Acting);
            let has_own = rules(cluster, acting) > rules(cluster, anybody);
            match self.mirror.decides(cluster)? {
                Decides::Rules => Some(has_own),
                // What else decides there may give what no role does.
                Decides::Reviews | Decides::Live => has_own.then_some(true),
            }
        })
    }

    /// Whether the caller may see what is told of all clusters at once: metrics, the report, a detailed health check. It
    /// names each, so each whose rules are known must let them `get` its path, and one must be known. That rights are not
    /// known is no permission where users can bring it about.
    pub(crate) fn may_visit(&self, path: &str) -> bool {
        let asked = Attributes::NonResource { verb: "get", path: path.into() };
        let fleet = self.mirror.compiled();
        let acting = self.judged(&fleet, Whom::Acting);
        let (mut is_one_known, mut is_allowed) = (false, true);
        for cluster in &self.clusters() {
            match self.existence(&fleet, cluster) {
                Existence::Unknown => is_allowed &= self.may_visit_unknown(&fleet, cluster, &asked),
                Existence::Nowhere => is_allowed = false,
                Existence::There => match acting.allows(cluster, &asked) {
                    Some(allowed) => {
                        is_one_known = true;
                        is_allowed &= allowed;
                    }
                    // Nothing is known of one that answers itself, and does not answer. Another is asked, and does not
                    // answer: its roles are known.
                    None if self.mirror.decides(cluster) == Some(Decides::Live) => {}
                    None => is_allowed &= fleet.allows(cluster, acting.user(cluster), &asked),
                },
            }
        }
        is_one_known && is_allowed
    }

    /// Whether the caller may see that although it is not known whether a cluster is there for them. Of one that gives them
    /// so much that nobody looks at it, or has so many bindings, that may be their own doing.
    fn may_visit_unknown(&self, fleet: &FleetRights, cluster: &ClusterName, asked: &Attributes<'_>) -> bool {
        let [user, acting] = [Whom::User, Whom::Acting].map(|whom| self.actor.judged_by(cluster, whom));
        match self.mirror.decides(cluster) {
            None => !self.mirror.is_too_large(cluster),
            // Nothing is known of one that answers itself, and does not answer.
            Some(Decides::Live) => true,
            // Its roles are known, though it does not say whom it lets the user be.
            Some(Decides::Rules | Decides::Reviews) => {
                let is_beyond = [user, acting].into_iter().any(|user| fleet.is_beyond(cluster, user));
                let lets_be = || self.actor.refused(|asked| fleet.allows(cluster, user, asked)).is_none();
                !is_beyond && lets_be() && fleet.allows(cluster, acting, asked)
            }
        }
    }

    /// 403 for somebody for whom no cluster is there, if that is why nothing is allowed: no member is told who acts, or
    /// none lets the user act as whom they ask to be. In kube-apiserver's words.
    pub(crate) fn nobody<'a>(&self, clusters: impl IntoIterator<Item = &'a ClusterName>) -> Option<Refusal> {
        let fleet = self.mirror.compiled();
        let clusters: Vec<_> = clusters.into_iter().collect();
        let is_there = |cluster: &&ClusterName| self.existence(&fleet, cluster) != Existence::Nowhere;
        if clusters.iter().any(is_there) {
            return None;
        }
        let sent = clusters.iter().map(|cluster| self.actor.reaches(cluster));
        match sent.reduce(|first, other| if first.is_ok() { first } else { other }) {
            Some(Err(why)) => Some(RequestRefusal::NotSent(why).into()),
            _ if self.actor.given().is_some() => Some(self.not_let(&fleet, clusters)),
            _ => None,
        }
    }

    /// 403: what none of these clusters lets the user act as.
    fn not_let<'a>(&self, fleet: &FleetRights, clusters: impl IntoIterator<Item = &'a ClusterName>) -> Refusal {
        let reached = clusters.into_iter().filter(|cluster| self.actor.reaches(cluster).is_ok());
        let user = self.judged(fleet, Whom::User);
        let refused =
            reached.filter_map(|cluster| self.actor.refused(|asked| user.allows(cluster, asked).unwrap_or(true)));
        // What the most willing cluster says. Where nobody is asked it is as if one refused the first.
        let refused = refused.max_by_key(|(place, _)| *place).or_else(|| self.actor.refused(|_| false));
        let Some((_, Impersonated { group, resource, subresource, namespace, name })) = refused else {
            return RequestRefusal::NotSent(NotSent::NoName).into();
        };
        RequestRefusal::Forbidden(Box::new(ForbiddenRequest {
            user: self.actor.name(Whom::User).to_owned(),
            verb: "impersonate".into(),
            resource: GroupVersionResource::new(group, "v1", resource),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            clusters: Vec::new(),
        }))
        .into()
    }

    /// Lets a list, watch or get read what it may of these clusters.
    ///
    /// # Errors
    /// 403 where nothing of it may be read in any cluster whose rights are known, and of a watch where more may be
    /// listed. 429, or of one object 503, where that may only be because some are not known, or a partial answer is
    /// denied.
    pub(crate) fn admit<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName> + Clone,
        verb: &'static str,
        place: &ReadPlace,
        partial: Partial,
    ) -> Result<Admission, Refusal> {
        let (own, listed) = match verb {
            "watch" => self.followed(clusters, place),
            _ => {
                let own = self.visible(clusters.clone(), verb, place);
                let listed = match verb {
                    "get" => self.listed_of(clusters, place),
                    _ => own.clone(),
                };
                (own, listed)
            }
        };
        let shown = if verb == "get" { &own } else { &listed };
        let unknown = || ClusterRefusal::rights_unknown(place.resource.clone(), place.name.clone());
        let is_one_unknown = !own.unknown.is_empty() || (verb == "watch" && !listed.unknown.is_empty());
        if is_one_unknown && partial == Partial::Deny {
            return Err(unknown().into());
        }
        let only: BTreeSet<_> = shown.extents(place).map(|(cluster, ..)| cluster.clone()).collect();
        let only_watched = only_watched(verb, &own, &listed, place);
        if only.is_empty() {
            let is_unknown = !own.unknown.is_empty() && verb == "get";
            let clusters = self.clusters();
            return Err(match self.nobody(&clusters) {
                Some(refusal) => refusal,
                None if is_unknown => unknown().into(),
                None if !only_watched.is_empty() => {
                    let request = Box::new(self.forbidden_request("list", place));
                    RequestRefusal::OnlyWatched { request, clusters: only_watched }.into()
                }
                None => self.forbidden(verb, place),
            });
        }
        if verb == "watch" && !covers(&own, &listed, place) {
            return Err(self.forbidden(verb, place));
        }
        let is_all = shown.extents(place).all(|(.., extent)| extent == Extent::All);
        let by_namespace = (!is_all).then(|| {
            let visible = shown.extents(place).map(|(cluster, visible, _)| (cluster.clone(), visible.clone()));
            Arc::new(NamespaceRights::new(visible.collect(), &place.name))
        });
        let only = Arc::new(only);
        let audience = Arc::new(Audience::new(Arc::clone(&only), listed.by_name));
        Ok(Admission { only, by_namespace, only_watched: only_watched.into(), is_one_unknown, audience })
    }

    /// 403, in kube-apiserver's words.
    pub(crate) fn forbidden(&self, verb: &'static str, place: &ReadPlace) -> Refusal {
        RequestRefusal::Forbidden(Box::new(self.forbidden_request(verb, place))).into()
    }

    fn forbidden_request(&self, verb: &'static str, place: &ReadPlace) -> ForbiddenRequest {
        let ReadPlace { resource, namespace, name, .. } = place.clone();
        let (user, subresource) = (self.acting_name().to_owned(), String::new());
        ForbiddenRequest { user, verb: verb.into(), resource, subresource, namespace, name, clusters: Vec::new() }
    }

    /// 403: nobody lets the caller do what is asked of this resource.
    pub(crate) fn forbids_asked(&self, asked: &ResourceAttributes<'_>, resource: &GroupVersionResource) -> Refusal {
        self.forbids(ForbiddenRequest {
            user: String::new(),
            verb: asked.verb.to_owned().into(),
            resource: resource.clone(),
            subresource: asked.subresource.to_owned(),
            namespace: asked.namespace.to_owned(),
            name: asked.name.to_owned(),
            clusters: Vec::new(),
        })
    }

    /// 403: nobody lets the caller see what is at this path, which is no resource.
    pub(crate) fn forbids_path(&self, path: String) -> Refusal {
        RequestRefusal::ForbiddenPath(ForbiddenPath { user: self.acting_name().to_owned(), path }).into()
    }

    /// 403: no cluster that is there for the caller allows it. The user is filled in here.
    pub(crate) fn forbids(&self, request: ForbiddenRequest) -> Refusal {
        let user = self.acting_name().to_owned();
        RequestRefusal::Forbidden(Box::new(ForbiddenRequest { user, ..request })).into()
    }
}

/// Whether one of several answers is yes; `None` where that depends on one that is not known.
fn any(answers: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    // All are looked at, so that all are asked at once.
    let answers: Vec<_> = answers.collect();
    match answers.contains(&Some(true)) {
        true => Some(true),
        false => (!answers.contains(&None)).then_some(false),
    }
}

/// The clusters of which a watch tells nothing although something of its place may be watched there: it may not be listed.
fn only_watched(
    verb: &str,
    watched: &VisibleClusters,
    listed: &VisibleClusters,
    place: &ReadPlace,
) -> Vec<ClusterName> {
    if verb != "watch" {
        return Vec::new();
    }
    let is_listed = |cluster: &ClusterName| {
        let extent = listed.by_name.get(cluster).map(|visible| place.extent(visible));
        extent > Some(Extent::Nothing) || listed.unknown.contains(cluster)
    };
    watched.extents(place).map(|(cluster, ..)| cluster).filter(|cluster| !is_listed(cluster)).cloned().collect()
}

/// Whether all that may be listed of a place may be watched.
pub(super) fn covers(watched: &VisibleClusters, listed: &VisibleClusters, place: &ReadPlace) -> bool {
    listed.extents(place).all(|(cluster, listed, extent)| {
        let Some(watched) = watched.by_name.get(cluster) else { return false };
        match extent {
            Extent::All => place.extent(watched) == Extent::All,
            Extent::Some | Extent::Nothing => watched.covers(listed),
        }
    })
}

impl fmt::Debug for CallerRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerRights").field("user", &self.acting_name()).finish_non_exhaustive()
    }
}

//! Candidate clusters of a request. Hidden clusters do not exist for the caller: questions and messages use the
//! candidates alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use tributary_apimachinery::{AUTHENTICATED_GROUP, ClusterName, ClusterSelector};
use tributary_authorization::{Attributes, FleetRights, RbacUser};

use super::actor::Whom;
use super::basis::Decides;
use super::caller_rights::CallerRights;
use super::existence::{Existence, both, does_in};
use super::hidden_names::names_hidden;
use super::impersonation::ImpersonationMode;

/// Candidate clusters of a request.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    /// `None` for all: one person owns the endpoint.
    only: Option<Arc<BTreeSet<ClusterName>>>,
    /// Clusters that may be candidates. Their names are never shown. `None` for no such cluster.
    unknown: Option<Arc<BTreeSet<ClusterName>>>,
}

impl Candidates {
    /// Only these clusters, and perhaps the unknown ones.
    pub(super) fn these(only: BTreeSet<ClusterName>, unknown: BTreeSet<ClusterName>) -> Self {
        Self { only: Some(Arc::new(only)), unknown: (!unknown.is_empty()).then(|| Arc::new(unknown)) }
    }

    /// Intersection with a second set of candidates.
    pub fn within(&self, others: &Self) -> Self {
        let only = match (&self.only, &others.only) {
            (Some(own), Some(other)) => Some(Arc::new(own.intersection(other).cloned().collect())),
            (own, other) => own.as_ref().or(other.as_ref()).cloned(),
        };
        let unknown = match (&self.unknown, &others.unknown) {
            (Some(own), Some(other)) => Some(Arc::new(own.union(other).cloned().collect())),
            (own, other) => own.as_ref().or(other.as_ref()).cloned(),
        };
        Self { only, unknown }
    }

    /// Candidates among all clusters, without the excluded ones.
    pub fn except<'a>(
        &self,
        all: impl Iterator<Item = &'a ClusterName>,
        is_taken_out: impl Fn(&ClusterName) -> bool,
    ) -> Self {
        let only = all.filter(|cluster| self.has(cluster) && !is_taken_out(cluster)).cloned().collect();
        Self { only: Some(Arc::new(only)), unknown: self.unknown.clone() }
    }

    /// Whether a cluster is a candidate.
    pub fn has(&self, cluster: &ClusterName) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(cluster))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.only.as_ref().is_some_and(|only| only.is_empty())
    }

    /// Whether it is unknown for a cluster whether it is a candidate.
    pub fn is_one_unknown(&self) -> bool {
        self.unknown.is_some()
    }

    /// Whether it is unknown for a wanted cluster whether it is a candidate.
    pub fn is_one_unknown_among(&self, is_wanted: impl FnMut(&ClusterName) -> bool) -> bool {
        self.unknown.as_ref().is_some_and(|unknown| unknown.iter().any(is_wanted))
    }

    /// Whether the rights in a cluster are unknown that a selector wants and that is possible. A selector that names a
    /// cluster outside the candidates counts as one that wants all clusters, so that a hidden cluster and a name
    /// without a cluster get the same answer.
    pub fn is_one_unknown_of(&self, wanted: &ClusterSelector, is_possible: impl Fn(&ClusterName) -> bool) -> bool {
        let wants_all = names_hidden(wanted, |cluster| self.has(cluster));
        self.is_one_unknown_among(|cluster| is_possible(cluster) && (wants_all || wanted.matches(cluster)))
    }

    /// Selector of the candidates.
    pub fn selector(&self) -> ClusterSelector {
        match &self.only {
            Some(only) => ClusterSelector::default().within(Arc::clone(only)),
            None => ClusterSelector::default(),
        }
    }
}

impl CallerRights {
    /// Candidates of a request: clusters in which the caller may make one of these requests.
    pub fn candidates<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        asked: &[Attributes<'_>],
    ) -> Candidates {
        self.where_allowed(clusters, asked, None)
    }

    /// Candidates of an access review: clusters that the request for the review has, too.
    pub fn candidates_asked<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        asked: &[Attributes<'_>],
        request: &Attributes<'_>,
    ) -> Candidates {
        self.where_allowed(clusters, asked, Some(request))
    }

    fn where_allowed<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        asked: &[Attributes<'_>],
        request: Option<&Attributes<'_>>,
    ) -> Candidates {
        let fleet = self.mirror.compiled();
        let allowing = fleet.allowing(self.actor.judged(Whom::Acting), asked);
        let [user, acting] = [Whom::User, Whom::Acting].map(|whom| self.judged(&fleet, whom));
        self.those(&fleet, clusters, |cluster, mode| {
            let is_allowed = match (self.mirror.decides(cluster)?, mode) {
                (Decides::Rules, None) if self.actor.is_vouched_by(cluster) => {
                    Some(asked.iter().any(|asked| fleet.allows(cluster, acting.user(cluster), asked)))
                }
                (Decides::Rules, None) => Some(allowing.contains(cluster)),
                (Decides::Reviews | Decides::Live, None) => any(asked.iter().map(|asked| acting.says(cluster, asked))),
                (_, Some(mode)) => any(asked.iter().map(|asked| {
                    let does = does_in(&user, mode, cluster, asked);
                    both(does, acting.allows(cluster, asked))
                })),
            };
            match request {
                Some(request) => both(self.is_there_in(&fleet, cluster, mode, request), is_allowed),
                None => is_allowed,
            }
        })
    }

    /// The clusters that are there for a request of the caller at all.
    pub fn existing<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        request: &Attributes<'_>,
    ) -> Candidates {
        let fleet = self.mirror.compiled();
        self.those(&fleet, clusters, |cluster, mode| self.is_there_in(&fleet, cluster, mode, request))
    }

    /// Whether a cluster that is visible in this mode is a candidate; `None` if unknown.
    fn is_there_in(
        &self,
        fleet: &FleetRights,
        cluster: &ClusterName,
        mode: Option<ImpersonationMode>,
        request: &Attributes<'_>,
    ) -> Option<bool> {
        mode.map_or(Some(true), |mode| does_in(&self.judged(fleet, Whom::User), mode, cluster, request))
    }

    /// Clusters that give the caller rules in a namespace beyond the rules of all users. For a cluster that decides by
    /// access reviews, its roles and bindings count as well, because it lists rules only for its own users.
    pub fn with_rules<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        namespace: &str,
        request: &Attributes<'_>,
    ) -> Candidates {
        let (fleet, everybody) = (self.mirror.compiled(), [AUTHENTICATED_GROUP.to_owned()]);
        let anybody = RbacUser { name: "", groups: &everybody };
        let rules = |cluster: &ClusterName, user| fleet.rules(cluster, user, namespace).len();
        self.those(&fleet, clusters, |cluster, mode| {
            let acting = self.actor.judged_by(cluster, Whom::Acting);
            let has_own = rules(cluster, acting) > rules(cluster, anybody);
            let has_own_known = match self.mirror.decides(cluster)? {
                Decides::Rules => Some(has_own),
                // The cluster's other authorizer may give rights without roles.
                Decides::Reviews | Decides::Live => has_own.then_some(true),
            };
            both(self.is_there_in(&fleet, cluster, mode, request), has_own_known)
        })
    }

    /// Visible and wanted clusters, each with the mode in which it is visible, if there is only one.
    fn those<'a>(
        &self,
        fleet: &FleetRights,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        is_wanted: impl Fn(&ClusterName, Option<ImpersonationMode>) -> Option<bool>,
    ) -> Candidates {
        let (mut only, mut unknown) = (BTreeSet::new(), BTreeSet::new());
        for cluster in clusters {
            let is_wanted = match self.existence(fleet, cluster) {
                Existence::Unknown => None,
                Existence::Nowhere => Some(false),
                Existence::There => is_wanted(cluster, None),
                Existence::ThereFor(mode) => is_wanted(cluster, Some(mode)),
            };
            match is_wanted {
                None => drop(unknown.insert(cluster.clone())),
                Some(true) => drop(only.insert(cluster.clone())),
                Some(false) => {}
            }
        }
        Candidates::these(only, unknown)
    }
}

/// Whether one of several answers is yes; `None` if an unknown answer decides.
fn any(answers: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    // Evaluates all, so that all questions are sent together.
    let answers: Vec<_> = answers.collect();
    match answers.contains(&Some(true)) {
        true => Some(true),
        false => (!answers.contains(&None)).then_some(false),
    }
}

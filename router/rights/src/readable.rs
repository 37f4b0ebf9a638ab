//! Objects of a resource that a caller may read from the cachers.

use std::collections::BTreeSet;
use std::sync::Arc;

use tributary_answers::refusal::{ClusterRefusal, Refusal, RequestRefusal};
use tributary_apimachinery::{ClusterName, ClusterSelector, GroupVersionResource, Partial};
use tributary_authorization::{Attributes, ResourceAttributes};

use super::audience::Audience;
use super::caller_rights::CallerRights;
use super::hidden_names::names_hidden;
use super::namespaces::NamespaceRights;
use super::read_target::ReadTarget;
use super::visible::{Extent, VisibleClusters, WatchRights, covers};

/// Clusters that the cluster selector of a request matches.
#[derive(Clone, Copy, Debug)]
pub struct SelectedClusters<'a> {
    /// All clusters that may have the resource.
    pub all: &'a [&'a ClusterName],
    /// Part of the label selector with the key `tributary.dev/cluster`.
    pub selector: &'a ClusterSelector,
}

impl<'a> SelectedClusters<'a> {
    /// Returns the clusters that match the selector.
    pub fn iter(self) -> impl Iterator<Item = &'a ClusterName> + Clone {
        self.all.iter().copied().filter(move |cluster| self.selector.matches(cluster))
    }
}

/// Objects of a resource that a caller may read.
#[derive(Clone, Debug)]
pub struct Readable {
    /// Clusters with visible objects. The response may name these clusters.
    pub only: Arc<BTreeSet<ClusterName>>,
    /// Namespaces with visible objects. `None` if all objects of these clusters are visible.
    pub by_namespace: Option<Arc<NamespaceRights>>,
    /// Clusters whose objects the caller may watch but not list. A watch shows no events of these clusters.
    pub only_watched: Arc<[ClusterName]>,
    /// Whether the response lacks a cluster because the rights in this cluster are unknown.
    pub has_unknown: bool,
    /// Users that get byte-identical responses.
    pub audience: Arc<Audience>,
}

/// Estimated memory of a cluster, namespace or name in a [`Readable`], in bytes: an entry in a map, and an entry in the
/// order of keys.
const PLACE_BYTES: usize = 48;

impl Readable {
    /// Returns the size in bytes. Includes parts that the value shares with other values.
    pub(super) fn bytes(&self) -> usize {
        // Counts each cluster twice: `audience` contains the clusters with their visible objects as well.
        let clusters = self.only_watched.len() + 2 * self.only.len();
        let entry_count = self.by_namespace.as_ref().map_or(0, |own| own.entry_count());
        (entry_count + clusters) * PLACE_BYTES + size_of::<Self>()
    }

    /// Returns whether the response lacks all clusters because their rights are unknown.
    pub fn lacks_all(&self) -> bool {
        self.only.is_empty() && self.has_unknown
    }

    /// Returns whether the other value shows the same objects and resourceVersions.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        self.only == other.only
            && self.by_namespace == other.by_namespace
            && self.only_watched == other.only_watched
            && self.has_unknown == other.has_unknown
            && self.audience.key() == other.audience.key()
    }
}

impl CallerRights {
    /// Finds the objects that a list, watch or get may show.
    ///
    /// # Errors
    /// - 403 if all rights are known and no cluster allows the read, and for a watch that may show fewer objects than a
    ///   list.
    /// - 503 for a get, if the rights in a cluster are unknown and no other cluster allows the get.
    /// - 429 for a list or watch under `partial: Deny`, if the rights in a cluster are unknown.
    pub fn readable(
        &self,
        selected: SelectedClusters<'_>,
        verb: &'static str,
        target: &ReadTarget,
        partial: Partial,
    ) -> Result<Readable, Refusal> {
        let clusters = selected.iter();
        let (own, listed) = match verb {
            "watch" => {
                let WatchRights { watched, listed } = self.followed(clusters.clone(), target);
                (watched, listed)
            }
            _ => {
                let own = self.visible(clusters.clone(), verb, target);
                let listed = match verb {
                    "get" => self.listed_of(clusters.clone(), target),
                    _ => own.clone(),
                };
                (own, listed)
            }
        };
        let shown = if verb == "get" { &own } else { &listed };
        // The refusal of a list or watch names no object, even if the request selects a name: it is a 429 and not a
        // 503.
        let name = if verb == "get" { &*target.name } else { "" };
        let unknown = || ClusterRefusal::rights_unknown(target.resource.clone(), name.to_owned());
        let only: BTreeSet<_> = shown.extents(target).map(|(cluster, ..)| cluster.clone()).collect();
        let has_unknown = !own.unknown.is_empty()
            || (verb == "watch" && !listed.unknown.is_empty())
            || self.is_unknown_behind_names(selected, verb, target, &only);
        if has_unknown && partial == Partial::Deny {
            return Err(unknown().into());
        }
        let only_watched = only_watched(verb, &own, &listed, target);
        // Unknown rights are not missing rights. A list or watch omits the clusters with unknown rights and gets a
        // Warning header.
        if only.is_empty() && (verb == "get" || !has_unknown) {
            return Err(match self.forbid_unknown_user(verb, target) {
                Some(refusal) => refusal,
                None if has_unknown => unknown().into(),
                None if !only_watched.is_empty() => {
                    let request = Box::new(self.forbidden_request(clusters, "list", target));
                    RequestRefusal::OnlyWatched { request, clusters: only_watched }.into()
                }
                None => self.forbidden(clusters, verb, target),
            });
        }
        if verb == "watch" && !covers(&own, &listed, target) {
            return Err(self
                .forbid_unknown_user(verb, target)
                .unwrap_or_else(|| self.forbidden(clusters, verb, target)));
        }
        let is_all = shown.extents(target).all(|(.., extent)| extent == Extent::All);
        let by_namespace = (!is_all).then(|| {
            let visible = shown.extents(target).map(|(cluster, visible, _)| (cluster.clone(), visible.clone()));
            Arc::new(NamespaceRights::new(visible.collect(), &target.name))
        });
        let only = Arc::new(only);
        let audience = Arc::new(Audience::new(Arc::clone(&only), listed.by_name));
        Ok(Readable { only, by_namespace, only_watched: only_watched.into(), has_unknown, audience })
    }

    /// Returns whether rights in some cluster are unknown, and the selector names a cluster without visible objects.
    /// The caller then ignores the selector, so that a hidden cluster and a misspelled cluster name give the same
    /// answer. `only` are the selected clusters with visible objects.
    fn is_unknown_behind_names(
        &self,
        selected: SelectedClusters<'_>,
        verb: &str,
        target: &ReadTarget,
        only: &BTreeSet<ClusterName>,
    ) -> bool {
        let SelectedClusters { all, selector } = selected;
        if !names_hidden(selector, |cluster| only.contains(cluster)) {
            return false;
        }
        // Also checks the clusters that the selector excludes, because an excluded cluster may have visible objects.
        let all = all.iter().copied();
        let (shown, has_unknown) = match verb {
            "watch" => {
                let WatchRights { watched, listed } = self.followed(all, target);
                let has_unknown = !watched.unknown.is_empty() || !listed.unknown.is_empty();
                (listed, has_unknown)
            }
            _ => {
                let shown = self.visible(all, verb, target);
                let has_unknown = !shown.unknown.is_empty();
                (shown, has_unknown)
            }
        };
        has_unknown && names_hidden(selector, |cluster| shown.extents(target).any(|(own, ..)| own == cluster))
    }

    /// Builds the 403 for a user without rights in any configured cluster.
    fn forbid_unknown_user(&self, verb: &'static str, target: &ReadTarget) -> Option<Refusal> {
        let GroupVersionResource { group, version, resource } = &target.resource;
        let (namespace, name) = (&*target.namespace, &*target.name);
        let attributes = ResourceAttributes { verb, group, version, resource, subresource: "", namespace, name };
        self.nobody(&self.clusters(), &Attributes::Resource(attributes))
    }
}

fn only_watched(
    verb: &str,
    watched: &VisibleClusters,
    listed: &VisibleClusters,
    target: &ReadTarget,
) -> Vec<ClusterName> {
    if verb != "watch" {
        return Vec::new();
    }
    let is_listed = |cluster: &ClusterName| {
        let extent = listed.by_name.get(cluster).map(|visible| target.extent(visible));
        extent > Some(Extent::Nothing) || listed.unknown.contains(cluster)
    };
    watched.extents(target).map(|(cluster, ..)| cluster).filter(|cluster| !is_listed(cluster)).cloned().collect()
}

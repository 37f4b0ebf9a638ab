//! Collection that a list or a watch reads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tributary_answers::refusal::{NotCached, Refusal, RequestRefusal};
use tributary_apimachinery::{
    ClusterName, ClusterSelector, FieldSelector, Filter, Filtered, LabelSelector, Partial, SelectableResource,
};
use tributary_authorization::Visible;
use tributary_rights::{Audience, CallerRights, ReadTarget, Readable, SelectedClusters};
use tributary_views::view::{EarlierCacheStates, View};

use super::uncached::{self, CollectionRead, CollectionSource};
use crate::memory::choice::Lifetime;
use crate::request::ClientRequest;
use crate::selection::Selection;

/// Time for which the readable clusters and namespaces of a caller stay valid during a read. One second, because an
/// answer must use rights that are at most two seconds old.
const READABLE_FOR: Duration = Duration::from_secs(1);

pub(crate) struct Collection {
    /// Cached view of the resource in all clusters, or of one namespace.
    pub(crate) view: Arc<View>,
    /// State (fresh, stale or unknown) of each selected cluster before the read.
    pub(crate) before: EarlierCacheStates,
    /// Clusters that serve the resource and are excluded from its merged view.
    pub(crate) left_out: Vec<ClusterName>,
    pub(crate) filter: Selection,
}

impl ClientRequest<'_> {
    /// Returns the resource and namespace of the read, for authorization.
    pub(crate) fn read_target(&self) -> ReadTarget {
        ReadTarget {
            resource: self.served.resource.clone(),
            namespaced: self.served.description.namespaced(),
            namespace: self.resource.authorization_namespace().to_owned(),
            name: self.resource.authorization_name().to_owned(),
        }
    }

    /// Returns the selected clusters whose objects may be in the answer. Includes clusters without cached objects: the
    /// answer then has a Warning, or older objects.
    pub(crate) fn readable_clusters(&self, wanted: &ClusterSelector) -> Vec<&ClusterName> {
        let Self { configuration, served, .. } = self;
        let policy = configuration.policy(&served.resource);
        let clusters = configuration.clusters.values().filter(|cluster| {
            policy.selects(cluster.name())
                && (served.is_served_by(cluster.name()) || configuration.may_serve(cluster, served))
        });
        clusters.map(|cluster| cluster.name()).filter(|cluster| wanted.matches(cluster)).collect()
    }

    /// Returns the clusters whose policies do not refuse the request.
    ///
    /// # Errors
    /// In personal mode, if no cluster remains: the refusal of a policy.
    fn allowed_clusters_of<'b>(&self, clusters: &[&'b ClusterName]) -> Result<Vec<&'b ClusterName>, Refusal> {
        let Some(denied) = self.caller.denied_clusters() else { return Ok(clusters.to_vec()) };
        let allowed: Vec<_> = clusters.iter().copied().filter(|cluster| !denied.has(cluster)).collect();
        match denied.refusal(|cluster| clusters.contains(&cluster)) {
            Some(refusal) if allowed.is_empty() && self.caller.rights().is_none() => Err(refusal),
            _ => Ok(allowed),
        }
    }

    /// Returns the clusters that the user of a personal endpoint may read; `None` if no policy excludes a cluster.
    fn readable_by_owner(&self, wanted: &ClusterSelector) -> Result<Option<Readable>, Refusal> {
        if self.caller.denied_clusters().is_none() {
            return Ok(None);
        }
        let only: BTreeSet<_> =
            self.allowed_clusters_of(&self.readable_clusters(wanted))?.into_iter().cloned().collect();
        let visible = only.iter().map(|cluster| (cluster.clone(), Visible::Whole)).collect();
        let only = Arc::new(only);
        let audience = Arc::new(Audience::new(Arc::clone(&only), visible));
        Ok(Some(Readable { only, by_namespace: None, only_watched: Arc::default(), has_unknown: false, audience }))
    }

    /// Returns the wanted clusters and namespaces that the caller may read; `None` in personal mode if no policy
    /// excludes a cluster.
    ///
    /// # Errors
    /// As [`CallerRights::readable`](tributary_rights::CallerRights::readable); 403 if the rights exclude some
    /// namespaces, and the resource's policy forbids such answers.
    pub(crate) async fn readable(
        &self,
        verb: &'static str,
        wanted: &ClusterSelector,
        partial: Partial,
    ) -> Result<Option<Readable>, Refusal> {
        let _stage = self.caller.stage("authorize");
        let Some(rights) = self.caller.rights() else { return self.readable_by_owner(wanted) };
        let Self { configuration, served, .. } = self;
        let policy = configuration.policy(&served.resource);
        let all = self.readable_clusters(&ClusterSelector::default());
        let (clusters, denied) = (self.allowed_clusters_of(&all)?, self.caller.denied_clusters());
        let selected = SelectedClusters { all: &clusters, selector: wanted };
        let place = self.read_target();
        let find = |rights: &CallerRights| {
            let find = |place: &ReadTarget| rights.readable(selected, verb, place, partial);
            // The cache stores no results for reads with a selector, or with clusters whose policies refuse the read.
            // Policies that refuse a user in only some clusters are rare.
            match wanted.is_everything() && denied.is_none() {
                true => {
                    self.router.readable_cache().get(rights, configuration.for_readable(), (verb, place.clone()), find)
                }
                // A selector matches few clusters, so finding the rights without the cache is cheap.
                false => find(&place),
            }
        };
        // A get waits for all rights.
        let lacks = |found: &Result<Readable, Refusal>| match found {
            _ if verb == "get" => false,
            Ok(readable) => readable.lacks_all(),
            Err(refusal) => refusal.is_about_unknown_rights(),
        };
        let found = rights.with_joining(|| rights.decide_after_reviews(find), lacks).await;
        // If the read would be allowed without the policies, a caller that may know the cluster gets the refusal of the
        // policies.
        if let (Err(_), Some(denied)) = (&found, denied)
            && let Ok(without) = Box::pin(rights.decide_after_reviews(|rights| {
                rights.readable(SelectedClusters { all: &all, selector: wanted }, verb, &place, partial)
            }))
            .await
            && let Some(refusal) = denied.refusal(|cluster| without.only.contains(cluster))
        {
            return Err(refusal);
        }
        let readable = found?;
        if policy.filtered == Filtered::Deny && verb != "get" && readable.by_namespace.is_some() {
            return Err(rights.forbidden(selected.iter(), verb, &place));
        }
        Ok(Some(readable))
    }
}

impl ClientRequest<'_> {
    /// Returns whether the configured clusters have changed since the request arrived. A name may then mean a different
    /// cluster.
    fn has_other_clusters(&self) -> bool {
        !Arc::ptr_eq(&self.configuration.clusters, &self.router.fleet().clusters())
    }

    /// Returns the clusters and namespaces that the caller may read now, if they differ from `before`. Needed because a
    /// read may wait for clusters, and then shows objects of a later time. Results that are younger than a second stay
    /// valid.
    ///
    /// # Errors
    /// As [`readable`](Self::readable).
    pub(crate) async fn readable_anew(
        &self,
        (verb, wanted, partial): (&'static str, &ClusterSelector, Partial),
        before: &Option<Readable>,
        begun: Instant,
    ) -> Result<Option<Readable>, Refusal> {
        match before {
            Some(before) if begun.elapsed() >= READABLE_FOR || self.has_other_clusters() => {
                let now = self.readable(verb, wanted, partial).await?;
                Ok(now.filter(|now| !now.is_equivalent(before)))
            }
            _ => Ok(None),
        }
    }
}

/// Selects the objects of a list or watch.
///
/// # Errors
/// [`Refusal::NotCached`] for a list that Tributary has to forward to the clusters; 405 for a watch of versions that
/// are not numbers; 429 for unknown clusters under `partial: Deny`; 400 for selectors that the resource does not
/// support.
pub(crate) async fn collection(
    request: ClientRequest<'_>,
    label_selector: &LabelSelector,
    field_selector: &FieldSelector,
    readable: Option<&Readable>,
    read: CollectionRead,
) -> Result<Collection, Refusal> {
    let served = request.served;
    let namespace = request.resource.namespace.as_deref();
    let (_, clusters) = ClusterSelector::split(label_selector).map_err(Refusal::malformed)?;
    let clusters = match readable {
        Some(readable) => clusters.within(Arc::clone(&readable.only)),
        None => clusters,
    };
    let partial = request.configuration.policy(&served.resource).partial;
    let lifetime = if read == CollectionRead::Watch { Lifetime::Follows } else { Lifetime::Once };
    let (view, before) = request.read(&clusters, partial, lifetime).await;
    let cache_states = view.cache_states_of(&clusters);
    match uncached::choose_source(&served.resource, read, &cache_states, |cluster| request.can_ask(cluster)) {
        CollectionSource::Memory => {}
        CollectionSource::Clusters(uncached) => return Err(Refusal::NotCached(Box::new(NotCached { uncached }))),
        CollectionSource::Nobody(cluster) => {
            let resource = served.resource.clone();
            return Err(RequestRefusal::NotNumbered { resource, cluster }.into());
        }
    }
    let (resource, namespaced) = (&view.kind.resource, view.kind.namespaced);
    let selectable = SelectableResource { resource, fields: view.decoder.fields(), namespaced };
    let name = request.resource.name.as_deref();
    let filter = Filter::compile(namespace, name, label_selector, field_selector, selectable);
    let filter = Selection::new(filter.map_err(Refusal::malformed)?, readable);
    let mut left_out = request.configuration.left_out(served);
    left_out.retain(|cluster| clusters.matches(cluster));
    Ok(Collection { before: before?, left_out, filter, view })
}

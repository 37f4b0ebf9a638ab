//! What a list or a watch reads.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tributary_apimachinery::{ClusterName, ClusterSelector, FieldSelector, Filter, Filtered, LabelSelector, Partial};

use crate::refusal::Refusal;
use crate::request::ClientRequest;
use crate::rights::{Admission, CallerRights, ReadPlace};
use crate::selection::Selection;
use crate::view::{EarlierStandings, View};
use crate::views::choice::Lifetime;

/// For how long what somebody was admitted to counts while it is read. A second: what is answered is to be what members gave
/// within the last two.
const ADMITTED_FOR: Duration = Duration::from_secs(1);

/// What a list or watch reads.
pub(crate) struct Collection {
    /// The resource over all clusters, or one namespace of it.
    pub(crate) view: Arc<View>,
    /// How each cluster that is wanted stands by now.
    pub(crate) before: EarlierStandings,
    /// The clusters that serve the resource and are not part of the view.
    pub(crate) left_out: Vec<ClusterName>,
    /// What is selected, as far as the caller may see it.
    pub(crate) filter: Selection,
}

impl ClientRequest<'_> {
    /// What is read, as it is authorized.
    pub(crate) fn read_place(&self) -> ReadPlace {
        ReadPlace {
            resource: self.served.resource.clone(),
            namespaced: self.served.description.namespaced(),
            namespace: self.resource.authorization_namespace().to_owned(),
            name: self.resource.authorization_name().to_owned(),
        }
    }

    /// The clusters of which a read may tell, of those that are wanted: also those that have the resource otherwise, whose
    /// objects are missing with a Warning, or are those that were held.
    pub(crate) fn readable(&self, wanted: &ClusterSelector) -> Vec<&ClusterName> {
        let Self { configuration, served, .. } = self;
        let policy = configuration.policy(&served.resource);
        let clusters = configuration.clusters.values().filter(|cluster| {
            // One that has not told yet what it serves may serve this.
            policy.selects(cluster.name()) && (served.is_had_by(cluster.name()) || !configuration.has_told(cluster))
        });
        clusters.map(|cluster| cluster.name()).filter(|cluster| wanted.matches(cluster)).collect()
    }

    /// What of the clusters that are wanted the caller may read; `None` where one person owns the endpoint.
    ///
    /// # Errors
    /// As [`CallerRights::admit`](crate::rights::CallerRights::admit); 403 for a collection that would be limited, where
    /// the policy says so.
    pub(crate) async fn admission(
        &self,
        verb: &'static str,
        wanted: &ClusterSelector,
        partial: Partial,
    ) -> Result<Option<Admission>, Refusal> {
        let Some(rights) = self.caller.rights() else { return Ok(None) };
        let Self { configuration, served, .. } = self;
        let policy = configuration.policy(&served.resource);
        let clusters = self.readable(wanted);
        let place = self.read_place();
        let admit = |rights: &CallerRights| {
            let admit = |place: &ReadPlace| rights.admit(clusters.iter().copied(), verb, place, partial);
            match wanted.is_everything() {
                true => self.router.admissions().get(rights, configuration, (verb, place.clone()), admit),
                // People who name clusters ask of few.
                false => admit(&place),
            }
        };
        let admission = rights.settled(admit).await?;
        if policy.filtered == Filtered::Deny && verb != "get" && admission.by_namespace.is_some() {
            return Err(rights.forbidden(verb, &place));
        }
        Ok(Some(admission))
    }
}

impl ClientRequest<'_> {
    /// What the caller may read now, where what they were admitted to before this was read is something else: a read may
    /// wait for clusters, and shows what is held then. What was read within a moment counts.
    ///
    /// # Errors
    /// As [`admission`](Self::admission).
    pub(crate) async fn admitted_anew(
        &self,
        (verb, wanted, partial): (&'static str, &ClusterSelector, Partial),
        before: &Option<Admission>,
        begun: Instant,
    ) -> Result<Option<Admission>, Refusal> {
        match before {
            Some(before) if begun.elapsed() >= ADMITTED_FOR => {
                let now = self.admission(verb, wanted, partial).await?;
                Ok(now.filter(|now| !now.shows_what(before)))
            }
            _ => Ok(None),
        }
    }
}

/// What a list or watch reads.
///
/// # Errors
/// 429 while clusters are unknown and a partial answer is denied; 400 for selectors that the resource does not support.
pub(crate) async fn collection(
    request: ClientRequest<'_>,
    label_selector: &LabelSelector,
    field_selector: &FieldSelector,
    admission: Option<&Admission>,
    reading: Lifetime,
) -> Result<Collection, Refusal> {
    let served = request.served;
    let namespace = request.resource.namespace.as_deref();
    let (_, clusters) = ClusterSelector::split(label_selector).map_err(Refusal::malformed)?;
    let clusters = match admission {
        Some(admission) => clusters.within(Arc::clone(&admission.only)),
        None => clusters,
    };
    let partial = request.configuration.policy(&served.resource).partial;
    let (view, before) = request.read(&clusters, partial, reading).await;
    let (name, fields) = (request.resource.name.as_deref(), view.decoder.fields());
    let (resource, namespaced) = (&view.kind.resource, view.kind.namespaced);
    let filter = Filter::compile(namespace, name, label_selector, field_selector, resource, fields, namespaced);
    let filter = Selection::new(filter.map_err(Refusal::malformed)?, admission);
    let mut left_out = request.configuration.left_out(served);
    left_out.retain(|cluster| clusters.matches(cluster));
    Ok(Collection { before: before?, left_out, filter, view })
}

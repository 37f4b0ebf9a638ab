//! What a list or a watch reads.

use std::sync::Arc;

use tributary_apimachinery::{ClusterName, ClusterSelector, FieldSelector, Filter, LabelSelector};

use crate::refusal::Refusal;
use crate::request::ClientRequest;
use crate::view::{EarlierStandings, View};
use crate::views::choice::Lifetime;

/// What a list or watch reads.
pub(crate) struct Collection {
    /// The resource over all clusters, or one namespace of it.
    pub(crate) view: Arc<View>,
    /// How each cluster that is wanted stands by now.
    pub(crate) before: EarlierStandings,
    /// The clusters that serve the resource and are not part of the view.
    pub(crate) left_out: Vec<ClusterName>,
    /// What is selected.
    pub(crate) filter: Filter,
}

/// What a list or watch reads.
///
/// # Errors
/// 429 while clusters are unknown and a partial answer is denied; 400 for selectors that the resource does not support.
pub(crate) async fn collection(
    request: ClientRequest<'_>,
    label_selector: &LabelSelector,
    field_selector: &FieldSelector,
    reading: Lifetime,
) -> Result<Collection, Refusal> {
    let served = request.served;
    let namespace = request.resource.namespace.as_deref();
    let (_, clusters) = ClusterSelector::split(label_selector).map_err(Refusal::malformed)?;
    let partial = request.configuration.policy(&served.resource).partial;
    let (view, before) = request.read(&clusters, partial, reading).await;
    let (name, fields) = (request.resource.name.as_deref(), view.decoder.fields());
    let (resource, namespaced) = (&view.kind.resource, view.kind.namespaced);
    let filter = Filter::compile(namespace, name, label_selector, field_selector, resource, fields, namespaced);
    let filter = filter.map_err(Refusal::malformed)?;
    let mut left_out = request.configuration.left_out(served);
    left_out.retain(|cluster| clusters.matches(cluster));
    Ok(Collection { before: before?, left_out, filter, view })
}

//! Live lists: lists of collections that memory cannot cache (metrics, resources that are not registered). Each cluster
//! gets the list request, and Tributary merges the answers.
//!
//! ```text
//! gather: a few members at once, in order ──▶ all lists fit ──▶ head, then the gathered lists
//!            │
//!            └─ some lists do not fit: probe their members for a successful answer
//!                   ──▶ head, then the list of one member after the other, as each arrives
//! ```
//!
//! Whatever the length, the answer's Warnings name the missing clusters and the reasons. At most [`GATHERED_BYTES_MAX`]
//! are in memory, however long the lists are. A page has complete answers of clusters in the order of their names, as
//! many as fit. Its continue token names the cluster of the next page, with that member's own token. So each cluster's
//! objects are one snapshot of that cluster, and Tributary keeps no state.

mod answer;
mod gather;
mod member_list;
mod token;
mod write;

use std::sync::Arc;

use http::{Response, header};
use tributary_answers::negotiate::{Representation, ResponseKind};
use tributary_answers::refusal::{ClusterRefusal, Refusal};
use tributary_answers::warnings;
use tributary_apimachinery::{ClusterName, ClusterSelector, ListOptions, Partial, json};
use tributary_sharing::body::Body;
use tributary_sharing::limits;
use tributary_views::view::{CacheState, CacheStates, cache_state};

use crate::mixed_releases::{ReleaseClusters, is_list_of_records};
use crate::request::ClientRequest;
use crate::selected_names;
use crate::unknown_rights;
use answer::LiveAnswer;
use gather::{GatheredPage, Gathering};
use member_list::ListQuery;
use token::LiveContinueToken;
use write::ListForm;

/// Returns whether a continue token belongs to a list that was forwarded to the clusters (live list).
pub(crate) fn is_live_token(text: &str) -> bool {
    LiveContinueToken::decode(text).is_ok()
}

/// Sends a list to each cluster, and merges the answers. The version of the merged answer omits the clusters in
/// `uncached`, whose objects memory does not cache. A watch from memory then starts without these clusters.
///
/// # Errors
/// Under `partial: Deny` 429 that names a cluster without an answer; 429 at the limit of body bytes; 400 and 422 as a
/// member answers; 403 if all members forbid the list; 406; 410 for an expired continue token. A failure after the
/// begin of the answer ends the connection or stream.
pub(crate) async fn list(request: ClientRequest<'_>, uncached: &[ClusterName]) -> Result<Response<Body>, Refusal> {
    let ClientRequest { router, caller, served, .. } = request;
    let form = request.preferences.form(ResponseKind::List)?;
    let options = ListOptions::parse(request.query, limits::SELECTOR).map_err(Refusal::malformed)?;
    let policy = request.configuration.policy(&served.resource);
    let partial = policy.partial;
    let (labels, selected) = ClusterSelector::split(&options.label_selector).map_err(Refusal::malformed)?;
    let wanted = |cluster: &ClusterName| selected.matches(cluster) && policy.selects(cluster);
    let has_unknown = request.candidates.is_one_unknown_of(&selected, |cluster| policy.selects(cluster));
    if has_unknown && partial == Partial::Deny {
        let resource = served.resource.clone();
        return Err(ClusterRefusal::rights_unknown(resource, String::new()).into());
    }
    let list_query =
        ListQuery::new(request, matches!(form.shape, Representation::Table(_)), &labels.to_string(), options.limit);
    let token = options.continue_token.as_deref().map(LiveContinueToken::decode).transpose()?;
    let clusters = request.serving().filter(|name| wanted(name));
    let clusters: Vec<_> = clusters.filter_map(|name| request.cluster(name)).collect();
    let body_bytes = router.held_bytes();
    let gathering = Gathering { list_query, limit: options.limit, partial, body_bytes, share_key: caller.share_key };
    let mut page = GatheredPage::new(token.as_ref(), &request.configuration.epochs, &clusters)?;
    page.gather(&gathering, &clusters, token).await?;
    let is_first = options.continue_token.is_none();
    let is_of_helm = is_first && is_list_of_records(&served.resource, &options.label_selector);
    let mixed = is_of_helm.then(|| collect_release_clusters(&page)).and_then(|found| found.warning());
    let mut cache_states = std::mem::take(&mut page.cache_states);
    let undescribed = served.undescribed().filter_map(|cluster| request.cluster(cluster));
    cache_states.extend(request.may_serve().into_iter().chain(undescribed).map(|cluster| {
        let cache_state = CacheState::of_unserved(&cluster, &served.resource);
        let cache_state = cache_state.unwrap_or_else(|| CacheState::of_undiscovered(&cluster, &served.resource));
        (cluster.name().clone(), cache_state)
    }));
    cache_states.extend(CacheState::left_out(served));
    cache_states.retain(|(cluster, _)| wanted(cluster) && request.candidates.has(cluster));
    let cache_states: CacheStates = cache_states.into_iter().collect();
    if let (Partial::Deny, Some(refusal)) = (partial, cache_state::refusal(&served.resource, &cache_states)) {
        return Err(refusal.into());
    }
    let include = request.finish(form, ResponseKind::List)?;
    let warned = std::mem::take(&mut page.warnings);
    let wish = ListForm { form, include, items: request.configuration.items(&served.resource) };
    let answer =
        LiveAnswer::new(page, gathering.list_query, partial, wish, served, Arc::clone(&request.configuration.epochs))
            .without_versions_of(uncached);
    let mut response = answer.respond(router.answer_permits(), caller.share_key).await?;
    let own = cache_state::warnings(&served.resource, &cache_states);
    let own = own.iter().filter_map(|text| tributary_answers::warnings::warning_header(text));
    let merged = warnings::together(warned.iter().map(|(cluster, warning)| (cluster, warning)));
    for warning in merged.into_iter().chain(own) {
        response.headers_mut().append(header::WARNING, warning);
    }
    let mixed = mixed.and_then(|text| tributary_answers::warnings::warning_header(&text));
    response.headers_mut().extend(mixed.map(|warning| (header::WARNING, warning)));
    if has_unknown {
        unknown_rights::warn(&mut response, caller);
    }
    selected_names::warn(response.headers_mut(), &request, &selected, |cluster| request.candidates.has(cluster));
    cache_state::warn_left_out(response.headers_mut(), caller.door, &served.resource, &request.left_out());
    Ok(response)
}

/// Returns the clusters of each Helm release with records on the page. Considers only lists that have already arrived.
fn collect_release_clusters(page: &GatheredPage) -> ReleaseClusters {
    let mut found = ReleaseClusters::default();
    for list in &page.lists {
        for object in list.objects() {
            let text = |field| {
                let place = json::find(object, 0, &["metadata", field])?;
                std::str::from_utf8(&object[json::string_contents(object, &place)?]).ok()
            };
            if let (Some(namespace), Some(name)) = (text("namespace"), text("name")) {
                found.add_record(list.cluster.name(), namespace, name);
            }
        }
    }
    found
}

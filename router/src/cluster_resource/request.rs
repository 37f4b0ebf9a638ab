//! A request for `clusters`, and its form and selectors.

use std::sync::Arc;

use tributary_answers::negotiate::{AnswerForm, IncludeObject, ResponseKind};
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::request_info::ResourceRequest;
use tributary_apimachinery::{FieldSelector, Filter, LabelSelector, SelectableResource};
use tributary_rights::CallerRights;

use crate::Router;
use crate::caller::Caller;
use crate::received::ReceivedRequest;
use crate::request::include_object;

/// A get, list or watch of `clusters`.
#[derive(Clone, Copy)]
pub(super) struct ClustersRequest<'a> {
    pub(super) router: &'a Arc<Router>,
    pub(super) caller: &'a Caller,
    pub(super) received: ReceivedRequest<'a>,
    pub(super) resource: &'a ResourceRequest,
}

impl ClustersRequest<'_> {
    /// Returns the rights that limit the clusters of the answer. `None` if the caller sees all clusters: in personal
    /// mode, and at the aggregated entry, where the hub has already authorized the request for `clusters`.
    pub(super) fn rights(&self) -> Option<&CallerRights> {
        self.caller.rights().filter(|_| !self.received.is_entry_path)
    }

    /// Chooses the form of the answer.
    ///
    /// # Errors
    /// 406 if the client accepts no possible form of the answer; 400 for an unknown value of `includeObject`.
    pub(super) fn form(&self, kind: ResponseKind) -> Result<(AnswerForm, IncludeObject), Refusal> {
        let ReceivedRequest { preferences, query, .. } = self.received;
        let form = preferences.form(kind)?;
        preferences.fits(form, kind, &self.resource.resource, "Cluster")?;
        Ok((form, include_object(form, query)?))
    }

    /// Compiles the selectors of a list or watch. The objects have no labels, and `metadata.name` is the only field.
    ///
    /// # Errors
    /// 400 for an unsupported field.
    pub(super) fn filter(&self, labels: &LabelSelector, fields: &FieldSelector) -> Result<Filter, Refusal> {
        let resource = &self.resource.resource;
        let selectable = SelectableResource { resource, fields: &[], namespaced: false };
        let filter = Filter::compile(None, self.resource.name.as_deref(), labels, fields, selectable);
        filter.map_err(Refusal::malformed)
    }
}

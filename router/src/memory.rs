//! Reads that are answered from memory.

pub mod get;
pub mod list;
pub mod watch;

use std::sync::Arc;

use http::{HeaderMap, Response, header};
use tributary_apimachinery::query::Query;
use tributary_apimachinery::{
    ClusterName, ClusterSelector, FieldError, FieldSelector, Filter, GroupVersionResource, LabelSelector, RequestInfo,
    ResourceRequest, Status,
};

use crate::Router;
use crate::body::Body;
use crate::discovery::ServedResource;
use crate::flow::long_answers::Peer;
use crate::negotiate::{Answer, Form, Preferences, Shape};
use crate::response::IncludeObject;
use crate::view::{EarlierStandings, Partial, Standing, Standings, View, standing};

/// One request, taken apart.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// What is asked for.
    pub info: &'a RequestInfo,
    /// The resource part of it.
    pub request: &'a ResourceRequest,
    /// The query string without its `?`.
    pub query: Option<&'a str>,
    /// The client's headers.
    pub headers: &'a HeaderMap,
    /// What it says of the form of its answer.
    pub preferences: &'a Preferences,
    /// The connection that it came by.
    pub peer: Option<Peer>,
}

/// For how long somebody reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A list, or one object: a namespace that is not there has nothing.
    Once,
    /// A watch: the namespace may come.
    On,
}

/// What a list or watch reads.
pub struct Collection {
    /// The resource over all clusters, or one namespace of it.
    pub view: Arc<View>,
    /// How each cluster that is wanted stands by now.
    pub before: EarlierStandings,
    /// The clusters that serve the resource and are not part of the view.
    pub left_out: Vec<ClusterName>,
    /// What is selected.
    pub filter: Filter,
}

impl Asked<'_> {
    /// What is asked of the answer once it is there: whether it has the form's shape, and what a Table's rows carry.
    ///
    /// # Errors
    /// 406; 400 for a value of `includeObject` that does not exist.
    pub fn finish(&self, form: Form, answer: Answer, served: &ServedResource) -> Result<IncludeObject, Status> {
        self.preferences.fits(form, answer, &served.resource, served.description.kind())?;
        include_object(form, self.query)
    }

    /// What a list or watch reads.
    ///
    /// # Errors
    /// 429 while clusters are unknown and a partial answer is denied; 400 for selectors that the resource does not support.
    pub async fn collection(
        &self,
        router: &Router,
        served: &ServedResource,
        label_selector: &LabelSelector,
        field_selector: &FieldSelector,
        reading: Reading,
    ) -> Result<Collection, Status> {
        let namespace = self.request.namespace.as_deref();
        let (_, clusters) = ClusterSelector::split(label_selector)?;
        let partial = router.policy(&served.resource).partial;
        let (view, before) = router.view_of(served, namespace, &clusters, partial, reading, self.peer).await;
        let (name, fields) = (self.request.name.as_deref(), view.decoder.fields());
        let (resource, namespaced) = (&view.kind.resource, view.kind.namespaced);
        let filter = Filter::compile(namespace, name, label_selector, field_selector, resource, fields, namespaced)?;
        let mut left_out = router.left_out(served);
        left_out.retain(|cluster| clusters.matches(cluster));
        Ok(Collection { before: before?, left_out, filter, view })
    }
}

/// What a Table's rows are to carry. In other forms the parameter says nothing.
///
/// # Errors
/// 400 for a value that does not exist.
pub fn include_object(form: Form, query: Option<&str>) -> Result<IncludeObject, Status> {
    if !matches!(form.shape, Shape::Table(_)) {
        return Ok(IncludeObject::default());
    }
    let query = Query::parse(query);
    let value = query.get("includeObject").unwrap_or_default();
    IncludeObject::parse(value).ok_or_else(|| {
        let error = FieldError::invalid("includeObject", value, "must be 'Metadata', 'Object', 'None', or empty");
        Status::bad_request(format!("Unable to convert to Table as requested: {error}"))
    })
}

/// Waits until memory has what the newest is to have: the client's own writes, and where members are to be asked, all that they
/// have now. A cluster that does not say so is stale, if that is allowed.
///
/// # Errors
/// 504 for what does not come within 3 s.
pub async fn newest(
    router: &Router,
    view: &View,
    wanted: &ClusterSelector,
    before: &mut EarlierStandings,
) -> Result<(), Status> {
    let resource = &view.kind.resource;
    let partial = router.policy(resource).partial;
    let own = view.own_writes_seen(wanted, partial).await?;
    if own.waited {
        // Who was fresh may have become stale while it was waited for, and is not waited for then.
        view.look_again(before);
    }
    for (cluster, since) in own.late {
        before.doubt(cluster, Standing::unseen_writes(since));
    }
    if router.asks_members(resource) {
        view.as_of_now(before).await?;
    }
    Ok(())
}

/// Named reads never wait for clusters that are out of reach: who has the object answers.
pub const NAMED: Partial = Partial::Allow;

/// Adds a `Warning` that names clusters which are not part of the view.
pub fn warn_left_out(response: &mut Response<Body>, resource: &GroupVersionResource, left_out: &[ClusterName]) {
    let text = standing::left_out_warning(resource, left_out);
    if let Some(value) = text.and_then(|text| standing::warning_header(&text)) {
        response.headers_mut().append(header::WARNING, value);
    }
}

/// Adds what members warn of, and a `Warning` for each cluster that is missing or stale.
pub fn warn(response: &mut Response<Body>, view: &View, standings: &Standings) {
    view.warnings.add_to(response.headers_mut());
    for text in standing::warnings(&view.kind.resource, standings) {
        if let Some(value) = standing::warning_header(&text) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

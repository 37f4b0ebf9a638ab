//! Reads that are answered from memory.

pub mod get;
pub mod list;
pub mod live;
pub mod version;
pub mod watch;

use std::sync::Arc;

use http::{HeaderMap, Response, header};
use tributary_apimachinery::query::Query;
use tributary_apimachinery::{ClusterName, FieldSelector, Filter, LabelSelector, RequestInfo, ResourceRequest, Status};

use crate::Router;
use crate::body::Body;
use crate::discovery::ServedResource;
use crate::negotiate::{Answer, Form, negotiate};
use crate::response::IncludeObject;
use crate::turns::Peer;
use crate::view::{Standing, View, standing};

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
    /// The connection that it came by.
    pub peer: Option<Peer>,
}

/// What a list or watch reads.
pub struct Collection {
    /// The resource over all clusters, or one namespace of it.
    pub view: Arc<View>,
    /// How each cluster stands.
    pub standings: Vec<(ClusterName, Standing)>,
    /// What is selected.
    pub filter: Filter,
}

impl Asked<'_> {
    /// The form of the answer; people's programs (curl, wget, browsers) get indented JSON, as kube-apiserver gives it.
    ///
    /// # Errors
    /// 406.
    pub fn form(&self, answer: Answer, pretty: Option<bool>) -> Result<Form, Status> {
        let accept = self.header(header::ACCEPT);
        let mut form = negotiate(accept, answer)?;
        form.pretty = answer != Answer::Watch && pretty.unwrap_or_else(|| self.is_for_people());
        Ok(form)
    }

    /// What a Table's rows are to carry.
    ///
    /// # Errors
    /// 400 for a value that does not exist.
    pub fn include_object(&self) -> Result<IncludeObject, Status> {
        let query = Query::parse(self.query);
        let value = query.get("includeObject").unwrap_or_default();
        IncludeObject::parse(value).ok_or_else(|| {
            Status::bad_request(format!(
                "includeObject: Invalid value: {value:?}: supported values are None, Metadata and Object"
            ))
        })
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
    ) -> Result<Collection, Status> {
        let namespace = self.request.namespace.as_deref();
        let (view, standings) = router.view_of(served, namespace, router.policy(&served.resource).partial).await;
        let (name, fields) = (self.request.name.as_deref(), view.decoder.fields());
        let filter = Filter::compile(namespace, name, label_selector, field_selector, fields, view.kind.namespaced)?;
        Ok(Collection { standings: standings?, filter, view })
    }

    fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    fn is_for_people(&self) -> bool {
        let agent = self.header(header::USER_AGENT).unwrap_or_default();
        ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix))
    }
}

/// Adds a `Warning` for each cluster that is missing or stale.
pub fn warn(response: &mut Response<Body>, view: &View, standings: &[(ClusterName, Standing)]) {
    for text in standing::warnings(&view.kind.resource, standings) {
        if let Some(value) = standing::warning_header(&text) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

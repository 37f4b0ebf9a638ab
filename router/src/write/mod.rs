//! Requests that go on to members: to the owner of an object, to the target of a new one, to all.

pub mod answer;
pub mod body;
pub mod create;
pub mod fan_out;
pub mod forward;
pub mod locate;
pub mod owner;
pub mod relay;
pub mod self_review;

use http::HeaderMap;
use tributary_apimachinery::{RequestInfo, ResourceRequest, Status};

use crate::Router;
use crate::discovery::ServedResource;
use crate::negotiate::{Answer, Form};
use crate::read::Asked;
use crate::response::IncludeObject;

/// A request for a resource that goes on to members, without its headers and body.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The router that answers it.
    pub router: &'a Router,
    /// What is asked for.
    pub info: &'a RequestInfo,
    /// The resource part of it.
    pub resource: &'a ResourceRequest,
    /// The query string without its `?`.
    pub query: Option<&'a str>,
    /// Who serves the resource.
    pub served: &'a ServedResource,
}

impl Call<'_> {
    /// In which form an object is to be answered.
    ///
    /// # Errors
    /// 406; 400 for parameters of a Table that do not exist.
    fn form(&self, headers: &HeaderMap) -> Result<(Form, IncludeObject), Status> {
        let asked = self.asked(headers);
        Ok((asked.form(Answer::Object, None)?, asked.include_object()?))
    }

    /// In which form a question is to be answered.
    ///
    /// # Errors
    /// 406, for a Table too.
    fn review_form(&self, headers: &HeaderMap) -> Result<Form, Status> {
        self.asked(headers).form(Answer::Review, None)
    }

    fn asked<'a>(&'a self, headers: &'a HeaderMap) -> Asked<'a> {
        Asked { info: self.info, request: self.resource, query: self.query, headers, peer: None }
    }
}

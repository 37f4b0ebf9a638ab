//! Requests that go on to members: to the owner of an object, to the target of a new one, to all.

pub mod answer;
pub mod buffered;
pub mod create;
pub mod delete_collection;
pub mod integers;
pub mod list;
pub mod locate;
pub mod one_cluster;
pub mod owner;
pub mod self_review;
pub mod send;
pub mod shared_questions;
pub mod whole;

use tributary_apimachinery::{GroupVersionResource, RequestInfo, ResourceRequest, Status};

use crate::Router;
use crate::discovery::ServedResource;
use crate::memory::include_object;
use crate::negotiate::{Answer, Form, Preferences};
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
    /// What the client says of the form of its answer.
    pub preferences: &'a Preferences,
}

impl Call<'_> {
    /// In which form an object is to be answered.
    ///
    /// # Errors
    /// 406; 400 for parameters of a Table that do not exist.
    fn form(&self) -> Result<(Form, IncludeObject), Status> {
        let form = self.preferences.form(Answer::Object)?;
        Ok((form, self.finish(form)?))
    }

    /// What is asked of an object's form once there is an object. A write asks before it changes anything.
    ///
    /// # Errors
    /// As [`form`](Self::form).
    fn finish(&self, form: Form) -> Result<IncludeObject, Status> {
        let resource = &self.served.resource;
        match self.resource.subresource.as_deref() {
            Some("scale") if resource.is_built_in() => {
                let scale = GroupVersionResource::new("autoscaling", "v1", "scale");
                self.preferences.fits(form, Answer::Object, &scale, "Scale")?;
            }
            _ => self.preferences.fits(form, Answer::Object, resource, self.served.description.kind())?,
        }
        include_object(form, self.query)
    }

    /// In which form a question is to be answered.
    ///
    /// # Errors
    /// 406, for a Table too.
    fn review_form(&self) -> Result<Form, Status> {
        self.preferences.form(Answer::Review)
    }
}

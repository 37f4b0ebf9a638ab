//! A request on its way through the stages.

use std::sync::Arc;

use http::HeaderValue;

use crate::configuration::ConfigurationSnapshot;
use crate::flow_control::PassedSchema;
use crate::received::ReceivedRequest;
use crate::request_trace::RequestTrace;
use crate::{Router, User};

/// A valid request, and the results of the stages.
pub(crate) struct StagedRequest<'a> {
    pub(crate) router: &'a Arc<Router>,
    pub(crate) received: ReceivedRequest<'a>,
    pub(crate) configuration: &'a ConfigurationSnapshot,
    pub(crate) user: &'a User,
    /// Facts about the request for logs, metrics and traces.
    pub(crate) trace: &'a RequestTrace,
    /// Flow-control schema of the request; `None` before the stage `dispatch`, and without a schema.
    pub(crate) schema: Option<&'a PassedSchema>,
    /// Warning about clusters whose policies refuse the request. Boxed, because few requests have one.
    pub(crate) warning: Option<Box<HeaderValue>>,
}

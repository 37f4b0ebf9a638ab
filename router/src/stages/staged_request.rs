//! A request on its way through the stages.

use std::sync::Arc;

use http::HeaderValue;

use crate::configuration::ConfigurationSnapshot;
use crate::flow_control::PassedSchema;
use crate::received::Received;
use crate::request_trace::RequestTrace;
use crate::{Router, User};

/// A request that was read, and the results of the stages.
pub(crate) struct StagedRequest<'a> {
    /// The router that answers the request.
    pub(crate) router: &'a Arc<Router>,
    /// The request without its body.
    pub(crate) received: Received<'a>,
    /// The configuration that the request sees.
    pub(crate) configuration: &'a ConfigurationSnapshot,
    /// The authenticated user.
    pub(crate) user: &'a User,
    /// The facts for logs, metrics and traces.
    pub(crate) trace: &'a RequestTrace,
    /// The flow-control schema that the request passes; `None` before the stage `dispatch`, and without a schema.
    pub(crate) schema: Option<&'a PassedSchema>,
    /// The Warning about clusters whose policies refuse the request. Boxed, because few requests have one.
    pub(crate) warning: Option<Box<HeaderValue>>,
}

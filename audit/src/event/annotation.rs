//! The annotations that Tributary adds to audit events.

/// An annotation for a property that kube-apiserver's event has no field for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Annotation {
    /// The result of the authorization: `allow`, or `forbid` if the response was 403.
    Decision,
    /// The origin of the response: `memory`, `tributary` (discovery, health checks, refusals), or the names of
    /// clusters.
    AnsweredBy,
    /// The only cluster in which the user is valid, because this cluster authenticated the user.
    VouchedBy,
    /// The dispatch policies that matched the request, and their actions.
    DispatchPolicy,
    /// The cluster that authorized an impersonation. If no cluster authorized it, the annotation contains the requested
    /// user.
    Impersonation,
    /// The reason why the request's body is omitted.
    RequestObject,
    /// The reason why the response's body is omitted.
    ResponseObject,
}

impl Annotation {
    /// The key of the annotation in an event.
    pub fn key(self) -> &'static str {
        match self {
            Self::Decision => "tributary.dev/decision",
            Self::AnsweredBy => "tributary.dev/answered-by",
            Self::VouchedBy => "tributary.dev/vouched-by",
            Self::DispatchPolicy => "tributary.dev/dispatch-policy",
            Self::Impersonation => "tributary.dev/impersonation",
            Self::RequestObject => "tributary.dev/request-object",
            Self::ResponseObject => "tributary.dev/response-object",
        }
    }
}

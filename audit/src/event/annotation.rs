//! The annotations of Tributary in audit events.

/// An annotation for a fact without a field in kube-apiserver's event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Annotation {
    /// The decision: `allow`, or `forbid` if the response was 403.
    Decision,
    /// The component that answered: `memory`, `tributary` (discovery, health checks, refusals), or the names of
    /// clusters.
    AnsweredBy,
    /// The cluster that alone vouches for the user.
    VouchedBy,
    /// The dispatch policies that matched the request, and their actions.
    DispatchPolicy,
    /// The cluster that authorized an impersonation; if none did, the requested user.
    Impersonation,
    /// The reason why the request's body is omitted.
    RequestObject,
    /// The reason why the response's body is omitted.
    ResponseObject,
}

impl Annotation {
    /// The key of the annotation.
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

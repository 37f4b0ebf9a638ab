//! What Tributary says of a request that kube-apiserver has no field for.

/// What Tributary says of a request that kube-apiserver has no field for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Annotation {
    /// `allow`, or `forbid` where the answer was 403.
    Decision,
    /// Who answered: `memory`, `tributary` (discovery, health, what was refused), or the clusters that were asked.
    AnsweredBy,
    /// Which cluster vouches for the user, where one alone does: the name is its word, and nobody else's.
    VouchedBy,
    /// Which dispatch policies took the request, and what they did.
    DispatchPolicy,
    /// Whose decision an impersonation is; where nobody lets the user, or nobody decides, whom they asked to be.
    Impersonation,
    /// Why the body of the request is not there.
    RequestObject,
    /// Why the body of the answer is not there.
    ResponseObject,
}

impl Annotation {
    /// Its key.
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

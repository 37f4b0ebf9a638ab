//! Users of a request that dispatch policies match.
//!
//! Rules match the user that the request acts as. With `Impersonate-*` headers, the right to impersonate is not yet
//! proven when policies are evaluated. If only one member authenticates the user, that member can choose any name. An
//! unproven name may lead to a refusal. But it must not choose a schema or a log mode: the schema's limit is used, and
//! the log line dropped, before rights are checked.
//!
//! ```text
//! refusal                   the acting user; also the authenticated user, if a policy denies that user
//! endpoints                 the acting user: no request is sent before the right to impersonate is checked
//! schema, line in the log   the acting user, if the right to impersonate is known; otherwise the authenticated user,
//!                           without names and groups that a single member vouches for; no user, if no policy admits
//!                           the authenticated user and a cluster has to be asked for the right
//! ```

use tributary_apimachinery::ClusterName;
use tributary_authentication::UserInfo;
use tributary_policy::DispatchAttributes;

use tributary_rights::{CallerRights, UserSelector};

/// Users for whom dispatch policies judge a request: the rules match their names and groups. An empty name matches no
/// rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicySender {
    /// User that the request acts as.
    pub(crate) acting: UserInfo,
    /// Authenticated user of an impersonated request. A policy that denies the authenticated user also refuses the
    /// impersonated request.
    pub(crate) authenticated: Option<UserInfo>,
    /// User whose verdict chooses the schema and the access-log mode: the authenticated user, without a name or groups
    /// that only one member has verified. `None` if all names and groups are valid here. Then the verdict for the
    /// authenticated user chooses, or for the acting user if the request does not impersonate.
    pub(crate) limited_user: Option<UserInfo>,
}

impl PolicySender {
    /// Makes the sender for the policies of a cluster, or of the merged view (`None`).
    pub(crate) fn of_user(rights: &CallerRights, place: Option<&ClusterName>) -> Self {
        let actor = rights.actor();
        let authenticated = actor.impersonated_user().map(|_| actor.rbac_user(UserSelector::User).clone());
        let limited_user = actor.policy_identity_for(place).cloned();
        Self { acting: actor.rbac_user(UserSelector::Acting).clone(), authenticated, limited_user }
    }

    /// Makes the sender in personal mode. Policies match only the acting user, whether impersonated or not.
    pub(crate) fn alone(acting: UserInfo) -> Self {
        Self { acting, authenticated: None, limited_user: None }
    }
}

/// A request in the form that policies match, once for each user of its [`PolicySender`].
#[derive(Clone, Debug)]
pub(crate) struct PolicyInput<'a> {
    /// The request with the acting user.
    pub(crate) acting: DispatchAttributes<'a>,
    /// The request with the authenticated user, if a denial of this user also applies.
    pub(crate) authenticated: Option<DispatchAttributes<'a>>,
    /// The request with the user [`PolicySender::counted`]. `None` for policies that choose no schema.
    pub(crate) limited_user: Option<DispatchAttributes<'a>>,
}

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

use tributary_rights::{CallerRights, UserSelector, user_info};

/// Users that represent the caller of a request. Rules match their names and groups. An empty name matches no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicySender {
    /// User that the request acts as.
    pub(crate) acting: UserInfo,
    /// Authenticated user of an impersonated request. A denial of the authenticated user also applies to the
    /// impersonated user.
    pub(crate) authenticated: Option<UserInfo>,
    /// User whose verdict chooses the schema and the access-log mode.
    pub(crate) counted: Counted<UserInfo>,
}

/// User for whom policies choose a schema and a log mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Counted<User> {
    Acting,
    /// The authenticated user, because the right to impersonate is not known yet.
    Authenticated,
    /// The authenticated user, without the name or groups that only one member vouches for.
    Less(User),
}

impl<User> Counted<User> {
    pub(super) fn seen_as<'a, Seen>(&'a self, see: impl FnOnce(&'a User) -> Seen) -> Counted<Seen> {
        match self {
            Self::Acting => Counted::Acting,
            Self::Authenticated => Counted::Authenticated,
            Self::Less(user) => Counted::Less(see(user)),
        }
    }
}

impl PolicySender {
    /// Makes the sender for the policies of a cluster, or of the merged view (`None`).
    pub(crate) fn of_user(rights: &CallerRights, place: Option<&ClusterName>) -> Self {
        let actor = rights.actor();
        let acting = user_info(actor.judged(UserSelector::Acting));
        let authenticated = actor.impersonated_user().map(|_| user_info(actor.judged(UserSelector::User)));
        let counted = match actor.counted_at(place) {
            Some((name, groups)) => {
                Counted::Less(UserInfo { username: name.clone(), groups: groups.clone(), ..UserInfo::default() })
            }
            None if authenticated.is_some() => Counted::Authenticated,
            None => Counted::Acting,
        };
        Self { acting, authenticated, counted }
    }

    /// Makes the sender in personal mode. Policies match only the acting user, impersonated or not.
    pub(crate) fn alone(acting: UserInfo) -> Self {
        Self { acting, authenticated: None, counted: Counted::Acting }
    }
}

/// A request in the form that policies match, once for each user of its [`PolicySender`].
#[derive(Clone, Debug)]
pub(crate) struct PolicyInput<'a> {
    /// The request of the acting user.
    pub(crate) acting: DispatchAttributes<'a>,
    /// The request of the authenticated user, if a denial of this user also applies.
    pub(crate) authenticated: Option<DispatchAttributes<'a>>,
    /// The request of the user whose verdict chooses the schema. The acting user for policies that choose no schema.
    pub(crate) counted: Counted<DispatchAttributes<'a>>,
}

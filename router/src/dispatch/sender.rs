//! The sender of a request in the form that policies match.
//!
//! Rules match the user that the request acts as. If `Impersonate-*` names that user, the right to impersonate is not
//! proven when the policies are evaluated. If one member alone vouches for the user, the name is whatever that member
//! says. Such a name may refuse a request, but must not choose for it: a schema is spent, and a line of the access log
//! left out, before rights are checked.
//!
//! ```text
//! refusal                   the acting user; also the authenticated user, if a policy denies that user
//! endpoints                 the acting user: no request is sent before the right to impersonate is checked
//! schema, line in the log   the acting user, if the right to impersonate is known; otherwise the authenticated user,
//!                           without names and groups that a single member vouches for; no user, if no policy admits
//!                           the authenticated user and a cluster has to be asked for the right
//! ```

use tributary_apimachinery::ClusterName;
use tributary_authorization::RbacUser;
use tributary_policy::DispatchAttributes;

use tributary_rights::{CallerRights, Whom};

/// A name and groups that rules match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyUser {
    /// The name; empty if it does not count.
    pub(crate) name: String,
    /// The groups that count.
    pub(crate) groups: Vec<String>,
}

/// The users that stand for the sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicySender {
    /// The user that the request acts as.
    pub(crate) acting: PolicyUser,
    /// The authenticated user of an impersonated request. A denial of this user holds for the impersonated user, too.
    pub(crate) authenticated: Option<PolicyUser>,
    /// The user who chooses the schema and the line in the access log.
    pub(crate) counted: Counted<PolicyUser>,
}

/// The user for whom policies choose a schema and a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Counted<User> {
    /// The user that the request acts as.
    Acting,
    /// The authenticated user, because the right to impersonate is not known yet.
    Authenticated,
    /// The authenticated user, with the names and groups that count only.
    Less(User),
}

impl<User> Counted<User> {
    /// The same variant with another form of the user.
    pub(super) fn seen_as<'a, Seen>(&'a self, see: impl FnOnce(&'a User) -> Seen) -> Counted<Seen> {
        match self {
            Self::Acting => Counted::Acting,
            Self::Authenticated => Counted::Authenticated,
            Self::Less(user) => Counted::Less(see(user)),
        }
    }
}

impl PolicySender {
    /// A user's sender for the policies of a place: of a cluster, or of the merged view (`None`).
    pub(crate) fn of_user(rights: &CallerRights, place: Option<&ClusterName>) -> Self {
        let actor = rights.actor();
        let seen_as =
            |RbacUser { name, groups }: RbacUser<'_>| PolicyUser { name: name.to_owned(), groups: groups.to_vec() };
        let acting = seen_as(actor.judged(Whom::Acting));
        let authenticated = actor.impersonated_user().map(|_| seen_as(actor.judged(Whom::User)));
        let counted = match actor.counted_at(place) {
            Some((name, groups)) => Counted::Less(PolicyUser { name: name.clone(), groups: groups.clone() }),
            None if authenticated.is_some() => Counted::Authenticated,
            None => Counted::Acting,
        };
        Self { acting, authenticated, counted }
    }

    /// The sender in personal mode. Only the acting user counts, impersonated or not.
    pub(crate) fn alone(acting: PolicyUser) -> Self {
        Self { acting, authenticated: None, counted: Counted::Acting }
    }
}

/// A request in the form that policies match, once for each user of its [`PolicySender`].
#[derive(Clone, Debug)]
pub(crate) struct PolicyQuestion<'a> {
    /// As [`PolicySender::acting`].
    pub(crate) acting: DispatchAttributes<'a>,
    /// As [`PolicySender::authenticated`].
    pub(crate) authenticated: Option<DispatchAttributes<'a>>,
    /// As [`PolicySender::counted`]; the acting user for policies that choose nothing.
    pub(crate) counted: Counted<DispatchAttributes<'a>>,
}

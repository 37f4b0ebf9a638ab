//! Who sends a request, as policies look at them.
//!
//! Rules match as whom the request acts. That is whoever `Impersonate-*` names, and nobody has allowed it yet when the
//! policies are asked; and of whom one member alone vouches the name is whatever that member says. So it is enough to
//! be refused by, and not to choose by: a schema is spent and a line of the access log is left out before anybody looks
//! at rights.
//!
//! ```text
//! whether it goes on                  as whom it acts, and the one who authenticated where that one is denied
//! its endpoints                       as whom it acts: nothing is sent there before the cluster lets the user be that
//! its schema, its line in the log     as whom it acts, where it is known that the user may; else the one who
//!                                     authenticated, without what a member alone says of them; nobody, where that
//!                                     one is let in by no policy and a cluster has to be asked what they may
//! ```

use tributary_apimachinery::ClusterName;
use tributary_authorization::RbacUser;
use tributary_policy::DispatchAttributes;

use tributary_rights::{CallerRights, Whom};

/// A name and groups, as rules match them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyUser {
    /// The name; empty where it does not count.
    pub(crate) name: String,
    /// The groups that count.
    pub(crate) groups: Vec<String>,
}

/// Who sends a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicySender {
    /// As whom it acts.
    pub(crate) acting: PolicyUser,
    /// The one who authenticated, where they ask to be another: what they are denied they are denied as anybody.
    pub(crate) authenticated: Option<PolicyUser>,
    /// By whom its schema, and its line in the access log, are chosen.
    pub(crate) counted: Counted<PolicyUser>,
}

/// By whom policies choose something for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Counted<User> {
    /// As whom it acts.
    Acting,
    /// The one who authenticated, unless it is known that they may act as they do.
    Authenticated,
    /// The same, of whom less counts than is said.
    Less(User),
}

impl<User> Counted<User> {
    /// The same, of the user as somebody sees them.
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

    /// Of whom nothing but this has to be known: the one person who owns the endpoint, whomever they ask to be.
    pub(crate) fn alone(acting: PolicyUser) -> Self {
        Self { acting, authenticated: None, counted: Counted::Acting }
    }
}

/// A request as policies look at it: as each of the users that its [`PolicySender`] is.
#[derive(Clone, Debug)]
pub(crate) struct PolicyQuestion<'a> {
    /// As [`PolicySender::acting`].
    pub(crate) acting: DispatchAttributes<'a>,
    /// As [`PolicySender::authenticated`].
    pub(crate) authenticated: Option<DispatchAttributes<'a>>,
    /// As whom it acts, also where the policies choose nothing for it.
    pub(crate) counted: Counted<DispatchAttributes<'a>>,
}

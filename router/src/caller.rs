//! Who sends a request.

use std::sync::Arc;

use http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use tributary_authentication::{Authority, Reach, UserInfo};
use tributary_proxy::{GivenIdentity, RequestIdentity};

use crate::answer_room::AnswerRoom;
use crate::awaited::Awaited;
use crate::flow::fair_share::Holder;
use crate::refusal::{Refusal, RequestRefusal};
use crate::rights::{CallerRights, RightsMirror};

/// Who sends a request, as authentication found, and whose word that is: what a member may be told of it goes by both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// What is said of the user. Of those whom a verifier knows `system:authenticated` is among the groups.
    pub info: UserInfo,
    /// Who says so, and where that is good.
    pub authority: Authority,
}

impl User {
    /// One of this name and no more, for whom this endpoint itself vouches in all members. `verifier` is what of it
    /// knows the user, as [`Authority::verifier`].
    pub fn named(verifier: &str, name: &str) -> Self {
        let info = UserInfo { username: name.to_owned(), ..UserInfo::default() };
        Self { info, authority: Authority { verifier: verifier.to_owned(), reach: Reach::Everywhere } }
    }
}

/// Who sends a request, and in whose name members are to see it. Made once for each request, before anything is done
/// for it; whatever is sent to a member for a client takes it as an argument, so that nothing is sent
/// in another name by an oversight.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    identity: RequestIdentity,
    /// The connection that the request came by: its share of what clients share.
    pub(crate) connection: Holder,
    /// What says whether there is room on it for an answer.
    pub(crate) answer_room: Option<AnswerRoom>,
    /// The clusters that were asked for it and have not answered yet.
    pub(crate) awaited: Awaited,
    /// What memory may show; `None` where one person owns the endpoint, for whom all of it is.
    rights: Option<CallerRights>,
}

impl Caller {
    /// Who sent a request, by its parts. In personal mode members see the kubeconfig's user,
    /// or whom that user asks to be.
    ///
    /// # Errors
    /// 400 for `Impersonate-*` headers that a member could take for somebody else's, or for nobody's.
    pub(crate) fn of(headers: &HeaderMap, extensions: &Extensions) -> Result<Self, Refusal> {
        let given = GivenIdentity::of(headers).map_err(RequestRefusal::Impersonation)?;
        let identity = given.map_or(RequestIdentity::Member, RequestIdentity::AsGiven);
        let (connection, answer_room) = (extensions.get().copied(), extensions.get().cloned());
        Ok(Self { identity, connection, answer_room, awaited: Awaited::default(), rights: None })
    }

    /// The same, as one of many users.
    pub(crate) fn one_of_many(self, mirror: &Arc<RightsMirror>, user: &User) -> Self {
        let rights = CallerRights::new(mirror, user.info.username.clone(), user.info.groups.clone());
        Self { rights: Some(rights), ..self }
    }

    /// What memory may show; `None` where one person owns the endpoint.
    pub(crate) fn rights(&self) -> Option<&CallerRights> {
        self.rights.as_ref()
    }

    /// In whose name members see the request.
    pub(crate) fn identity(&self) -> &RequestIdentity {
        &self.identity
    }

    /// Whether the client asks to be somebody else, of whom memory knows nothing: it holds what our own rights can see.
    pub(crate) fn is_another(&self) -> bool {
        !matches!(self.identity, RequestIdentity::Member)
    }

    /// The headers that say whom the client asks to be: what tells the identities of two requests apart.
    pub(crate) fn impersonation(&self) -> Box<[(HeaderName, HeaderValue)]> {
        let headers = match &self.identity {
            RequestIdentity::Member => return Box::default(),
            RequestIdentity::AsGiven(given) => given.headers(),
            RequestIdentity::Impersonate(user) => user.headers(),
        };
        headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

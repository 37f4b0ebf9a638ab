//! Caller of a request: the user's identity, rights, connection and share of limits.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tributary_answers::refusal::{ClusterRefusal, Refusal, RequestRefusal};
use tributary_answers::termination_reason::TerminationReason;
use tributary_authentication::{ExchangedIdentity, IdentityPolicy, UserInfo};
use tributary_fleet::foreign_member::{ForeignMember, ForeignMembers};
use tributary_fleet::topology::ClusterSetup;
use tributary_flow_control::AdmittedRequest;
use tributary_proxy::{ClientUpgrade, ClusterClient, Impersonation, RequestIdentity};
use tributary_rights::{Actor, CallerRights, RightsMirror, SentRequest, User, bounded, given_user};
use tributary_sharing::flow::fair_semaphore::Exceeded;
use tributary_sharing::flow::share_key::ShareKey;

use tributary_apimachinery::{ClusterName, Door, Query, RequestInfo, Verb, or_pending};

use crate::awaited::AwaitedClusters;
use crate::dispatch::{DeniedClusters, Dispatched, PolicySender};
use crate::received::ReceivedRequest;
use crate::request_context::{RequestArrival, RequestContext};
use crate::request_trace::{BegunStage, RequestTrace};

/// Caller of a request, and the source of the identity that members see. Created once for each request, before the
/// stages of the router. Each function that sends a client's request to a member takes the caller as an argument, so
/// that no request uses a wrong identity.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// User in the client's `Impersonate-*` headers.
    given: Option<Impersonation>,
    /// Rights of the user, in shared mode. In personal mode clusters see the kubeconfig's user, or the user that the
    /// client impersonates.
    rights: Option<CallerRights>,
    /// `Authorization` header with the token of the user, for the cluster that verified the token.
    own: Option<HeaderValue>,
    /// Expiry of the credentials; `None` for credentials without expiry.
    authenticated_until: Option<Instant>,
    pub(crate) connection: Option<SocketAddr>,
    /// Client (connection or user) whose share of the limits the request uses.
    pub(crate) share_key: ShareKey,
    /// Clusters that received this request, and have not answered yet.
    pub(crate) awaited: AwaitedClusters,
    /// Decision of the dispatch policies. `None` if there are no policies and the request cannot become long-running.
    pub(crate) dispatched: Option<Arc<Dispatched>>,
    /// Permit of the request in its flow-control schema, set on admission. A member may work on the request after the
    /// client has gone, so the permit lasts until the member's answer ends. Empty without a schema.
    pub(crate) admitted: OnceLock<Arc<AdmittedRequest>>,
    /// Facts about the request for logs, metrics and traces; `None` for Tributary's own requests.
    pub(crate) trace: Option<RequestTrace>,
    /// Client side of an upgraded connection.
    pub(crate) upgrade: Option<ClientUpgrade>,
    /// Entry through which the client reaches the API.
    pub(crate) door: Door,
    /// Member that the path names at the door of a foreign system. The identity that the member sees belongs to this
    /// name. `None` before [`enter_door`](Self::enter_door), and at other doors.
    named_member: Option<NamedMember>,
    /// Set once Tributary has sent a part of a write to a cluster.
    written: OnceLock<()>,
    /// Set once the answer lacks objects because the user's rights in some clusters are unknown.
    lacks_rights: OnceLock<()>,
}

/// Member that the path names, by its name in a foreign system. The settings of this name choose the user as whom the
/// member sees the caller.
#[derive(Clone, Debug)]
struct NamedMember {
    member: Arc<ForeignMember>,
    /// True if the query has `impersonate=true`. A member then sees the caller instead of the user of its stored
    /// credential.
    impersonates: bool,
    /// The present members of foreign systems.
    present: watch::Receiver<Arc<ForeignMembers>>,
}

impl NamedMember {
    /// Returns whether the member sees the caller, whatever the caller's name is.
    fn sees_caller(&self) -> bool {
        match self.member.identity {
            IdentityPolicy::Impersonate => true,
            IdentityPolicy::Stored => self.impersonates,
            IdentityPolicy::Rules(_) => false,
        }
    }

    /// Waits until the name leads to a different member, or the member must see a different user. Cancellation is safe.
    async fn wait_for_change(mut self) -> TerminationReason {
        let Self { member: own, present, .. } = &mut self;
        let is_same = |now: &Arc<ForeignMember>| now.cluster == own.cluster && now.identity == own.identity;
        let is_other = |members: &Arc<ForeignMembers>| !members.find(own.system, &own.name).is_some_and(is_same);
        if present.wait_for(is_other).await.is_err() {
            // The router has ended.
            std::future::pending::<()>().await;
        }
        TerminationReason::NameChanged
    }
}

/// Key of a caller's identity. Members give equal answers to callers with equal keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CallerKey {
    /// User of a personal endpoint, with `Impersonate-*` headers.
    Owner(Box<[(HeaderName, HeaderValue)]>),
    User(Arc<Actor>),
    /// User at a door of Karmada. Members get only the name and the groups of the user, through Karmada's impersonator
    /// account.
    UserByImpersonator(Arc<Actor>),
}

async fn wait_for_termination(rights: Option<CallerRights>) -> TerminationReason {
    match rights {
        Some(rights) => rights.wait_for_termination().await,
        None => std::future::pending().await,
    }
}

/// Resolves at the deadline of a stream, with the cause of the end. Never resolves for a stream without a deadline.
pub(crate) async fn wait_for_stream_end(end: Option<(Instant, TerminationReason)>) -> TerminationReason {
    let wait_for_stream_end = async |(at, why): (Instant, TerminationReason)| {
        sleep_until(at).await;
        why
    };
    or_pending(end.map(wait_for_stream_end)).await
}

impl Caller {
    /// Makes the caller from a request's headers and the results of the server's stages. `mirror` has the rights of
    /// users in members; `None` in personal mode.
    ///
    /// # Errors
    /// 400 for `Impersonate-*` headers that are ambiguous to a member; 431 for more impersonated values than the limit;
    /// 403 for a user on the list of denied users.
    pub(crate) fn from_request(
        headers: &HeaderMap,
        context: &RequestContext,
        mirror: Option<&Arc<RightsMirror>>,
    ) -> Result<Self, Refusal> {
        let given = Impersonation::from_client_headers(headers).map_err(RequestRefusal::Impersonation)?;
        let RequestContext { arrival, sender } = context;
        let user = &sender.user;
        let own = mirror.and_then(|_| sender.own_credential.clone());
        let (rights, share_key) = match mirror {
            None => (None, ShareKey::connection(arrival.peer)),
            Some(mirror) => {
                let given = given.as_ref().map(given_user).transpose().map_err(RequestRefusal::Impersonation)?;
                given.as_ref().map_or(Ok(()), bounded)?;
                let actor = match (given, &arrival.remembered) {
                    (None, Some(remembered)) => remembered.actor_for(&user.info, &user.authority),
                    (given, _) => Arc::new(Actor::new(user.info.clone(), user.authority.clone(), given)),
                };
                if mirror.denies(&actor) {
                    return Err(RequestRefusal::Terminated(TerminationReason::Denied).into());
                }
                let rights = CallerRights::new(mirror, actor).with_still_known(sender.credential_validity.clone());
                let rights = rights.remembered_by(arrival.remembered.clone());
                (Some(rights), user.share_key())
            }
        };
        Ok(Self {
            given,
            rights,
            own,
            authenticated_until: sender.until,
            connection: arrival.peer,
            share_key,
            awaited: AwaitedClusters::default(),
            dispatched: None,
            admitted: OnceLock::new(),
            trace: Some(arrival.trace.clone()),
            upgrade: arrival.upgrade.clone(),
            door: arrival.door,
            named_member: None,
            written: OnceLock::new(),
            lacks_rights: OnceLock::new(),
        })
    }

    /// Copies the caller for a lookup that several requests share. The lookup may outlive the first request, so the
    /// copy has no permit of a flow-control schema.
    pub(crate) fn for_shared_lookup(&self) -> Self {
        Self { admitted: OnceLock::new(), upgrade: None, ..self.clone() }
    }

    /// Finds the member that the path names at the door of a foreign system. `subscribe` follows the members.
    ///
    /// # Errors
    /// The system's answer for an unknown name, if the name has changed its member since the arrival of the request.
    pub(crate) fn enter_door(
        &mut self,
        arrival: &RequestArrival,
        received: ReceivedRequest<'_>,
        members: &ForeignMembers,
        subscribe: impl FnOnce() -> watch::Receiver<Arc<ForeignMembers>>,
    ) -> Result<(), Refusal> {
        let Some(cluster) = &received.info.cluster else { return Ok(()) };
        let (Some(system), Some(name)) = (arrival.door.foreign_system(), &arrival.foreign_name) else { return Ok(()) };
        // The source of the name may demand an inner review since the arrival of the request.
        let is_as_at_arrival = |member: &&Arc<ForeignMember>| {
            member.cluster == *cluster && (arrival.authorizes_inner || !member.authorizes_inner)
        };
        let member = members.find(system, name).filter(is_as_at_arrival);
        let member = member.ok_or_else(|| ClusterRefusal::NotInSystem { system, name: name.to_string() })?;
        let impersonates = Query::parse(received.query).get("impersonate") == Some("true");
        let (member, present) = (Arc::clone(member), subscribe());
        self.named_member = Some(NamedMember { member, impersonates, present });
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn named(user: &str, mirror: Option<&Arc<RightsMirror>>) -> Self {
        let context = RequestContext::for_user(&User::named("test", user), &http::Request::new(()));
        Self::from_request(&HeaderMap::new(), &context, mirror).unwrap()
    }

    pub(crate) fn record_unknown_rights(&self) {
        let _is_set = self.lacks_rights.set(());
    }

    pub(crate) fn lacks_rights(&self) -> bool {
        self.lacks_rights.get().is_some()
    }

    /// Copies the caller, and in personal mode removes the impersonation. For lookups that only choose a cluster: the
    /// user of a personal endpoint may know all clusters, so the lookup needs no impersonation. In shared mode the copy
    /// keeps the impersonated user.
    pub(crate) fn of_owner(&self) -> Self {
        match self.rights {
            None => Self { given: None, ..self.clone() },
            Some(_) => self.clone(),
        }
    }

    /// Returns the name of the impersonated user. `None` in personal mode without impersonation, because each cluster
    /// has its own name for the kubeconfig's user.
    pub(crate) fn acting_name(&self) -> Option<String> {
        match &self.rights {
            None => Some(given_user(self.given.as_ref()?).ok()?.username),
            Some(rights) => Some(rights.acting_name().to_owned()),
        }
    }

    /// Returns the client whose writes the caller's reads wait for (read-your-writes). In shared mode this is the user,
    /// in personal mode any client of the process.
    pub(crate) fn writer(&self) -> ShareKey {
        match self.rights {
            None => ShareKey::Unknown,
            Some(_) => self.share_key,
        }
    }

    pub(crate) fn rights(&self) -> Option<&CallerRights> {
        self.rights.as_ref()
    }

    /// Returns the name and the groups of the user as whom the request acts: the impersonated user, or the
    /// authenticated user. Includes the groups that every user has.
    ///
    /// # Errors
    /// 400 for `Impersonate-*` headers that are not valid text.
    pub(crate) fn acts_as(&self, user: &User) -> Result<UserInfo, Refusal> {
        Ok(match (&self.rights, &self.given) {
            (Some(rights), _) => rights.acts_as().clone(),
            (None, None) => user.info.clone().impersonated(),
            (None, Some(given)) => given_user(given).map_err(RequestRefusal::Impersonation)?.impersonated(),
        })
    }

    /// Returns the users for whom dispatch policies judge the request.
    ///
    /// # Errors
    /// 400 for `Impersonate-*` headers that are not valid text.
    pub(crate) fn sender(&self, user: &User, info: &RequestInfo) -> Result<PolicySender, Refusal> {
        match &self.rights {
            None => Ok(PolicySender::alone(self.acts_as(user)?)),
            Some(rights) => Ok(PolicySender::of_user(rights, info.cluster.as_ref())),
        }
    }

    /// Returns the total length of the names and groups of the user and the impersonated user, in bytes. Zero in
    /// personal mode.
    pub(crate) fn text_bytes(&self) -> usize {
        self.rights().map_or(0, |rights| rights.actor().bytes())
    }

    /// Begins a traced stage of the request. Dropping the returned guard ends the stage.
    pub(crate) fn stage(&self, name: &'static str) -> BegunStage {
        self.trace.as_ref().map(|trace| trace.stage(name)).unwrap_or_default()
    }

    /// Returns the clusters whose policies refuse the request; `None` if no cluster refuses.
    pub(crate) fn denied_clusters(&self) -> Option<&DeniedClusters> {
        self.dispatched.as_ref()?.denied_clusters()
    }

    /// Returns the deadline of a long-running request that begins now, and the cause of the end. `None` for a request
    /// without a deadline.
    pub(crate) fn stream_end(&self) -> Option<(Instant, TerminationReason)> {
        let expiry = self.authenticated_until.map(|until| (until, TerminationReason::Expired));
        let age = self.rights().and_then(CallerRights::max_stream_age);
        let age = age.and_then(|age| Some((Instant::now().checked_add(age)?, TerminationReason::Age)));
        expiry.into_iter().chain(age).min_by_key(|(at, _)| *at)
    }

    /// Resolves once the member in the path of a foreign system must see a different user than in this request. `None`
    /// if the member sees the caller. Cancellation is safe.
    pub(crate) fn identity_change(&self) -> Option<impl Future<Output = TerminationReason> + Send + use<>> {
        let named = self.named_member.as_ref().filter(|named| !named.sees_caller());
        named.cloned().map(NamedMember::wait_for_change)
    }

    /// Returns a future that resolves once Tributary must end a stream to the caller: the user is denied, the
    /// credentials are no longer valid, or the stream has reached its maximum age. Returns `None` if none of these can
    /// happen. Cancellation is safe.
    pub(crate) fn termination(&self) -> Option<impl Future<Output = TerminationReason> + Send + use<>> {
        let (end, rights) = (self.stream_end(), self.rights().cloned());
        (end.is_some() || rights.is_some()).then_some(async move {
            tokio::select! {
                why = wait_for_stream_end(end) => why,
                why = wait_for_termination(rights) => why,
            }
        })
    }

    /// Returns the limit because of which a request is refused: too many reviews of rights wait. `None` if Tributary
    /// has already sent a write to a cluster: the answer then reports the outcome of the write.
    pub(crate) fn refusing_limit(&self, verb: Verb) -> Option<Exceeded> {
        let exceeded = self.rights().and_then(CallerRights::exceeded_limit);
        exceeded.filter(|_| verb.is_read() || self.written.get().is_none())
    }

    /// Checks that the caller may get a non-resource path that describes all clusters. The description may be only an
    /// optional part of an answer. So if too many reviews of rights wait, only this check fails, not the whole request.
    ///
    /// # Errors
    /// 403 without the right; 429 if too many reviews of rights wait.
    pub(crate) async fn may_get_non_resource_url(&self, path: &str) -> Result<(), Refusal> {
        let Some(rights) = self.rights().map(CallerRights::for_optional_part) else { return Ok(()) };
        match rights.try_decide_after_reviews(|rights| rights.may_get_non_resource_url(path)).await? {
            true => Ok(()),
            false => Err(rights.forbid_non_resource_url(path.to_owned())),
        }
    }

    /// Returns the identity under which a cluster sees the request. No other function decides the identity.
    ///
    /// # Errors
    /// In shared mode, the reason why the cluster must not get the request at all.
    pub(crate) async fn identity(
        &self,
        cluster: &ClusterSetup,
        sent: &SentRequest<'_>,
    ) -> Result<RequestIdentity, Refusal> {
        let identity = match (&self.rights, self.own_token(cluster)) {
            (None, _) => self.given.clone().map_or(RequestIdentity::Member, RequestIdentity::ClientImpersonation),
            (Some(_), Some(authorization)) => {
                RequestIdentity::UserToken { authorization, impersonation: self.given.clone() }
            }
            (Some(rights), None) => match self.exchanged_identity(rights, &cluster.name)? {
                ExchangedIdentity::Stored => RequestIdentity::Member,
                ExchangedIdentity::Mapped(user) => self.impersonation(rights, user.clone())?,
                ExchangedIdentity::Caller => {
                    let identity = |rights: &CallerRights| rights.identity(&cluster.name, &cluster.impersonation, sent);
                    self.impersonation(rights, rights.try_decide_after_reviews(identity).await??)?
                }
            },
        };
        if !sent.method.is_safe() {
            let _is_set = self.written.set(());
        }
        Ok(identity)
    }

    /// Returns the identity under which a cluster sees this user.
    fn impersonation(&self, rights: &CallerRights, user: UserInfo) -> Result<RequestIdentity, RequestRefusal> {
        let is_by_impersonator = self.door.uses_impersonator();
        let user = if is_by_impersonator { user.into_name_and_groups() } else { user };
        let headers = rights.headers(user).map_err(RequestRefusal::NotExpressible)?;
        Ok(match is_by_impersonator {
            true => RequestIdentity::ByImpersonator(headers),
            false => RequestIdentity::Impersonate(headers),
        })
    }

    /// Returns the identity under which Karmada's control plane sees the request: the name and the groups of the user
    /// that the control plane itself has authenticated. The control plane checks impersonation before it forwards a
    /// request to Tributary, so clients can impersonate only through the control plane.
    ///
    /// # Errors
    /// 403 for a user or an impersonation that the control plane must not get; 404 in personal mode.
    pub(crate) fn identity_at_control_plane(&self) -> Result<RequestIdentity, Refusal> {
        let rights = self.rights.as_ref().ok_or(Refusal::NoRoute)?;
        let told = rights.actor().identity_at_hub().map_err(RequestRefusal::NotSent)?;
        let headers = rights.headers(told.into_name_and_groups()).map_err(RequestRefusal::NotExpressible)?;
        Ok(RequestIdentity::Impersonate(headers))
    }

    /// Returns the client with the credential of the name in the path, if it differs from the cluster's own client.
    pub(crate) fn client_of_name(&self, cluster: &ClusterName) -> Option<&ClusterClient> {
        let named = self.named_member.as_ref().filter(|named| named.member.cluster == *cluster)?;
        named.member.credential.as_ref().map(|own| &own.client)
    }

    /// Returns the user as whom a cluster sees the request, if the path names the cluster at the door of a foreign
    /// system. The settings of the member in the foreign system choose the user.
    ///
    /// # Errors
    /// 403 for an impersonated request, if the settings can choose a user other than the caller: no one has authorized
    /// the caller to impersonate with the member's stored credential.
    fn exchanged_identity(
        &self,
        rights: &CallerRights,
        cluster: &ClusterName,
    ) -> Result<ExchangedIdentity<'_>, RequestRefusal> {
        let Some(named) = self.named_member.as_ref().filter(|named| named.member.cluster == *cluster) else {
            return Ok(ExchangedIdentity::Caller);
        };
        if named.sees_caller() {
            return Ok(ExchangedIdentity::Caller);
        }
        if self.given.is_some() {
            return Err(RequestRefusal::ImpersonatesStored);
        }
        Ok(named.member.identity.exchange(rights.actor().user(), &named.member.name))
    }

    /// Returns the user's own token, if the cluster has verified the token and its configuration allows the forwarding
    /// of tokens.
    fn own_token(&self, cluster: &ClusterSetup) -> Option<HeaderValue> {
        let own = self.own.as_ref().filter(|_| !self.door.uses_impersonator());
        let own = own.filter(|_| self.rights().is_some_and(|own| own.actor().is_verified_by(&cluster.name)));
        own.filter(|_| cluster.client.as_ref().is_ok_and(ClusterClient::passes_tokens)).cloned()
    }

    /// Returns whether the user's own token authenticates the user in the cluster, so that Tributary does not
    /// impersonate.
    pub(crate) fn has_own_token(&self, cluster: &ClusterSetup) -> bool {
        self.own_token(cluster).is_some()
    }

    /// Returns whether the member's impersonator, and not Tributary's account, impersonates the user in the cluster.
    pub(crate) fn is_by_impersonator(&self, cluster: &ClusterSetup) -> bool {
        self.door.uses_impersonator() && cluster.client.as_ref().is_ok_and(ClusterClient::has_impersonator)
    }

    /// Returns whether the user of a personal endpoint impersonates a user. Memory then cannot answer the request,
    /// because memory has the objects that the kubeconfig's user may see. In shared mode Tributary knows the rights of
    /// each user.
    pub(crate) fn impersonates_another(&self) -> bool {
        self.rights.is_none() && self.given.is_some()
    }

    pub(crate) fn key(&self) -> CallerKey {
        let headers = match (&self.rights, &self.given) {
            (Some(rights), _) if self.door.uses_impersonator() => {
                return CallerKey::UserByImpersonator(Arc::clone(rights.actor()));
            }
            (Some(rights), _) => return CallerKey::User(Arc::clone(rights.actor())),
            (None, None) => return CallerKey::Owner(Box::default()),
            (None, Some(given)) => given.headers(),
        };
        CallerKey::Owner(headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Router, RouterConfig, SharedMode};
    use tributary_sharing::flow::fair_semaphore::{FairSemaphore, ShareMetrics};

    #[tokio::test]
    async fn begun_deletion_is_answered_although_too_many_rights_reviews_wait() {
        let router = Router::new(RouterConfig { shared: Some(SharedMode::default()), ..RouterConfig::default() });
        let share = FairSemaphore::new("questions", 2, ShareMetrics::default());
        let exceeded = share.acquire(ShareKey::Unknown, 3).unwrap_err();
        for (verb, is_written, is_answered) in [
            (Verb::List, false, false),
            (Verb::List, true, false),
            (Verb::DeleteCollection, false, false),
            (Verb::DeleteCollection, true, true),
        ] {
            let caller = Caller::named("ann", router.rights());
            caller.rights().unwrap().set_exceeded_limit(exceeded);
            if is_written {
                caller.written.set(()).unwrap();
            }
            assert_eq!(caller.refusing_limit(verb).is_none(), is_answered, "{verb} {is_written}");
        }
    }
}

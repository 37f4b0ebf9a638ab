//! Asks the hub whether a user may use a resource of the aggregated entry. The kube-apiserver of the hub has asked
//! already for the requests that it forwards, so only direct callers are reviewed. A source can demand that the hub
//! also allows the request inside (`authorize: Inner`), for which the kube-apiserver has not asked.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use http::Method;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use tributary_apimachinery::json::null_is_default;
use tributary_apimachinery::status::go_quote;
use tributary_apimachinery::{Door, GroupVersionResource, RequestInfo, Status};
use tributary_authentication::{CachedCheck, CheckCache, User, UserInfo};
use tributary_limiters::{FairPermit, FairSemaphore, ShareKey, ShareMetrics, SpentTokens, TokenRate};

use crate::client::HubClient;

/// API version of all groups that the aggregated entry serves.
const VERSION: &str = "v1alpha1";
const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// The time for which the hub's answer is cached, allowed or denied: the default of API servers that delegate
/// authorization (apiserver `options.NewDelegatingAuthorizationOptions`).
const ANSWER_TTL: Duration = Duration::from_secs(10);
/// The limit for reviews of one caller: a burst of 100, and 20 per second. Without this limit, a caller without rights
/// could cause thousands of requests to the hub, because each new name in a path needs a review.
const CALLER_BURST: NonZeroU32 = NonZeroU32::new(100).unwrap();
const CALLER_INTERVAL: Duration = Duration::from_millis(50);
/// The limit for reviews of all callers: a burst of 500, and 200 per second.
const TOTAL_BURST: NonZeroU32 = NonZeroU32::new(500).unwrap();
const TOTAL_INTERVAL: Duration = Duration::from_millis(5);
/// When this number of token buckets exists, the full buckets are removed. A bucket is full 5 s after its last review,
/// and at most 1,500 reviews begin within 5 s, so fewer buckets than this number stay.
const BUCKETS_MAX: usize = 2048;
/// The maximum number of concurrent reviews. A kube-apiserver answers a review in some milliseconds. One user gets at
/// most half of the free permits.
const IN_FLIGHT_MAX: usize = 64;

/// A resource that the aggregated entry serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorResource {
    /// The resource `views`: merged views of all members.
    Views,
    /// The resource `clusters`: the members, each with its own API.
    Clusters,
    /// cluster-gateway's resource `clustergateways`: the members that cluster-gateway knows, each with its own API.
    ClusterGateways,
    /// cluster-gateway's resource `virtualclusters`: the members that cluster-gateway knows.
    VirtualClusters,
    /// Karmada's resource `clusters`: the members that Karmada knows, each with its own API.
    KarmadaClusters,
    /// The resource `proxying` of Karmada's search: the merged view.
    KarmadaProxying,
}

impl DoorResource {
    const ALL: [Self; 6] = [
        Self::Views,
        Self::Clusters,
        Self::ClusterGateways,
        Self::VirtualClusters,
        Self::KarmadaClusters,
        Self::KarmadaProxying,
    ];

    /// Finds the resource of a request by its API group and plural name; `None` for a resource that the aggregated
    /// entry does not serve.
    pub fn find(resource: &GroupVersionResource) -> Option<Self> {
        let is_own = |own: &Self| *resource.group == *own.group() && *resource.resource == *own.as_str();
        Self::ALL.into_iter().find(is_own)
    }

    /// Returns the resource whose subresource `proxy` has the paths of a foreign system's door; `None` for other doors.
    pub fn of_door(door: Door) -> Option<Self> {
        match door {
            Door::Direct | Door::Aggregated | Door::OpenClusterManagement => None,
            Door::ClusterGateway => Some(Self::ClusterGateways),
            Door::KarmadaClusters => Some(Self::KarmadaClusters),
            Door::KarmadaSearch => Some(Self::KarmadaProxying),
        }
    }

    /// Returns the API group of the resource.
    pub fn group(self) -> &'static str {
        match self {
            Self::Views | Self::Clusters => "aggregation.tributary.dev",
            Self::ClusterGateways | Self::VirtualClusters => "cluster.core.oam.dev",
            Self::KarmadaClusters => "cluster.karmada.io",
            Self::KarmadaProxying => "search.karmada.io",
        }
    }

    /// Returns the plural name of the resource in paths and rules.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Views => "views",
            Self::Clusters | Self::KarmadaClusters => "clusters",
            Self::ClusterGateways => "clustergateways",
            Self::VirtualClusters => "virtualclusters",
            Self::KarmadaProxying => "proxying",
        }
    }
}

/// The attributes of a request for which a user needs RBAC rights in the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DoorAttributes {
    /// A request for an object, or for all objects of a resource.
    Resource(ResourceAttributes),
    /// A request inside a door for a path without a resource.
    Path {
        /// The method in lower case.
        verb: &'static str,
        /// The path inside the door.
        path: String,
    },
}

/// The attributes of a request for an object, or for all objects of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceAttributes {
    verb: &'static str,
    resource: GroupVersionResource,
    subresource: String,
    namespace: String,
    name: String,
}

impl DoorAttributes {
    /// A request below `…/NAME/proxy`. As in the hub's kube-apiserver, the HTTP method decides the verb: a list or a
    /// watch of the forwarded path is `get`. `OPTIONS` has an empty verb, which only an RBAC rule for all verbs allows.
    pub fn of_proxy(resource: DoorResource, name: &str, method: &Method) -> Self {
        let verb = match *method {
            Method::GET | Method::HEAD => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "",
        };
        Self::at_entry(verb, resource, "proxy", name)
    }

    /// A read of the resource itself. `verb` is `get`, `list` or `watch`; `name` is empty for all objects.
    pub fn of_resource(resource: DoorResource, verb: &'static str, name: &str) -> Self {
        Self::at_entry(verb, resource, "", name)
    }

    /// A read (`get`) or a write (`update`) of the subresource `health` of `clustergateways`.
    pub fn of_health(verb: &'static str, name: &str) -> Self {
        Self::at_entry(verb, DoorResource::ClusterGateways, "health", name)
    }

    /// The request inside a door, as if the client had sent it to the hub.
    pub fn of_inner(info: &RequestInfo) -> Self {
        let verb = info.requested_verb();
        match info.resource() {
            None => Self::Path { verb, path: info.path.clone() },
            Some(request) => Self::Resource(ResourceAttributes {
                verb,
                resource: request.resource.clone(),
                subresource: request.subresource.clone().unwrap_or_default(),
                namespace: request.authorization_namespace().to_owned(),
                name: request.authorization_name().to_owned(),
            }),
        }
    }

    fn at_entry(verb: &'static str, resource: DoorResource, subresource: &str, name: &str) -> Self {
        Self::Resource(ResourceAttributes {
            verb,
            resource: GroupVersionResource::new(resource.group(), VERSION, resource.as_str()),
            subresource: subresource.to_owned(),
            namespace: String::new(),
            name: name.to_owned(),
        })
    }

    fn review(&self, user: &UserInfo) -> Value {
        let UserInfo { username, uid, groups, extra } = user;
        let mut spec = json!({"user": username, "uid": uid, "groups": groups, "extra": extra});
        match self {
            Self::Path { verb, path } => spec["nonResourceAttributes"] = json!({"verb": verb, "path": path}),
            Self::Resource(ResourceAttributes { verb, resource, subresource, namespace, name }) => {
                let GroupVersionResource { group, version, resource } = resource;
                spec["resourceAttributes"] = json!({
                    "verb": verb,
                    "group": &**group,
                    "version": &**version,
                    "resource": &**resource,
                    "subresource": subresource,
                    "namespace": namespace,
                    "name": name,
                });
            }
        }
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
    }

    /// Returns the 403 with kube-apiserver's text (`forbiddenMessage` in apiserver's
    /// `endpoints/handlers/responsewriters/errors.go`).
    fn forbidden(&self, user: &UserInfo, reason: &str) -> Status {
        let user = go_quote(&user.username);
        let explained = |cause: String| if reason.is_empty() { cause } else { format!("{cause}: {reason}") };
        match self {
            Self::Path { verb, path } => {
                let cause = format!("User {user} cannot {verb} path {} in the hub", go_quote(path));
                Status::forbidden(None, "", &explained(cause))
            }
            Self::Resource(ResourceAttributes { verb, resource, subresource, namespace, name }) => {
                let of = match subresource.as_str() {
                    "" => resource.resource.to_string(),
                    below => format!("{}/{below}", resource.resource),
                };
                let place = match namespace.as_str() {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {}", go_quote(namespace)),
                };
                let (of, group) = (go_quote(&of), go_quote(&resource.group));
                let cause = format!("User {user} cannot {verb} resource {of} in API group {group} {place}");
                Status::forbidden(Some(resource), name, &explained(cause))
            }
        }
    }
}

/// The hub's answer to a review.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DoorAnswer {
    Allowed,
    Denied(Arc<str>),
    /// The hub did not decide. This answer is not cached.
    Unanswered(Arc<str>),
}

impl DoorAnswer {
    fn bytes(&self) -> usize {
        match self {
            Self::Allowed => 0,
            Self::Denied(reason) | Self::Unanswered(reason) => reason.len(),
        }
    }
}

/// The rate limit that refuses a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum TooManyReviews {
    #[error("the user recently caused too many access reviews at the hub; try again")]
    PerCaller,
    #[error("too many access reviews were recently sent to the hub; try again")]
    Total,
}

/// The token buckets that reviews spend from: one for each caller, and one for all callers.
struct ReviewRate {
    per_caller: TokenRate,
    of_all: TokenRate,
    total: SpentTokens,
    by_caller: HashMap<ShareKey, SpentTokens>,
}

impl ReviewRate {
    fn new() -> Self {
        Self {
            per_caller: TokenRate::with_interval(CALLER_INTERVAL, CALLER_BURST),
            of_all: TokenRate::with_interval(TOTAL_INTERVAL, TOTAL_BURST),
            total: SpentTokens::default(),
            by_caller: HashMap::new(),
        }
    }

    /// Spends a token for a review of this caller. A refused review spends no token.
    ///
    /// # Errors
    /// [`TooManyReviews`].
    fn spend(&mut self, caller: ShareKey, now: Instant) -> Result<(), TooManyReviews> {
        let mut own = self.by_caller.get(&caller).cloned().unwrap_or_default();
        own.try_spend(self.per_caller, NonZeroU32::MIN, now).map_err(|_| TooManyReviews::PerCaller)?;
        self.total.try_spend(self.of_all, NonZeroU32::MIN, now).map_err(|_| TooManyReviews::Total)?;
        if self.by_caller.len() >= BUCKETS_MAX {
            self.by_caller.retain(|_, bucket| !bucket.is_full(now));
        }
        self.by_caller.insert(caller, own);
        Ok(())
    }
}

/// Reviews the access of direct callers at the hub, and caches the answers for 10 s.
pub struct DoorReviews {
    hub: Arc<HubClient>,
    answers: Arc<CheckCache<DoorAnswer>>,
    in_flight: Arc<FairSemaphore<ShareKey>>,
    rate: Mutex<ReviewRate>,
}

impl std::fmt::Debug for DoorReviews {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("DoorReviews").field("in_flight", &self.in_flight.used()).finish_non_exhaustive()
    }
}

impl DoorReviews {
    /// Creates the reviews with an empty cache. Sends nothing.
    pub fn new(hub: Arc<HubClient>) -> Self {
        let in_flight = FairSemaphore::new("access reviews at the hub", IN_FLIGHT_MAX, ShareMetrics::default());
        let (answers, rate) = (CheckCache::new(DoorAnswer::bytes), Mutex::new(ReviewRate::new()));
        Self { hub, answers, in_flight, rate }
    }

    /// Checks that the hub allows a request to the user, whose attributes must come from the hub. Must be called within
    /// a tokio runtime. Cancel: safe; the answer to a sent review is still cached.
    ///
    /// # Errors
    /// 403 if the hub denies the request; 429 if too many reviews are in flight or were sent recently; 503 if the hub
    /// does not decide.
    pub async fn review(&self, user: &User, attributes: &DoorAttributes) -> Result<(), Status> {
        let review = attributes.review(&user.info);
        let key = self.answers.key(&[b"door"], review.to_string().as_bytes());
        let answer = match self.answers.get(&key) {
            Some(answer) => answer,
            None => {
                let caller = user.share_key();
                let begin = || {
                    let refuse = |limit: &dyn std::fmt::Display| Status::too_many_requests(limit.to_string(), 1);
                    let permit = self.in_flight.acquire(caller, 1).map_err(|full| refuse(&full))?;
                    self.rate.lock().spend(caller, Instant::now()).map_err(|limit| refuse(&limit))?;
                    Ok::<_, Status>(send(Arc::clone(&self.hub), review, permit).boxed())
                };
                let found = self.answers.find(key, begin).await?;
                found.unwrap_or_else(|| DoorAnswer::Unanswered("the review was interrupted".into()))
            }
        };
        match answer {
            DoorAnswer::Allowed => Ok(()),
            DoorAnswer::Denied(reason) => Err(attributes.forbidden(&user.info, &reason)),
            DoorAnswer::Unanswered(problem) => {
                let message = format!("the hub has not decided whether the user may send the request: {problem}");
                Err(Status::service_unavailable(message).with_retry_after(1))
            }
        }
    }
}

async fn send(hub: Arc<HubClient>, review: Value, _permit: FairPermit<ShareKey>) -> CachedCheck<DoorAnswer> {
    let answer = hub.send(Method::POST, PATH, "application/json", Some(&review)).await;
    let answer = answer.map_err(|error| {
        tracing::debug!(%error, "the hub has not answered an access review");
        error.reason_for_clients()
    });
    match answer.and_then(|answer| parse(&answer)) {
        Ok(answer) => (answer, Some(ANSWER_TTL)),
        Err(problem) => (DoorAnswer::Unanswered(problem.into()), None),
    }
}

fn parse(answer: &Value) -> Result<DoorAnswer, String> {
    #[derive(Deserialize)]
    struct Review {
        kind: String,
        status: ReviewStatus,
    }
    #[derive(Deserialize)]
    struct ReviewStatus {
        allowed: bool,
        #[serde(default, deserialize_with = "null_is_default")]
        denied: bool,
        #[serde(default, deserialize_with = "null_is_default")]
        reason: String,
    }
    match Review::deserialize(answer) {
        Ok(Review { kind, status: ReviewStatus { allowed, denied, reason } }) if kind == "SubjectAccessReview" => {
            Ok(if allowed && !denied { DoorAnswer::Allowed } else { DoorAnswer::Denied(reason.into()) })
        }
        _ => Err("the answer is not a SubjectAccessReview with a status".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// The time after which all token buckets are full.
    const RECOVERY: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn access_reviews_are_limited_by_caller_and_in_total() {
        let mut rate = ReviewRate::new();
        let mut spend = |caller| rate.spend(ShareKey::User(caller), Instant::now());
        for _ in 0..100 {
            assert_eq!(spend(1), Ok(()));
        }
        assert_eq!(spend(1), Err(TooManyReviews::PerCaller));
        assert_eq!(spend(2), Ok(()), "another caller");
        advance(Duration::from_millis(50)).await;
        assert_eq!((spend(1), spend(1)), (Ok(()), Err(TooManyReviews::PerCaller)));
        advance(RECOVERY).await;
        assert_eq!((0..600).filter(|caller| spend(100 + caller / 100).is_ok()).count(), 500);
        assert_eq!(spend(3), Err(TooManyReviews::Total));
        advance(Duration::from_millis(5)).await;
        assert_eq!((spend(3), spend(3)), (Ok(()), Err(TooManyReviews::Total)));
    }

    #[tokio::test(start_paused = true)]
    async fn token_buckets_of_callers_are_bounded() {
        let mut rate = ReviewRate::new();
        for caller in 0..20_000 {
            while rate.spend(ShareKey::User(caller), Instant::now()).is_err() {
                advance(Duration::from_millis(5)).await;
            }
            assert!(rate.by_caller.len() <= BUCKETS_MAX);
        }
    }

    #[test]
    fn method_decides_the_verb_of_a_proxy_request() {
        for (method, verb) in [
            (Method::GET, "get"),
            (Method::HEAD, "get"),
            (Method::POST, "create"),
            (Method::PUT, "update"),
            (Method::PATCH, "patch"),
            (Method::DELETE, "delete"),
            (Method::OPTIONS, ""),
            (Method::CONNECT, ""),
        ] {
            let attributes = DoorAttributes::of_proxy(DoorResource::Clusters, "eu", &method);
            let spec = &attributes.review(&UserInfo::default())["spec"]["resourceAttributes"];
            assert_eq!(
                spec,
                &json!({"verb": verb, "group": "aggregation.tributary.dev", "version": VERSION, "resource": "clusters",
                    "subresource": "proxy", "namespace": "", "name": "eu"})
            );
        }
    }

    #[test]
    fn door_of_a_foreign_system_decides_the_resource_of_a_review() {
        for (door, group, plural) in [
            (Door::ClusterGateway, "cluster.core.oam.dev", "clustergateways"),
            (Door::KarmadaClusters, "cluster.karmada.io", "clusters"),
            (Door::KarmadaSearch, "search.karmada.io", "proxying"),
        ] {
            let resource = DoorResource::of_door(door).unwrap();
            assert_eq!(DoorResource::find(&GroupVersionResource::new(group, VERSION, plural)), Some(resource));
            let spec = &DoorAttributes::of_proxy(resource, "Eu%20", &Method::PUT).review(&UserInfo::default())["spec"];
            let expected = json!({"verb": "update", "group": group, "version": VERSION, "resource": plural,
                "subresource": "proxy", "namespace": "", "name": "Eu%20"});
            assert_eq!(spec["resourceAttributes"], expected);
        }
        assert_eq!((DoorResource::of_door(Door::Direct), DoorResource::of_door(Door::Aggregated)), (None, None));
        let clusters = GroupVersionResource::new("apps", VERSION, "clusters");
        assert_eq!(DoorResource::find(&clusters), None);
    }

    #[test]
    fn request_inside_a_door_is_reviewed_with_its_own_attributes() {
        let deployment = json!({"verb": "patch", "group": "apps", "version": "v1", "resource": "deployments",
            "subresource": "scale", "namespace": "shop", "name": "web"});
        let pods = json!({"verb": "watch", "group": "", "version": "v1", "resource": "pods", "subresource": "",
            "namespace": "", "name": ""});
        let exec = json!({"verb": "create", "group": "", "version": "v1", "resource": "pods", "subresource": "exec",
            "namespace": "shop", "name": "web-0"});
        for (method, path, query, expected) in [
            ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/web/scale", None, ("resourceAttributes", deployment)),
            ("GET", "/api/v1/pods", Some("watch=1"), ("resourceAttributes", pods)),
            ("POST", "/api/v1/namespaces/shop/pods/web-0/exec", Some("command=sh"), ("resourceAttributes", exec)),
            ("GET", "/version", None, ("nonResourceAttributes", json!({"verb": "get", "path": "/version"}))),
        ] {
            let info = RequestInfo::parse(method, path, query).unwrap();
            let attributes = DoorAttributes::of_inner(&info);
            assert_eq!(attributes.review(&UserInfo::default())["spec"][expected.0], expected.1, "{method} {path}");
        }
        let info = RequestInfo::parse("GET", "/api/v1/namespaces/shop/pods/web-0/log", None).unwrap();
        let ann = UserInfo { username: "ann".to_owned(), ..UserInfo::default() };
        let refused = DoorAttributes::of_inner(&info).forbidden(&ann, "");
        let cause = r#"User "ann" cannot get resource "pods/log" in API group "" in the namespace "shop""#;
        assert!(refused.message.ends_with(cause), "{}", refused.message);
    }

    #[test]
    fn door_answer_is_allowed_only_by_a_complete_review() {
        let review = |status: Value| json!({"kind": "SubjectAccessReview", "status": status});
        let denied = |reason: &str| Ok(DoorAnswer::Denied(reason.into()));
        for (answer, expected) in [
            (review(json!({"allowed": true})), Ok(DoorAnswer::Allowed)),
            (review(json!({"allowed": true, "denied": null, "reason": "RBAC"})), Ok(DoorAnswer::Allowed)),
            (review(json!({"allowed": true, "denied": true})), denied("")),
            (review(json!({"allowed": false, "reason": "no role"})), denied("no role")),
            (review(json!({"allowed": "true"})), Err(())),
            (review(json!({})), Err(())),
            (json!({"kind": "SubjectAccessReview"}), Err(())),
            (json!({"kind": "Status", "status": {"allowed": true}}), Err(())),
            (Value::Null, Err(())),
        ] {
            assert_eq!(parse(&answer).map_err(drop), expected, "{answer}");
        }
    }
}

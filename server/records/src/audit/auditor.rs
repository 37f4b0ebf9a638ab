//! Applies the audit policy to each request, and passes the events to the backends.

use std::borrow::Cow;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;

use http::header::USER_AGENT;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use prometheus_client::registry::Registry;
use serde_json::value::{RawValue, to_raw_value};
use tributary_apimachinery::RequestInfo;
use tributary_audit::{
    Annotation, AuditAttributes, AuditPolicy, Event, Level, MicroTime, RequestFacts, Stage, decoded, source_ips,
};
use tributary_authentication::names_beyond_member;
use tributary_proxy::Impersonation;
use tributary_router::User;

use super::emission::Emission;
use super::error::AuditError;
use super::metrics::AuditMetrics;
use super::settings::AuditSettings;
use super::sinks::Sinks;

/// The header in which proxies list the addresses of a request's senders.
pub(crate) const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The header in which a proxy names the address of a request's first sender.
pub(crate) const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Writes the audit events that an audit policy selects. A process has at most one auditor.
pub struct Auditor {
    policy: AuditPolicy,
    sinks: Sinks,
    pub(crate) metrics: Arc<AuditMetrics>,
}

/// The audit ID, the arrival time and the client of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuditedArrival<'a> {
    pub(crate) id: &'a HeaderValue,
    pub(crate) at: MicroTime,
    /// The client's remote address from its connection or a PROXY header.
    pub(crate) peer: Option<SocketAddr>,
}

impl Auditor {
    /// Reads the audit policy and opens the backends. Returns `None` without a policy file.
    ///
    /// # Errors
    /// [`AuditError`].
    pub async fn open(settings: &AuditSettings) -> Result<Option<Arc<Self>>, AuditError> {
        let Some(path) = settings.policy_file.clone() else { return Ok(None) };
        let text =
            std::fs::read_to_string(&path).map_err(|source| AuditError::PolicyFile { path: path.clone(), source })?;
        let (policy, warnings) =
            AuditPolicy::parse(&text).map_err(|problem| AuditError::Policy { path: path.clone(), problem })?;
        if !warnings.is_empty() {
            let unknown = warnings.join(", ");
            tracing::warn!(path = %path.display(), unknown, "the audit policy has fields that are ignored");
        }
        let metrics = Arc::new(AuditMetrics::default());
        let sinks = Sinks::open(settings, &metrics).await?;
        if sinks.is_empty() {
            tracing::warn!(
                "an audit policy is given, but neither --audit-log-path nor --audit-webhook-config-file: nothing is audited"
            );
        }
        Ok(Some(Arc::new(Self { policy, sinks, metrics })))
    }

    /// Registers the audit metrics in a metrics registry.
    pub fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    /// Flushes the queued events to the backends. The log takes as long as the disk needs; the webhook takes a few
    /// seconds at most.
    pub async fn shut_down(&self) {
        self.sinks.shut_down().await;
    }

    /// Creates the event of an arrived request. Returns `None` if the policy selects no event.
    ///
    /// `level` is the audit level of a dispatch policy, if the policy sets one. Impersonation never lowers the audit
    /// level. A user name or group that is [not trusted beyond one member](names_beyond_member) may only raise the
    /// level.
    pub(crate) fn event(
        &self,
        arrival: AuditedArrival<'_>,
        head: &Parts,
        info: Option<&RequestInfo>,
        user: Option<&User>,
        level: Option<Level>,
    ) -> Option<Event> {
        let method = if info.is_none() { head.method.as_str().to_ascii_lowercase() } else { String::new() };
        // Rules that exclude users may match only a trusted identity. Otherwise a user could choose an excluded group,
        // or a member could give its own users the name of an excluded user.
        let counts = user.map(|user| names_beyond_member(&user.info, &user.authority));
        let who = counts.as_ref().map(|(name, groups)| (&**name, &**groups));
        let said = user.map(|user| (user.info.username.as_str(), &user.info.groups[..]));
        let attributes = match info {
            Some(info) => AuditAttributes::from_request(info, who),
            None => AuditAttributes { user: who, verb: &method, path: decoded(head.uri.path()), resource: None },
        };
        let mut decision = self.policy.decide(&attributes);
        let is_itself = who == said;
        if !is_itself {
            // Rules that raise the audit level also match names and groups that are not trusted.
            decision = decision.or(self.policy.decide(&AuditAttributes { user: said, ..attributes.clone() }));
        }
        if let Some(level) = level {
            let may_lower = is_itself && !head.headers.contains_key("impersonate-user");
            decision.level = if may_lower { level } else { level.max(decision.level) };
        }
        self.metrics.count_level(decision.level);
        if decision.level == Level::None {
            return None;
        }
        let client = arrival.peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |client| client.ip());
        let text = |name| head.headers.get(name).map(|value: &HeaderValue| lossy(value.as_bytes())).unwrap_or_default();
        let impersonated_user = user.and_then(|_| impersonated(&head.headers));
        let is_impersonating = impersonated_user.is_some();
        let facts = RequestFacts {
            audit_id: lossy(arrival.id.as_bytes()),
            uri: head.uri.path_and_query().map_or("", |target| target.as_str()),
            info,
            user: user.map(|user| &user.info),
            impersonated_user,
            source_ips: source_ips(&text(FORWARDED_FOR), &text(REAL_IP), client),
            user_agent: &text(USER_AGENT),
            received: arrival.at,
        };
        let mut event = Event::received(decision, &attributes, &facts)?;
        if let Some(cluster) = user.and_then(|user| user.authority.only_member()) {
            event.annotate(Annotation::VouchedBy, cluster.to_string());
        }
        if is_impersonating {
            event.annotate(Annotation::Impersonation, "decided by each cluster");
        }
        Some(event)
    }

    /// Writes an event at a stage. In a strict mode, the result is `false` if the event cannot be written, and the
    /// request must then be refused.
    pub(crate) fn write(&self, event: &Event, stage: Stage) -> Emission {
        self.metrics.events.inc();
        self.sinks.write(event.line(stage, MicroTime::from_system_time(SystemTime::now())).into())
    }
}

/// Decodes UTF-8, and replaces invalid bytes. Nearly all header values are valid, so the fast check of `from_utf8`
/// comes first.
fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// Returns the user that a request's headers impersonate, as authentication.k8s.io/v1 `UserInfo`. Includes the groups
/// that clusters add to this user.
fn impersonated(headers: &HeaderMap) -> Option<Box<RawValue>> {
    // Clusters refuse invalid impersonation headers, so an invalid header impersonates nobody.
    let given = Impersonation::from_client_headers(headers).ok()??;
    let Ok(user) = given.user(|_, bytes| Ok::<_, Infallible>(String::from_utf8_lossy(bytes).into_owned()));
    to_raw_value(&user.impersonated()).ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderName;
    use tributary_authentication::{Authority, UserInfo};

    use super::*;

    async fn auditor(policy: &str) -> Auditor {
        let metrics = Arc::new(AuditMetrics::default());
        let sinks = Sinks::open(&AuditSettings::default(), &metrics).await.unwrap();
        Auditor { policy: AuditPolicy::parse(policy).unwrap().0, sinks, metrics }
    }

    /// kube-apiserver's usual policy excludes the group `system:nodes` of kubelets. A token issuer may let its users
    /// choose their groups, so this group from an issuer must not exclude a user.
    #[tokio::test]
    async fn untrusted_system_group_does_not_exclude_audit_events() {
        let policy = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [
            {"level": "None", "userGroups": ["system:nodes"]}, {"level": "None", "users": ["system:kube-proxy"]},
            {"level": "None", "userGroups": ["robots"]}, {"level": "Metadata"}]}"#;
        let auditor = auditor(policy).await;
        for (name, group, expected) in [
            ("eve", "people", true),
            ("eve", "robots", false),
            ("eve", "system:nodes", true),
            ("system:kube-proxy", "people", true),
        ] {
            let mut user = User::named("https://issuer", name);
            user.info.groups = vec![group.to_owned()];
            let (head, ()) = http::Request::delete("/api/v1/namespaces/n/pods/p").body(()).unwrap().into_parts();
            let info = RequestInfo::parse("DELETE", head.uri.path(), None).unwrap();
            let at = AuditedArrival {
                id: &HeaderValue::from_static("one"),
                at: MicroTime::from_system_time(SystemTime::now()),
                peer: None,
            };
            let written = auditor.event(at, &head, Some(&info), Some(&user), None).is_some();
            assert_eq!(written, expected, "{name} of {group}");
        }
    }

    /// Tributary never sends `system:masters` to a cluster, nor a user name with the prefix `system:` that a token
    /// issuer asserts. Audit rules may still match these names.
    #[tokio::test]
    async fn untrusted_system_group_may_raise_the_audit_level() {
        let policy = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [
            {"level": "RequestResponse", "userGroups": ["system:masters"], "omitStages": ["RequestReceived"]},
            {"level": "Request", "users": ["system:kube-proxy"], "omitStages": ["RequestReceived"]},
            {"level": "None", "userGroups": ["system:nodes", "robots"]},
            {"level": "Metadata", "omitStages": ["ResponseComplete"]}]}"#;
        let auditor = auditor(policy).await;
        let written = |name: &str, groups: &[&str]| {
            let mut user = User::named("https://issuer", name);
            user.info.groups = groups.iter().map(|&group| group.to_owned()).collect();
            let (head, ()) = http::Request::delete("/api/v1/namespaces/n/pods/p").body(()).unwrap().into_parts();
            let info = RequestInfo::parse("DELETE", head.uri.path(), None).unwrap();
            let at = AuditedArrival {
                id: &HeaderValue::from_static("one"),
                at: MicroTime::from_system_time(SystemTime::now()),
                peer: None,
            };
            let event = auditor.event(at, &head, Some(&info), Some(&user), None)?;
            let line = event.line(Stage::ResponseComplete, MicroTime::from_system_time(SystemTime::now()));
            let line: serde_json::Value = serde_json::from_slice(line.as_ref()).unwrap();
            let stages = [Stage::RequestReceived, Stage::ResponseComplete].map(|stage| event.has(stage));
            Some((line["level"].as_str().unwrap().to_owned(), stages))
        };
        let is = |level: &str, stages| Some((level.to_owned(), stages));
        assert_eq!(written("eve", &["people"]), is("Metadata", [true, false]));
        // Two audit rules match the user. The event is written at each stage that at least one of the two rules allows.
        assert_eq!(written("eve", &["system:masters"]), is("RequestResponse", [true, true]));
        assert_eq!(written("system:kube-proxy", &["people"]), is("Request", [true, true]));
        assert_eq!(written("eve", &["system:nodes"]), is("Metadata", [true, false]));
        assert_eq!(written("eve", &["robots"]), None);
        assert_eq!(written("eve", &["robots", "system:masters"]), is("RequestResponse", [false, true]));
    }

    /// Policies often exclude health checks without credentials by the name `system:anonymous`. Such a rule applies
    /// only to anonymous users of Tributary, not to a user with this name from a token issuer.
    #[tokio::test]
    async fn anonymous_requests_match_audit_rules_for_the_anonymous_user() {
        for rule in [r#""users": ["system:anonymous"]"#, r#""userGroups": ["system:unauthenticated"]"#] {
            let kind = r#""apiVersion": "audit.k8s.io/v1", "kind": "Policy""#;
            let rules = format!(r#"{{"level": "None", {rule}}}, {{"level": "Metadata"}}"#);
            let auditor = auditor(&format!("{{{kind}, \"rules\": [{rules}]}}")).await;
            let authority = Authority::Anonymous;
            let anonymous = User { info: UserInfo::anonymous(), authority };
            let mut eve = User::named("https://issuer", "system:anonymous");
            eve.info.groups = vec!["system:unauthenticated".to_owned()];
            for (user, expected) in [(anonymous, false), (eve, true)] {
                let (head, ()) = http::Request::get("/healthz").body(()).unwrap().into_parts();
                let info = RequestInfo::parse("GET", head.uri.path(), None).unwrap();
                let at = AuditedArrival {
                    id: &HeaderValue::from_static("one"),
                    at: MicroTime::from_system_time(SystemTime::now()),
                    peer: None,
                };
                let written = auditor.event(at, &head, Some(&info), Some(&user), None).is_some();
                assert_eq!(written, expected, "{user:?} by {rule}");
            }
        }
    }

    #[tokio::test]
    async fn dispatch_policy_raises_and_lowers_the_audit_level() {
        let auditor =
            auditor(r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}"#).await;
        let level = |group: &str, impersonated: Option<&str>, level| {
            let mut user = User::named("https://issuer", "eve");
            user.info.groups = vec![group.to_owned()];
            let request = http::Request::delete("/api/v1/namespaces/n/pods/p");
            let request =
                impersonated.into_iter().fold(request, |request, who| request.header("impersonate-user", who));
            let (head, ()) = request.body(()).unwrap().into_parts();
            let info = RequestInfo::parse("DELETE", head.uri.path(), None).unwrap();
            let at = AuditedArrival {
                id: &HeaderValue::from_static("one"),
                at: MicroTime::from_system_time(SystemTime::now()),
                peer: None,
            };
            let event = auditor.event(at, &head, Some(&info), Some(&user), level)?;
            let line = event.line(Stage::ResponseComplete, MicroTime::from_system_time(SystemTime::now()));
            let line: serde_json::Value = serde_json::from_slice(line.as_ref()).unwrap();
            Some(line["level"].as_str().unwrap().to_owned())
        };
        let is = |level: &str| Some(level.to_owned());
        assert_eq!(level("people", None, None), is("Metadata"));
        assert_eq!(level("people", None, Some(Level::Request)), is("Request"));
        assert_eq!(level("people", None, Some(Level::None)), None);
        assert_eq!(level("people", Some("bob"), Some(Level::None)), is("Metadata"));
        assert_eq!(level("people", Some("bob"), Some(Level::Request)), is("Request"));
        assert_eq!(level("system:nodes", None, Some(Level::None)), is("Metadata"));
    }

    /// A member may answer a TokenReview with any user name. The authorities of a member's own host may sign a
    /// certificate for any name.
    #[tokio::test]
    async fn user_name_from_one_member_cannot_exclude_audit_events() {
        let policy = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [
            {"level": "None", "users": ["alice", "system:serviceaccount:n:robot"]},
            {"level": "None", "userGroups": ["robots"]},
            {"level": "Request", "users": ["boss"]}, {"level": "Metadata"}]}"#;
        let auditor = auditor(policy).await;
        let robot = "system:serviceaccount:n:robot";
        let (alice, boss) = ("alice", "boss");
        for (name, group, by_member, level, expected) in [
            (alice, "people", false, None, None),
            (alice, "people", true, None, Some("Metadata")),
            ("eve", "robots", false, None, None),
            ("eve", "robots", true, None, Some("Metadata")),
            // An audit rule for a member's own user may raise the level.
            (boss, "people", true, None, Some("Request")),
            // A cluster assigns the names of its own ServiceAccounts, so a rule may exclude these names.
            (robot, "system:serviceaccounts", true, None, None),
            (boss, "people", false, Some(Level::None), None),
            (boss, "people", true, Some(Level::None), Some("Request")),
            (boss, "people", true, Some(Level::RequestResponse), Some("RequestResponse")),
            ("system:serviceaccount:n:other", "system:serviceaccounts", true, Some(Level::None), None),
        ] {
            let mut user = User::named("https://issuer", name);
            user.info.groups = vec![group.to_owned(), "system:authenticated".to_owned()];
            if by_member {
                user.authority = Authority::Member("eu".parse().unwrap());
            }
            let (head, ()) = http::Request::delete("/api/v1/namespaces/n/pods/p").body(()).unwrap().into_parts();
            let info = RequestInfo::parse("DELETE", head.uri.path(), None).unwrap();
            let at = AuditedArrival {
                id: &HeaderValue::from_static("one"),
                at: MicroTime::from_system_time(SystemTime::now()),
                peer: None,
            };
            let event = auditor.event(at, &head, Some(&info), Some(&user), level);
            let line =
                event.map(|event| event.line(Stage::ResponseComplete, MicroTime::from_system_time(SystemTime::now())));
            let line: Option<serde_json::Value> = line.map(|line| serde_json::from_slice(line.as_ref()).unwrap());
            let written = line.as_ref().and_then(|line| line["level"].as_str());
            assert_eq!(written, expected, "{name} of {group}, {by_member}");
            let Some(line) = line else { continue };
            let said = if by_member { "eu".into() } else { serde_json::Value::Null };
            assert_eq!(line["annotations"]["tributary.dev/vouched-by"], said, "{line}");
        }
        let user = User::named("https://issuer", boss);
        let (head, ()) = http::Request::get("/api/v1/pods").body(()).unwrap().into_parts();
        let at = AuditedArrival {
            id: &HeaderValue::from_static("one"),
            at: MicroTime::from_system_time(SystemTime::now()),
            peer: None,
        };
        let event = auditor.event(at, &head, None, Some(&user), None).unwrap();
        let line = event.line(Stage::ResponseComplete, MicroTime::from_system_time(SystemTime::now()));
        assert!(!String::from_utf8_lossy(line.as_ref()).contains("vouched-by"), "who is known everywhere has none");
    }

    /// The audit event contains the valid part of the header, as in kube-apiserver.
    #[tokio::test]
    async fn invalid_utf8_in_headers_does_not_hide_an_audit_event() {
        let auditor =
            auditor(r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}"#);
        let head = http::Request::get("/api/v1/pods")
            .header("x-forwarded-for", HeaderValue::from_bytes(b"10.0.0.1, \xff10.0.0.2, 10.0.0.3").unwrap())
            .header("user-agent", HeaderValue::from_bytes(b"curl/8 \xff").unwrap());
        let (head, ()) = head.body(()).unwrap().into_parts();
        let info = RequestInfo::parse("GET", head.uri.path(), None).unwrap();
        let at = AuditedArrival {
            id: &HeaderValue::from_static("one"),
            at: MicroTime::from_system_time(SystemTime::now()),
            peer: None,
        };
        let user = User::named("https://issuer", "ann");
        let event = auditor.await.event(at, &head, Some(&info), Some(&user), None).unwrap();
        let line = event.line(Stage::ResponseComplete, MicroTime::from_system_time(SystemTime::now()));
        let line: serde_json::Value = serde_json::from_slice(line.as_ref()).unwrap();
        assert_eq!(line["sourceIPs"], serde_json::json!(["10.0.0.1", "10.0.0.3", "0.0.0.0"]));
        assert_eq!(line["userAgent"], "curl/8 \u{fffd}");
    }

    #[test]
    fn impersonated_user_is_read_from_headers() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            let pairs =
                pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(name, value);
            }
            headers
        };
        assert!(impersonated(&headers(&[("impersonate-group", "g")])).is_none());
        let read = impersonated(&headers(&[
            ("impersonate-user", "jane"),
            ("impersonate-group", "g"),
            ("impersonate-group", "h"),
            ("impersonate-uid", "u"),
            ("impersonate-extra-acme%2fproject", "one"),
            ("impersonate-extra-%41%zz", "two"),
        ]));
        let expected = r#"{"username":"jane","uid":"u","groups":["g","h","system:authenticated"],"extra":{"%41%zz":["two"],"acme/project":["one"]}}"#;
        assert_eq!(read.unwrap().get(), expected);
    }
}

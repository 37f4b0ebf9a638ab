//! Collects the fields of a request's access log line.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_apimachinery::body::Body;
use tributary_apimachinery::{ClusterName, Permit, RequestClass, RequestInfo, Verb};
use tributary_audit::source_ips;
use tributary_policy::AnswerOutcome;
use tributary_router::{ClientClass, Decision, RequestArrival, RequestTrace, User};

use super::line::{AccessLine, last, nearest, some};
use super::log::AccessLog;
use crate::audit::{FORWARDED_FOR, REAL_IP};
use crate::bodies::{BodyObserver, ObservedBody, take_in_memory};
use crate::text::Text;

const TIME_FORMAT: &str = "%Y-%m-%dT%H:%M:%S%.6fZ";

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");

/// The fields of a request's access log line, collected during the request. Dropping the value writes the line: at the
/// end of the answer, or when the client disconnects. A watch may end hours later, so this value stores only the line's
/// fields, not the request's head.
pub struct AccessRecord {
    log: Arc<AccessLog>,
    received: SystemTime,
    started: Instant,
    method: Text<'static>,
    path: Text<'static>,
    sender: SenderHeaders,
    client: ClientClass,
    target: Option<LoggedRequest>,
    user: Option<(Text<'static>, Vec<Text<'static>>)>,
    trace: RequestTrace,
    /// The shared cell into which this value is moved for the duration of a tunnel. A permit of the client's connection
    /// owns the cell until the tunnel ends. Then the cell is dropped, which writes the line.
    tunnel: Option<Arc<Mutex<Option<Box<AccessRecord>>>>>,
    answered: Option<AnswerHead>,
    /// The number of bytes of the answer's body that were sent.
    bytes: u64,
    /// True if the answer's body was sent to its end.
    is_complete: bool,
}

struct SenderHeaders {
    user_agent: Text<'static>,
    impersonated_user: Text<'static>,
    source_ips: Vec<IpAddr>,
}

impl SenderHeaders {
    fn from_headers(headers: &HeaderMap, peer: IpAddr) -> Self {
        let value = |name: HeaderName| headers.get(name).map(HeaderValue::as_bytes).unwrap_or_default();
        let shown = |name| Text::lossy(value(name)).into_owned();
        let (forwarded_for, real_ip) =
            (String::from_utf8_lossy(value(FORWARDED_FOR)), String::from_utf8_lossy(value(REAL_IP)));
        Self {
            user_agent: shown(USER_AGENT),
            impersonated_user: shown(IMPERSONATE_USER),
            source_ips: last(source_ips(nearest(&forwarded_for), &real_ip, peer)),
        }
    }
}

/// The target of a request, as the access log line contains it.
struct LoggedRequest {
    verb: Verb,
    /// The class of the request. The class sets the time limit of the answer.
    class: RequestClass,
    /// `resource.group`, followed by `/subresource` for a subresource. Empty for a request without a resource.
    resource: Text<'static>,
    namespace: Text<'static>,
    name: Text<'static>,
    /// The cluster that the client addressed by the request's path or host.
    cluster: Option<ClusterName>,
}

impl LoggedRequest {
    fn from_request(info: &RequestInfo) -> Self {
        let of = info.resource();
        let text = |text: Option<&str>| Text::new(text.unwrap_or_default()).into_owned();
        let named = of.map(|of| {
            let mut named = of.resource.group_resource().to_string();
            if let Some(subresource) = &of.subresource {
                named.push('/');
                named.push_str(subresource);
            }
            named
        });
        Self {
            verb: info.verb,
            class: info.class(),
            resource: text(named.as_deref()),
            namespace: text(of.and_then(|of| of.namespace.as_deref())),
            name: text(of.and_then(|of| of.name.as_deref())),
            cluster: info.cluster.clone(),
        }
    }
}

struct AnswerHead {
    status: StatusCode,
    after: std::time::Duration,
}

impl AccessLog {
    /// Starts the access log line of a new request from the client address `peer`.
    pub fn begin<B>(self: &Arc<Self>, request: &Request<B>, peer: SocketAddr) -> Box<AccessRecord> {
        Box::new(AccessRecord {
            log: Arc::clone(self),
            received: SystemTime::now(),
            started: Instant::now(),
            method: Text::new(request.method().as_str()).into_owned(),
            path: Text::new(request.uri().path()).into_owned(),
            sender: SenderHeaders::from_headers(request.headers(), peer.ip()),
            client: ClientClass::from_headers(request.headers()),
            target: None,
            user: None,
            trace: RequestTrace::default(),
            tunnel: None,
            answered: None,
            bytes: 0,
            is_complete: false,
        })
    }
}

impl AccessRecord {
    /// Stores the request's target and trace. Both exist only after the host and the path have been parsed.
    pub fn record_target(&mut self, arrival: &RequestArrival) {
        self.target = arrival.reading.info().ok().map(LoggedRequest::from_request);
        self.trace = arrival.trace.clone();
        if let Some(upgrade) = &arrival.upgrade {
            let tunnel = Arc::new(Mutex::new(None));
            upgrade.permits.push(Permit::from_guard(Arc::clone(&tunnel)));
            self.tunnel = Some(tunnel);
        }
    }

    /// Stores the authenticated user for the access log line.
    pub fn set_user(&mut self, user: &User) {
        self.user = Some((Text::new(&user.info.username).into_owned(), some(&user.info.groups)));
    }

    /// Stores the status of the answer. The access log line is written at the end of the answer's body.
    pub fn finish(mut self: Box<Self>, response: Response<Body>) -> Response<Body> {
        let status = response.status();
        self.answered = Some(AnswerHead { status, after: self.started.elapsed() });
        if status == StatusCode::SWITCHING_PROTOCOLS {
            if let Some(tunnel) = self.tunnel.take() {
                self.is_complete = true;
                *tunnel.lock() = Some(self);
            }
            return response;
        }
        let (head, body) = response.into_parts();
        let body = match take_in_memory(body) {
            Ok(body) => {
                self.bytes = hyper::body::Body::size_hint(&body).exact().unwrap_or_default();
                self.is_complete = true;
                body
            }
            Err(body) => ObservedBody::new(body, self).boxed_unsync(),
        };
        Response::from_parts(head, body)
    }

    fn outcome(&self) -> AnswerOutcome {
        AnswerOutcome {
            status: self.answered.as_ref().map_or(0, |answered| answered.status.as_u16()),
            took: self.started.elapsed(),
            is_long_running: self.target.as_ref().is_some_and(|target| target.class.is_long_running()),
            is_list: self.target.as_ref().is_some_and(|target| target.verb == Verb::List),
        }
    }

    /// Returns the decision on the request. The router makes no decision about a request outside the API, so the
    /// answer's status determines the decision.
    fn decision(&self) -> Decision {
        let otherwise = || match &self.answered {
            // There is no answer, because the client disconnected while Tributary was waiting for a cluster.
            None if self.trace.is_forwarded() => Decision::Forwarded,
            // For an exceeded limit of the listener, the answer is 429, and the router has decided nothing.
            Some(answered) if answered.status == StatusCode::TOO_MANY_REQUESTS => Decision::Limited,
            Some(answered) if answered.status.as_u16() >= 400 => Decision::Refused,
            _ => Decision::Own,
        };
        self.trace.decision().unwrap_or_else(otherwise)
    }

    fn write(&self) {
        let (outcome, target) = (self.outcome(), self.target.as_ref());
        let cluster = target.and_then(|target| target.cluster.as_ref());
        if !self.log.modes().is_written(cluster, self.trace.log_mode(), outcome) {
            return;
        }
        let (user, groups) = self.user.as_ref().map(|(name, groups)| (name.shared(), &groups[..])).unwrap_or_default();
        let audit_id = self.trace.audit_id().map(|id| id.as_bytes()).unwrap_or_default();
        let trace_id = self.trace.context().map(|context| format!("{:032x}", context.trace_id)).unwrap_or_default();
        let time = Timestamp::try_from(self.received).unwrap_or_default();
        let line = AccessLine {
            time: time.strftime(TIME_FORMAT).to_string(),
            status: self.answered.as_ref().map(|answered| answered.status.as_u16()),
            method: self.method.shared(),
            path: self.path.shared(),
            verb: target.map_or("", |target| target.verb.as_str()),
            resource: target.map(|target| target.resource.shared()).unwrap_or_default(),
            namespace: target.map(|target| target.namespace.shared()).unwrap_or_default(),
            name: target.map(|target| target.name.shared()).unwrap_or_default(),
            cluster: cluster.map_or("", |name| name.as_str()),
            decision: self.decision().as_str(),
            answered_by: self.trace.answered_by(),
            user,
            groups,
            impersonated_user: self.sender.impersonated_user.shared(),
            client: self.client.as_str(),
            user_agent: self.sender.user_agent.shared(),
            source_ips: &self.sender.source_ips,
            head_seconds: self.answered.as_ref().map_or(outcome.took, |answered| answered.after).as_secs_f64(),
            seconds: outcome.took.as_secs_f64(),
            bytes: self.bytes,
            complete: self.is_complete,
            audit_id: Text::lossy(audit_id),
            trace_id: &trace_id,
        };
        self.log.write(line.bytes());
    }
}

impl BodyObserver for Box<AccessRecord> {
    fn observed(&mut self, data: Option<&Bytes>, is_whole: bool) {
        self.bytes += data.map_or(0, Bytes::len) as u64;
        self.is_complete = is_whole;
    }
}

impl Drop for AccessRecord {
    fn drop(&mut self) {
        self.write();
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::Mount;

    use super::*;
    use crate::access_log::AccessLogSettings;
    use crate::line_log::Rotation;

    /// The bytes of a test's request head. They share ownership of an `Arc`, as the headers of HTTP/1.1 share the
    /// memory of the whole head.
    struct Head(Vec<u8>, #[expect(dead_code, reason = "it is counted")] Arc<()>);

    impl AsRef<[u8]> for Head {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    /// A user may open a thousand watches, each with a request head of a megabyte.
    #[tokio::test]
    async fn access_log_entry_does_not_retain_the_request_head() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let settings = AccessLogSettings { path, rotation: Rotation::default(), buffer_size: 1 };
        let (log, held) = (AccessLog::open(settings).unwrap(), Arc::new(()));
        let long = || {
            let head = Bytes::from_owner(Head(vec![b'x'; 1 << 20], Arc::clone(&held)));
            HeaderValue::from_maybe_shared(head).unwrap()
        };
        let names = [USER_AGENT, IMPERSONATE_USER, FORWARDED_FOR, REAL_IP];
        let path = format!("/api/v1/namespaces/{}/pods/{}/log", "n".repeat(8 << 10), "p".repeat(30 << 10));
        let request = names.into_iter().fold(Request::get(path), |request, name| request.header(name, long()));
        let request = request.body(()).unwrap();
        let mut followed = log.begin(&request, ([127, 0, 0, 1], 1).into());
        let (head, ()) = request.into_parts();
        followed.record_target(&RequestArrival::new(Mount::Merged, &head.method, &head.uri));
        let mut user = User::named("test", &"u".repeat(1 << 20));
        user.info.groups = vec!["g".repeat(1 << 10); 1 << 10];
        followed.set_user(&user);
        drop(head);
        assert_eq!(Arc::strong_count(&held), 1, "the head is gone");
        let AccessRecord { method, path, sender, target, user, .. } = &*followed;
        let (target, (user, groups)) = (target.as_ref().unwrap(), user.as_ref().unwrap());
        let own = [method, path, &sender.user_agent, &sender.impersonated_user, user];
        let all = own.into_iter().chain([&target.resource, &target.namespace, &target.name]).chain(groups);
        let bytes: usize = all.map(|text| text.as_str().len()).sum();
        assert!(bytes < 16 << 10, "{bytes} bytes");
    }
}

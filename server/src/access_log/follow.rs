//! A request on its way to its line.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::USER_AGENT;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_apimachinery::{Permit, RequestInfo, Verb, permit::TunnelPermit};
use tributary_audit::source_ips;
use tributary_router::{ClientClass, Decision, RequestReading, RequestTrace, User};

use super::line::{AccessLine, Text, nearest};
use super::log::AccessLog;
use super::modes::Outcome;
use crate::audit::{FORWARDED_FOR, REAL_IP};
use crate::bodies::{BodyObserver, ObservedBody, at_hand};
use crate::handler::Body;

/// The time of a line: RFC 3339 in UTC, with microseconds.
const TIME_FORMAT: &str = "%Y-%m-%dT%H:%M:%S%.6fZ";

/// The header that says for whom a request is.
const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");

/// What is known of a request. Its line is written when this is dropped: at the end of its answer, or when its client goes
/// away before.
pub(crate) struct Followed {
    log: Arc<AccessLog>,
    received: SystemTime,
    started: Instant,
    method: Method,
    path: String,
    headers: Headers,
    peer: IpAddr,
    client: ClientClass,
    reading: Option<RequestReading>,
    user: Option<(String, Vec<String>)>,
    trace: RequestTrace,
    /// Where whoever joins a switched connection finds this.
    tunnel: Option<Arc<Mutex<Option<Box<Followed>>>>>,
    answered: Option<Answered>,
    /// Bytes of the answer's body that were sent.
    bytes: u64,
    /// Whether the answer came to its end.
    is_complete: bool,
}

/// The headers that are written.
struct Headers {
    user_agent: Option<HeaderValue>,
    forwarded_for: Option<HeaderValue>,
    real_ip: Option<HeaderValue>,
    impersonated_user: Option<HeaderValue>,
}

impl Headers {
    fn of(headers: &HeaderMap) -> Self {
        Self {
            user_agent: headers.get(USER_AGENT).cloned(),
            forwarded_for: headers.get(FORWARDED_FOR).cloned(),
            real_ip: headers.get(REAL_IP).cloned(),
            impersonated_user: headers.get(IMPERSONATE_USER).cloned(),
        }
    }
}

/// The head of the answer.
struct Answered {
    status: StatusCode,
    after: std::time::Duration,
}

impl AccessLog {
    /// Follows a request that has just arrived from an address.
    pub(crate) fn begin<B>(self: &Arc<Self>, request: &Request<B>, peer: SocketAddr) -> Box<Followed> {
        Box::new(Followed {
            log: Arc::clone(self),
            received: SystemTime::now(),
            started: Instant::now(),
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            headers: Headers::of(request.headers()),
            peer: peer.ip(),
            client: ClientClass::of(request.headers()),
            reading: None,
            user: None,
            trace: RequestTrace::default(),
            tunnel: None,
            answered: None,
            bytes: 0,
            is_complete: false,
        })
    }
}

impl Followed {
    /// Its host has been looked at: its path can be read. What becomes of it is told by what it carries from here on.
    pub(crate) fn placed(&mut self, head: &mut Parts) {
        self.reading = Some(RequestReading::of_head(head));
        self.trace = head.extensions.get_or_insert_default::<RequestTrace>().clone();
        if head.extensions.get::<OnUpgrade>().is_some() {
            let tunnel = Arc::new(Mutex::new(None));
            let others = head.extensions.remove::<TunnelPermit>();
            let kept = Permit::keeping((others, Arc::clone(&tunnel)));
            head.extensions.insert(TunnelPermit::from(kept));
            self.tunnel = Some(tunnel);
        }
    }

    /// It is known whose it is.
    pub(crate) fn known(&mut self, user: &User) {
        self.user = Some((user.info.username.clone(), user.info.groups.clone()));
    }

    /// It is answered: its line is written at the end of the answer.
    pub(crate) fn finish(mut self: Box<Self>, response: Response<Body>) -> Response<Body> {
        let status = response.status();
        self.answered = Some(Answered { status, after: self.started.elapsed() });
        if status == StatusCode::SWITCHING_PROTOCOLS {
            if let Some(tunnel) = self.tunnel.take() {
                self.is_complete = true;
                *tunnel.lock() = Some(self);
            }
            return response;
        }
        let (head, body) = response.into_parts();
        let body = match at_hand(body) {
            Ok(body) => {
                self.bytes = hyper::body::Body::size_hint(&body).exact().unwrap_or_default();
                self.is_complete = true;
                body
            }
            Err(body) => ObservedBody::new(body, self).boxed_unsync(),
        };
        Response::from_parts(head, body)
    }

    fn info(&self) -> Option<&RequestInfo> {
        self.reading.as_ref()?.info().ok()
    }

    fn outcome(&self) -> Outcome {
        let (class, verb) = self.info().map_or_else(Default::default, |info| (info.class(), Some(info.verb)));
        Outcome {
            status: self.answered.as_ref().map_or(0, |answered| answered.status.as_u16()),
            took: self.started.elapsed(),
            is_long_running: class.is_long_running(),
            is_list: verb == Some(Verb::List),
        }
    }

    /// What became of it. What this process says by itself, beside the API, nobody else has decided.
    fn decision(&self) -> Decision {
        let otherwise = || match &self.answered {
            // Its client went away while a cluster was being asked.
            None if self.trace.is_forwarded() => Decision::Forwarded,
            // The listener's own bounds.
            Some(answered) if answered.status == StatusCode::TOO_MANY_REQUESTS => Decision::Limited,
            Some(answered) if answered.status.as_u16() >= 400 => Decision::Refused,
            _ => Decision::Own,
        };
        self.trace.decision().unwrap_or_else(otherwise)
    }

    fn write(&self) {
        let outcome = self.outcome();
        let cluster = self.info().and_then(|info| info.cluster.as_ref());
        if !self.log.modes().is_written(cluster, self.trace.log_mode(), outcome) {
            return;
        }
        let bytes =
            |value: &'_ Option<HeaderValue>| value.as_ref().map(|value| value.as_bytes().to_vec()).unwrap_or_default();
        let text = |value: &Option<HeaderValue>| String::from_utf8_lossy(&bytes(value)).into_owned();
        let resource = self.info().and_then(RequestInfo::resource);
        let named = resource.map(|of| {
            let mut named = of.resource.group_resource().to_string();
            if let Some(subresource) = &of.subresource {
                named.push('/');
                named.push_str(subresource);
            }
            named
        });
        let (user, groups) = self.user.as_ref().map_or(("", &[][..]), |(name, groups)| (name, groups));
        let (agent, impersonated) = (bytes(&self.headers.user_agent), bytes(&self.headers.impersonated_user));
        let audit_id = self.trace.audit_id().map(|id| id.as_bytes()).unwrap_or_default();
        let trace_id = self.trace.context().map(|context| format!("{:032x}", context.trace_id)).unwrap_or_default();
        let time = Timestamp::try_from(self.received).unwrap_or_default();
        let line = AccessLine {
            time: time.strftime(TIME_FORMAT).to_string(),
            status: self.answered.as_ref().map(|answered| answered.status.as_u16()),
            method: Text::of(self.method.as_str()),
            path: Text::of(&self.path),
            verb: self.info().map_or("", |info| info.verb.as_str()),
            resource: Text::of(named.as_deref().unwrap_or_default()),
            namespace: Text::of(resource.and_then(|of| of.namespace.as_deref()).unwrap_or_default()),
            name: Text::of(resource.and_then(|of| of.name.as_deref()).unwrap_or_default()),
            cluster: cluster.map_or("", |name| name.as_str()),
            decision: self.decision().as_str(),
            answered_by: self.trace.answered_by(),
            user: Text::of(user),
            groups: Text::some(groups),
            impersonated_user: Text::lossy(&impersonated),
            client: self.client.as_str(),
            user_agent: Text::lossy(&agent),
            source_ips: nearest(source_ips(
                &text(&self.headers.forwarded_for),
                &text(&self.headers.real_ip),
                self.peer,
            )),
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

impl BodyObserver for Box<Followed> {
    fn passed(&mut self, data: Option<&Bytes>, is_whole: bool) {
        self.bytes += data.map_or(0, Bytes::len) as u64;
        self.is_complete = is_whole;
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.write();
    }
}

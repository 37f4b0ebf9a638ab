//! Origin of a 401 response: rejected credentials of Tributary, or a server behind the cluster.
//!
//! kube-apiserver passes on responses of other servers:
//!
//! - a kubelet that rejects kube-apiserver's client certificate, for `log`, `exec`, `attach` and `portforward`
//!   (apiserver's `registry/generic/rest/response_checker.go`, and the raw response to an upgrade)
//! - an aggregated API server (kube-aggregator's `handler_proxy.go`)
//! - a workload behind `proxy`
//!
//! Neither the path nor the text shows whether Tributary's credentials are rejected. A workload can send the same text,
//! and credentials can expire before a `log`. So Tributary sends its own request, to a path that kube-apiserver answers
//! itself and that needs an identity. The request goes to the endpoint that sent the 401, because each kube-apiserver
//! caches identities for 10 s (`TokenSuccessCacheTTL` in Kubernetes' `pkg/kubeapiserver/options/authentication.go`).
//!
//! If the credentials are accepted, path and text together show whether the 401 is meant for the client
//! ([`is_sent_by_api_server`]).

use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http::header::CONTENT_LENGTH;
use http::{Method, Response, StatusCode, Uri};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::time::{Duration, Instant, timeout};
use tributary_apimachinery::body::{self, Body, BoxError};
use tributary_apimachinery::request_info::kube_apiserver_paths::is_answered_by_kube_apiserver;
use tributary_apimachinery::rewrite::read_status;
use tributary_apimachinery::{RequestInfo, ResourceRequest, Status};

use crate::credentials::CurrentCredentials;
use crate::credentials::credential_check::CredentialCheckResult;
use crate::credentials::identity::RequestIdentity;
use crate::credentials::user::MemberUser;
use crate::endpoints::endpoint::Endpoint;
use crate::forward::own_request::{OwnResponse, send_to_endpoint};
use crate::health::responder::Responder;
use crate::member::ClientInner;

/// Path of Tributary's own request. `/version` is not suitable, because a server in front of kube-apiserver may answer
/// it without authentication.
const OWN_PATH: &str = "/api";
/// Time limit of Tributary's own request. The client waits for its end. After a timeout, the text of the 401 decides
/// about the origin.
const OWN_WITHIN: Duration = Duration::from_secs(10);
/// Time for which the result of a check is cached. 1 s: a workload that sends many 401 responses costs an endpoint one
/// additional request per second.
const CHECK_RESULT_TTL: Duration = Duration::from_secs(1);

/// Maximal length of a 401 body that is compared with kube-apiserver's own 401, in bytes. That 401 has 129 bytes as
/// JSON, and a few more if indented for curl (`isPrettyPrint` in apiserver's
/// `pkg/endpoints/handlers/negotiation/negotiate.go`).
const OWN_BYTES_MAX: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnauthorizedCause {
    /// The member rejects Tributary's credentials.
    CredentialsRejected,
    /// The origin is unknown, because the credentials were replaced after the request. A check would use the new
    /// credentials.
    CredentialsReplaced,
    /// A server behind the cluster sent the 401, so the client gets the response.
    OtherServer,
}

/// Returns whether a 401 means that an API server rejected Tributary's account before it acted on the request. Such a
/// 401 concerns Tributary and not the client.
///
/// Two conditions must hold: an API server answers this path itself, and the text is that of an API server's
/// authentication filter. Such a 401 occurs although the credentials are valid: several kube-apiservers learn of a new
/// token at different times, and an aggregated API server may not trust the token at all. The response stays unchanged.
///
/// Cancellation: the response body is lost.
pub(crate) async fn is_sent_by_api_server(method: &Method, uri: &Uri, response: &mut Response<Body>) -> bool {
    let length = response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_none_or(|length| length > OWN_BYTES_MAX) || !is_answered_by_api_servers(method, uri) {
        return false;
    }
    // A response to HEAD has no body to compare. The response is treated as an API server's own 401. This is safe,
    // because a repeated HEAD changes nothing.
    if *method == Method::HEAD {
        return true;
    }
    let body = std::mem::replace(response.body_mut(), body::empty());
    let read = match timeout(OWN_WITHIN, body.collect()).await {
        Ok(Ok(read)) => read.to_bytes(),
        // A body that breaks cannot be compared with the text, so the client gets the broken response.
        Ok(Err(error)) => {
            *response.body_mut() = broken_off(error);
            return false;
        }
        Err(late) => {
            *response.body_mut() = broken_off(late.into());
            return false;
        }
    };
    let is_own = is_kube_apiserver_text(&read);
    *response.body_mut() = body::full(read);
    is_own
}

/// Returns whether kube-apiserver or an aggregated API server answers this path.
///
/// For a path of a node or a workload, the function returns true only if a 401 of the server behind the path differs
/// from kube-apiserver's text. kube-apiserver adds details to a kubelet's 401 for a log. A kubelet's 401 to an upgrade
/// is not a Status (`InstallAuthFilter` in its `server.go`). A server behind `proxy` may send any text after any
/// action, so the function returns false for `proxy`. An aggregated server may do the same, but an administrator trusts
/// it (`APIService`).
fn is_answered_by_api_servers(method: &Method, uri: &Uri) -> bool {
    let Ok(info) = RequestInfo::parse(method.as_str(), uri.path(), uri.query()) else { return false };
    match info.resource() {
        Some(request) => !request.is_streamed() || is_answered_by_kubelet(request),
        None => is_answered_by_kube_apiserver(&info.path),
    }
}

/// Returns whether a kubelet answers this request: logs, exec, attach or port-forward of a pod.
fn is_answered_by_kubelet(request: &ResourceRequest) -> bool {
    let is_of_pod = request.resource.group.is_empty() && &*request.resource.resource == "pods";
    is_of_pod && request.subresource.as_deref() != Some("proxy")
}

/// Returns whether a body equals kube-apiserver's own 401 (`Unauthorized` in apiserver's
/// `pkg/endpoints/filters/authentication.go`), in any encoding. A 401 of an admission webhook has another message. A
/// forwarded 401 has details (`NewGenericServerResponse` in apimachinery's `errors.go`).
fn is_kube_apiserver_text(body: &[u8]) -> bool {
    read_status(body).is_some_and(|status| status == Status::unauthorized())
}

/// Returns a body whose first poll fails with `error`.
fn broken_off(error: BoxError) -> Body {
    StreamBody::new(stream::iter([Err::<Frame<Bytes>, BoxError>(error)])).boxed_unsync()
}

impl ClientInner {
    /// Determines whether this endpoint's 401 response means rejected credentials. One check per endpoint runs at a
    /// time. Concurrent callers share its result.
    pub(crate) async fn unauthorized_cause(
        self: &Arc<Self>,
        used: &Arc<CurrentCredentials>,
        endpoint: &Arc<Endpoint>,
        identity: &RequestIdentity,
    ) -> UnauthorizedCause {
        let user = self.user_for(identity);
        let Ok(Ok(now)) = timeout(OWN_WITHIN, self.credentials(&user)).await else {
            return UnauthorizedCause::OtherServer;
        };
        if !now.is_same(used) {
            return UnauthorizedCause::CredentialsReplaced;
        }
        let mut last = endpoint.credential_check.0.lock().await;
        let is_recent =
            |result: &&CredentialCheckResult| result.at.elapsed() < CHECK_RESULT_TTL && result.with.is_same(used);
        let rejected = match last.as_ref().filter(is_recent) {
            Some(result) => result.rejected,
            None => {
                // A timeout is stored as a result too, so that waiting callers do not repeat the check.
                let status = timeout(OWN_WITHIN, self.check_credentials(used, &user, endpoint)).await.ok().flatten();
                let rejected = status == Some(StatusCode::UNAUTHORIZED);
                *last = Some(CredentialCheckResult { at: Instant::now(), with: Arc::clone(used), rejected });
                rejected
            }
        };
        if rejected { UnauthorizedCause::CredentialsRejected } else { UnauthorizedCause::OtherServer }
    }

    /// Sends Tributary's own request with these credentials. Returns the status of the response.
    async fn check_credentials(
        self: &Arc<Self>,
        with: &Arc<CurrentCredentials>,
        user: &MemberUser,
        endpoint: &Arc<Endpoint>,
    ) -> Option<StatusCode> {
        let OwnResponse { status, .. } =
            send_to_endpoint(self, endpoint, with, user, &Uri::from_static(OWN_PATH)).await.ok()?;
        endpoint.record_response_head(Responder::from_status(status));
        endpoint.record_status(status);
        Some(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(length: usize, body: Body) -> Response<Body> {
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
        response
    }

    /// Returns whether the 401 is treated as kube-apiserver's own. Asserts that the response is unchanged.
    async fn is_own(method: Method, path: &str, text: &[u8]) -> bool {
        let mut response = refused(text.len(), body::full(text.to_vec()));
        let is_own = is_sent_by_api_server(&method, &path.parse().unwrap(), &mut response).await;
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), text);
        is_own
    }

    const CONFIG_MAPS: &str = "/api/v1/namespaces/n/configmaps";

    #[tokio::test]
    async fn response_401_is_attributed_to_kube_apiserver_only_with_its_exact_body() {
        let own = serde_json::to_value(Status::unauthorized()).unwrap();
        let with = |field: &str, value: serde_json::Value| {
            let mut other = own.clone();
            other[field] = value;
            serde_json::to_vec(&other).unwrap()
        };
        let yaml = "apiVersion: v1\ncode: 401\nkind: Status\nmessage: Unauthorized\nmetadata: {}\nreason: \
                    Unauthorized\nstatus: Failure\n";
        for text in [
            own.to_string().as_bytes(),
            &Status::unauthorized().to_json(),
            serde_json::to_string_pretty(&own).unwrap().as_bytes(),
            yaml.as_bytes(),
        ] {
            assert!(is_own(Method::POST, CONFIG_MAPS, text).await, "{}", String::from_utf8_lossy(text));
        }
        let message = serde_json::json!("admission webhook \"x\" denied the request: Unauthorized");
        let causes = serde_json::json!({"causes": [{"message": "Unauthorized"}]});
        for text in [
            &with("message", message)[..],
            &with("details", causes),
            &with("details", serde_json::json!({})),
            &with("reason", serde_json::json!("Forbidden")),
            &with("kind", serde_json::json!("Pod")),
            &with("message", serde_json::json!("")),
            b"Unauthorized",
            b"",
        ] {
            assert!(!is_own(Method::POST, CONFIG_MAPS, text).await, "{}", String::from_utf8_lossy(text));
        }
    }

    #[tokio::test]
    async fn response_401_is_attributed_to_kube_apiserver_only_on_api_paths() {
        let (own, empty) = (Status::unauthorized().to_json(), Vec::new());
        for (method, path, text, expected) in [
            ("PATCH", "/apis/example.com/v1/namespaces/n/widgets/w", &own, true),
            ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", &own, true),
            ("POST", "/apis/metrics.k8s.io/v1beta1/things", &own, true),
            ("GET", "/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/v/console", &own, true),
            ("GET", "/api", &own, true),
            ("GET", "/apis", &own, true),
            ("GET", "/apis/example.com/v1", &own, true),
            ("GET", "/openapi/v3/apis/apps/v1", &own, true),
            ("GET", "/version", &own, true),
            ("GET", "/healthz", &own, true),
            ("GET", "/debug/pprof/profile", &own, true),
            ("GET", "/api/v1/namespaces/n/pods/p/log?follow=true", &own, true),
            ("POST", "/api/v1/namespaces/n/pods/p/exec?command=sh", &own, true),
            ("POST", "/api/v1/namespaces/n/pods/p/attach", &own, true),
            ("POST", "/api/v1/namespaces/n/pods/p/portforward", &own, true),
            ("HEAD", CONFIG_MAPS, &empty, true),
            ("GET", CONFIG_MAPS, &empty, false),
            ("HEAD", "/api/v1/namespaces/n/pods/p/proxy/", &empty, false),
            ("POST", "/api/v1/namespaces/n/pods/p/proxy/", &own, false),
            ("POST", "/api/v1/namespaces/n/services/pay:80/proxy/charge", &own, false),
            ("GET", "/api/v1/nodes/n/proxy/pods", &own, false),
            ("GET", "/apis/cluster.karmada.io/v1alpha1/clusters/c/proxy/api", &own, false),
            ("GET", "/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachines/v/portforward/22/tcp", &own, false),
            ("POST", "/v3/subscribe", &own, false),
            ("GET", "/", &own, false),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(is_own(method.clone(), path, text).await, expected, "{method} {path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn broken_body_of_a_401_reaches_the_client_and_ends_with_an_error() {
        let own = Status::unauthorized().to_json();
        let (part, length) = (own[..50].to_vec(), own.len());
        let frames = [Ok::<_, BoxError>(Frame::data(Bytes::from(part))), Err("it broke off".into())];
        let broken = StreamBody::new(stream::iter(frames)).boxed_unsync();
        let silent = StreamBody::new(stream::pending::<Result<Frame<Bytes>, BoxError>>()).boxed_unsync();
        for body in [broken, silent] {
            let mut response = refused(length, body);
            let is_own = is_sent_by_api_server(&Method::POST, &Uri::from_static(CONFIG_MAPS), &mut response).await;
            assert!(!is_own);
            assert!(response.into_body().collect().await.is_err());
        }
    }

    #[tokio::test]
    async fn response_401_with_a_long_body_is_not_attributed_to_kube_apiserver() {
        let text = [&Status::unauthorized().to_json()[..], &[b' '; OWN_BYTES_MAX]].concat();
        assert!(!is_own(Method::POST, CONFIG_MAPS, &text).await);
    }
}

//! Decides which users may control tracing by the header `traceparent`: whether their requests are traced, and in which
//! trace.

use http::HeaderMap;
use tributary_apimachinery::{MASTERS_GROUP, RequestInfo};
use tributary_authentication::Authority;
use tributary_router::{RequestReading, User};

/// The group of monitoring agents (apiserver `pkg/authentication/user`, `MonitoringGroup`).
const MONITORING_GROUP: &str = "system:monitoring";

/// The trace headers of the W3C (<https://www.w3.org/TR/trace-context/>).
const HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// Returns whether a user may start traces and choose the trace ID. In personal mode, the only user may choose. In
/// shared mode, users in kube-apiserver's privileged groups may choose (apiserver `pkg/endpoints/filters/traces.go`,
/// `notSystemPrivilegedGroup`). Only client certificates and a front proxy can assert these groups. Members and token
/// issuers cannot assert these groups.
pub(super) fn may_choose_trace(user: &User) -> bool {
    let is_of_group = || user.info.groups.iter().any(|group| group == MASTERS_GROUP || group == MONITORING_GROUP);
    match user.authority {
        Authority::Personal => true,
        Authority::ClientCertificates | Authority::FrontProxy => is_of_group(),
        _ => false,
    }
}

/// Removes the trace headers of a request whose user may not choose the trace. A member trusts Tributary's account, and
/// would otherwise accept trace headers that a client chose. Requests that a member proxies to a workload keep their
/// trace headers, because the workload receives the headers.
pub fn remove_untrusted_trace_headers(headers: &mut HeaderMap, reading: &RequestReading, user: &User) {
    if HEADERS.iter().all(|name| !headers.contains_key(*name)) || may_choose_trace(user) {
        return;
    }
    if reading.info().is_ok_and(RequestInfo::is_for_workload) {
        return;
    }
    for name in HEADERS {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use tributary_apimachinery::Mount;

    use super::*;

    #[test]
    fn trace_headers_of_untrusted_users_reach_only_workloads() {
        const POD: &str = "/api/v1/namespaces/a/pods/p";
        let workload = format!("{POD}/proxy/x");
        for (authority, path, stays) in [
            (Authority::Personal, POD, true),
            (Authority::ClientCertificates, POD, false),
            (Authority::ClientCertificates, &*workload, true),
        ] {
            let request = Request::get(path).header("traceparent", "a").header("tracestate", "b").header("x", "c");
            let (mut head, ()) = request.body(()).unwrap().into_parts();
            let reading = RequestReading::parse(&Mount::Merged, "GET", path, None);
            remove_untrusted_trace_headers(&mut head.headers, &reading, &User::named(authority.clone(), "ann"));
            let left = ["traceparent", "tracestate", "x"].map(|name| head.headers.contains_key(name));
            assert_eq!(left, [stays, stays, true], "{authority} {path}");
        }
    }
}

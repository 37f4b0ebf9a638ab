//! Which requests may last: they get connections of their own and no time limit.

use http::Uri;

/// What a path and query say about a request, as far as connections are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestClass {
    /// The answer may go on for hours, or start late.
    pub(crate) long_running: bool,
    /// The answer comes from a workload behind the member's `proxy` subresource, not from the member.
    pub(crate) proxied: bool,
}

/// Whether kube-apiserver itself would exempt this request from its request timeout: watches, and the subresources
/// attach, exec, log, portforward and proxy (`genericfilters.BasicLongRunningRequestCheck`).
pub fn is_long_running(uri: &Uri) -> bool {
    classify(uri).long_running
}

/// Whether a path and query ask a kube-apiserver for a watch, in the present form or the deprecated one (`/watch/`).
pub fn is_watch(path: &str, query: Option<&str>) -> bool {
    let (watch, subresource) = verb_and_subresource(path);
    subresource != Some("proxy") && (watch || asks_to_watch(query))
}

pub(crate) fn classify(uri: &Uri) -> RequestClass {
    let (watch, subresource) = verb_and_subresource(uri.path());
    let proxied = subresource == Some("proxy");
    let long_running = proxied
        || matches!(subresource, Some("attach" | "exec" | "log" | "portforward"))
        || watch
        || asks_to_watch(uri.query());
    RequestClass { long_running, proxied }
}

/// Whether the path is a legacy `/watch/` one, and its subresource.
fn verb_and_subresource(path: &str) -> (bool, Option<&str>) {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let (Some(_version), true) = (match segments.next() {
        Some("api") => (segments.next(), true),
        Some("apis") => (segments.next().and_then(|_group| segments.next()), true),
        _ => (None, false),
    }) else {
        return (false, None);
    };
    let mut resource = segments.next();
    let watch = resource == Some("watch");
    if watch {
        resource = segments.next();
    }
    if resource == Some("namespaces") {
        // A namespace's own subresources are status and finalize; anything else after its name is a resource in it.
        let _namespace = segments.next();
        if matches!(segments.next(), None | Some("status" | "finalize")) {
            return (watch, None);
        }
    }
    let _name = segments.next();
    (watch, segments.next())
}

/// `watch` in the query: any value but `false` and `0` is true, an empty one too
/// (`runtime.Convert_Slice_string_To_bool`).
fn asks_to_watch(query: Option<&str>) -> bool {
    query.unwrap_or_default().split('&').any(|pair| match pair.split_once('=') {
        Some(("watch", value)) => value != "0" && !value.eq_ignore_ascii_case("false"),
        None => pair == "watch",
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_requests() {
        let short = RequestClass { long_running: false, proxied: false };
        let long = RequestClass { long_running: true, proxied: false };
        let proxied = RequestClass { long_running: true, proxied: true };
        for (uri, expected) in [
            ("/api/v1/pods", short),
            ("/api/v1/pods?watch=true", long),
            ("/api/v1/pods?limit=1&watch", long),
            ("/api/v1/pods?watch=1&x=y", long),
            ("/api/v1/pods?watch=false", short),
            ("/api/v1/pods?watch=0", short),
            ("/api/v1/pods?unwatch=1", short),
            ("/api/v1/watch/pods", long),
            ("/api/v1/namespaces/watch/pods/exec", short),
            ("/api/v1/namespaces/a/pods/p/exec?command=ls", long),
            ("/api/v1/namespaces/a/pods/p/attach", long),
            ("/api/v1/namespaces/a/pods/p/portforward", long),
            ("/api/v1/namespaces/a/pods/p/log", long),
            ("/api/v1/namespaces/a/pods/p/log?follow=true", long),
            ("/api/v1/namespaces/a/pods/log", short),
            ("/api/v1/namespaces/a/pods/p/status", short),
            ("/api/v1/namespaces/a/status", short),
            ("/api/v1/namespaces/exec", short),
            ("/api/v1/nodes/n/proxy/logs/kubelet.log", proxied),
            ("/api/v1/namespaces/a/services/https:s:443/proxy/", proxied),
            ("/apis/apps/v1/namespaces/a/deployments/d/scale", short),
            ("/apis/x.io/v1/namespaces/a/things/t/log", long),
            ("/apis/apps/v1", short),
            ("/logs/exec", short),
            ("/version", short),
        ] {
            assert_eq!(classify(&uri.parse().unwrap()), expected, "{uri}");
        }
    }
}

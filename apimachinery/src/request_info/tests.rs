//! Tests of the parsing of each form of request. The resource forms are those of `requestinfo_test.go`.

use super::*;

/// Parses a request into `cluster|verb|group/version/resource|namespace|name|subresource|rest|selected name`, or
/// `cluster|verb|-` without a resource.
fn read(method: &str, target: &str) -> Result<String, Status> {
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let info = RequestInfo::parse(method, path, query)?;
    let cluster = info.cluster.as_ref().map_or("", ClusterName::as_str);
    let prefix = if cluster.is_empty() { String::new() } else { format!("/clusters/{cluster}") };
    if prefix.is_empty() || path != prefix {
        assert_eq!(format!("{prefix}{}", info.path), path, "the path stays unchanged");
    }
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Ok(match &info.target {
        RequestTarget::NonResource => format!("{cluster}|{}|-", info.verb),
        RequestTarget::Resource(request) => {
            let gvr = &request.resource;
            let joined = [
                cluster.to_owned(),
                info.verb.to_string(),
                format!("{}/{}/{}", gvr.group, gvr.version, gvr.resource),
                text(&request.namespace),
                text(&request.name),
                text(&request.subresource),
                request.rest.as_ref().map_or_else(String::new, |rest| format!("<{rest}>")),
                text(&request.selected_name),
            ];
            joined.join("|").trim_end_matches('|').to_owned()
        }
    })
}

#[test]
fn resource_paths_parse_like_kube_apiserver() {
    for (method, target, expected) in [
        // The paths of `requestinfo_test.go`.
        ("GET", "/api/v1/namespaces", "|list|/v1/namespaces"),
        ("GET", "/api/v1/namespaces/other", "|get|/v1/namespaces||other"),
        ("GET", "/api/v1/namespaces/other/pods", "|list|/v1/pods|other"),
        ("GET", "/api/v1/namespaces/other/pods/foo", "|get|/v1/pods|other|foo"),
        ("HEAD", "/api/v1/namespaces/other/pods/foo", "|get|/v1/pods|other|foo"),
        ("GET", "/api/v1/pods", "|list|/v1/pods"),
        ("HEAD", "/api/v1/pods", "|list|/v1/pods"),
        ("POST", "/api/v1/namespaces/other/pods", "|create|/v1/pods|other"),
        ("PUT", "/api/v1/namespaces/other/pods/foo", "|update|/v1/pods|other|foo"),
        ("PATCH", "/api/v1/namespaces/other/pods/foo", "|patch|/v1/pods|other|foo"),
        ("DELETE", "/api/v1/namespaces/other/pods/foo", "|delete|/v1/pods|other|foo"),
        ("DELETE", "/api/v1/namespaces/other/pods", "|deletecollection|/v1/pods|other"),
        ("DELETE", "/api/v1/namespaces/other", "|delete|/v1/namespaces||other"),
        ("DELETE", "/api/v1/nodes", "|deletecollection|/v1/nodes"),
        ("POST", "/api/v1/namespaces", "|create|/v1/namespaces"),
        ("GET", "/apis/apps/v1/namespaces/other/deployments/foo/status", "|get|apps/v1/deployments|other|foo|status"),
        ("GET", "/apis/apps/v1/deployments", "|list|apps/v1/deployments"),
        ("PUT", "/api/v1/namespaces/other/finalize", "|update|/v1/namespaces||other|finalize"),
        ("PATCH", "/api/v1/namespaces/other/status", "|patch|/v1/namespaces||other|status"),
        ("POST", "/api/v1/namespaces/n/pods/p/eviction", "|create|/v1/pods|n|p|eviction"),
        ("POST", "/api/v1/namespaces/n/serviceaccounts/s/token", "|create|/v1/serviceaccounts|n|s|token"),
        ("GET", "/api/v1/namespaces/n/pods/p/log?follow=1", "|get|/v1/pods|n|p|log"),
        ("POST", "/api/v1/namespaces/n/pods/p/exec?command=ls", "|create|/v1/pods|n|p|exec"),
        (
            "GET",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
            "|get|rbac.authorization.k8s.io/v1/clusterroles||system:node",
        ),
        (
            "GET",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            "|get|rbac.authorization.k8s.io/v1/clusterroles||system:node",
        ),
        (
            "GET",
            "/apis/custom.metrics.k8s.io/v1beta1/namespaces/n/pods/*/rps",
            "|get|custom.metrics.k8s.io/v1beta1/pods|n|*|rps",
        ),
        ("GET", "/apis/g/v1/things/t/sub/a/b", "|get|g/v1/things||t|sub|<a/b>"),
        // A resource `namespaces` of a different group is parsed like that of the core group, as in Kubernetes.
        ("GET", "/apis/g/v1/namespaces/n/things", "|list|g/v1/things|n"),
        // A slash at the end is ignored.
        ("GET", "/api/v1/pods/", "|list|/v1/pods"),
        ("GET", "/api/v1/namespaces/n/pods/p/", "|get|/v1/pods|n|p"),
        ("GET", "/api/v1/namespaces/", "|list|/v1/namespaces"),
        // Escapes are decoded, also in resource names, as members do.
        ("GET", "/api/v1/%70ods", "|list|/v1/pods"),
        ("GET", "/api/v1/namespaces/%6e/secrets/s", "|get|/v1/secrets|n|s"),
        ("GET", "/%61pi/v1/pods", "|list|/v1/pods"),
        ("GET", "/api/v1/namespaces/n/pods/ä", "|get|/v1/pods|n|ä"),
        ("GET", "/api/v1/namespaces/n/pods/%c3%a4", "|get|/v1/pods|n|ä"),
        // Names of RBAC objects with special characters.
        ("GET", "/apis/g/v1/namespaces/n/roles/CORP%5Cann", "|get|g/v1/roles|n|CORP\\ann"),
        ("DELETE", "/apis/g/v1/namespaces/n/roles/a%09b", "|delete|g/v1/roles|n|a\tb"),
        ("PATCH", "/apis/g/v1/clusterroles/%5C%5Ca%c2%85%7f%1b", "|patch|g/v1/clusterroles||\\\\a\u{85}\u{7f}\u{1b}"),
        ("GET", "/apis/g/v1/watch/namespaces/n/roles/a%5cb..c", "|watch|g/v1/roles|n|a\\b..c"),
        ("GET", "/apis/g/v1/things/a%5cb/status", "|get|g/v1/things||a\\b|status"),
        // An object may have the name of a resource.
        ("GET", "/api/v1/namespaces/n/pods/pods", "|get|/v1/pods|n|pods"),
        ("GET", "/api/v1/namespaces/namespaces/pods", "|list|/v1/pods|namespaces"),
        ("GET", "/api/v1/namespaces/watch/pods", "|list|/v1/pods|watch"),
        ("GET", "/api/v1/namespaces/n/status/x", "|get|/v1/namespaces||n|status|<x>"),
    ] {
        assert_eq!(read(method, target).as_deref(), Ok(expected), "{method} {target}");
    }
}

#[test]
fn watch_requests_parse_like_kube_apiserver() {
    for (target, expected) in [
        ("/api/v1/pods?watch=1", "|watch|/v1/pods"),
        ("/api/v1/pods?watch=true", "|watch|/v1/pods"),
        ("/api/v1/pods?watch=", "|watch|/v1/pods"),
        ("/api/v1/pods?watch", "|watch|/v1/pods"),
        ("/api/v1/pods?watch=nonsense", "|watch|/v1/pods"),
        ("/api/v1/pods?watch=0", "|list|/v1/pods"),
        ("/api/v1/pods?watch=false", "|list|/v1/pods"),
        ("/api/v1/pods?watch=FALSE", "|list|/v1/pods"),
        ("/api/v1/pods?watch=0&watch=1", "|list|/v1/pods"),
        ("/api/v1/pods?watch=1&watch=0", "|watch|/v1/pods"),
        ("/api/v1/pods?%77atch=1", "|watch|/v1/pods"),
        ("/api/v1/pods?watch=1&limit=abc", "|watch|/v1/pods"),
        // A request with a name is a get, even with `watch=1` in the query.
        ("/api/v1/namespaces/n/pods/p?watch=1", "|get|/v1/pods|n|p"),
        // A field selector names an object, for authorization.
        ("/api/v1/pods?fieldSelector=metadata.name%3Dp", "|list|/v1/pods|||||p"),
        ("/api/v1/pods?fieldSelector=metadata.name=p", "|list|/v1/pods|||||p"),
        ("/api/v1/pods?watch=1&fieldSelector=metadata.name%3D%3Dp,spec.nodeName=n", "|watch|/v1/pods|||||p"),
        ("/api/v1/pods?fieldSelector=metadata.name!%3Dp", "|list|/v1/pods"),
        ("/api/v1/pods?fieldSelector=metadata.name%3Da%2Fb", "|list|/v1/pods"),
        ("/api/v1/pods?fieldSelector=metadata.name%3D..", "|list|/v1/pods"),
        ("/api/v1/pods?fieldSelector=garbage", "|list|/v1/pods"),
        // Deprecated `/watch/` paths.
        ("/api/v1/watch/pods", "|watch|/v1/pods"),
        ("/api/v1/watch/namespaces", "|watch|/v1/namespaces"),
        ("/api/v1/watch/namespaces/n", "|watch|/v1/namespaces||n"),
        ("/api/v1/watch/namespaces/n/pods", "|watch|/v1/pods|n"),
        ("/api/v1/watch/namespaces/n/pods/p", "|watch|/v1/pods|n|p"),
        ("/apis/apps/v1/watch/namespaces/n/deployments", "|watch|apps/v1/deployments|n"),
        ("/apis/apps/v1/watch/deployments", "|watch|apps/v1/deployments"),
    ] {
        assert_eq!(read("GET", target).as_deref(), Ok(expected), "{target}");
    }
}

/// Without the refusal, a member could read a different verb or name than Tributary, now or after the member's next
/// upgrade.
#[test]
fn resource_request_with_an_ambiguous_query_is_refused() {
    let many = format!("watch=1{}", "&".repeat(10_000));
    let queries = [
        // kube-apiserver uses the first of two field selectors. The first one here excludes only a name that no object
        // has, so it selects nearly all objects.
        "fieldSelector=metadata.name!=%ff&fieldSelector=metadata.name=pub",
        "watch=%ff",
        // Go ignores a query with more than 10,000 parameters.
        many.as_str(),
        "watch=1;limit=1",
        "limit=1&fieldSelector=metadata.name=%zz",
        "%ff=1",
    ];
    let paths = [
        "/api/v1/namespaces/n/secrets",
        "/apis/apps/v1/deployments",
        "/api/v1/watch/pods",
        "/api/v1/namespaces/n/pods/p",
        "/api/v1/namespaces/n/pods/p/status",
        "/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/v/console",
    ];
    let eu = Mount::Cluster(ClusterName::new("eu").unwrap());
    for (query, path) in queries.into_iter().flat_map(|query| paths.map(|path| (query, path))) {
        let shown = &query[..query.len().min(40)];
        for method in ["GET", "HEAD", "DELETE", "PATCH", "OPTIONS"] {
            let merged = RequestInfo::parse(method, path, Some(query)).expect_err(shown);
            assert_eq!((merged.code, merged.reason.as_str()), (400, "BadRequest"), "{method} {path}?{shown}");
            let prefixed = RequestInfo::parse(method, &format!("/clusters/eu{path}"), Some(query));
            assert_eq!(prefixed.as_ref(), Err(&merged), "{method} {path}?{shown}");
            assert_eq!(RequestInfo::parse_at(&eu, method, path, Some(query)), Err(merged), "{method} {path}?{shown}");
        }
    }
    assert_eq!(
        RequestInfo::parse("GET", "/api/v1/pods", Some("watch=%ff")).unwrap_err().message,
        r#"the query parameter "watch" is not UTF-8 once it is decoded: percent-encode the UTF-8 bytes of its text"#
    );
}

/// The query belongs to the proxied server, and changes neither verb nor name.
#[test]
fn query_of_a_proxy_subresource_request_is_not_checked() {
    let many = "a=1&".repeat(20_000) + "watch=1";
    let queries = ["watch=1", "a;b", "x=%zz", "watch=%ff", "fieldSelector=metadata.name=other", many.as_str()];
    for (method, path) in [
        ("GET", "/api/v1/namespaces/n/services/s/proxy/"),
        ("POST", "/api/v1/namespaces/n/services/s:80/proxy/a"),
        ("GET", "/api/v1/nodes/n/proxy/logs"),
        ("GET", "/api/v1/namespaces/n/pods/p/exec"),
        ("GET", "/api/v1/namespaces/n/pods/p/attach"),
        ("POST", "/api/v1/namespaces/n/pods/p/portforward"),
        ("GET", "/api/v1/namespaces/n/pods/p/log"),
        ("GET", "/version"),
        ("GET", "/openapi/v3/apis/apps/v1"),
    ] {
        let plain = RequestInfo::parse(method, path, None).unwrap();
        for query in queries {
            let shown = &query[..query.len().min(40)];
            assert_eq!(RequestInfo::parse(method, path, Some(query)).as_ref(), Ok(&plain), "{method} {path}?{shown}");
        }
    }
}

#[test]
fn paths_without_a_resource_parse_as_non_resource() {
    for (method, target, expected) in [
        ("GET", "/", "|get|-"),
        ("GET", "/api", "|get|-"),
        ("GET", "/api/", "|get|-"),
        ("GET", "/api/v1", "|get|-"),
        ("GET", "/api/v1/", "|get|-"),
        ("GET", "/apis", "|get|-"),
        ("GET", "/apis/", "|get|-"),
        ("GET", "/apis/apps", "|get|-"),
        ("GET", "/apis/apps/v1", "|get|-"),
        ("GET", "/apis/apps/v1/", "|get|-"),
        ("HEAD", "/healthz", "|head|-"),
        ("GET", "/healthz/etcd", "|get|-"),
        ("GET", "/livez?verbose", "|get|-"),
        ("GET", "/version", "|get|-"),
        ("GET", "/openapi/v2", "|get|-"),
        ("GET", "/openapi/v3/apis/apps/v1?hash=abc", "|get|-"),
        ("POST", "/some/path", "|post|-"),
        ("OPTIONS", "/version", "|options|-"),
        ("GET", "/.well-known/openid-configuration", "|get|-"),
        ("GET", "/clusters", "|get|-"),
        ("GET", "/clusters/", "|get|-"),
        ("GET", "/apisx/apps/v1/deployments", "|get|-"),
        ("GET", "/API/v1/pods", "|get|-"),
    ] {
        assert_eq!(read(method, target).as_deref(), Ok(expected), "{method} {target}");
    }
}

#[test]
fn path_prefix_selects_the_cluster_of_a_request() {
    for (target, expected) in [
        ("/clusters/c1/api/v1/pods", "c1|list|/v1/pods"),
        ("/clusters/c1/api/v1/namespaces/n/pods/p?watch=1", "c1|get|/v1/pods|n|p"),
        ("/clusters/c1/version", "c1|get|-"),
        ("/clusters/c1", "c1|get|-"),
        ("/clusters/c1/", "c1|get|-"),
        // Only the first `/clusters/` prefix selects a cluster.
        ("/clusters/c1/clusters/c2/api/v1/pods", "c1|get|-"),
    ] {
        assert_eq!(read("GET", target).as_deref(), Ok(expected), "{target}");
    }
    assert_eq!(RequestInfo::parse("GET", "/clusters/c1", None).unwrap().path, "/");
    for target in ["/clusters/C1/api", "/clusters/all/api", "/clusters/c_1/api", "/clusters/%63/api", "/clusters/./api"]
    {
        assert_eq!(read("GET", target).unwrap_err().code, 404, "{target}");
    }
    assert!(read("GET", "/clusters//api/v1/pods").is_err());
    assert!(read("GET", "/clusters/c1//api/v1/pods").is_err());
    assert!(read("GET", "/clusters/c1/../c2/api/v1/pods").is_err());
}

#[test]
fn path_after_the_proxy_subresource_stays_unchanged() {
    for (target, rest) in [
        ("/api/v1/namespaces/n/services/s/proxy", None),
        ("/api/v1/namespaces/n/services/s/proxy/", Some("")),
        ("/api/v1/namespaces/n/services/https:s:8443/proxy/a/b", Some("a/b")),
        ("/api/v1/namespaces/n/services/s/proxy/a//b/", Some("a//b/")),
        ("/api/v1/namespaces/n/services/s/proxy//a", Some("/a")),
        ("/api/v1/namespaces/n/pods/p:80/proxy/a%2Fb%20c", Some("a%2Fb%20c")),
        ("/api/v1/nodes/n1:10250/proxy/logs/..x/x../...", Some("logs/..x/x../...")),
        ("/api/v1/nodes/n1/proxy/100%25", Some("100%25")),
        ("/api/v1/nodes/n1/proxy/api/v1/namespaces/n/secrets/s", Some("api/v1/namespaces/n/secrets/s")),
        ("/apis/cluster.core.oam.dev/v1alpha1/clustergateways/c/proxy/api//v1", Some("api//v1")),
    ] {
        let info = RequestInfo::parse("GET", target, None).unwrap();
        let request = info.resource().unwrap();
        assert_eq!((request.subresource.as_deref(), request.rest.as_deref()), (Some("proxy"), rest), "{target}");
        assert_eq!(info.path, target);
    }
    for hop in [
        "..",
        ".",
        "a/../b",
        "a/./b",
        "a/..",
        "%2e%2e",
        "a/%2e%2E/b",
        ".%2e",
        "%252e%252e",
        "..%2f..%2fsecrets",
        "a%5c..%5cb",
        "a\\..\\b",
        "x/%2E",
    ] {
        for base in ["/api/v1/namespaces/n/services/s/proxy/", "/api/v1/nodes/n/proxy/"] {
            assert_eq!(read("GET", &format!("{base}{hop}")).unwrap_err().code, 404, "{base}{hop}");
        }
    }
    for bad in ["%00", "a%0d%0ab", "%zz", "%", "%ff"] {
        let target = format!("/api/v1/nodes/n/proxy/{bad}");
        assert_eq!(read("GET", &target).unwrap_err().code, 400, "{target}");
    }
}

#[test]
fn cve_2022_3162_hostile_paths_are_refused() {
    for (path, code) in [
        // Well-formed paths that name no resource.
        ("//api/v1/pods", 404),
        ("/api//v1/pods", 404),
        ("/api/v1//pods", 404),
        ("/api/v1/pods//", 404),
        ("//", 404),
        ("/api/v1/namespaces//pods", 404),
        ("/api/v1/namespaces/n//pods", 404),
        ("/api/v1/namespaces/../secrets", 404),
        ("/api/v1/namespaces/n/pods/..", 404),
        ("/api/v1/./pods", 404),
        ("/./api/v1/pods", 404),
        ("/../api/v1/pods", 404),
        ("/healthz/../api/v1/secrets", 404),
        ("/api/v1/namespaces/%2e%2e/secrets", 404),
        ("/api/v1/namespaces/%2E./secrets", 404),
        ("/api/v1/%2e/pods", 404),
        ("/api/v1/namespaces/ns%2Fsecrets%2Fs", 404),
        ("/api/v1/namespaces/n/pods%2fp", 404),
        ("/api%2Fv1/secrets", 404),
        ("/version%2f..%2fapi", 404),
        ("/api/v1/namespaces/n/pods/a%25b", 400),
        ("/api/v1/namespaces/n/pods/%252e%252e", 400),
        ("/api/v1/namespaces/n/pods/a\\b", 404),
        ("/api/v1/namespaces/n/pods/..%5cb", 404),
        ("/api/v1/namespaces/n/pods/a%5c.%5Cb", 404),
        ("/api/v1/namespaces/n/pods/a%5c..", 404),
        ("/api/v1/namespaces/n/pods/a%5cb%2f", 404),
        ("/api/v1/namespaces/a%5cb", 404),
        ("/api/v1/namespaces/a%5cb/pods", 404),
        ("/api/v1/namespaces/n/pods%5cp", 404),
        ("/api/v1/namespaces/n/pods/p/a%5cb", 404),
        ("/apis/a%5cb/v1/things/t", 404),
        ("/version%5c..%5capi", 404),
        ("/api/v1/namespaces\\n\\secrets", 404),
        ("/api/v1/proxy/namespaces/n/pods/p", 404),
        ("/api/v1/watch", 404),
        ("/api/v1/watch/", 404),
        ("/api/v1/watch/watch/pods", 404),
        ("/api/v1/watch/proxy/pods", 404),
        ("/api/v1/watch/namespaces/n/pods/p/status", 404),
        ("/api/v1/watch/namespaces/n/status", 404),
        ("/api/v1/namespaces/n/pods/p/log//x", 404),
        ("/api/v1/namespaces/n/pods/p/log/../x", 404),
        // Malformed paths.
        ("", 400),
        ("api/v1/pods", 400),
        ("/api/v1/pods%", 400),
        ("/api/v1/pods%2", 400),
        ("/api/v1/%zz", 400),
        ("/api/v1/pods%00", 400),
        ("/api/v1/namespaces/n/pods/p%0d%0aX-Remote-User:%20admin", 400),
        ("/api/v1/namespaces/n/pods/p%0a", 400),
        ("/api/v1/namespaces/n/pods/p%00", 400),
        ("/api/v1/namespaces/n/pods/p\t", 400),
        ("/api/v1/namespaces/n%09/pods/p", 400),
        ("/api/v1/namespaces/n/pods/p/log%09", 400),
        ("/healthz/%09", 400),
        ("/api/v1/pods%7f", 400),
        ("/api/v1/pods%c2%85", 400),
        ("/api/v1/%ff%fe", 400),
        ("/api/v1/%c3", 400),
        ("/api/v1/pods\0", 400),
        ("/api/v1/po ds", 400),
        ("/api/v1/pods\r\n", 400),
        ("/api/v1/pods#x", 400),
    ] {
        let status = RequestInfo::parse("GET", path, None).expect_err(path);
        assert_eq!(status.code, code, "{path:?}");
        let prefixed = format!("/clusters/c1{path}");
        if path.starts_with('/') {
            assert_eq!(RequestInfo::parse("GET", &prefixed, None).expect_err(&prefixed).code, code, "{prefixed:?}");
        }
    }
}

#[test]
fn unsupported_method_on_a_resource_becomes_a_non_resource_verb() {
    for (method, path, expected) in [
        ("OPTIONS", "/api/v1/pods", "options"),
        ("CONNECT", "/api/v1/namespaces/n/pods/p/exec", "connect"),
        ("TRACE", "/api/v1/pods", "trace"),
        ("get", "/api/v1/pods", ""),
        ("BREW", "/version", ""),
        ("POST", "/api/v1/namespaces/n/pods/p", "post"),
        ("PUT", "/api/v1/namespaces/n/pods", "put"),
        ("PATCH", "/api/v1/pods", "patch"),
        ("POST", "/api/v1/watch/pods", "post"),
        ("DELETE", "/api/v1/watch/pods", "delete"),
    ] {
        let info = RequestInfo::parse(method, path, None).expect(path);
        assert_eq!(info.verb, Verb::NonResource(expected), "{method} {path}");
        assert!(!info.verb.is_read());
    }
}

#[test]
fn verbs_in_metrics_have_the_spelling_of_kube_apiserver() {
    let of_resources = Verb::RESOURCE_VERBS.map(Verb::metric_label);
    assert_eq!(of_resources, ["GET", "LIST", "WATCH", "POST", "PUT", "PATCH", "DELETE", "DELETECOLLECTION"]);
    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"] {
        assert_eq!(RequestInfo::parse(method, "/version", None).unwrap().verb.metric_label(), method);
    }
    assert_eq!(RequestInfo::parse("BREW", "/version", None).unwrap().verb.metric_label(), "");
}

#[test]
fn authorization_attributes_have_the_namespace_and_the_selected_name() {
    let request = |path, query| RequestInfo::parse("GET", path, query).unwrap().resource().unwrap().clone();
    assert_eq!(request("/api/v1/namespaces/n", None).authorization_namespace(), "n");
    assert_eq!(request("/api/v1/namespaces/n/pods/p", None).authorization_namespace(), "n");
    assert_eq!(request("/api/v1/nodes/n", None).authorization_namespace(), "");
    assert_eq!(request("/apis/example.com/v1/namespaces/n", None).authorization_namespace(), "n");
    assert_eq!(request("/apis/example.com/v1/namespaces/n/status", None).authorization_namespace(), "n");
    assert_eq!(request("/apis/example.com/v1/namespaces", None).authorization_namespace(), "");
    assert_eq!(request("/api/v1/nodes/n", None).authorization_name(), "n");
    assert_eq!(request("/api/v1/secrets", Some("fieldSelector=metadata.name%3Ds")).authorization_name(), "s");
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    /// Generates mostly well-formed paths with hostile segments.
    fn hostile() -> impl Strategy<Value = String> {
        let base = prop_oneof![Just("/"), Just("/api/v1/"), Just("/apis/g/v1/"), Just("/clusters/c1/api/v1/")];
        let plain =
            prop_oneof![Just("namespaces"), Just("watch"), Just("pods"), Just("status"), Just("proxy"), Just("a")];
        let odd = prop_oneof![
            Just("..".to_owned()),
            Just(".".to_owned()),
            Just("%2e%2E".to_owned()),
            Just("a%2Fb".to_owned()),
            Just("a%5Cb%09".to_owned()),
            Just("a%5C..".to_owned()),
            Just("%252e%252e".to_owned()),
            Just(String::new()),
            "[a-z%/.\\x00-\\x7f]{0,3}",
        ];
        let segment = prop_oneof![6 => plain.prop_map(str::to_owned), 1 => odd];
        (base, proptest::collection::vec(segment, 0..8))
            .prop_map(|(base, segments)| base.to_owned() + &segments.join("/"))
    }

    proptest! {
        #[test]
        fn hostile_paths_neither_panic_nor_parse_ambiguously(path in hostile()) {
            let Ok(info) = RequestInfo::parse("GET", &path, None) else { return Ok(()) };
            prop_assert!(path.ends_with(&info.path) || info.path == "/");
            let Some(request) = info.resource() else {
                prop_assert!(!info.path.contains("//") && !info.path.contains("/../"));
                return Ok(());
            };
            for text in [&request.namespace, &request.subresource].into_iter().flatten() {
                prop_assert!(is_path_segment_name(text) && !text.contains('\\') && !text.chars().any(char::is_control));
            }
            if let Some(name) = &request.name {
                prop_assert!(is_path_segment_name(name) && !name.contains(['\0', '\r', '\n']));
                prop_assert!(!name.split('\\').any(|part| part == ".."));
            }
            // A simple parser that splits the path at its slashes, like Kubernetes' parser, must find the same
            // resource, name and subresource.
            let decoded = percent_encoding::percent_decode_str(&info.path).decode_utf8().unwrap().into_owned();
            let mut parts: Vec<_> = decoded.trim_matches('/').split('/').collect();
            parts.drain(..if parts[0] == "api" { 2 } else { 3 });
            if parts[0] == "watch" {
                parts.remove(0);
            }
            if parts[0] == "namespaces" && parts.len() > 2 && parts[2] != "status" && parts[2] != "finalize" {
                parts.drain(..2);
            }
            prop_assert_eq!(parts[0], &*request.resource.resource);
            prop_assert_eq!(parts.get(1).copied(), request.name.as_deref());
            prop_assert_eq!(parts.get(2).copied(), request.subresource.as_deref());
        }
    }
}

#[test]
fn request_is_classified_as_short_streamed_or_watch_by_verb_and_subresource() {
    use RequestClass::{Short, Streamed, Watch};
    for (target, expected) in [
        ("/api/v1/pods", Short),
        ("/api/v1/pods?watch=true", Watch),
        ("/api/v1/pods?%77atch=1", Watch),
        ("/api/v1/pods?watch=false", Short),
        ("/api/v1/pods?unwatch=1", Short),
        ("/api/v1/watch/pods", Watch),
        ("/api/v1/%77atch/pods", Watch),
        ("/clusters/eu/api/v1/pods?watch", Watch),
        ("/api/v1/namespaces/watch/pods/exec", Short),
        ("/api/v1/namespaces/a/pods/p/exec?command=ls", Streamed),
        ("/api/v1/namespaces/a/pods/p/%65xec", Streamed),
        ("/api/v1/namespaces/a/pods/p/attach", Streamed),
        ("/api/v1/namespaces/a/pods/p/portforward", Streamed),
        ("/api/v1/namespaces/a/pods/p/log", Streamed),
        ("/api/v1/namespaces/a/pods/log", Short),
        ("/api/v1/namespaces/a/pods/p/status", Short),
        ("/api/v1/namespaces/exec", Short),
        ("/api/v1/nodes/n/proxy/logs/kubelet.log", Streamed),
        ("/api/v1/nodes/n/%70roxy/pods?watch=1", Streamed),
        ("/clusters/eu/api/v1/namespaces/a/services/https:s:443/proxy/api/v1/pods?watch=1", Streamed),
        ("/apis/apps/v1/namespaces/a/deployments/d/scale", Short),
        ("/apis/x.io/v1/namespaces/a/things/t/log", Streamed),
        ("/debug/pprof/profile?seconds=30", Streamed),
        ("/logs/exec", Short),
        ("/version", Short),
    ] {
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        assert_eq!(RequestInfo::parse("GET", path, query).unwrap().class(), expected, "{target}");
    }
}

#[test]
fn parsing_a_path_without_escapes_allocates_memory_only_for_its_parts() {
    for (path, allocations) in [
        // The allocations are the cluster, the path, the group, the version, the resource, the namespace and the name.
        ("/clusters/x/api/v1/namespaces/ns/pods/name", 7),
        ("/api/v1/namespaces/ns/pods/name", 6),
        ("/api/v1/namespaces/ns/pods/name/status", 7),
        ("/apis/apps/v1/deployments", 4),
        ("/openapi/v3/apis/apps/v1", 1),
    ] {
        let mut info = None;
        let counted = allocation_counter::measure(|| info = RequestInfo::parse("GET", path, None).ok());
        assert!(info.is_some(), "{path}");
        assert!(counted.count_total <= allocations, "{path}: {} allocations", counted.count_total);
    }
}

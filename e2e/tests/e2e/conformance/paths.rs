//! Hostile and invalid paths.

use super::{
    Conformance, conformance,
    differences::{ESCAPED_SLASH, MORE_THAN_IS_LOOKED_AT, UNDECODABLE_QUERY},
    target::{Target, version_of},
};
use anyhow::ensure;

pub(super) fn cases() -> Vec<Conformance> {
    let mut cases = conformance!["paths";
        path_with_a_trailing_slash_is_accepted, path_with_an_escaped_slash_is_a_client_error_through_tributary,
        path_with_an_escaped_letter_reads_the_object, object_name_of_5000_characters_is_404,
        root_path_lists_the_api_paths, unknown_api_path_is_404, timeout_parameter_is_parsed_as_a_go_duration,
        query_with_invalid_escapes_is_400_through_tributary, overlong_selectors_and_queries_are_400_through_tributary,
    ];
    cases.extend(
        HOSTILE.iter().map(|(name, path)| {
            Conformance::new(format!("paths::refuses_{name}"), move |target| refused(target, path))
        }),
    );
    cases
}

/// Hostile paths. `NS` stands for the namespace of the case, which has a ConfigMap `secret`.
const HOSTILE: [(&str, &str); 9] = [
    ("double_slash_inside", "/api/v1//namespaces/NS/configmaps/secret"),
    ("double_slash_at_the_start", "//api/v1/namespaces/NS/configmaps/secret"),
    ("double_slash_before_the_name", "/api/v1/namespaces/NS/configmaps//secret"),
    ("dot_segment", "/api/v1/./namespaces/NS/configmaps/secret"),
    ("dot_dot_segment", "/api/v1/namespaces/other/../NS/configmaps/secret"),
    ("escaped_dot_dot", "/api/v1/namespaces/other/%2e%2e/NS/configmaps/secret"),
    ("half_escaped_dot_dot", "/api/v1/namespaces/other/.%2E/NS/configmaps/secret"),
    ("dot_dot_as_a_name", "/api/v1/namespaces/NS/configmaps/.."),
    ("escaped_dot_as_a_name", "/api/v1/namespaces/NS/configmaps/%2e"),
];

async fn refused(target: Target, path: &str) -> anyhow::Result<()> {
    target.create_map("secret", &[]).await?;
    let answer = target.http.get(&path.replace("NS", &target.namespace)).send().await?;
    ensure!(answer.status.is_client_error(), "{}: {}", answer.status, answer.text());
    ensure!(!answer.text().contains("\"step\""), "the object is shown: {}", answer.text());
    Ok(())
}

async fn path_with_a_trailing_slash_is_accepted(target: Target) -> anyhow::Result<()> {
    target.create_map("here", &[]).await?;
    ensure!(target.read(&target.maps("/")).await?["kind"] == "ConfigMapList", "not the list");
    ensure!(target.read(&format!("{}/", target.map("here"))).await?["kind"] == "ConfigMap", "not the object");
    Ok(())
}

async fn path_with_an_escaped_slash_is_a_client_error_through_tributary(target: Target) -> anyhow::Result<()> {
    target.create_map("here", &[]).await?;
    let path = format!("/api/v1/namespaces/{}%2Fconfigmaps%2Fhere", target.namespace);
    let answer = target.http.get(&path).send().await?;
    if target.differs(&ESCAPED_SLASH) {
        ensure!(answer.status.is_client_error(), "{}: {}", answer.status, answer.text());
        ensure!(answer.json()?["kind"] == "Status", "{}", answer.text());
    } else {
        answer.expect(200)?;
    }
    Ok(())
}

async fn path_with_an_escaped_letter_reads_the_object(target: Target) -> anyhow::Result<()> {
    let written = target.create_map("here", &[]).await?;
    let object = target.read(&target.map("%68ere")).await?;
    ensure!(version_of(&object) == version_of(&written), "{object}");
    Ok(())
}

async fn object_name_of_5000_characters_is_404(target: Target) -> anyhow::Result<()> {
    let answer = target.http.get(&target.map(&"x".repeat(5_000))).send().await?;
    ensure!(answer.status == 404, "{}: {}", answer.status, answer.text());
    Ok(())
}

async fn root_path_lists_the_api_paths(target: Target) -> anyhow::Result<()> {
    let paths = target.read("/").await?;
    let paths = paths["paths"].as_array().cloned().unwrap_or_default();
    for path in ["/api", "/apis", "/apis/apps", "/openapi/v2", "/openapi/v3", "/version"] {
        ensure!(paths.iter().any(|shown| shown == path), "{path} is missing: {paths:?}");
    }
    Ok(())
}

async fn timeout_parameter_is_parsed_as_a_go_duration(target: Target) -> anyhow::Result<()> {
    target.create_map("here", &[]).await?;
    let maps = target.maps("");
    for path in ["/version", "/api", "/apis/apps/v1", "/readyz", &maps, &target.map("here")] {
        for timeout in ["0s", "-1s", "1h", "5s", ""] {
            target.http.get(&format!("{path}?timeout={timeout}")).send().await?.expect(200)?;
        }
        for (timeout, words) in [
            ("invalid", "time: invalid duration \"invalid\""),
            ("5", "time: missing unit in duration \"5\""),
            ("5x", "time: unknown unit \"x\" in duration \"5x\""),
        ] {
            let status = target.http.get(&format!("{path}?timeout={timeout}")).send().await?.expect(400)?.json()?;
            let message = format!("invalid timeout specified in the request URL - {words}");
            ensure!(status["message"] == message && status["reason"] == "BadRequest", "{path}: {status}");
        }
    }
    // The parameter `timeout` does not apply to a watch, so the server ignores an invalid value.
    target.http.get(&format!("{maps}?watch=1&timeoutSeconds=1&timeout=invalid")).send().await?.expect(200)?;
    Ok(())
}

/// Tests each selector and query with the largest allowed number of parts, and with one more.
async fn overlong_selectors_and_queries_are_400_through_tributary(target: Target) -> anyhow::Result<()> {
    target.create_map("here", &[]).await?;
    let names = |count: usize, text: &str| vec![text; count].join(",");
    let parameters = |count: usize| (0..count).map(|number| format!("p{number}=1")).collect::<Vec<_>>().join("&");
    for (accepted, refused, words) in [
        (
            format!("labelSelector={}", names(128, "!absent")),
            format!("labelSelector={}", names(129, "!absent")),
            "too many requirements: a selector may have 128 at most",
        ),
        (parameters(64), parameters(65), "too many parameters: a query may have 64 at most"),
    ] {
        target.http.get(&target.maps(&format!("?{accepted}"))).send().await?.expect(200)?;
        let answer = target.http.get(&target.maps(&format!("?{refused}"))).send().await?;
        if target.differs(&MORE_THAN_IS_LOOKED_AT) {
            ensure!(answer.expect(400)?.json()?["message"] == words, "{refused}");
        } else {
            answer.expect(200)?;
        }
    }
    Ok(())
}

async fn query_with_invalid_escapes_is_400_through_tributary(target: Target) -> anyhow::Result<()> {
    target.create_map("here", &[]).await?;
    for query in ["labelSelector=%zz", "labelSelector=a;b", "x=%ff"] {
        let answer = target.http.get(&target.maps(&format!("?{query}"))).send().await?;
        if target.differs(&UNDECODABLE_QUERY) {
            ensure!(answer.expect(400)?.json()?["reason"] == "BadRequest", "{query}");
        } else {
            ensure!(answer.expect(200)?.json()?["items"].as_array().is_some_and(|items| !items.is_empty()), "{query}");
        }
    }
    Ok(())
}

async fn unknown_api_path_is_404(target: Target) -> anyhow::Result<()> {
    for path in ["/nowhere", "/api/v2", "/apis/apps/v9", "/api/v1/namespaces/x/configmaps/y/z/w"] {
        let answer = target.http.get(path).send().await?;
        ensure!(answer.status == 404, "{path}: {}: {}", answer.status, answer.text());
    }
    let without_route = target.http.get("/nowhere").send().await?;
    ensure!(without_route.text() == "404 page not found\n", "{}", without_route.text());
    Ok(())
}

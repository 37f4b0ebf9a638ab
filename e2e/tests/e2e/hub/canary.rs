//! Checks that no answer of the aggregated API contains a credential of a member.

use anyhow::ensure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};
use tributary_e2e::http::HttpResponse;
use tributary_e2e::ports;

use super::aggregated::{API, Aggregated, GROUP, MERGED, paths};
use super::{Hub, SOON, secrets, spec_of};
use crate::context::{Case, TestContext, cases, eventually};

/// Token of a member that does not answer.
const UNREACHABLE: &str = "token-of-a-member-that-is-down";

/// Token that is not valid in an HTTP header, because it has a line break.
const MALFORMED: &str = "token-with-a-line\nbreak-of-a-member";

pub(super) fn cases() -> Vec<Case> {
    cases!["hub::canary"; aggregated_api_never_returns_a_credential]
}

async fn create_secret(hub: &Hub, name: &str, data: &[(&str, &str)]) -> anyhow::Result<()> {
    let data: serde_json::Map<_, _> =
        data.iter().map(|(key, text)| ((*key).to_owned(), json!(STANDARD.encode(text)))).collect();
    let (labels, annotations) =
        (json!({"tributary.dev/credential": "true"}), json!({"tributary.dev/credential-of": name}));
    let metadata = json!({"name": name, "labels": labels, "annotations": annotations});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data});
    hub.server.http().post(&secrets(""), &secret).send().await?.expect(201).map(drop)
}

/// Returns a credential that the answer contains, if any.
fn find_credential<'a>(answer: &HttpResponse, credentials: &'a [String]) -> Option<&'a String> {
    let headers = answer.headers.values().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let texts: Vec<_> = headers.chain([answer.text()]).collect();
    credentials.iter().find(|credential| texts.iter().any(|text| text.contains(*credential)))
}

async fn aggregated_api_never_returns_a_credential(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let aggregated = Aggregated::start(&context).await?;
    let tributary = aggregated.serve(&context).await?;
    let hub = &aggregated.hub;
    let (with_token, with_key) = (&hub.members[0], &hub.members[1]);
    let (certificate, key) = with_key.people().client("tributary", &["system:masters"])?;
    hub.add("eu", with_token).await?;
    let authority = with_key.access().certificate_authority;
    create_secret(hub, "us", &[("tls.crt", &certificate), ("tls.key", &key), ("ca.crt", &authority)]).await?;
    hub.create_member("us", spec_of("us", with_key)).await?;
    for (name, token) in [("down", UNREACHABLE), ("malformed", MALFORMED)] {
        create_secret(hub, name, &[("token", token), ("ca.crt", &authority)]).await?;
        let server = format!("https://127.0.0.1:{}", ports::free_port()?);
        hub.create_member(name, json!({"endpoints": [server], "secretRef": {"name": name}})).await?;
    }
    let user = aggregated.user_of_all_members().await?;
    let login = hub.server.people().user(&user, &["system:masters"])?;
    let [through, direct] = [aggregated.http(&login, "").await?, aggregated.direct(&login).await?];
    hub.serves(&through.below(MERGED), &["eu", "us"]).await?;
    // The test waits until Tributary reports the states of all members, including the reasons of both failures.
    eventually(SOON, async || {
        let clusters = through.get(&format!("{API}/clusters")).send().await?.expect(200)?.json()?;
        let mut names = clusters["items"].as_array().into_iter().flatten().map(|one| &one["metadata"]["name"]);
        ensure!(names.any(|name| name == "down"), "{clusters}");
        Ok(())
    })
    .await?;

    // An answer may contain only a part of a key, so the test searches for single lines of the key, which have 64
    // characters. The first line is skipped, because it is the same for all keys of a kind.
    let lines = key.lines().filter(|line| !line.starts_with("-----")).skip(1).map(str::to_owned);
    let tokens = [with_token.access().token, UNREACHABLE.to_owned(), "break-of-a-member".to_owned()];
    let encoded = tokens.iter().take(2).chain([&key]).map(|text| STANDARD.encode(text)).collect::<Vec<_>>();
    let credentials: Vec<String> = lines.chain(tokens.clone()).chain(encoded).collect();
    let stored = hub.server.http().get(&secrets("")).send().await?.expect(200)?;
    ensure!(find_credential(&stored, &credentials).is_some(), "the Secrets of the hub have no credential");

    let namespace = format!("/api/v1/namespaces/{}", hub.namespace);
    let own = ["", "/clusters", "/clusters/eu", "/clusters/us", "/clusters/down", "/clusters/malformed", "/views/all"];
    let own = own.iter().map(|path| format!("{API}{path}"));
    let inside = [
        format!("{namespace}/configmaps"),
        format!("{namespace}/secrets"),
        format!("{namespace}/pods/none/log"),
        format!("/apis/{GROUP}/v1alpha1/clusters"),
        "/metrics".to_owned(),
        "/readyz?verbose".to_owned(),
        "/tributary/status".to_owned(),
        "/api/v1/nodes/none/proxy/configz".to_owned(),
    ];
    let targets = ["views/all", "clusters/eu", "clusters/us", "clusters/down", "clusters/malformed"];
    let proxied =
        targets.iter().flat_map(|target| inside.iter().map(move |path| format!("{API}/{target}/proxy{path}")));
    let all: Vec<String> = paths().into_iter().chain(own).chain(proxied).collect();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let (mut answers, mut read) = (0, 0);
    for http in [&through, &direct] {
        for path in &all {
            let requests =
                [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS].map(|method| match method {
                    Method::POST | Method::PUT => http.request(method, path).json(&review),
                    method => http.request(method, path),
                });
            let table = http.get(path).accept("application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
            for request in requests.into_iter().chain([table, http.get(path).accept("application/yaml")]) {
                let answer = request.send().await?;
                let found = find_credential(&answer, &credentials);
                ensure!(found.is_none(), "{} has {found:?}: {}", answer.request, answer.text());
                answers += 1;
                read += usize::from(answer.status == 200);
            }
        }
    }
    println!("{answers} answers, {read} of them with status 200, have no credential");
    ensure!(read > 100, "only {read} of {answers} requests were answered");
    let log = tributary.log();
    let found = credentials.iter().find(|credential| log.contains(*credential));
    ensure!(found.is_none(), "the log has {found:?}");
    let state: Value = through.get(&format!("{API}/clusters/malformed")).send().await?.json()?;
    println!("the member with a malformed token: {}", state["status"]["conditions"]);
    Ok(())
}

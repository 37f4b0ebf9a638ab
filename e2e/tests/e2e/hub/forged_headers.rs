//! Tests clients that forge the headers in which the hub's kube-apiserver names the user. Tributary may accept these
//! headers only on a connection with a certificate of the hub's front proxies.

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tributary_e2e::member::FRONT_PROXY;
use tributary_e2e::{HttpClient, PeopleAuthority, TestCluster, namespace};

use super::SOON;
use super::aggregated::{API, Aggregated};
use crate::context::{Case, TestContext, cases, eventually};
use crate::shared_mode::grant;

const CONFIGURATION: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

const CONFIGURATION_KEY: &str = "requestheader-client-ca-file";

pub(super) fn cases() -> Vec<Case> {
    cases!["hub::forged_headers";
        forged_user_headers_do_not_authenticate_a_user, trusted_front_proxies_change_with_the_configuration_of_the_hub,
    ]
}

/// Sends a request with these headers. Returns the user that the answer names, or `None` if the client is refused by a
/// status 401 or a broken connection.
async fn user_of(http: &HttpClient, headers: &[(&str, &str)]) -> anyhow::Result<Option<Value>> {
    let path = format!("{API}/views/all/proxy/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = headers.iter().fold(http.post(&path, &review), |one, (name, value)| one.header_beside(name, value));
    let Ok(answer) = request.send().await else { return Ok(None) };
    if answer.status == 401 {
        return Ok(None);
    }
    Ok(Some(answer.expect(201)?.json()?["status"]["userInfo"].clone()))
}

async fn forged_user_headers_do_not_authenticate_a_user(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let aggregated = Aggregated::start(&context).await?;
    let _tributary = aggregated.serve(&context).await?;
    let hub = &aggregated.hub;
    // The test adds a member, because without members the merged view serves no resource.
    hub.add("eu", &hub.members[0]).await?;
    let front_proxy = hub.server.front_proxy();
    let eve = namespace::unique_name("eve");
    aggregated.allow_proxies(&eve).await?;
    let own_certificate = hub.server.people().user(&eve, &["dev"])?;
    let ann = [("X-Remote-User", "ann"), ("X-Remote-Group", "ops")];
    let masters = [("X-Remote-User", "ann"), ("X-Remote-Group", "system:masters")];
    let other = PeopleAuthority::new(&format!("the front proxies of {}", hub.server.name()))?;
    let trusted = front_proxy.user(FRONT_PROXY, &[])?;
    for (what, user, headers, expected) in [
        ("front proxy", &trusted, &ann[..], Some("ann")),
        ("front proxy without a user", &trusted, &ann[1..], None),
        ("two users", &trusted, &[ann[0], ("X-Remote-User", "eve"), ann[1]][..], None),
        ("custom header", &trusted, &[("X-User", "ann"), ann[1]][..], None),
        ("no certificate", &json!({}), &ann[..], None),
        ("name that is not allowed", &front_proxy.user("other", &[])?, &ann[..], None),
        ("other authority", &other.user(FRONT_PROXY, &[])?, &ann[..], None),
        (
            "allowed name of the wrong authority",
            &hub.server.people().user(FRONT_PROXY, &[])?,
            &ann[..],
            Some(FRONT_PROXY),
        ),
        ("own certificate", &own_certificate, &ann[..], Some(&*eve)),
        ("own certificate and masters", &own_certificate, &masters[..], Some(&*eve)),
    ] {
        if expected == Some(FRONT_PROXY) {
            aggregated.allow_proxies(FRONT_PROXY).await?;
        }
        let http = aggregated.direct(user).await?;
        // Tributary may have cached the result of an earlier access review, so the test waits until the result expires.
        eventually(SOON, async || {
            let found = user_of(&http, headers).await?;
            let name = found.as_ref().map(|user| user["username"].as_str().unwrap_or_default());
            ensure!(name == expected, "{what}: {found:?} instead of {expected:?}");
            ensure!(name == Some("ann") || !format!("{found:?}").contains("ops"), "{what}: {found:?}");
            Ok(())
        })
        .await?;
    }

    let http = aggregated.direct(&trusted).await?;
    let extra =
        [ann[0], ("X-Remote-Uid", "7"), ("X-Remote-Extra-Example.com%2fTeam", "blue"), ("X-Remote-Group", "ops")];
    let user = user_of(&http, &extra).await?.unwrap_or_default();
    ensure!(user["uid"] == "7" && user["extra"]["example.com/team"] == json!(["blue"]), "{user}");
    // A front proxy may name the group `system:masters`, but Tributary must not send this group to a member.
    let nodes = format!("{API}/clusters/eu/proxy/api/v1/nodes");
    // Other tests grant rights in the shared member to users with fixed names.
    let master = namespace::unique_name("master");
    eventually(SOON, async || {
        let request = http.get(&nodes).header("X-Remote-User", &master).header("X-Remote-Group", "system:masters");
        request.send().await?.expect(403).map(drop)
    })
    .await
}

/// Writes certificate authorities into the hub's ConfigMap of front proxies.
async fn set_authorities(server: &TestCluster, pem: &str) -> anyhow::Result<()> {
    let patch = json!({"data": {CONFIGURATION_KEY: pem}});
    server.http().patch(CONFIGURATION, "merge-patch+json", &patch).send().await?.expect(200).map(drop)
}

async fn trusted_front_proxies_change_with_the_configuration_of_the_hub(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let aggregated = Aggregated::start(&context).await?;
    let _tributary = aggregated.serve(&context).await?;
    let server = &aggregated.hub.server;
    aggregated.hub.add("eu", &aggregated.hub.members[0]).await?;
    let next = PeopleAuthority::new("the next front proxies")?;
    let http = aggregated.direct(&next.user(FRONT_PROXY, &[])?).await?;
    let ann = [("X-Remote-User", "ann"), ("X-Remote-Group", "ops")];
    ensure!(user_of(&http, &ann).await?.is_none(), "an unknown authority counts");
    let earlier = server.front_proxy().pem();
    set_authorities(server, &format!("{earlier}{}", next.pem())).await?;
    // Tributary verifies a client certificate only in the TLS handshake, so the test uses new connections.
    eventually(SOON, async || {
        let http = aggregated.direct(&next.user(FRONT_PROXY, &[])?).await?;
        let user = user_of(&http, &ann).await?;
        ensure!(user.is_some_and(|user| user["username"] == "ann"), "the next authority does not count");
        Ok(())
    })
    .await?;
    let request = aggregated.direct(&next.user(FRONT_PROXY, &[])?).await?;
    let request = request.get(&format!("{API}/clusters?watch=1")).header("X-Remote-User", "ann");
    let mut watch = request.stream().await?.events()?;
    set_authorities(server, earlier).await?;
    eventually(SOON * 2, async || {
        ensure!(user_of(&http, &ann).await?.is_none(), "a removed authority counts on an open connection");
        Ok(())
    })
    .await?;
    let ended = async { while let Ok(Some(_)) = watch.next(SOON).await {} };
    tokio::time::timeout(SOON / 2, ended).await.context("an open watch outlives the authority of its front proxy")?;
    // Without a certificate authority of front proxies, Tributary must also ignore the headers in requests of the hub.
    let broken = STANDARD.encode("no certificate");
    set_authorities(server, &broken).await?;
    let user = namespace::unique_name("ann");
    grant(server, "", &user, &user, json!([{"nonResourceURLs": ["/version"], "verbs": ["get"]}])).await?;
    let own = aggregated.direct(&server.people().user(&user, &[])?).await?;
    own.get("/readyz").send().await?.expect(200)?;
    Ok(())
}

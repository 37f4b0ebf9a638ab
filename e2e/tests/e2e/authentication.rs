//! Gives the same certificates and tokens to a real kube-apiserver and to the crate `tributary-authentication`. Both
//! must find the same user, or both must refuse the credential.

mod certificates;
pub(crate) mod issuer;
mod signing_in;

use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use certificates::ClientAuthority;
use issuer::{Change, TestIssuer};
use kube::config::AuthInfo;
use serde_json::{Value, json};
use signing_in::{SignInIssuer, SignInServers};
use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};
use tributary_authentication::{
    AuthenticationConfiguration, ClientCertificates, JsonWebKeySet, Token, UserInfo, parse_review, review_request,
};
use tributary_e2e::{TestCluster, Tributary, guard, kubeconfig};

/// Longest time until the kube-apiserver can verify tokens. It reads the keys of token issuers at its start, and tries
/// again every 10 s if an issuer does not answer.
const SOON: Duration = Duration::from_secs(60);

pub(crate) fn cases() -> Vec<Case> {
    cases!["authentication";
        certificate_or_token_authenticates_the_same_user_as_at_kube_apiserver,
    ]
    .into_iter()
    .map(|case| case.patience(SOON * 5))
    .collect()
}

/// Returns the user that the member's kube-apiserver finds for a credential; `None` if it answers 401.
async fn known_as(member: &TestCluster, auth: AuthInfo) -> anyhow::Result<Option<UserInfo>> {
    user_at(&member.kubeconfig(), auth).await
}

/// Returns the user that the server of a kubeconfig finds for a credential; `None` if the server answers 401.
async fn user_at(path: &Path, auth: AuthInfo) -> anyhow::Result<Option<UserInfo>> {
    let mut config = kubeconfig::config(path, None).await?;
    config.auth_info = auth;
    let client = kube::Client::try_from(config).context("make a client")?;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("Content-Type", "application/json")
        .body(review.to_string().into_bytes())?;
    match client.request::<Value>(request).await {
        Ok(answer) => Ok(Some(serde_json::from_value(answer["status"]["userInfo"].clone())?)),
        Err(kube::Error::Api(status)) if status.code == 401 => Ok(None),
        Err(error) => Err(error).context("ask who I am"),
    }
}

async fn certificate_or_token_authenticates_the_same_user_as_at_kube_apiserver(
    context: TestContext,
) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let folder = guard::temporary_folder("authentication")?;
    let authority = ClientAuthority::new("the clients' authority")?;
    let issuer = TestIssuer::start().await?;
    let (bundle, file) = (folder.path().join("clients.crt"), folder.path().join("authentication.yaml"));
    fs::write(&bundle, authority.pem())?;
    let tools = context.fixture.tools().await?;
    let sign_in = SignInIssuer::start(tools, folder.path()).await?;
    let mut configuration: Value = serde_json::from_str(&issuer.configuration())?;
    configuration["jwt"].as_array_mut().context("issuers")?.push(sign_in.configuration());
    fs::write(&file, configuration.to_string())?;
    let member = TestCluster::builder("authenticating")
        .apiserver_argument(&format!("--client-ca-file={}", bundle.display()))
        .apiserver_argument(&format!("--authentication-config={}", file.display()))
        .apiserver_argument("--anonymous-auth=false")
        .start(tools)
        .await?;
    let mut wrong = certificates(&member, &authority).await?;
    let tributary = Tributary::builder(&member.kubeconfig(), [member.name()]).in_shared_mode();
    let tributary = tributary.argument(format!("--authentication-config={}", file.display())).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let endpoint = folder.path().join("endpoint");
    tributary.kubeconfig_of(&endpoint, &json!({}), &[])?;
    wrong.extend(tokens(&member, &endpoint, &issuer).await?);
    wrong.extend(reviews(&member, &issuer).await?);
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    let places = SignInServers { member: &member, endpoint: &endpoint, folder: folder.path() };
    signing_in::people_sign_in(tools, &sign_in, &places).await
}

/// Compares the user that the member finds (`there`) with the user that Tributary finds (`here`). If `stricter` is
/// true, Tributary must refuse a user that the member accepts.
fn compare(name: &str, there: Option<UserInfo>, here: Result<UserInfo, String>, stricter: bool) -> Option<String> {
    match (there, here) {
        (Some(there), Ok(here)) if there == here && !stricter => None,
        (None, Err(_)) if !stricter => None,
        (Some(_), Err(_)) if stricter => None,
        (there, here) => Some(format!("{name}: {there:?} there, {here:?} here (stricter: {stricter})")),
    }
}

async fn certificates(member: &TestCluster, authority: &ClientAuthority) -> anyhow::Result<Vec<String>> {
    let verifier = ClientCertificates::new(authority.pem().as_bytes())?;
    let mut wrong = Vec::new();
    for case in certificates::cases(authority)? {
        let auth = AuthInfo {
            client_certificate_data: Some(case.certificate_base64()),
            client_key_data: Some(case.key_base64().into()),
            ..AuthInfo::default()
        };
        let there = known_as(member, auth).await.context(case.name)?;
        let here = verifier.user(&case.chain, rustls_pki_types::UnixTime::now()).map(|(user, _)| user);
        let here = here.map(UserInfo::authenticated).map_err(|error| error.to_string());
        wrong.extend(compare(case.name, there, here, case.stricter));
    }
    Ok(wrong)
}

/// Compares the tokens at the member with the crate `authentication`, and with a `tributary serve` that fetches the
/// issuers' keys itself.
async fn tokens(member: &TestCluster, endpoint: &Path, issuer: &TestIssuer) -> anyhow::Result<Vec<String>> {
    let configuration = AuthenticationConfiguration::parse(&issuer.configuration(), &[])?;
    let keys = JsonWebKeySet::parse(issuer.keys().as_bytes())?;
    let bearer = |token: String| AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
    for which in ["a", "b"] {
        eventually(SOON, async || {
            let known = known_as(member, bearer(issuer.token(which, &[])?)).await?;
            ensure!(known.is_some(), "issuer {which} is not known yet");
            Ok(())
        })
        .await?;
    }
    let mut wrong = Vec::new();
    for (name, which, changes, stricter) in issuer::cases() {
        let token = issuer.token(which, &changes)?;
        let there = known_as(member, bearer(token.clone())).await.context(name)?;
        let here = Token::parse(&token).map_err(|error| error.to_string()).and_then(|token| {
            let known = configuration.jwt.iter().find(|own| Some(own.issuer_url.as_str()) == token.unverified_issuer());
            let verified = token.verify(known.ok_or("no issuer")?, &keys, SystemTime::now());
            verified.map(|(user, _)| user.authenticated()).map_err(|error| error.to_string())
        });
        wrong.extend(compare(name, there.clone(), here, stricter));
        let served = user_at(endpoint, bearer(token)).await.context(name)?.ok_or_else(|| "401".to_owned());
        wrong.extend(compare(&format!("{name}, served"), there, served, stricter));
    }
    Ok(wrong)
}

/// Checks that a member's TokenReview names the same user as the kube-apiserver's response to the token. Also checks
/// that the keys that the member publishes verify exactly the tokens of its ServiceAccounts.
async fn reviews(member: &TestCluster, issuer: &TestIssuer) -> anyhow::Result<Vec<String>> {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "app"}});
    member.http().post(accounts, &account).send().await?.expect(201)?;
    let requested = async |audiences: &[&str]| {
        let spec = json!({"audiences": audiences, "expirationSeconds": 600});
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        let answer = member.http().post(&format!("{accounts}/app/token"), &request).send().await?.expect(201)?;
        anyhow::Ok(answer.json()?["status"]["token"].as_str().context("no token")?.to_owned())
    };
    let own = requested(&[]).await?;
    let Value::String(audience) = claims_of(&own)?["aud"][0].take() else { anyhow::bail!("no audience") };
    let audience = audience.as_str();
    let (ours, both) = (requested(&["tributary"]).await?, requested(&["tributary", audience]).await?);
    let forged = format!("{}.{}", own.rsplit_once('.').context("a JWT")?.0, ours.rsplit_once('.').context("a JWT")?.1);
    let keys = member.http().get("/openid/v1/jwks").accept("application/jwk-set+json").send().await?.expect(200)?;
    let keys = JsonWebKeySet::parse(keys.text().as_bytes())?;
    let guess = "guessed".to_owned();
    let mut wrong = Vec::new();
    for (name, token, is_signed, of_itself, of_ours) in [
        ("an account's", &own, true, true, false),
        ("for us", &ours, true, false, true),
        ("for both", &both, true, true, true),
        ("forged", &forged, false, false, false),
        // The member accepts a token of an external issuer, but the member's published keys do not verify it.
        ("an issuer's", &issuer.token("a", &[])?, false, true, false),
        ("an issuer's, expired", &issuer.token("a", &[Change::Expires(-5)])?, false, false, false),
        ("the administrator's", &member.access().token, false, true, false),
        ("a guess", &guess, false, false, false),
    ] {
        let bearer = AuthInfo { token: Some(token.clone().into()), ..AuthInfo::default() };
        let there = known_as(member, bearer).await.context(name)?;
        let here = review(member, token, &[]).await.context(name)?;
        let with_audience = review(member, token, &["tributary"]).await.context(name)?;
        let signed = Token::parse(token).is_ok_and(|token| token.is_signed_by(&keys));
        let facts = (signed, there.is_some(), with_audience.is_some());
        if there != here || facts != (is_signed, of_itself, of_ours) {
            wrong.push(format!("{name}: {there:?} there, {here:?} here, {with_audience:?} for us, {facts:?}"));
        }
    }
    Ok(wrong)
}

async fn review(member: &TestCluster, token: &str, audiences: &[&str]) -> anyhow::Result<Option<UserInfo>> {
    let audiences: Vec<_> = audiences.iter().map(|&audience| audience.to_owned()).collect();
    let request = serde_json::from_slice(&review_request(token, &audiences))?;
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let answer = member.http().post(path, &request).send().await?.expect(201)?;
    Ok(parse_review(answer.text().as_bytes(), &audiences)?)
}

fn claims_of(token: &str) -> anyhow::Result<Value> {
    let claims = token.split('.').nth(1).context("a JWT")?;
    Ok(serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims)?)?)
}

fn claim(name: &'static str, value: Value) -> Change {
    Change::Claim(name, value)
}

//! Tests of users' own tokens, which the proxy sends on connections without Tributary's credentials.

use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use tributary_apimachinery::body::Body;
use tributary_proxy::{
    ClientTuning, ClusterClient, ConnectError, ForwardError, Impersonation, RequestIdentity, user_authorization,
};

use crate::identity::names;
use crate::member::{self, Authority, Member, Options, SendRequest, empty, get, text};

/// Starts a member that accepts Tributary's client certificate. Returns the member and a client configuration with the
/// certificate.
pub(crate) async fn member_and_config(status: StatusCode) -> (Member, kube::Config) {
    let users = Authority::new();
    let leaf = users.leaf("tributary");
    let options =
        Options { client_authority: Some(users.der.clone()), certificate_is_optional: true, ..Options::default() };
    let member = Member::start(options, move |_, _| async move { text(status, "said".to_owned()) }).await;
    let mut config = member.config();
    config.auth_info.client_certificate_data = Some(base64(&leaf.pem));
    config.auth_info.client_key_data = Some(base64(&leaf.key_pem).into());
    config.headers = vec![("x-of-ours".parse().unwrap(), "1".parse().unwrap())];
    (member, config)
}

fn base64(text: &str) -> String {
    use ::base64::Engine;
    ::base64::engine::general_purpose::STANDARD.encode(text)
}

async fn passing(config: &kube::Config) -> Result<ClusterClient, ConnectError> {
    let client = member::connect(config.clone(), ClientTuning::default()).await;
    client.enable_user_tokens(config, &[], ClientTuning::default()).await
}

fn own(token: &str, impersonation: Option<Impersonation>) -> RequestIdentity {
    RequestIdentity::UserToken { authorization: user_authorization(token.as_bytes()).unwrap(), impersonation }
}

async fn read(response: http::Response<Body>) -> (StatusCode, bytes::Bytes) {
    let status = response.status();
    (status, response.into_body().collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn user_token_is_sent_without_tributarys_credentials() {
    let (member, config) = member_and_config(StatusCode::OK).await;
    let client = passing(&config).await.unwrap();
    assert!(client.passes_tokens());
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert!(member.last().certificate.is_some(), "the member knows us by a certificate");

    let mut impersonation = HeaderMap::new();
    impersonation.insert("impersonate-user", "bob".parse().unwrap());
    let impersonation = Impersonation::from_client_headers(&impersonation).unwrap();
    let mut request = get("/api");
    request.headers_mut().insert("authorization", "Bearer other".parse().unwrap());
    client.send_request(request, own("anns", impersonation)).await.unwrap();
    let seen = member.last();
    assert_eq!(
        (seen.certificate, names(&seen.headers)),
        (None, vec!["authorization".into(), "impersonate-user".into()])
    );
    assert_eq!(seen.headers["authorization"], "Bearer anns");

    client.send_request(get("/api"), own("bobs", None)).await.unwrap();
    let seen = member.last();
    assert_eq!((seen.certificate, names(&seen.headers)), (None, vec!["authorization".to_owned()]));
    assert_eq!(seen.headers["authorization"], "Bearer bobs");
    assert_eq!(member.connections(), 2, "one of ours, and one for all users' tokens");

    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    let seen = member.last();
    assert!(seen.certificate.is_some() && !seen.headers.contains_key("authorization"));
}

#[tokio::test]
async fn member_401_to_a_user_token_reaches_the_user() {
    let (member, config) = member_and_config(StatusCode::UNAUTHORIZED).await;
    let client = passing(&config).await.unwrap();
    let answer = read(client.send_request(get("/api"), own("anns", None)).await.unwrap()).await;
    assert_eq!(answer, (StatusCode::UNAUTHORIZED, "said".into()));
    assert_eq!(member.seen().len(), 1, "it is not asked about our own credentials, and not again");
}

#[tokio::test]
async fn user_tokens_are_sent_only_over_verified_tls() {
    let (_member, mut config) = member_and_config(StatusCode::OK).await;
    config.accept_invalid_certs = true;
    let error = passing(&config).await.err().unwrap().to_string();
    assert!(error.contains("not verified"), "{error}");

    let plain =
        Member::start(Options { plain: true, ..Options::default() }, |_, _| async { http::Response::new(empty()) });
    let error = passing(&plain.await.config()).await.err().unwrap().to_string();
    assert!(error.contains("only over https"), "{error}");
}

#[tokio::test]
async fn user_token_is_not_sent_unless_enabled() {
    let (member, config) = member_and_config(StatusCode::OK).await;
    let client = member::connect(config, ClientTuning::default()).await;
    let error = client.send_request(get("/api"), own("anns", None)).await.unwrap_err();
    assert!(matches!(error, ForwardError::Credentials { .. }), "{error}");
    assert_eq!(member.seen().len(), 0);
    assert!(user_authorization(b"a\nb").is_none() && user_authorization(b"\xff").is_none());
    assert!(!format!("{:?}", own("secret", None)).contains("secret"));
}

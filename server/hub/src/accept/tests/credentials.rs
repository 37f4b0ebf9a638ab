//! The credentials of members from Secrets.

use super::*;

#[tokio::test]
async fn rotated_credential_takes_effect_while_the_present_generation_is_refused() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({}));
    hub.accept().await;
    hub.put_member("a", json!({"endpoints": ["https://127.0.0.1"]}));
    hub.accept().await;
    hub.put_secret("a", json!({"token": "bmV3", "ca.crt": authority()}));
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &["a"], &["a RefusedAddress"]);
    assert!(accepted.is_changed);
    let resolved = hub.in_force.members["a"].resolved.as_ref().unwrap();
    assert_eq!(resolved.credentials.as_ref().unwrap().token.as_ref().unwrap().expose(), "new");
    assert!(!hub.accept().await.is_changed);
}

#[tokio::test]
async fn withdrawn_credential_ends_while_the_present_generation_is_refused() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({}));
    hub.accept().await;
    hub.put_member("a", json!({"endpoints": ["https://127.0.0.1"]}));
    assert!(hub.accept().await.configuration.clusters[0].config.is_ok());
    let mut secret = hub.secrets["a"].clone();
    secret["metadata"]["annotations"]["tributary.dev/credential-of"] = json!("b");
    secret["metadata"]["resourceVersion"] = json!("900");
    hub.secrets.insert("a".to_owned(), secret);
    assert!(hub.accept().await.configuration.clusters[0].config.is_err());
}

#[tokio::test]
async fn member_keeps_its_credential_unless_the_secret_refuses_it() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({}));
    hub.accept().await;
    let state = |accepted: &Acceptance| {
        let verdict = &accepted.verdicts[0];
        let is_connected = accepted.configuration.clusters[0].config.is_ok();
        (verdict.resolved_refs.clone().unwrap().reason, is_connected)
    };
    let secret = hub.secrets.remove("a").unwrap();
    assert_eq!(state(&hub.accept().await), ("SecretNotFound".to_owned(), true));
    hub.put_secret("a", json!({"other": "dA=="}));
    assert_eq!(state(&hub.accept().await), ("KeyNotFound".to_owned(), true));
    hub.put_secret("a", json!({"token": "eA=="}));
    assert_eq!(state(&hub.accept().await), ("KeyNotFound".to_owned(), true), "no authorities");
    hub.put_secret("a", json!({"token": "eA==", "ca.crt": authority()}));
    let accepted = hub.accept().await;
    assert_eq!(state(&accepted), ("Resolved".to_owned(), true));
    let mut foreign = secret.clone();
    foreign["metadata"]["annotations"]["tributary.dev/credential-of"] = json!("b");
    foreign["metadata"]["resourceVersion"] = json!("900");
    hub.secrets.insert("a".to_owned(), foreign);
    assert_eq!(state(&hub.accept().await), ("SecretOfOtherCluster".to_owned(), false));
    let mut limited = secret;
    limited["metadata"]["annotations"]["tributary.dev/hosts"] = json!("b.example, c.example");
    limited["metadata"]["resourceVersion"] = json!("901");
    hub.secrets.insert("a".to_owned(), limited.clone());
    assert_eq!(state(&hub.accept().await), ("HostNotAllowed".to_owned(), false));
    limited["metadata"]["annotations"]["tributary.dev/hosts"] = json!("A.example");
    limited["metadata"]["resourceVersion"] = json!("902");
    hub.secrets.insert("a".to_owned(), limited);
    assert_eq!(state(&hub.accept().await), ("Resolved".to_owned(), true));
    // A proxy and authorities of the object's own would lead the credential to a different server.
    let mut object = hub.objects[&(HubKind::UpstreamCluster as usize, "a".to_owned())].clone();
    for (field, value, reason) in [
        ("proxyURL", json!("http://evil.example:3128"), "HostNotAllowed"),
        ("caData", authority(), "AuthoritiesNotAllowed"),
        ("insecureSkipVerify", json!(true), "AuthoritiesNotAllowed"),
    ] {
        let before = object.clone();
        object["spec"][field] = value;
        hub.put(HubKind::UpstreamCluster, "a", object);
        assert_eq!(state(&hub.accept().await), (reason.to_owned(), false), "{field}");
        object = before;
    }
}

#[tokio::test]
async fn object_made_anew_gets_no_credential_of_the_earlier_object() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({}));
    hub.accept().await;
    hub.delete_member("a");
    hub.put_member("a", json!({}));
    hub.secrets.clear();
    let accepted = hub.accept().await;
    assert!(accepted.configuration.clusters[0].config.is_err());
}

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use super::*;
use crate::testing::{TestSigner, issuer};

fn cluster(name: &str) -> ClusterName {
    ClusterName::new(name).unwrap()
}

/// Returns the verifiers as text: `issuer URL`, `hub NAME`, `signer NAME`, `member NAME`.
fn order(
    rules: &VerifierRules<'_>,
    token: &str,
    addressed: Option<(&ClusterName, bool)>,
) -> Result<String, TokenRefused> {
    let addressed = addressed.map(|(cluster, reviews_tokens)| AddressedCluster { cluster, reviews_tokens });
    let order = rules.order(&BearerToken::parse(token).unwrap(), addressed)?;
    let words = order.iter().map(|verifier| match verifier {
        Verifier::Issuer(issuer) => format!("issuer {}", issuer.issuer_url),
        Verifier::TokenReviewCluster(cluster) => format!("hub {cluster}"),
        Verifier::Signer(cluster) => format!("signer {cluster}"),
        Verifier::Member(cluster) => format!("member {cluster}"),
    });
    Ok(words.collect::<Vec<_>>().join(", "))
}

#[test]
fn token_verifiers_are_chosen_by_the_issuer_and_the_requested_cluster() {
    let (of_a, of_clones, stranger) = (TestSigner::new("k"), TestSigner::new("k"), TestSigner::new("k"));
    let (a, b, hub) = (cluster("a"), cluster("b"), cluster("hub"));
    let mut members = MemberKeys::default();
    let served = [(a.clone(), of_a.keys()), (b.clone(), of_clones.keys()), (cluster("c"), of_clones.keys())];
    let of_hub = (hub.clone(), crate::JsonWebKeySet::default());
    for (member, keys) in served.into_iter().chain([of_hub]) {
        members.set(member, keys);
    }
    let issuers = [issuer("https://one"), issuer("https://two"), issuer("https://accounts.google.com")];
    let account = r#"{"iss":"https://kubernetes.default.svc.cluster.local"}"#;
    let (opaque, one) = ("opaque".to_owned(), r#"{"iss":"https://one"}"#);
    let without_hub = VerifierRules { issuers: &issuers, token_review_cluster: None, members: &members };
    let with_hub = VerifierRules { token_review_cluster: Some(&hub), ..without_hub };
    let (no_verifier, several) = (Err(TokenRefused::Nobody), Err(TokenRefused::SeveralClusters));
    let (of_another, d) = (Err(TokenRefused::OfAnotherCluster), cluster("d"));
    let ok = |words: &str| Ok(words.to_owned());
    type Row<'a> =
        (&'a str, &'a VerifierRules<'a>, String, Option<(&'a ClusterName, bool)>, Result<String, TokenRefused>);
    let table: Vec<Row<'_>> = vec![
        ("a configured issuer alone", &with_hub, stranger.signed(one), Some((&a, true)), ok("issuer https://one")),
        ("even if a member signed it", &with_hub, of_a.signed(one), Some((&a, true)), ok("issuer https://one")),
        ("iss exactly", &without_hub, stranger.signed(r#"{"iss":"https://one/"}"#), None, no_verifier.clone()),
        (
            "one issuer has two names",
            &with_hub,
            stranger.signed(r#"{"iss":"accounts.google.com"}"#),
            None,
            ok("issuer https://accounts.google.com"),
        ),
        ("iss is text", &without_hub, stranger.signed(r#"{"iss":["https://one"]}"#), None, no_verifier.clone()),
        ("the member that signed", &with_hub, of_a.signed(account), None, ok("signer a")),
        ("not where another is addressed", &with_hub, of_a.signed(account), Some((&b, true)), of_another.clone()),
        ("nor one whose keys are not known", &with_hub, of_a.signed(account), Some((&d, true)), of_another),
        ("whatever iss says", &with_hub, of_a.signed("{}"), Some((&a, false)), ok("signer a")),
        ("clones", &with_hub, of_clones.signed(account), None, several),
        ("clones, addressed", &with_hub, of_clones.signed(account), Some((&b, false)), ok("signer b")),
        ("without a key's id", &with_hub, of_a.signed_under(&json!({"alg": "ES256"}), account), None, ok("hub hub")),
        ("nobody's signature", &with_hub, stranger.signed(account), None, ok("hub hub")),
        ("nobody's, addressed", &with_hub, stranger.signed(account), Some((&a, true)), ok("hub hub, member a")),
        ("opaque", &with_hub, opaque.clone(), None, ok("hub hub")),
        ("opaque, addressed", &with_hub, opaque.clone(), Some((&a, true)), ok("hub hub, member a")),
        ("addressed, not asked", &with_hub, opaque.clone(), Some((&a, false)), ok("hub hub")),
        ("the hub is asked once", &with_hub, opaque.clone(), Some((&hub, true)), ok("hub hub")),
        ("no hub", &without_hub, opaque.clone(), None, no_verifier.clone()),
        ("no hub, not asked", &without_hub, opaque.clone(), Some((&a, false)), no_verifier),
        ("no hub, addressed", &without_hub, opaque, Some((&a, true)), ok("member a")),
    ];
    for (name, rules, token, addressed, expected) in table {
        assert_eq!(order(rules, &token, addressed), expected, "{name}");
    }
}

/// While the keys of a cluster are unknown, a key that a member serves may be a copy of a key of that cluster.
#[test]
fn signing_key_is_ambiguous_until_the_keys_of_all_clusters_are_read() {
    let signer = TestSigner::new("k");
    let (copier, hub, silent) = (cluster("a"), cluster("hub"), cluster("silent"));
    let token = signer.signed("{}");
    let members = |served: &[&ClusterName], without_keys: &[&ClusterName]| {
        let mut members = MemberKeys::default();
        members.follow(&[copier.clone(), hub.clone(), silent.clone()]);
        for member in served {
            members.set((*member).clone(), signer.keys());
        }
        for member in without_keys {
            members.set_without_keys((*member).clone());
        }
        members
    };
    let ok = |words: &str| Ok(words.to_owned());
    let own = Some((&copier, false));
    let unsettled = || Err(TokenRefused::Unsettled);
    for (name, members, with_hub, addressed, expected) in [
        ("the hub alone, whose keys are unknown", members(&[&copier], &[&silent]), true, None, ok("hub hub")),
        ("the same while another is unknown", members(&[&copier], &[]), true, None, ok("hub hub")),
        ("not the hub, whose keys are others", members(&[&copier], &[&hub]), true, None, unsettled()),
        ("nobody without a hub", members(&[&copier], &[&hub]), false, None, unsettled()),
        ("the hub by its own key", members(&[&hub], &[&copier]), true, None, ok("signer hub")),
        ("no cluster by its own key", members(&[&hub], &[&copier]), false, None, unsettled()),
        ("where it is addressed", members(&[&copier], &[]), true, own, ok("signer a")),
        ("all are known", members(&[&copier], &[&hub, &silent]), true, None, ok("signer a")),
        ("two serve it", members(&[&copier, &hub], &[&silent]), true, None, Err(TokenRefused::SeveralClusters)),
    ] {
        let rules = VerifierRules { issuers: &[], token_review_cluster: with_hub.then_some(&hub), members: &members };
        assert_eq!(order(&rules, &token, addressed), expected, "{name}");
    }
}

/// A token-review cluster that is not a member has no known keys. Any key may be a copy of its key, so only the
/// token-review cluster gets the token.
#[test]
fn signing_key_is_ambiguous_without_the_token_review_clusters_keys() {
    let signer = TestSigner::new("k");
    let hub = cluster("hub");
    let mut members = MemberKeys::default();
    members.set(cluster("a"), signer.keys());
    let rules = VerifierRules { issuers: &[], token_review_cluster: Some(&hub), members: &members };
    assert_eq!(order(&rules, &signer.signed("{}"), None), Ok("hub hub".to_owned()));
}

#[test]
fn malformed_jwt_is_not_treated_as_an_opaque_token() {
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let header = encode(r#"{"alg":"ES256"}"#);
    let twice = format!("{header}.{}.AA", encode(r#"{"iss":"https://one","iss":"https://x"}"#));
    let other_algorithm = format!("{}.{}.AA", encode(r#"{"alg":"EdDSA"}"#), encode(r#"{"iss":"https://one"}"#));
    let padded = format!("{header}.{}=.AA", encode(r#"{"iss":"https://one"}"#));
    for text in ["a.b.c", "..", &twice, &other_algorithm, &padded] {
        assert!(BearerToken::parse(text).is_err(), "{text}");
    }
    for text in ["", "opaque", "ya29.a0", "a.b.c.d.e"] {
        assert!(matches!(BearerToken::parse(text), Ok(BearerToken::Opaque)), "{text}");
    }
}

#[test]
fn user_is_valid_everywhere_or_in_one_member_depending_on_the_verifier() {
    let (one, a) = (issuer("https://one"), cluster("a"));
    let account = "system:serviceaccount:kube-system:default";
    let member = || Authority::Member(a.clone());
    let table = [
        (Verifier::Issuer(&one), "ann", Authority::from("https://one")),
        (Verifier::TokenReviewCluster(&a), "ann", Authority::TokenReviewCluster(a.clone())),
        (Verifier::TokenReviewCluster(&a), account, member()),
        (Verifier::TokenReviewCluster(&a), "system:admin", member()),
        (Verifier::Member(&a), "ann", member()),
        (Verifier::Member(&a), account, member()),
        (Verifier::Signer(&a), account, member()),
    ];
    for (verifier, name, expected) in table {
        let user = UserInfo { username: name.to_owned(), ..UserInfo::default() };
        assert_eq!(verifier.authority(&user), expected, "{verifier:?} {name}");
    }
}

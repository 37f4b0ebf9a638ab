use super::*;

/// Returns a valid AuthenticationConfiguration with one text replaced.
fn changed(from: &str, to: &str) -> String {
    let good = r#"{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": [{
        "issuer": {"url": "https://issuer.example", "audiences": ["one"]},
        "claimValidationRules": [{"claim": "hd", "requiredValue": "x"}],
        "claimMappings": {"username": {"claim": "sub", "prefix": "p:"}, "groups": {"claim": "g", "prefix": ""}}
    }]}"#;
    assert!(good.contains(from), "{from}");
    good.replace(from, to)
}

#[test]
fn authentication_configuration_reads_the_claim_mappings() {
    let parsed = AuthenticationConfiguration::parse(&changed("", ""), &[]).unwrap();
    let [jwt] = parsed.jwt.as_slice() else { panic!("one issuer") };
    assert_eq!(jwt.discovery_url, "https://issuer.example/.well-known/openid-configuration");
    assert_eq!(jwt.username, ClaimMapping { claim: "sub".to_owned(), prefix: "p:".to_owned() });
    assert_eq!(jwt.groups, Some(ClaimMapping { claim: "g".to_owned(), prefix: String::new() }));
    assert_eq!(jwt.required_claims, BTreeMap::from([("hd".to_owned(), "x".to_owned())]));
}

#[test]
fn invalid_authentication_configuration_has_the_messages_of_kube_apiserver() {
    let url = "https://issuer.example";
    let audiences = r#"["one"]"#;
    let table = [
        (url, "", "jwt[0].issuer.url: Required value"),
        (url, "http://issuer.example", "URL scheme must be https"),
        (url, "https://u@issuer.example", "URL must not contain a username or password"),
        (url, "https://issuer.example?a=b", "URL must not contain a query"),
        (url, "https://issuer.example#a", "URL must not contain a fragment"),
        (url, "https://accounts", "URL must not overlap with disallowed issuers"),
        (audiences, "[]", "jwt[0].issuer.audiences: Required value: at least one"),
        (audiences, r#"["one", "two"]"#, "audienceMatchPolicy must be MatchAny for multiple audiences"),
        (audiences, r#"["one", "one"]"#, r#"jwt[0].issuer.audiences[1]: Duplicate value: "one""#),
        (audiences, r#"["one"], "discoveryURL": "https://issuer.example/""#, "discoveryURL must be different from URL"),
        (audiences, r#"["one"], "certificateAuthority": "x""#, r#"certificateAuthority: Invalid value: "<omitted>""#),
        (audiences, r#"["one"], "certificateAuthority": "people.crt""#, "the PEM text itself, not the name of a file"),
        (r#", "prefix": "p:""#, "", "jwt[0].claimMappings.username.prefix: Required value: prefix is required when"),
        (r#""claim": "sub", "prefix": "p:""#, "", "claimMappings.username: Required value: claim or expression"),
        (r#""claim": "hd", "#, r#""claim": "hd", "message": "m", "#, "may not be specified when claim is set"),
        (
            r#""claim": "sub", "prefix": "p:""#,
            r#""expression": "claims.sub""#,
            r#"jwt[0].claimMappings.username.expression: Invalid value: "claims.sub": CEL expressions"#,
        ),
        (r#"{"claim": "hd", "requiredValue": "x"}"#, r#"{"expression": "true"}"#, "claimValidationRules[0].expression"),
        (
            r#"{"claim": "g", "prefix": ""}"#,
            r#"{"expression": "claims.g"}"#,
            r#"jwt[0].claimMappings.groups.expression: Invalid value: "claims.g": CEL expressions"#,
        ),
        (
            r#""claim": "sub", "prefix": "p:"}"#,
            r#""claim": "sub", "prefix": "p:"}, "uid": {"expression": "claims.u"}"#,
            r#"jwt[0].claimMappings.uid.expression: Invalid value: "claims.u": CEL expressions"#,
        ),
        (
            r#""claim": "sub", "prefix": "p:"}"#,
            r#""claim": "sub", "prefix": "p:"}, "extra": [{"key": "x.io/k", "valueExpression": "claims.k"}]"#,
            "jwt[0].claimMappings.extra: Forbidden: CEL expressions",
        ),
        (
            r#""issuer": {"#,
            r#""userValidationRules": [{"expression": "true"}], "issuer": {"#,
            "jwt[0].userValidationRules: Forbidden: CEL expressions",
        ),
        (r#""jwt""#, r#""anonymous": {"enabled": true}, "jwt""#, "anonymous.enabled: Forbidden"),
        ("config.k8s.io/v1", "config.k8s.io/v2", "expected apiserver.config.k8s.io/v1"),
        (r#""jwt""#, r#""jwts": [], "jwt""#, "jwts"),
    ];
    for (from, to, expected) in table {
        let refused = AuthenticationConfiguration::parse(&changed(from, to), &["https://accounts".to_owned()]);
        let problem = refused.map(|_| ()).unwrap_err().to_string();
        assert!(problem.contains(expected), "{from} -> {to}: {problem}");
    }
}

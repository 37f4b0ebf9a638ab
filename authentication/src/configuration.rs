//! The file of `--authentication-config`: an AuthenticationConfiguration of apiserver.config.k8s.io/v1, validated with
//! kube-apiserver's rules and messages (apiserver `pkg/apis/apiserver/validation`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde::Deserialize;

/// The error message for CEL expressions. It also names the alternatives to CEL.
const NO_EXPRESSIONS: &str = "CEL expressions are not supported; map a claim, or have the issuer compute one";

/// The validated contents of the file of `--authentication-config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticationConfiguration {
    /// The issuers of JSON Web Tokens. Each issuer has a different URL.
    pub jwt: Vec<JwtAuthenticator>,
}

/// An issuer of JSON Web Tokens, and the mapping of its claims to a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtAuthenticator {
    /// The exact `iss` claim of the issuer's tokens.
    pub issuer_url: String,
    /// The URL of the issuer's OpenID discovery document.
    pub discovery_url: String,
    /// PEM certificates of the authorities that may sign the certificate of the issuer's server. `None` selects the
    /// authorities of the operating system.
    pub certificate_authority: Option<String>,
    /// The accepted audiences: `aud` must contain at least one of them.
    pub audiences: Vec<String>,
    /// The claims that a token must contain, each with exactly this value.
    pub required_claims: BTreeMap<String, String>,
    /// The claim that becomes the user's name.
    pub username: ClaimMapping,
    /// The claim that becomes the user's groups.
    pub groups: Option<ClaimMapping>,
    /// The claim that becomes the user's uid.
    pub uid: Option<String>,
}

/// A claim of a token, and the prefix that is added to each of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimMapping {
    /// The name of the claim.
    pub claim: String,
    /// The prefix for each value; may be empty.
    pub prefix: String,
}

/// All problems of a configuration file, one per line: `FIELD: PROBLEM`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct InvalidConfiguration(pub Vec<String>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    #[serde(default)]
    jwt: Vec<Jwt>,
    anonymous: Option<Anonymous>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Anonymous {
    enabled: bool,
    #[serde(default)]
    conditions: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Jwt {
    issuer: Issuer,
    #[serde(default)]
    claim_validation_rules: Vec<ClaimRule>,
    claim_mappings: Mappings,
    #[serde(default)]
    user_validation_rules: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[derive(Default)]
struct Issuer {
    url: String,
    #[serde(rename = "discoveryURL")]
    discovery_url: String,
    certificate_authority: String,
    audiences: Vec<String>,
    audience_match_policy: String,
    egress_selector_type: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct ClaimRule {
    claim: String,
    required_value: String,
    expression: String,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Mappings {
    username: Mapping,
    groups: Mapping,
    uid: Mapping,
    extra: Vec<serde_json::Value>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Mapping {
    claim: String,
    prefix: Option<String>,
    expression: String,
}

/// Collects the problems of a configuration file. Their format is that of kube-apiserver's messages (apimachinery
/// `field.Error`).
#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn required(&mut self, field: impl Display, detail: &str) {
        let colon = if detail.is_empty() { "" } else { ": " };
        self.0.push(format!("{field}: Required value{colon}{detail}"));
    }

    fn invalid(&mut self, field: impl Display, value: &str, detail: &str) {
        self.0.push(format!("{field}: Invalid value: {value:?}: {detail}"));
    }

    fn duplicate(&mut self, field: impl Display, value: &str) {
        self.0.push(format!("{field}: Duplicate value: {value:?}"));
    }

    fn forbidden(&mut self, field: impl Display, detail: &str) {
        self.0.push(format!("{field}: Forbidden: {detail}"));
    }
}

impl AuthenticationConfiguration {
    /// Parses and validates a configuration file in YAML or JSON. An issuer in `disallowed` is rejected, because a
    /// different authenticator already verifies the tokens of this issuer: the tokens of ServiceAccounts.
    ///
    /// # Errors
    /// [`InvalidConfiguration`] with all problems. Unknown fields, CEL expressions and settings for anonymous users are
    /// errors.
    pub fn parse(text: &str, disallowed: &[String]) -> Result<Self, InvalidConfiguration> {
        let file: File = serde_saphyr::from_str(text).map_err(|error| InvalidConfiguration(vec![error.to_string()]))?;
        let mut problems = Problems::default();
        if file.api_version != "apiserver.config.k8s.io/v1" || file.kind != "AuthenticationConfiguration" {
            problems.invalid(
                "apiVersion",
                &format!("{}, kind={}", file.api_version, file.kind),
                "expected apiserver.config.k8s.io/v1, kind=AuthenticationConfiguration",
            );
        }
        if let Some(anonymous) = &file.anonymous {
            if anonymous.enabled {
                problems.forbidden("anonymous.enabled", "Tributary does not support anonymous users");
            } else if !anonymous.conditions.is_empty() {
                let detail = "enabled should be set to true when conditions are defined";
                problems.invalid("anonymous.conditions", "", detail);
            }
        }
        let (mut urls, mut discovery_urls) = (BTreeSet::new(), BTreeSet::new());
        for (at, jwt) in file.jwt.iter().enumerate() {
            let field = format!("jwt[{at}]");
            validate(jwt, &field, disallowed, &mut problems);
            if !urls.insert(&jwt.issuer.url) {
                problems.duplicate(format_args!("{field}.issuer.url"), &jwt.issuer.url);
            }
            let discovery = &jwt.issuer.discovery_url;
            if !discovery.is_empty() && !discovery_urls.insert(discovery) {
                problems.duplicate(format_args!("{field}.issuer.discoveryURL"), discovery);
            }
        }
        if !problems.0.is_empty() {
            return Err(InvalidConfiguration(problems.0));
        }
        Ok(Self { jwt: file.jwt.into_iter().map(JwtAuthenticator::from).collect() })
    }
}

impl From<Jwt> for JwtAuthenticator {
    fn from(jwt: Jwt) -> Self {
        let Issuer { url, discovery_url, certificate_authority, audiences, .. } = jwt.issuer;
        let non_empty = |text: String| Some(text).filter(|text| !text.is_empty());
        let mapping =
            |mapping: Mapping| ClaimMapping { claim: mapping.claim, prefix: mapping.prefix.unwrap_or_default() };
        let well_known = format!("{}/.well-known/openid-configuration", url.strip_suffix('/').unwrap_or(&url));
        Self {
            issuer_url: url,
            discovery_url: non_empty(discovery_url).unwrap_or(well_known),
            certificate_authority: non_empty(certificate_authority),
            audiences,
            required_claims: jwt
                .claim_validation_rules
                .into_iter()
                .map(|rule| (rule.claim, rule.required_value))
                .collect(),
            username: mapping(jwt.claim_mappings.username),
            groups: Some(mapping(jwt.claim_mappings.groups)).filter(|groups| !groups.claim.is_empty()),
            uid: non_empty(jwt.claim_mappings.uid.claim),
        }
    }
}

fn validate(jwt: &Jwt, field: &str, disallowed: &[String], problems: &mut Problems) {
    validate_issuer(&jwt.issuer, &format!("{field}.issuer"), disallowed, problems);
    let mut claims = BTreeSet::new();
    for (at, rule) in jwt.claim_validation_rules.iter().enumerate() {
        validate_rule(rule, &format!("{field}.claimValidationRules[{at}]"), problems);
        if !rule.claim.is_empty() && !claims.insert(&rule.claim) {
            problems.duplicate(format_args!("{field}.claimValidationRules[{at}].claim"), &rule.claim);
        }
    }
    let mappings = &jwt.claim_mappings;
    validate_mapping(&mappings.username, &format!("{field}.claimMappings.username"), true, problems);
    validate_mapping(&mappings.groups, &format!("{field}.claimMappings.groups"), false, problems);
    let uid = &mappings.uid;
    if !uid.expression.is_empty() {
        problems.invalid(format_args!("{field}.claimMappings.uid.expression"), &uid.expression, NO_EXPRESSIONS);
    }
    if uid.prefix.is_some() {
        problems.forbidden(format_args!("{field}.claimMappings.uid.prefix"), "unknown field");
    }
    if !mappings.extra.is_empty() {
        problems.forbidden(format_args!("{field}.claimMappings.extra"), NO_EXPRESSIONS);
    }
    if !jwt.user_validation_rules.is_empty() {
        problems.forbidden(format_args!("{field}.userValidationRules"), NO_EXPRESSIONS);
    }
}

fn validate_issuer(issuer: &Issuer, field: &str, disallowed: &[String], problems: &mut Problems) {
    if issuer.url.is_empty() {
        problems.required(format_args!("{field}.url"), "");
    } else {
        if disallowed.contains(&issuer.url) {
            let detail = format!("URL must not overlap with disallowed issuers: {disallowed:?}");
            problems.invalid(format_args!("{field}.url"), &issuer.url, &detail);
        }
        validate_url(&issuer.url, &format!("{field}.url"), problems);
    }
    if !issuer.discovery_url.is_empty() {
        let field = format!("{field}.discoveryURL");
        if !issuer.url.is_empty() && issuer.url.trim_end_matches('/') == issuer.discovery_url.trim_end_matches('/') {
            problems.invalid(&field, &issuer.discovery_url, "discoveryURL must be different from URL");
        }
        validate_url(&issuer.discovery_url, &field, problems);
    }
    validate_audiences(issuer, field, problems);
    if !issuer.certificate_authority.is_empty() {
        let mut found = CertificateDer::pem_slice_iter(issuer.certificate_authority.as_bytes()).peekable();
        if found.peek().is_none() || found.any(|certificate| certificate.is_err()) {
            // The first part of the message is kube-apiserver's. The second part names the usual mistake: a file name
            // instead of PEM text.
            let detail = "data does not contain any valid RSA or ECDSA certificates; the field must have the PEM text \
                          itself, not the name of a file";
            problems.invalid(format_args!("{field}.certificateAuthority"), "<omitted>", detail);
        }
    }
    if !issuer.egress_selector_type.is_empty() {
        problems.forbidden(format_args!("{field}.egressSelectorType"), "Tributary has no egress selectors");
    }
}

fn validate_url(url: &str, field: &str, problems: &mut Problems) {
    let (before_fragment, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (address, query) = before_fragment.split_once('?').unwrap_or((before_fragment, ""));
    let Ok(parsed) = address.parse::<http::Uri>() else {
        return problems.invalid(field, url, "not a URL");
    };
    if parsed.scheme_str() != Some("https") {
        problems.invalid(field, url, "URL scheme must be https");
    }
    if parsed.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        problems.invalid(field, url, "URL must not contain a username or password");
    }
    if !query.is_empty() {
        problems.invalid(field, url, "URL must not contain a query");
    }
    if !fragment.is_empty() {
        problems.invalid(field, url, "URL must not contain a fragment");
    }
}

fn validate_audiences(issuer: &Issuer, field: &str, problems: &mut Problems) {
    let audiences = format!("{field}.audiences");
    if issuer.audiences.is_empty() {
        return problems.required(&audiences, &format!("at least one {audiences} is required"));
    }
    let mut seen = BTreeSet::new();
    for (at, audience) in issuer.audiences.iter().enumerate() {
        if audience.is_empty() {
            problems.required(format_args!("{audiences}[{at}]"), "");
        }
        if !seen.insert(audience) {
            problems.duplicate(format_args!("{audiences}[{at}]"), audience);
        }
    }
    let (field, policy) = (format!("{field}.audienceMatchPolicy"), issuer.audience_match_policy.as_str());
    if issuer.audiences.len() > 1 && policy != "MatchAny" {
        problems.invalid(&field, policy, "audienceMatchPolicy must be MatchAny for multiple audiences");
    }
    if issuer.audiences.len() == 1 && !matches!(policy, "" | "MatchAny") {
        problems.invalid(&field, policy, "audienceMatchPolicy must be empty or MatchAny for single audience");
    }
}

fn validate_rule(rule: &ClaimRule, field: &str, problems: &mut Problems) {
    match (rule.claim.is_empty(), rule.expression.is_empty()) {
        (false, false) => problems.invalid(field, &rule.claim, "claim and expression can't both be set"),
        (true, true) => problems.required(field, "claim or expression is required"),
        (false, true) if !rule.message.is_empty() => {
            problems.invalid(format_args!("{field}.message"), &rule.message, "may not be specified when claim is set");
        }
        (false, true) => {}
        (true, false) => {
            problems.invalid(format_args!("{field}.expression"), &rule.expression, NO_EXPRESSIONS);
        }
    }
}

fn validate_mapping(mapping: &Mapping, field: &str, required: bool, problems: &mut Problems) {
    match (mapping.claim.is_empty(), mapping.expression.is_empty()) {
        (false, false) => problems.invalid(field, "", "claim and expression can't both be set"),
        (true, true) if required => problems.required(field, "claim or expression is required"),
        (true, true) => {}
        (true, false) => {
            problems.invalid(format_args!("{field}.expression"), &mapping.expression, NO_EXPRESSIONS);
        }
        (false, true) if mapping.prefix.is_none() => problems.required(
            format_args!("{field}.prefix"),
            "prefix is required when claim is set. It can be set to an empty string to disable prefixing",
        ),
        (false, true) => {}
    }
}

#[cfg(test)]
mod tests;

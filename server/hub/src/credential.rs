//! Credentials of members from Secrets of the hub. Without I/O.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use serde::Deserialize;
use tributary_apimachinery::{Snapshot, without_brackets};
use tributary_crds::{Credentials, SecretReference, SecretText, UpstreamCluster, UpstreamClusterSpec};

use crate::ConditionState;
use crate::in_force::ResolvedSecret;

/// The annotation of a Secret with the name of the only member that the credential is for. Without it, a user who may
/// create UpstreamClusters could send a foreign token to a server of their own.
pub const CREDENTIAL_OF: &str = "tributary.dev/credential-of";

/// Annotation of a Secret. Lists the only hosts to which Tributary may send the credential, separated by commas.
pub const CREDENTIAL_HOSTS: &str = "tributary.dev/hosts";

/// Maximum size of a Secret's value in bytes. 256 KiB: a bundle with a hundred authorities.
const VALUE_BYTES_MAX: usize = 256 << 10;

/// The default keys of a Secret: those of `kubernetes.io/tls`, and `token`.
const TOKEN: &str = "token";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITIES: &str = "ca.crt";

/// The reason why a Secret is not used for a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnusableSecret {
    /// The state of the member's condition `ResolvedRefs`.
    pub(crate) state: ConditionState,
    /// Whether the member may continue with the credentials that it has. False if the Secret's owner refuses the
    /// credential to the member.
    pub(crate) keeps_earlier: bool,
}

impl UnusableSecret {
    fn missing(reason: &str, message: String) -> Self {
        Self { state: ConditionState::failed(reason, message), keeps_earlier: true }
    }

    fn forbidden(reason: &str, message: String) -> Self {
        Self { state: ConditionState::failed(reason, message), keeps_earlier: false }
    }
}

#[derive(Deserialize)]
struct Secret {
    metadata: SecretMetadata,
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct SecretMetadata {
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

/// Returns the values of the member's Secret, or without `secretRef` those of its spec.
///
/// # Errors
/// [`UnusableSecret`].
pub(crate) fn resolve_secret(
    cluster: &UpstreamCluster,
    secrets: Option<&Snapshot>,
    namespace: &str,
) -> Result<ResolvedSecret, UnusableSecret> {
    let spec = &cluster.spec;
    let Some(reference) = &spec.secret_ref else {
        return Ok(ResolvedSecret { credentials: spec.credentials.clone(), ca_data: spec.ca_data.clone() });
    };
    let name = &reference.name;
    let Some(secrets) = secrets else {
        let message = format!("Secret {name}: Tributary has not read the Secrets of namespace {namespace} yet.");
        return Err(UnusableSecret::missing("SecretsUnknown", message));
    };
    let Some(secret) = secrets.get(&format!("{namespace}/{name}")) else {
        let message = format!(
            "Secret {name} does not exist in namespace {namespace}, or lacks the label tributary.dev/credential=true. \
             Create it, or correct spec.secretRef.name."
        );
        return Err(UnusableSecret::missing("SecretNotFound", message));
    };
    let Ok(secret) = serde_json::from_slice::<Secret>(secret.json()) else {
        return Err(UnusableSecret::missing("SecretUnreadable", format!("Secret {name} is not a valid Secret.")));
    };
    check_permission(cluster, name, secret.metadata.annotations.unwrap_or_default())?;
    apply(spec, reference, &secret.data.unwrap_or_default())
}

/// Checks that the annotations of a Secret allow the member to use its credential.
fn check_permission(
    cluster: &UpstreamCluster,
    secret: &str,
    annotations: BTreeMap<String, String>,
) -> Result<(), UnusableSecret> {
    let member = cluster.metadata.name.as_deref().unwrap_or_default();
    match annotations.get(CREDENTIAL_OF) {
        Some(owner) if owner == member => {}
        Some(owner) => {
            let message = format!(
                "Secret {secret} is the credential of UpstreamCluster {owner:?} by its annotation {CREDENTIAL_OF}; \
                 Tributary does not send it to {member}. Use a different Secret, or change the annotation."
            );
            return Err(UnusableSecret::forbidden("SecretOfOtherCluster", message));
        }
        None => {
            let message = format!(
                "Secret {secret} lacks the annotation {CREDENTIAL_OF}: {member}, so Tributary does not send it to \
                 {member}. Add the annotation."
            );
            return Err(UnusableSecret::forbidden("SecretWithoutCluster", message));
        }
    }
    let Some(allowed) = annotations.get(CREDENTIAL_HOSTS) else { return Ok(()) };
    let allowed: Vec<&str> = allowed.split(',').map(str::trim).collect();
    let spec = &cluster.spec;
    // With authorities of their own and a proxy, a user could impersonate an allowed host and receive the credential.
    if spec.ca_data.is_some() || spec.insecure_skip_verify {
        let message = format!(
            "Secret {secret} allows only some hosts by its annotation {CREDENTIAL_HOSTS}, so only its key \
             {AUTHORITIES:?} may have the authorities of these hosts; Tributary does not send the credential. Remove \
             spec.caData and spec.insecureSkipVerify."
        );
        return Err(UnusableSecret::forbidden("AuthoritiesNotAllowed", message));
    }
    let hosts = spec.endpoints.iter().chain(&spec.proxy_url).map(|url| endpoint_host(url));
    match hosts.into_iter().find(|host| !allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(host))) {
        None => Ok(()),
        Some(host) => {
            let message = format!(
                "Secret {secret} allows only the hosts {} by its annotation {CREDENTIAL_HOSTS}, and the object leads to \
                 {host:?}; Tributary does not send the credential. Correct spec.endpoints and spec.proxyURL, or add the \
                 host to the annotation.",
                allowed.join(", ")
            );
            Err(UnusableSecret::forbidden("HostNotAllowed", message))
        }
    }
}

/// Returns the host of an endpoint, without the brackets of an IPv6 address; the whole text if it is not a URL.
pub(crate) fn endpoint_host(endpoint: &str) -> String {
    let parsed: Option<Uri> = endpoint.parse().ok();
    let host = parsed.as_ref().and_then(Uri::host).unwrap_or(endpoint);
    without_brackets(host).to_owned()
}

fn apply(
    spec: &UpstreamClusterSpec,
    reference: &SecretReference,
    data: &BTreeMap<String, String>,
) -> Result<ResolvedSecret, UnusableSecret> {
    let has_named = [&reference.token_key, &reference.certificate_key, &reference.key_key, &reference.ca_key]
        .into_iter()
        .any(Option::is_some);
    let value = |named: &Option<String>, default: &str| -> Result<Option<&str>, UnusableSecret> {
        let key = match named {
            Some(key) => key,
            None if has_named => return Ok(None),
            None => default,
        };
        match data.get(key) {
            Some(value) if value.len() > VALUE_BYTES_MAX / 3 * 4 => Err(UnusableSecret::missing(
                "ValueTooLarge",
                format!("Key {key:?} of Secret {} has more than {} KiB.", reference.name, VALUE_BYTES_MAX >> 10),
            )),
            Some(value) => Ok(Some(value)),
            None if named.is_some() => Err(UnusableSecret::missing(
                "KeyNotFound",
                format!("Secret {} has no key {key:?}. Add the key, or correct spec.secretRef.", reference.name),
            )),
            None => Ok(None),
        }
    };
    let token = value(&reference.token_key, TOKEN)?;
    let certificate = value(&reference.certificate_key, CERTIFICATE)?;
    let key = value(&reference.key_key, KEY)?;
    let authorities = value(&reference.ca_key, AUTHORITIES)?;
    let credentials = match (token, certificate, key) {
        (Some(token), ..) => {
            Credentials { token: Some(decode_token(&reference.name, token)?), ..Credentials::default() }
        }
        (None, Some(certificate), Some(key)) => Credentials {
            client_certificate_data: Some(certificate.to_owned()),
            client_key_data: Some(SecretText::new(key)),
            ..Credentials::default()
        },
        (None, None, None) if authorities.is_some() && has_named => Credentials::default(),
        _ => {
            let message = format!(
                "Secret {} has neither the key {TOKEN:?} nor the keys {CERTIFICATE:?} and {KEY:?}. Add a credential, or \
                 name its keys in spec.secretRef.",
                reference.name
            );
            return Err(UnusableSecret::missing("KeyNotFound", message));
        }
    };
    // `spec.caData` has priority over the Secret's authorities, because its author wrote it for this member.
    let ca_data = spec.ca_data.clone().or(authorities.filter(|_| !spec.insecure_skip_verify).map(str::to_owned));
    if ca_data.is_none() && !spec.insecure_skip_verify {
        let message = format!(
            "Secret {} has no key {AUTHORITIES:?}, and the object has no spec.caData, so the servers cannot be verified. \
             Add one of them.",
            reference.name
        );
        return Err(UnusableSecret::missing("KeyNotFound", message));
    }
    Ok(ResolvedSecret { credentials: Some(credentials), ca_data })
}

/// Decodes a token and removes surrounding white space, as for token files.
fn decode_token(secret: &str, encoded: &str) -> Result<SecretText, UnusableSecret> {
    let decoded = STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let token = decoded.as_deref().map(str::trim).filter(|token| !token.is_empty());
    token.map(SecretText::new).ok_or_else(|| {
        UnusableSecret::missing("InvalidToken", format!("The token in Secret {secret} is empty or is not text."))
    })
}

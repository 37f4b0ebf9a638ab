//! Checks that an item may use the Secret that it names. Without this check, a user with the right to create items
//! could send the credentials of a different item to a server of their own.

use tributary_apimachinery::ClusterName;

use crate::SourceRefusal;
use crate::annotations::{CREDENTIAL_HOSTS, CREDENTIAL_OF};
use crate::object_metadata::ObjectMetadata;
use crate::secret::Secret;
use crate::url::host_of;

/// The item that names a Secret.
pub(crate) struct SecretUser<'a> {
    /// The group of the item's kind.
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) metadata: &'a ObjectMetadata,
    pub(crate) member: &'a ClusterName,
}

/// Checks that a Secret belongs to an item: an ownerReference names the item, or the annotation
/// `tributary.dev/credential-of` names its member. Callers check this before they read any key of the Secret.
pub(crate) fn check_owner(secret: &Secret, user: &SecretUser<'_>) -> Result<(), SourceRefusal> {
    let SecretUser { kind, member, .. } = user;
    let (name, owner) = (&secret.metadata.name, &user.metadata.name);
    let is_annotated = secret.metadata.annotations.get(CREDENTIAL_OF).is_some_and(|of| of == member.as_str());
    if is_annotated || is_owned(&secret.metadata, user) {
        return Ok(());
    }
    let message = format!(
        "Secret {name} has no ownerReference to {kind} {owner}, and no annotation {CREDENTIAL_OF}: {member}, so \
         Tributary does not send the credential. Add one of them, or name a different Secret."
    );
    Err(SourceRefusal::new("SecretOfOtherCluster", message))
}

fn is_owned(secret: &ObjectMetadata, user: &SecretUser<'_>) -> bool {
    secret.owner_references.iter().any(|owner| {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let is_kind = group == user.group && owner.kind == user.kind;
        // An object that was deleted and made anew has a different uid.
        is_kind && owner.name == user.metadata.name && owner.uid == user.metadata.uid && !owner.uid.is_empty()
    })
}

/// Checks that the annotation `tributary.dev/hosts` allows the servers of an item: its endpoint and its proxy.
pub(crate) fn check_hosts(secret: &Secret, urls: &[&str], is_insecure: bool) -> Result<(), SourceRefusal> {
    let name = &secret.metadata.name;
    let Some(allowed) = secret.metadata.annotations.get(CREDENTIAL_HOSTS) else { return Ok(()) };
    if is_insecure {
        let message = format!(
            "Secret {name} allows only some hosts by its annotation {CREDENTIAL_HOSTS}, which needs verified servers. \
             Give certificate authorities."
        );
        return Err(SourceRefusal::new("HostNotAllowed", message));
    }
    let is_allowed = |host: &str| allowed.split(',').any(|allowed| allowed.trim().eq_ignore_ascii_case(host));
    let hosts = urls.iter().map(|url| host_of(url).unwrap_or_default());
    match hosts.into_iter().find(|host| !is_allowed(host)) {
        None => Ok(()),
        Some(host) => {
            let message = format!(
                "Secret {name} allows only the hosts {allowed} by its annotation {CREDENTIAL_HOSTS}, and the item leads \
                 to {host:?}. Correct the address, or add the host to the annotation."
            );
            Err(SourceRefusal::new("HostNotAllowed", message))
        }
    }
}

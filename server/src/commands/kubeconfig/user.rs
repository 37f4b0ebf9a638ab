//! `tributary kubeconfig user`: creates a kubeconfig for a user of a shared endpoint, with a certificate that an
//! authority for client certificates signs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::json;
use tributary_apimachinery::{AUTHENTICATED_GROUP, ClusterName};
use tributary_authentication::{Authority, MemberRules, UserInfo, identity_for_other_members};
use tributary_sources::kubeconfig::write::{ALL, ClientContext, ClientKubeconfig, Owner, check_replaceable};

use crate::cli::UserArguments;
use crate::credentials::certificates::now;
use crate::credentials::user_certificate::{AuthorityKey, ClientAuthority, UserCertificate};
use crate::exit::Failure;
use crate::output::print;

/// Creates the kubeconfig, and prints its validity.
///
/// # Errors
/// A usage failure that names the flag to correct, and a runtime failure if the file cannot be written.
pub fn user(arguments: &UserArguments) -> Result<(), Failure> {
    check_identity(&arguments.name, &arguments.groups).map_err(Failure::Usage)?;
    let path = choose_path(arguments).map_err(Failure::Usage)?;
    let owner = Owner { user: &arguments.name, flag: "--output" };
    check_replaceable(&path, owner)?;
    let authority_pem = read_server_authority(arguments.certificate_authority.as_deref()).map_err(Failure::Usage)?;
    let made = issue_certificate(arguments).map_err(Failure::Usage)?;
    let credential = json!({
        "client-certificate-data": STANDARD.encode(&made.chain_pem),
        "client-key-data": STANDARD.encode(&made.key_pem),
    });
    let authority_pem = authority_pem.as_deref();
    let context = |cluster: &ClusterName| ClientContext { cluster: cluster.clone(), namespace: None };
    let clusters: Vec<_> = arguments.clusters.iter().map(context).collect();
    let (url, clusters) = (&*arguments.server, &*clusters);
    let written = ClientKubeconfig { url, authority_pem, owner, credential, clusters }.write(&path);
    written?;
    print(&describe(arguments, &path, &made));
    Ok(())
}

/// Checks that Tributary sends the name and each group to clusters. A name or group that Tributary does not send to
/// clusters grants no rights there.
fn check_identity(name: &str, groups: &[String]) -> anyhow::Result<()> {
    for (what, text) in std::iter::once(("NAME", name)).chain(groups.iter().map(|group| ("--group", &**group))) {
        if text.chars().any(char::is_control) {
            bail!("{what} {text:?}: has a control character; remove it");
        }
    }
    let user = UserInfo { username: name.to_owned(), groups: groups.to_vec(), ..UserInfo::default() };
    let authority = Authority::ClientCertificates;
    let told = identity_for_other_members(&user, &authority, &MemberRules::default()).map_err(|why| {
        anyhow::anyhow!("NAME {name:?}: {why}; choose a name that begins neither with system: nor with cluster:hub:")
    })?;
    if let Some(group) = groups.iter().find(|group| !told.groups.contains(group)) {
        bail!(
            "--group {group:?}: this group is never sent to a cluster, so it gives no rights; choose a group that \
             begins neither with system: nor with cluster:hub:"
        );
    }
    if groups.iter().any(|group| group == AUTHENTICATED_GROUP) {
        bail!("--group {AUTHENTICATED_GROUP}: every user has this group already; remove it");
    }
    Ok(())
}

/// Returns the path of the kubeconfig, from the flag or the user's name.
fn choose_path(arguments: &UserArguments) -> anyhow::Result<PathBuf> {
    let name = &arguments.name;
    let is_plain = |c: char| c.is_alphanumeric() || "-_.@+".contains(c);
    match &arguments.output {
        Some(path) => Ok(path.clone()),
        None if name.chars().all(is_plain) && !name.starts_with(['.', '-']) => Ok(format!("{name}.kubeconfig").into()),
        None => bail!("user {name:?} gives no name for a file; name one by --output"),
    }
}

/// Reads the certificate authority of the endpoint as PEM. Returns `None` for the system's authorities.
fn read_server_authority(path: Option<&Path>) -> anyhow::Result<Option<String>> {
    let Some(path) = path else { return Ok(None) };
    let text = read_file(path, "--certificate-authority")?;
    if CertificateDer::pem_slice_iter(&text).flatten().next().is_none() {
        bail!("--certificate-authority {}: the file has no certificate; give PEM", path.display());
    }
    Ok(Some(String::from_utf8(text).with_context(|| format!("--certificate-authority {}", path.display()))?))
}

fn issue_certificate(arguments: &UserArguments) -> anyhow::Result<UserCertificate> {
    let UserArguments { client_ca, client_ca_key, name, groups, .. } = arguments;
    let (of_ca, of_key) =
        (format!("--client-ca {}", client_ca.display()), format!("--client-ca-key {}", client_ca_key.display()));
    let bundle = read_file(client_ca, "--client-ca")?;
    let key = AuthorityKey::read(&read_file(client_ca_key, "--client-ca-key")?).with_context(|| of_key.clone())?;
    let authority = ClientAuthority::new(&bundle, key);
    let authority = authority.map_err(|error| {
        let at = if error.is_about_key() { &of_key } else { &of_ca };
        anyhow::Error::new(error).context(at.clone())
    })?;
    let user = UserInfo { username: name.clone(), groups: groups.clone(), ..UserInfo::default() };
    authority.issue(&user, now(), arguments.expires).context(of_ca)
}

fn read_file(path: &Path, flag: &str) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("{flag} {} cannot be read", path.display()))
}

/// Describes the new kubeconfig to the user.
fn describe(arguments: &UserArguments, path: &Path, made: &UserCertificate) -> String {
    let path = path.display();
    let groups = match &arguments.groups[..] {
        [] => "no groups".to_owned(),
        groups => format!("groups {}", groups.join(", ")),
    };
    let contexts: Vec<_> = std::iter::once(ALL).chain(arguments.clusters.iter().map(|name| name.as_str())).collect();
    let validity = format_duration(made.end.saturating_sub(now()));
    let why = if made.is_shortened { ", when its authority ends" } else { "" };
    let end = i64::try_from(made.end.as_secs()).ok().and_then(|end| Timestamp::from_second(end).ok());
    let end = end.map(|end| format!(", until {end}")).unwrap_or_default();
    format!(
        "Wrote {path}: user {:?}, {groups}; contexts {}, at {}.\nIt is valid for {validity}{end}{why}. It cannot be \
         revoked earlier; serve --denied-users-file refuses a user.\nTry it: kubectl --kubeconfig {path} auth whoami\n",
        arguments.name,
        contexts.join(", "),
        arguments.server,
    )
}

/// Formats a duration in minutes, hours or days: the largest unit with a number of at least two.
fn format_duration(duration: Duration) -> String {
    // The certificate was created a moment ago, so the remaining time is rounded to whole minutes.
    let minutes = (duration.as_secs() + 30) / 60;
    match minutes {
        0..120 => format!("{minutes} minutes"),
        120..2_880 => format!("{} hours", minutes / 60),
        _ => format!("{} days", minutes / (24 * 60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_user_and_group_names_are_refused() {
        for (name, groups, expected) in [
            ("ann", &["dev", "ops: all"][..], ""),
            ("ann@example.com", &[], ""),
            ("ann", &["system:masters"], "--group \"system:masters\": this group is never sent to a cluster"),
            ("ann", &["dev", "system:nodes"], "--group \"system:nodes\""),
            ("ann", &["system:serviceaccounts"], "--group \"system:serviceaccounts\""),
            ("ann", &["system:authenticated"], "every user has this group"),
            ("ann", &[""], "--group \"\""),
            ("ann", &["a\nb"], "control character"),
            ("", &[], "NAME \"\": the user has no name"),
            ("a\u{0}", &[], "control character"),
            ("system:admin", &[], "NAME \"system:admin\": user"),
            ("system:anonymous", &[], "is never sent to a cluster"),
            ("system:node:n1", &[], "is never sent to a cluster"),
            ("system:serviceaccount:a:b", &[], "has a system name"),
        ] {
            let groups: Vec<_> = groups.iter().map(|&group| group.to_owned()).collect();
            let said = check_identity(name, &groups).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{name} {groups:?}: {said}");
        }
    }

    #[test]
    fn printed_duration_has_one_unit() {
        let minutes = |minutes: u64| format_duration(Duration::from_secs(minutes * 60 - 1));
        assert_eq!(minutes(10), "10 minutes");
        assert_eq!(minutes(120), "2 hours");
        assert_eq!(minutes(47 * 60), "47 hours");
        assert_eq!(minutes(720 * 60), "30 days");
    }
}

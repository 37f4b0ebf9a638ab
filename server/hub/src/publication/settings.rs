//! The settings of the publication, from the flags of the process.

use std::path::PathBuf;
use std::str::FromStr;

use http::Uri;
use tributary_apimachinery::{Door, is_dns_subdomain, is_namespace_name};

/// The published kinds and their content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicationSettings {
    /// The namespace of ClusterProfiles; `None` publishes none.
    pub cluster_profiles: Option<String>,
    /// The namespace of kubeconfig Secrets; `None` publishes none.
    pub kubeconfig_secrets: Option<String>,
    /// The namespace of Argo CD Secrets; `None` publishes none.
    pub argo_cd_secrets: Option<String>,
    /// The address for clients.
    pub address: PublishedAddress,
    /// The file with the authorities of Tributary's serving certificate; `None` for `authorities`.
    pub authorities_file: Option<PathBuf>,
    /// The authorities of a generated serving certificate in PEM; `None` for the authorities of the client's system.
    pub authorities: Option<String>,
    /// The ServiceAccount of the hub whose token the Secrets contain. Required for Secrets.
    pub service_account: Option<PublishedServiceAccount>,
    /// The audiences of the token. If empty, the token is for the hub's kube-apiserver.
    pub token_audiences: Vec<String>,
    /// The namespace of the Lease. It distinguishes this Tributary from others that use the same hub.
    pub instance: String,
}

/// The address by which clients reach the members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishedAddress {
    /// The URL without a path: of Tributary, or of the hub for [`Door::Aggregated`].
    pub origin: String,
    /// The door through which clients reach the members.
    pub door: Door,
}

/// The path of the aggregated API.
const AGGREGATED_API: &str = "/apis/aggregation.tributary.dev/v1alpha1";

impl PublishedAddress {
    /// Returns the URL of a member's own API.
    pub(super) fn server(&self, member: &str) -> String {
        format!("{}{}", self.origin, self.door.cluster_path(member))
    }
}

impl FromStr for PublishedAddress {
    type Err = &'static str;

    /// Parses `https://HOST[:PORT]`, or this text with the path of the aggregated API at its end.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "must be https://HOST[:PORT] of Tributary, or \
                            https://HOST[:PORT]/apis/aggregation.tributary.dev/v1alpha1 of the hub";
        let url: Uri = text.parse().map_err(|_| FORM)?;
        let authority = url.authority().filter(|authority| !authority.as_str().contains('@')).ok_or(FORM)?;
        if url.scheme_str() != Some("https") || url.query().is_some() {
            return Err(FORM);
        }
        let door = match url.path().trim_end_matches('/') {
            "" => Door::Direct,
            AGGREGATED_API => Door::Aggregated,
            _ => return Err(FORM),
        };
        Ok(Self { origin: format!("https://{authority}"), door })
    }
}

/// A ServiceAccount of the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedServiceAccount {
    /// The namespace of the ServiceAccount.
    pub namespace: String,
    /// The name of the ServiceAccount.
    pub name: String,
}

impl FromStr for PublishedServiceAccount {
    type Err = String;

    /// Parses `NAMESPACE/NAME`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/').filter(|(namespace, name)| is_namespace_name(namespace) && is_dns_subdomain(name)) {
            Some((namespace, name)) => Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() }),
            None => Err(format!("{text:?} is not NAMESPACE/NAME of a ServiceAccount; give both names")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_the_origin_of_tributary_or_the_aggregated_api_of_the_hub() {
        for (text, server) in [
            ("https://tributary:6443", "https://tributary:6443/clusters/eu"),
            ("https://tributary/", "https://tributary/clusters/eu"),
            (
                "https://[::1]:6443/apis/aggregation.tributary.dev/v1alpha1",
                "https://[::1]:6443/apis/aggregation.tributary.dev/v1alpha1/clusters/eu/proxy",
            ),
        ] {
            assert_eq!(text.parse::<PublishedAddress>().unwrap().server("eu"), server);
        }
        for text in ["tributary", "http://tributary", "https://ann@tributary", "https://t?x", "https://t/clusters", ""]
        {
            assert!(text.parse::<PublishedAddress>().unwrap_err().starts_with("must be https://HOST"), "{text}");
        }
    }

    #[test]
    fn service_account_is_a_namespace_and_a_name() {
        let account: PublishedServiceAccount = "fleet/reader.v1".parse().unwrap();
        assert_eq!((&*account.namespace, &*account.name), ("fleet", "reader.v1"));
        for text in ["reader", "/reader", "fleet/", "fleet/a/b", "fleet/A", "a.b/c", ""] {
            let error = text.parse::<PublishedServiceAccount>().unwrap_err();
            assert!(error.contains("is not NAMESPACE/NAME"), "{error}");
        }
    }
}

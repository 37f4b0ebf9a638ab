//! Members as foreign systems (cluster-gateway, Karmada) describe them, by their names in these systems.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tributary_apimachinery::{ClusterName, Door, ForeignDoors, ForeignSystem};
use tributary_authentication::IdentityPolicy;
use tributary_proxy::ClusterClient;

/// A member that an object of a foreign system describes, with the data that clients of the system's door can read. One
/// member can have several names, even in one system.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignMember {
    /// Foreign system that contains the object.
    pub system: ForeignSystem,
    /// Name of the member in the URL paths of the foreign system.
    pub name: String,
    /// The name of the member in Tributary.
    pub cluster: ClusterName,
    /// Policy that decides as which user the member sees the requests that address the member by this name.
    pub identity: IdentityPolicy,
    /// Whether the hub must also allow the requests inside the door, below this name.
    pub authorizes_inner: bool,
    /// The labels of the object in the foreign system.
    pub labels: BTreeMap<String, String>,
    /// The creation time of the object, in RFC 3339.
    pub created: String,
    /// Data that only cluster-gateway shows. `None` for other systems.
    pub gateway: Option<GatewayFacts>,
    /// The client with the credential of this name, if the cluster has a different member name with a credential of its
    /// own; `None` if requests with this name use the credential of the member.
    pub credential: Option<CredentialOfName>,
}

/// A client of a cluster with the credential that belongs to one of the cluster's names.
#[derive(Clone, Debug)]
pub struct CredentialOfName {
    /// The client.
    pub client: ClusterClient,
    /// Generation of the client. A different number means a new client.
    pub generation: u64,
}

impl PartialEq for CredentialOfName {
    fn eq(&self, other: &Self) -> bool {
        self.generation == other.generation
    }
}

impl ForeignMember {
    /// Makes a member whose name in the foreign system is its name in Tributary.
    pub fn with_own_name(system: ForeignSystem, name: &ClusterName) -> Self {
        Self {
            system,
            name: name.to_string(),
            cluster: name.clone(),
            identity: IdentityPolicy::default(),
            authorizes_inner: false,
            labels: BTreeMap::new(),
            created: String::new(),
            gateway: None,
            credential: None,
        }
    }
}

/// Data about a cluster that cluster-gateway shows. The data contains no credential.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewayFacts {
    /// Namespace of the cluster's Secret. The name of the Secret is the name of the cluster.
    pub namespace: String,
    /// Display name of the cluster.
    pub alias: Option<String>,
    /// `X509Certificate`, `ServiceAccountToken` or `Dynamic`.
    pub credential_type: String,
    /// The URL of the cluster.
    pub endpoint: String,
    /// Text of the Secret with the CA certificates of the cluster's servers, in PEM, as base64. The text may contain a
    /// private key by mistake, so responses must not contain it. `None` if the servers are not verified.
    pub ca_bundle: Option<String>,
    /// The URL of the proxy to the cluster.
    pub proxy_url: Option<String>,
}

impl GatewayFacts {
    /// Returns only the CA certificates of `ca_bundle` in PEM, as base64, without other parts of the text. `None` if
    /// the servers are not verified.
    pub fn authorities(&self) -> Option<String> {
        const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
        const END: &str = "-----END CERTIFICATE-----";
        let text = STANDARD.decode(self.ca_bundle.as_ref()?).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let mut shown = String::new();
        for part in text.split(BEGIN).skip(1) {
            // Omits a part without an end marker, because a private key in a different format could follow.
            let Some((certificate, _)) = part.split_once(END).filter(|(own, _)| !own.contains("-----")) else {
                continue;
            };
            shown.extend([BEGIN, certificate, END, "\n"]);
        }
        Some(STANDARD.encode(shown))
    }
}

/// Members by foreign system, and by their name in the system.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForeignMembers(BTreeMap<ForeignSystem, BTreeMap<String, Arc<ForeignMember>>>);

impl FromIterator<ForeignMember> for ForeignMembers {
    /// If several members of a system have the same name, keeps the first of them.
    fn from_iter<I: IntoIterator<Item = ForeignMember>>(members: I) -> Self {
        let mut all = Self::default();
        for member in members {
            let names = all.0.entry(member.system).or_default();
            names.entry(member.name.clone()).or_insert_with(|| Arc::new(member));
        }
        all
    }
}

impl ForeignMembers {
    /// Returns the member that a system knows by a name.
    pub fn find(&self, system: ForeignSystem, name: &str) -> Option<&Arc<ForeignMember>> {
        self.0.get(&system)?.get(name)
    }

    /// Returns the members of a system, in the order of their names.
    pub fn of_system(&self, system: ForeignSystem) -> impl Iterator<Item = &Arc<ForeignMember>> {
        self.0.get(&system).into_iter().flat_map(BTreeMap::values)
    }

    /// Replaces the paths of clusters in a message to a client of a door: the paths of a foreign system have the
    /// system's names, which can differ from Tributary's.
    pub fn replace_paths(&self, door: Door, message: String) -> String {
        const END: &str = "/proxy";
        let before = door.cluster_path("");
        let before = before.strip_suffix(END).filter(|before| message.contains(before));
        let (Some(system), Some(before)) = (door.foreign_system(), before) else { return message };
        let mut parts = message.split(before);
        let mut replaced = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find(END).unwrap_or_default();
            let name = part.get(..end).and_then(|cluster| self.name_of(system, cluster));
            replaced += before;
            replaced += name.unwrap_or(&part[..end]);
            replaced += &part[end..];
        }
        replaced
    }

    /// Returns the name of a cluster in a system: the cluster's own name if the system has it, else the first name. A
    /// name with its own credential is left out, because it can lead to a different server.
    fn name_of(&self, system: ForeignSystem, cluster: &str) -> Option<&str> {
        let leads_there =
            |member: &&Arc<ForeignMember>| member.cluster.as_str() == cluster && member.credential.is_none();
        let own = self.find(system, cluster).filter(leads_there);
        own.or_else(|| self.of_system(system).find(leads_there)).map(|member| member.name.as_str())
    }

    /// Returns the doors of these systems as open, with the members' names in each system.
    pub fn doors(&self, systems: impl IntoIterator<Item = ForeignSystem>) -> ForeignDoors {
        let mut doors = ForeignDoors::default();
        for system in systems {
            let names = self.of_system(system).map(|member| (member.name.clone(), member.cluster.clone()));
            doors.open(system, names.collect());
            for member in self.of_system(system).filter(|member| member.authorizes_inner) {
                doors.authorize_inner(system, member.name.clone());
            }
        }
        doors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_have_certificates_alone() {
        const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nY2E=\n-----END CERTIFICATE-----\n";
        const KEY: &str = "-----BEGIN PRIVATE KEY-----\na2V5\n-----END PRIVATE KEY-----\n";
        let cut = CERTIFICATE.replace("-----END CERTIFICATE-----", "");
        for (text, expected) in [
            (CERTIFICATE.to_owned(), CERTIFICATE.to_owned()),
            (format!("{CERTIFICATE}{KEY}{CERTIFICATE}"), CERTIFICATE.repeat(2)),
            (format!("{KEY}{CERTIFICATE}token"), CERTIFICATE.to_owned()),
            (format!("{cut}{KEY}{CERTIFICATE}"), CERTIFICATE.to_owned()),
            (KEY.to_owned(), String::new()),
        ] {
            let facts = GatewayFacts { ca_bundle: Some(STANDARD.encode(&text)), ..GatewayFacts::default() };
            assert_eq!(facts.authorities(), Some(STANDARD.encode(expected)), "{text}");
        }
        assert_eq!(GatewayFacts::default().authorities(), None);
    }

    #[test]
    fn first_member_with_a_name_keeps_the_name() {
        let member = |system, name: &str, cluster: &str| ForeignMember {
            name: name.to_owned(),
            ..ForeignMember::with_own_name(system, &ClusterName::new(cluster).unwrap())
        };
        let (gateway, karmada) = (ForeignSystem::ClusterGateway, ForeignSystem::Karmada);
        let members = [(gateway, "eu", "a"), (gateway, "eu", "b"), (karmada, "eu", "c"), (gateway, "eu-2", "a")];
        let members: ForeignMembers =
            members.into_iter().map(|(system, name, cluster)| member(system, name, cluster)).collect();
        let found = |system, name: &str| members.find(system, name).map(|member| member.cluster.as_str());
        assert_eq!(
            (found(gateway, "eu"), found(gateway, "eu-2"), found(karmada, "eu")),
            (Some("a"), Some("a"), Some("c"))
        );
        assert_eq!((found(karmada, "eu-2"), found(gateway, "EU")), (None, None));
        let doors = members.doors([gateway]);
        assert_eq!(doors.cluster(gateway, "eu").map(ClusterName::as_str), Some("a"));
        assert!(!doors.is_open(karmada) && doors.cluster(karmada, "eu").is_none());
    }
}

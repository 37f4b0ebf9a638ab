//! Attributes of a request for flow control, and the key of the account that counts the request.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;

use tributary_limiters::GroupedShareKey;

/// Creates hashes with a random seed. Without the seed, a client could choose a user name whose hash equals the hash of
/// a different user.
static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Prefix of built-in Kubernetes groups such as `system:authenticated`. These groups do not identify a team.
const SYSTEM_GROUPS: &str = "system:";

/// Attributes of a request for flow control. All fields are borrowed, so creation is cheap.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// The authenticator that authenticated the user. Equal user names of different authenticators belong to different
    /// users.
    pub verifier: &'a str,
    /// The user name that the authenticator reports.
    pub user: &'a str,
    /// The member whose TokenReview authenticated the user; `None` for a user from Tributary's configuration. Equal
    /// group names from different members are different groups.
    pub member: Option<&'a str>,
    /// Groups of the user, in any order.
    pub groups: &'a [String],
    /// Address of the client. Behind a load balancer, the address that the load balancer reports.
    pub client_address: Option<IpAddr>,
    /// RBAC verb of the request.
    pub verb: &'a str,
    /// The requested resource; `None` for a non-resource path.
    pub resource: Option<FlowResource<'a>>,
    /// Whether the request is long-running: a watch, exec, attach, port-forward, a followed log, or a request that the
    /// member forwards to a workload (`proxy`).
    pub is_long_running: bool,
    /// Number of slots or tokens that the request takes: 1, or more for an expensive request. A request wider than the
    /// limit takes the whole limit.
    pub width: u32,
    /// Flow of the request. A queue serves waiting requests of different flows alternately.
    pub flow: Flow,
}

/// The resource of a request. A subresource is treated as a separate resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowResource<'a> {
    /// API group, empty for the core group. The version is omitted, so that all versions of a resource share a limit.
    pub group: &'a str,
    /// Plural name of the resource.
    pub resource: &'a str,
    /// Name of the subresource, for example `status`.
    pub subresource: Option<&'a str>,
}

/// A flow: requests that a fair queue treats like the requests of one client. The value is a keyed hash of
/// kube-apiserver's flow distinguisher (KEP-1040). Several users may share a flow; the queue then serves these users
/// alternately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    flow_hash: u64,
    /// Hash of the user within the flow. Equal to `flow_hash` if the flow has only one user.
    user: u64,
}

impl Flow {
    /// Returns the flow of a single user.
    pub fn from_identity(user: &impl Hash) -> Self {
        Self::from_hash(HASHES.hash_one(user))
    }

    /// Returns the flow that all users with the identity `all` share, for a request of the user `user`.
    pub fn from_shared_identity(all: &impl Hash, user: &impl Hash) -> Self {
        Self { flow_hash: HASHES.hash_one(all), user: HASHES.hash_one((all, user)) }
    }

    pub(crate) fn from_hash(hash: u64) -> Self {
        Self { flow_hash: hash, user: hash }
    }

    pub(crate) fn flow_hash(self) -> u64 {
        self.flow_hash
    }

    /// Returns whether two requests belong to the same flow. Their users may differ.
    pub(crate) fn is_same_flow(self, other: Self) -> bool {
        self.flow_hash == other.flow_hash
    }

    /// Returns whether several users share the flow.
    pub(crate) fn is_shared(self) -> bool {
        self.flow_hash != self.user
    }
}

impl GroupedShareKey for Flow {
    fn group(self) -> Option<u64> {
        self.is_shared().then_some(self.flow_hash)
    }
}

/// A dimension of a limit. Each value of the dimension (for example each user) has a separate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dimension {
    /// The user, identified by authenticator and name.
    User,
    /// The user's first group in byte order, without groups that begin with `system:`. All users without such a group
    /// form one group. If a member's TokenReview reports a group, the group differs from an equally named group of a
    /// different member.
    Group,
    /// The client address. Only the first 64 bits of an IPv6 address are used, because one network usually owns all
    /// addresses that begin with these bits.
    ClientAddress,
    /// The verb of the request.
    Verb,
    /// API group, resource and subresource of the request.
    Resource,
}

impl Dimension {
    /// The noun of the dimension for the message of a refusal, such as `user` in "for each user".
    pub fn noun(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
            Self::ClientAddress => "client address",
            Self::Verb => "verb",
            Self::Resource => "resource",
        }
    }
}

/// The key of an account: a keyed hash of 64 bits, so that long names take no memory. Among a million keys, the
/// probability that two are equal is one in 37 million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    /// Returns the key of a request from the dimensions of the schema. Cost: one hash, no allocation.
    pub(crate) fn from_attributes(by: &[Dimension], attributes: &Attributes<'_>) -> Self {
        let mut hasher = HASHES.build_hasher();
        for dimension in by {
            dimension.hash(&mut hasher);
            match dimension {
                Dimension::User => (attributes.verifier, attributes.user).hash(&mut hasher),
                Dimension::Group => (attributes.member, own_group(attributes.groups)).hash(&mut hasher),
                Dimension::ClientAddress => attributes.client_address.map(network).hash(&mut hasher),
                Dimension::Verb => attributes.verb.hash(&mut hasher),
                Dimension::Resource => attributes.resource.hash(&mut hasher),
            }
        }
        Self(hasher.finish())
    }
}

fn own_group(groups: &[String]) -> Option<&str> {
    groups.iter().map(String::as_str).filter(|group| !group.starts_with(SYSTEM_GROUPS)).min()
}

/// Returns the /64 network of an IPv6 address. An IPv4 address stays unchanged.
fn network(address: IpAddr) -> IpAddr {
    const NETWORK: u128 = u128::MAX << 64;
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & NETWORK).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes<'a>() -> Attributes<'a> {
        Attributes {
            verifier: "x509",
            user: "ann",
            member: None,
            groups: &[],
            client_address: None,
            verb: "list",
            resource: Some(FlowResource { group: "apps", resource: "deployments", subresource: None }),
            is_long_running: false,
            width: 1,
            flow: Flow::from_identity(&"ann"),
        }
    }

    fn together(by: Dimension, one: &Attributes<'_>, other: &Attributes<'_>) -> bool {
        Key::from_attributes(&[by], one) == Key::from_attributes(&[by], other)
    }

    #[test]
    fn flow_control_key_depends_only_on_the_dimensions_of_its_schema() {
        let ann = attributes();
        let others = [
            (Dimension::User, Attributes { verifier: "oidc", ..ann }),
            (Dimension::Verb, Attributes { verb: "get", ..ann }),
            (
                Dimension::Resource,
                Attributes {
                    resource: Some(FlowResource { group: "apps", resource: "deployments", subresource: Some("scale") }),
                    ..ann
                },
            ),
            (Dimension::ClientAddress, Attributes { client_address: Some([127, 0, 0, 1].into()), ..ann }),
        ];
        for (dimension, other) in &others {
            for (by, _) in &others {
                assert_eq!(together(*by, &ann, other), by != dimension, "by {by:?}, another {dimension:?}");
            }
            assert_eq!(Key::from_attributes(&[], &ann), Key::from_attributes(&[], other), "all are counted together");
        }
    }

    #[test]
    fn flow_control_key_by_group_ignores_group_order_and_system_groups() {
        let groups = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let [one, turned, other, none] = [
            groups(&["system:authenticated", "web", "db"]),
            groups(&["db", "web"]),
            groups(&["web", "system:authenticated"]),
            groups(&["system:authenticated"]),
        ];
        let of = |groups| Attributes { groups, ..attributes() };
        assert!(together(Dimension::Group, &of(&one), &of(&turned)));
        assert!(!together(Dimension::Group, &of(&one), &of(&other)));
        assert!(together(Dimension::Group, &of(&none), &of(&[])));
    }

    /// A member's TokenReview may return any user name and any group.
    #[test]
    fn group_from_the_token_review_of_a_member_has_a_separate_flow_control_key() {
        let groups = ["web".to_owned()];
        let by = |member| Attributes { member, groups: &groups, ..attributes() };
        let (configured, eu, us) = (by(None), by(Some("eu")), by(Some("us")));
        assert!(together(Dimension::Group, &eu, &by(Some("eu"))));
        assert!(!together(Dimension::Group, &eu, &configured) && !together(Dimension::Group, &eu, &us));
        // A member's users without a group (ServiceAccounts, for instance) form one group for this member.
        let accounts = [Some("eu"), Some("us"), None].map(|member| Attributes { groups: &[], ..by(member) });
        let [of_eu, of_us, none] = accounts;
        assert!(together(Dimension::Group, &of_eu, &Attributes { groups: &[], ..by(Some("eu")) }));
        assert!(!together(Dimension::Group, &of_eu, &of_us) && !together(Dimension::Group, &of_eu, &none));
        assert!(together(Dimension::Verb, &eu, &configured));
    }

    #[test]
    fn users_of_one_shared_flow_are_distinguishable_inside_the_flow() {
        let (ann, bob) = (Flow::from_shared_identity(&"eu", &"ann"), Flow::from_shared_identity(&"eu", &"bob"));
        assert!(ann.is_same_flow(bob) && ann != bob && ann.is_shared() && ann.group() == bob.group());
        assert!(!ann.is_same_flow(Flow::from_shared_identity(&"us", &"ann")));
        let alone = Flow::from_identity(&"ann");
        assert!(!alone.is_shared() && alone.group().is_none() && !alone.is_same_flow(ann));
    }

    #[test]
    fn clients_of_one_ipv6_network_share_one_flow_control_key() {
        let from = |address: &str| Attributes { client_address: address.parse().ok(), ..attributes() };
        for (one, other, is_one) in [
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
        ] {
            assert_eq!(together(Dimension::ClientAddress, &from(one), &from(other)), is_one, "{one} {other}");
        }
    }
}

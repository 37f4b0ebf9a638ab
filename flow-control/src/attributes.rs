//! Attributes of a request, and the account that counts the request.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;

use tributary_limiters::ShareHolder;

/// Key of all hashes here, so that a client cannot choose a name with the hash of another user.
static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Prefix of the groups that Kubernetes assigns by itself. These groups do not identify a team.
const SYSTEM_GROUPS: &str = "system:";

/// Attributes of a request. Cheap to make: all fields are borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// User who sends the request.
    pub user: FlowUser<'a>,
    /// Member that alone vouches for the user and the groups; `None` for a user whom the configuration knows. A group
    /// of one member is a different group than a group of the same name elsewhere.
    pub member: Option<&'a str>,
    /// The user's groups, in any order.
    pub groups: &'a [String],
    /// Address of the client; behind a load balancer the address that the load balancer reports.
    pub client_address: Option<IpAddr>,
    /// Verb of the request, in the terms of RBAC.
    pub verb: &'a str,
    /// Resource; `None` for other paths.
    pub resource: Option<FlowResource<'a>>,
    /// Whether the request is long-running: a watch, exec, attach, port-forward, a followed log, or a proxied request.
    pub is_long_running: bool,
    /// Slots or tokens for the request: 1, or more for an expensive request. A request that is wider than the limit
    /// takes the whole limit.
    pub width: u32,
    /// Flow of the request among waiting requests.
    pub flow: Flow,
}

/// User of a request. Users of the same name with different verifiers are different users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowUser<'a> {
    /// Verifier that authenticates the user.
    pub verifier: &'a str,
    /// Name that the verifier reports.
    pub name: &'a str,
}

/// Resource of a request. A subresource counts as a resource of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowResource<'a> {
    /// The API group, empty for the core group. The version makes no difference.
    pub group: &'a str,
    /// The resource, in the plural.
    pub resource: &'a str,
    /// Subresource, for instance `status`.
    pub subresource: Option<&'a str>,
}

/// Flow: the requests that take one turn among waiting requests. It is kube-apiserver's flow distinguisher (KEP-1040),
/// as a keyed hash. Users who share a turn take turns within the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// Hash of the flow's turn.
    turn: u64,
    /// Hash of the user within the turn; equal to `turn` for a turn of one user.
    who: u64,
}

impl Flow {
    /// Flow of a user with a turn of their own.
    pub fn from_identity(who: &impl Hash) -> Self {
        Self::numbered(HASHES.hash_one(who))
    }

    /// Flow of the user `who` who shares the turn of `all`.
    pub fn of_one_among(all: &impl Hash, who: &impl Hash) -> Self {
        Self { turn: HASHES.hash_one(all), who: HASHES.hash_one((all, who)) }
    }

    /// Flow with this hash.
    pub(crate) fn numbered(hash: u64) -> Self {
        Self { turn: hash, who: hash }
    }

    /// Hash of the turn.
    pub(crate) fn turn(self) -> u64 {
        self.turn
    }

    /// Whether two flows share a turn.
    pub(crate) fn takes_turn_of(self, other: Self) -> bool {
        self.turn == other.turn
    }

    /// Whether other users share the turn.
    pub(crate) fn is_shared(self) -> bool {
        self.turn != self.who
    }
}

impl ShareHolder for Flow {
    fn group(self) -> Option<u64> {
        self.is_shared().then_some(self.turn)
    }
}

/// Dimension of a key: each value has a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dimension {
    /// User, identified by verifier and name.
    User,
    /// First group in byte order, without groups that begin with `system:`. Users without such a group form one group.
    /// Groups that one member alone vouches for differ from groups of other members.
    Group,
    /// Client address. Of IPv6 the first 64 bits, since a network has all addresses with these bits.
    ClientAddress,
    /// Verb of the request.
    Verb,
    /// Group, resource and subresource.
    Resource,
}

impl Dimension {
    /// Noun in the message of a refusal: a limit `for each user`.
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

/// Key of an account. A keyed hash of 64 bits, so that long names take no memory; two of a million keys share an
/// account once in 37 million times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    /// Key of a request by the dimensions of its schema. Cost: one hash, no allocation.
    pub(crate) fn from_attributes(by: &[Dimension], attributes: &Attributes<'_>) -> Self {
        let mut hasher = HASHES.build_hasher();
        for dimension in by {
            dimension.hash(&mut hasher);
            match dimension {
                Dimension::User => attributes.user.hash(&mut hasher),
                Dimension::Group => (attributes.member, own_group(attributes.groups)).hash(&mut hasher),
                Dimension::ClientAddress => attributes.client_address.map(network).hash(&mut hasher),
                Dimension::Verb => attributes.verb.hash(&mut hasher),
                Dimension::Resource => attributes.resource.hash(&mut hasher),
            }
        }
        Self(hasher.finish())
    }
}

/// Group of a user in the dimension [`Dimension::Group`].
fn own_group(groups: &[String]) -> Option<&str> {
    groups.iter().map(String::as_str).filter(|group| !group.starts_with(SYSTEM_GROUPS)).min()
}

/// The network of an address, which identifies a client.
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
            user: FlowUser { verifier: "x509", name: "ann" },
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

    /// Whether two requests are counted together by this dimension.
    fn together(by: Dimension, one: &Attributes<'_>, other: &Attributes<'_>) -> bool {
        Key::from_attributes(&[by], one) == Key::from_attributes(&[by], other)
    }

    #[test]
    fn key_dimension_distinguishes_only_its_own_attribute() {
        let ann = attributes();
        let others = [
            (Dimension::User, Attributes { user: FlowUser { verifier: "oidc", name: "ann" }, ..ann }),
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
        for (told, other) in &others {
            for (by, _) in &others {
                assert_eq!(together(*by, &ann, other), by != told, "by {by:?}, another {told:?}");
            }
            assert_eq!(Key::from_attributes(&[], &ann), Key::from_attributes(&[], other), "all are counted together");
        }
    }

    #[test]
    fn group_key_ignores_the_order_and_system_groups() {
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

    /// A member may answer a TokenReview with any name and any group.
    #[test]
    fn group_named_by_a_member_is_no_group_of_others() {
        let groups = ["web".to_owned()];
        let by = |member| Attributes { member, groups: &groups, ..attributes() };
        let (configured, eu, us) = (by(None), by(Some("eu")), by(Some("us")));
        assert!(together(Dimension::Group, &eu, &by(Some("eu"))));
        assert!(!together(Dimension::Group, &eu, &configured) && !together(Dimension::Group, &eu, &us));
        // Users of a member without a group, as ServiceAccounts, form one group of the member.
        let accounts = [Some("eu"), Some("us"), None].map(|member| Attributes { groups: &[], ..by(member) });
        let [of_eu, of_us, none] = accounts;
        assert!(together(Dimension::Group, &of_eu, &Attributes { groups: &[], ..by(Some("eu")) }));
        assert!(!together(Dimension::Group, &of_eu, &of_us) && !together(Dimension::Group, &of_eu, &none));
        assert!(together(Dimension::Verb, &eu, &configured));
    }

    #[test]
    fn users_who_share_a_turn_are_distinct_within_it() {
        let (ann, bob) = (Flow::of_one_among(&"eu", &"ann"), Flow::of_one_among(&"eu", &"bob"));
        assert!(ann.takes_turn_of(bob) && ann != bob && ann.is_shared() && ann.group() == bob.group());
        assert!(!ann.takes_turn_of(Flow::of_one_among(&"us", &"ann")));
        let alone = Flow::from_identity(&"ann");
        assert!(!alone.is_shared() && alone.group().is_none() && !alone.takes_turn_of(ann));
    }

    #[test]
    fn ipv6_network_counts_as_one_client() {
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

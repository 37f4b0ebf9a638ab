//! What flow control looks at of a request, and which account it is counted in.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;

use tributary_limiters::ShareHolder;

/// The key of all hashes here: nobody chooses a name that shares somebody's account.
static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The groups that Kubernetes gives by itself, and that say nothing of whose team somebody is.
const SYSTEM_GROUPS: &str = "system:";

/// What flow control looks at of a request. Cheap to make: everything is borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// Who asks.
    pub user: FlowUser<'a>,
    /// The member that alone vouches for the user, so that the groups are its word; `None` for whom the configuration
    /// knows. What a member calls a group is no team of another's.
    pub member: Option<&'a str>,
    /// The user's groups, in any order.
    pub groups: &'a [String],
    /// Where the request comes from; behind a load balancer what that one says.
    pub client_address: Option<IpAddr>,
    /// The verb, in the words of RBAC.
    pub verb: &'a str,
    /// What is asked for; `None` for a path that is no resource.
    pub resource: Option<FlowResource<'a>>,
    /// Whether it lasts: a watch, exec, attach, port-forward, a followed log, what is proxied to a workload.
    pub is_long_running: bool,
    /// How many slots, or tokens, it takes: 1, or more for what is known to be expensive.
    /// A request that is wider than the limit takes all of it.
    pub width: u32,
    /// Whose requests take turns with each other's, where several wait.
    pub flow: Flow,
}

/// Who asks. Users of one name whom different verifiers know are different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowUser<'a> {
    /// What knows the user.
    pub verifier: &'a str,
    /// The name there.
    pub name: &'a str,
}

/// What is asked for. A subresource is another resource than its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowResource<'a> {
    /// The API group, empty for the core group. The version makes no difference.
    pub group: &'a str,
    /// The resource, in the plural.
    pub resource: &'a str,
    /// The subresource.
    pub subresource: Option<&'a str>,
}

/// Whose requests take turns: kube-apiserver's flow distinguisher (KEP-1040), as a keyed hash. Several who have one
/// turn among the others take turns within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// Whose turn it is among the others.
    turn: u64,
    /// Who of those it is that share it; the same where nobody does.
    who: u64,
}

impl Flow {
    /// The flow of whoever is told apart by this.
    pub fn from_identity(who: &impl Hash) -> Self {
        Self::numbered(HASHES.hash_one(who))
    }

    /// The flow of one of several who have one turn together: of these all, this one.
    pub fn of_one_among(all: &impl Hash, who: &impl Hash) -> Self {
        Self { turn: HASHES.hash_one(all), who: HASHES.hash_one((all, who)) }
    }

    /// The flow of this hash.
    pub(crate) fn numbered(hash: u64) -> Self {
        Self { turn: hash, who: hash }
    }

    /// The hash of whose turn it is among the others.
    pub(crate) fn turn(self) -> u64 {
        self.turn
    }

    /// Whether two have one turn.
    pub(crate) fn takes_turn_of(self, other: Self) -> bool {
        self.turn == other.turn
    }

    /// Whether others have the same turn.
    pub(crate) fn is_shared(self) -> bool {
        self.turn != self.who
    }
}

impl ShareHolder for Flow {
    fn group(self) -> Option<u64> {
        self.is_shared().then_some(self.turn)
    }
}

/// By what requests of one schema are told apart: each value has a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dimension {
    /// The user, as its verifier knows it.
    User,
    /// A group of the user: of those that do not begin with `system:` the first in byte order, whatever order they came
    /// in. Those who have none are one group. Those for whom one member alone vouches are in groups of its own.
    Group,
    /// The address that the request comes from; of IPv6 the first 64 bits, since whoever has one address there has all
    /// that begin so.
    ClientAddress,
    /// The verb.
    Verb,
    /// The group and resource, with the subresource.
    Resource,
}

impl Dimension {
    /// As a client reads it: at most so many requests `for each user`.
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

/// An account: what a schema counts together. A keyed hash of 64 bits, so that long names cost nothing and of a million
/// keys two share an account once in 37 million times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    /// The account of a request, by the dimensions of its schema. Cost: a hash of what is looked at; no allocation.
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

/// The group that somebody is counted in.
fn own_group(groups: &[String]) -> Option<&str> {
    groups.iter().map(String::as_str).filter(|group| !group.starts_with(SYSTEM_GROUPS)).min()
}

/// What of an address is one client.
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
    fn each_dimension_tells_apart_what_it_says_and_nothing_else() {
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
    fn a_group_is_the_same_in_whatever_order_they_come_and_no_system_group() {
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

    /// It may answer a TokenReview with any name and any group.
    #[test]
    fn what_a_member_calls_a_group_is_no_group_of_others() {
        let groups = ["web".to_owned()];
        let by = |member| Attributes { member, groups: &groups, ..attributes() };
        let (configured, eu, us) = (by(None), by(Some("eu")), by(Some("us")));
        assert!(together(Dimension::Group, &eu, &by(Some("eu"))));
        assert!(!together(Dimension::Group, &eu, &configured) && !together(Dimension::Group, &eu, &us));
        // Those who have none, as ServiceAccounts, are one of their member's.
        let accounts = [Some("eu"), Some("us"), None].map(|member| Attributes { groups: &[], ..by(member) });
        let [of_eu, of_us, none] = accounts;
        assert!(together(Dimension::Group, &of_eu, &Attributes { groups: &[], ..by(Some("eu")) }));
        assert!(!together(Dimension::Group, &of_eu, &of_us) && !together(Dimension::Group, &of_eu, &none));
        assert!(together(Dimension::Verb, &eu, &configured));
    }

    #[test]
    fn those_who_share_a_turn_are_told_apart_within_it() {
        let (ann, bob) = (Flow::of_one_among(&"eu", &"ann"), Flow::of_one_among(&"eu", &"bob"));
        assert!(ann.takes_turn_of(bob) && ann != bob && ann.is_shared() && ann.group() == bob.group());
        assert!(!ann.takes_turn_of(Flow::of_one_among(&"us", &"ann")));
        let alone = Flow::from_identity(&"ann");
        assert!(!alone.is_shared() && alone.group().is_none() && !alone.takes_turn_of(ann));
    }

    #[test]
    fn who_has_a_network_of_addresses_is_one_client() {
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

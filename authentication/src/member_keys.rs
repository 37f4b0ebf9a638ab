//! The keys by which members sign their ServiceAccounts' tokens, and since when each member is known to serve each.
//!
//! A key is public: any member can serve a copy of another's. Whoever served it first is believed to sign with it, so
//! that a copy takes nobody's tokens away, and is shown none.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tributary_apimachinery::ClusterName;

use crate::jwk::{JsonWebKey, JsonWebKeySet};
use crate::jwt::Token;

/// What members serve at `/openid/v1/jwks`. Serializes, so that who was first is known after a restart, and the keys of a
/// member that is down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemberKeys(BTreeMap<ClusterName, Vec<ServedKey>>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ServedKey {
    /// In seconds since 1970: members that were asked in one round are known to serve it since the same second.
    since: u64,
    key: JsonWebKey,
}

/// Whose key has signed a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signer<'a> {
    /// Of no member that is known.
    Nobody,
    /// Of this one.
    Member(&'a ClusterName),
    /// Several serve it, and none was first.
    Several,
}

impl MemberKeys {
    /// Takes over what members serve now, of whom all were asked in one round. What they are known to serve already stays
    /// as old as it is. Whether anything is otherwise than before.
    pub fn take(&mut self, served: impl IntoIterator<Item = (ClusterName, JsonWebKeySet)>, now: SystemTime) -> bool {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let mut changed = false;
        for (member, keys) in served {
            let known = self.0.entry(member).or_default();
            let since =
                |key: &JsonWebKey| known.iter().find(|known| known.key == *key).map_or(now, |known| known.since);
            let keys: Vec<_> = keys.into_keys().map(|key| ServedKey { since: since(&key), key }).collect();
            changed |= *known != keys;
            *known = keys;
        }
        changed
    }

    /// Whether a member serves other keys than it is known to.
    pub fn differ(&self, member: &ClusterName, keys: &JsonWebKeySet) -> bool {
        let known = self.0.get(member).map_or(&[][..], Vec::as_slice);
        !known.iter().map(|known| &known.key).eq(keys.keys())
    }

    /// Forgets members that are no longer served. Whether there was one.
    pub fn retain(&mut self, is_served: impl Fn(&ClusterName) -> bool) -> bool {
        let before = self.0.len();
        self.0.retain(|member, _| is_served(member));
        self.0.len() != before
    }

    /// Whether a member serves a key of this id.
    pub(crate) fn has(&self, id: Option<&str>) -> bool {
        self.all().any(|(_, served)| served.key.has_id(id))
    }

    /// Whether a member's keys have signed a token.
    pub(crate) fn has_signed(&self, member: &ClusterName, token: &Token<'_>) -> bool {
        self.0.get(member).is_some_and(|keys| keys.iter().any(|served| token.is_signed_by_key(&served.key)))
    }

    /// Whose key has signed a token: of those who serve it, the first. Takes 0.03 to 0.3 ms for each key of its id.
    pub(crate) fn signer(&self, token: &Token<'_>) -> Signer<'_> {
        // A kube-apiserver names its key. Without that a stranger's token would be tried with every key of a fleet.
        if token.key_id().is_none() {
            return Signer::Nobody;
        }
        let signed = self.all().filter(|(_, served)| token.is_signed_by_key(&served.key));
        let mut signed: Vec<_> = signed.map(|(member, served)| (served.since, member)).collect();
        signed.sort_unstable();
        signed.dedup_by_key(|(_, member)| *member);
        match signed[..] {
            [] => Signer::Nobody,
            [(first, _), (second, _), ..] if first == second => Signer::Several,
            [(_, member), ..] => Signer::Member(member),
        }
    }

    fn all(&self) -> impl Iterator<Item = (&ClusterName, &ServedKey)> {
        self.0.iter().flat_map(|(member, keys)| keys.iter().map(move |served| (member, served)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn cluster(name: &str) -> ClusterName {
        ClusterName::new(name).unwrap()
    }

    fn at(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(second)
    }

    fn token_of(signer: &testing::Signer) -> String {
        signer.signed("{}")
    }

    #[test]
    fn a_copy_of_a_key_takes_nothing_from_who_served_it_first() {
        let (of_v, another) = (testing::Signer::new("k"), testing::Signer::new("l"));
        let (v, copier) = (cluster("v"), cluster("a"));
        let text = token_of(&of_v);
        let token = Token::parse(&text).unwrap();
        let mut keys = MemberKeys::default();
        assert_eq!(keys.signer(&token), Signer::Nobody);
        assert!(keys.take([(v.clone(), of_v.keys())], at(1)));
        assert!(keys.take([(copier.clone(), of_v.keys())], at(2)));
        assert_eq!(keys.signer(&token), Signer::Member(&v));
        assert!(!keys.take([(v.clone(), of_v.keys()), (copier.clone(), of_v.keys())], at(3)), "nothing is new");
        let both =
            JsonWebKeySet::parse(format!(r#"{{"keys":[{},{}]}}"#, of_v.key(), another.key()).as_bytes()).unwrap();
        assert!(keys.differ(&v, &both) && keys.take([(v.clone(), both)], at(4)));
        assert_eq!(keys.signer(&token), Signer::Member(&v), "a key stays as old as it is beside a new one");
        let kept: MemberKeys = serde_json::from_slice(&serde_json::to_vec(&keys).unwrap()).unwrap();
        assert_eq!((&kept, kept.signer(&token)), (&keys, Signer::Member(&v)), "after a restart, too");
        assert!(keys.retain(|member| *member != v));
        assert_eq!(keys.signer(&token), Signer::Member(&copier));
        assert!(keys.has_signed(&copier, &token) && !keys.has_signed(&v, &token));
    }

    #[test]
    fn who_is_first_of_those_asked_in_one_round_is_not_known() {
        let of_clones = testing::Signer::new("k");
        let mut keys = MemberKeys::default();
        keys.take([(cluster("a"), of_clones.keys()), (cluster("b"), of_clones.keys())], at(1));
        assert_eq!(keys.signer(&Token::parse(&token_of(&of_clones)).unwrap()), Signer::Several);
    }

    #[test]
    fn a_key_that_is_served_twice_is_no_second_member() {
        let of_v = testing::Signer::new("k");
        let twice = JsonWebKeySet::parse(format!(r#"{{"keys":[{0},{0}]}}"#, of_v.key()).as_bytes()).unwrap();
        let mut keys = MemberKeys::default();
        keys.take([(cluster("v"), twice)], at(1));
        assert_eq!(keys.signer(&Token::parse(&token_of(&of_v)).unwrap()), Signer::Member(&cluster("v")));
    }
}

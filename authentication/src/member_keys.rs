//! The keys with which members sign the tokens of their ServiceAccounts, as each member last served them.
//!
//! A key is public, so any member can serve a copy of another member's key. A key therefore identifies a member only if
//! exactly one member serves the key, and the keys of all other members are known.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tributary_apimachinery::ClusterName;

use crate::jwk::{JsonWebKey, JsonWebKeySet};
use crate::jwt::Token;

/// The keys of each member from `/openid/v1/jwks`; `None` for a member that has not answered yet. Serializes, so that
/// the keys of an unreachable member are known after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemberKeys(BTreeMap<ClusterName, Option<Vec<JsonWebKey>>>);

/// The result of the search for the member that signed a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signer<'a> {
    /// No known key verifies the token's signature.
    Nobody,
    /// Only this member serves the key of the token.
    Member(&'a ClusterName),
    /// Several members serve the key of the token.
    Several,
}

impl MemberKeys {
    /// Updates the set of members to `members`. Members that are not in `members` are removed, and the keys of new
    /// members are unknown. Returns whether the set of members changed.
    pub fn follow(&mut self, members: &[ClusterName]) -> bool {
        let before = self.0.len();
        self.0.retain(|name, _| members.contains(name));
        let mut changed = self.0.len() != before;
        for name in members {
            changed |= !self.0.contains_key(name);
            self.0.entry(name.clone()).or_default();
        }
        changed
    }

    /// Replaces the keys of a member. Returns whether the new keys differ from the previous keys.
    pub fn set(&mut self, member: ClusterName, keys: JsonWebKeySet) -> bool {
        let keys = Some(keys.into_keys().collect());
        self.0.insert(member, keys.clone()) != Some(keys)
    }

    /// Records that a member answers requests for its keys but serves no keys. The member's previous keys stay. Returns
    /// whether the member's keys were unknown before.
    pub fn set_without_keys(&mut self, member: ClusterName) -> bool {
        let own = self.0.entry(member).or_default();
        let is_new = own.is_none();
        own.get_or_insert_default();
        is_new
    }

    /// Returns whether these keys differ from the stored keys of a member. True if the keys of the member are unknown.
    pub fn differ(&self, member: &ClusterName, keys: &JsonWebKeySet) -> bool {
        !self.0.get(member).and_then(Option::as_ref).is_some_and(|cached_keys| cached_keys.iter().eq(keys.keys()))
    }

    /// Returns each pair of members that serve a common key. The merged view rejects tokens that are signed with this
    /// key.
    pub fn members_with_shared_keys(&self) -> BTreeSet<(&ClusterName, &ClusterName)> {
        let all: Vec<_> = self.keys().collect();
        let mut members_with_shared_keys = BTreeSet::new();
        for (at, (member, key)) in all.iter().enumerate() {
            let others = all[at + 1..].iter().filter(|(other, own)| other != member && own == key);
            members_with_shared_keys.extend(others.map(|(other, _)| (*member, *other)));
        }
        members_with_shared_keys
    }

    /// Returns the members whose keys are unknown.
    pub fn unknown(&self) -> impl Iterator<Item = &ClusterName> {
        self.0.iter().filter(|(_, keys)| keys.is_none()).map(|(name, _)| name)
    }

    /// Returns whether the keys of a member are known. A member that answered and serves no keys has known keys.
    pub(crate) fn has_known_keys(&self, member: &ClusterName) -> bool {
        self.0.get(member).is_some_and(Option::is_some)
    }

    /// Removes the keys of a member, because the member's name now stands for a different cluster.
    pub fn forget(&mut self, member: &ClusterName) {
        self.0.entry(member.clone()).and_modify(|keys| *keys = None);
    }

    /// Returns whether any member serves a key with this id.
    pub(crate) fn has(&self, id: Option<&str>) -> bool {
        self.keys().any(|(_, key)| key.has_id(id))
    }

    /// Returns whether a key of the member verifies the signature of a token.
    pub(crate) fn has_signed(&self, member: &ClusterName, token: &Token<'_>) -> bool {
        self.0.get(member).into_iter().flatten().flatten().any(|key| token.is_signed_by_key(key))
    }

    /// Finds the member whose key verifies the signature of a token. Takes 0.03 to 0.3 ms for each key with the token's
    /// key id.
    pub(crate) fn signer(&self, token: &Token<'_>) -> Signer<'_> {
        // A kube-apiserver always writes a key id. Without this check, a client could make this function try the keys
        // of all members.
        if token.key_id().is_none() {
            return Signer::Nobody;
        }
        let mut signers = self.keys().filter(|(_, key)| token.is_signed_by_key(key)).map(|(member, _)| member);
        let Some(member) = signers.next() else { return Signer::Nobody };
        if signers.all(|other| other == member) { Signer::Member(member) } else { Signer::Several }
    }

    fn keys(&self) -> impl Iterator<Item = (&ClusterName, &JsonWebKey)> {
        self.0.iter().flat_map(|(name, keys)| keys.iter().flatten().map(move |key| (name, key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn cluster(name: &str) -> ClusterName {
        ClusterName::new(name).unwrap()
    }

    fn keys_of(signers: &[&testing::TestSigner]) -> JsonWebKeySet {
        let keys: Vec<_> = signers.iter().map(|signer| signer.key().to_string()).collect();
        JsonWebKeySet::parse(format!(r#"{{"keys":[{}]}}"#, keys.join(",")).as_bytes()).unwrap()
    }

    #[test]
    fn signing_key_identifies_the_only_member_that_serves_it() {
        let (of_v, another) = (testing::TestSigner::new("k"), testing::TestSigner::new("k"));
        let (v, a) = (cluster("v"), cluster("a"));
        let text = of_v.signed("{}");
        let token = Token::parse(&text).unwrap();
        let mut keys = MemberKeys::default();
        assert_eq!(keys.signer(&token), Signer::Nobody);
        assert!(keys.set(v.clone(), keys_of(&[&of_v, &of_v])) && keys.set(a.clone(), another.keys()));
        assert_eq!(
            (keys.signer(&token), keys.members_with_shared_keys().len()),
            (Signer::Member(&v), 0),
            "a key served twice is one"
        );
        assert!(keys.has_signed(&v, &token) && !keys.has_signed(&a, &token));
        let without_id = of_v.signed_under(&serde_json::json!({"alg": "ES256"}), "{}");
        assert_eq!(keys.signer(&Token::parse(&without_id).unwrap()), Signer::Nobody);
    }

    /// A member can copy the public key of another member and serve the copy, even before the key's owner serves the
    /// key.
    #[test]
    fn signing_key_that_two_members_serve_identifies_no_member() {
        let of_v = testing::TestSigner::new("k");
        let (v, copier) = (cluster("v"), cluster("a"));
        let text = of_v.signed("{}");
        let token = Token::parse(&text).unwrap();
        for order in [[&v, &copier], [&copier, &v]] {
            let mut keys = MemberKeys::default();
            for member in order {
                assert!(keys.set(member.clone(), of_v.keys()));
            }
            assert_eq!(keys.signer(&token), Signer::Several);
            assert_eq!(keys.members_with_shared_keys(), [(&copier, &v)].into());
            assert!(keys.has_signed(&v, &token), "v itself is asked where it is addressed");
            keys.follow(std::slice::from_ref(&v));
            assert_eq!((keys.signer(&token), keys.members_with_shared_keys().len()), (Signer::Member(&v), 0));
        }
    }

    #[test]
    fn signing_keys_of_a_member_are_kept_until_replaced_or_the_member_is_removed() {
        let (first, second) = (testing::TestSigner::new("k"), testing::TestSigner::new("l"));
        let (v, a) = (cluster("v"), cluster("a"));
        let mut keys = MemberKeys::default();
        assert!(keys.follow(&[v.clone(), a.clone()]) && !keys.follow(&[v.clone(), a.clone()]));
        assert_eq!(keys.unknown().collect::<Vec<_>>(), [&a, &v]);
        assert!(keys.differ(&v, &keys_of(&[])), "a member without keys is not an unknown one");
        assert!(keys.set(v.clone(), first.keys()) && !keys.set(v.clone(), first.keys()));
        assert!(keys.set_without_keys(a.clone()) && !keys.set_without_keys(a.clone()));
        assert!(!keys.set_without_keys(v.clone()) && !keys.differ(&v, &first.keys()));
        assert!(keys.has_known_keys(&a) && keys.has_known_keys(&v) && keys.unknown().next().is_none());
        let stored: MemberKeys = serde_json::from_slice(&serde_json::to_vec(&keys).unwrap()).unwrap();
        assert_eq!(stored, keys, "after a restart");
        assert!(keys.differ(&v, &second.keys()) && keys.set(v.clone(), second.keys()));
        assert!(keys.has(Some("l")) && !keys.has(Some("k")));
        keys.forget(&v);
        assert_eq!(keys.unknown().collect::<Vec<_>>(), [&v]);
        assert!(keys.follow(std::slice::from_ref(&a)) && keys.unknown().next().is_none());
        keys.forget(&v);
        assert!(!keys.has_known_keys(&v) && keys.unknown().next().is_none(), "it is not served");
    }
}

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

/// How many keys are remembered of a member that it serves no more: one that is missing from one answer, as while the
/// servers of a cluster change their key one by one, is not younger than a copy when it is there again.
const REMEMBERED_KEYS: usize = 16;
/// How many members are remembered that are no longer served: one that is taken out and put back is as old as it was.
const REMEMBERED_MEMBERS: usize = 1024;
/// After this a new key is believed although a member that might be its own could not be asked: a cluster that is down for
/// long keeps no other's ServiceAccounts out for ever. In seconds.
const BELIEVED_AFTER: u64 = 3600;

/// What members serve at `/openid/v1/jwks`. Serializes, so that who was first is known after a restart, and the keys of a
/// member that is down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemberKeys(BTreeMap<ClusterName, Member>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Member {
    /// Whether it is among the members that are served.
    is_served: bool,
    keys: Vec<KnownKey>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KnownKey {
    key: JsonWebKey,
    /// Whether the member serves it now.
    is_served: bool,
    /// When it was first seen there, in seconds since 1970.
    seen: u64,
    /// Since when the member is believed to have it, in seconds since 1970: those that are believed in one round are of the
    /// same second. `None` while a member that might be its own could not be asked.
    since: Option<u64>,
}

impl Member {
    /// Takes over what it serves now.
    fn take(&mut self, served: JsonWebKeySet, now: u64) {
        let before = std::mem::take(&mut self.keys);
        let known = |key: &JsonWebKey| before.iter().find(|known| known.key == *key);
        let first = |key| KnownKey { key, is_served: true, seen: now, since: None };
        let keys = served.into_keys().map(|key| match known(&key) {
            Some(known) => KnownKey { is_served: true, ..known.clone() },
            None => first(key),
        });
        self.is_served = true;
        self.keys = keys.collect();
        let gone: Vec<_> =
            before.into_iter().filter(|known| self.keys.iter().all(|own| own.key != known.key)).collect();
        let gone = gone.into_iter().map(|known| KnownKey { is_served: false, ..known });
        self.keys.extend(gone.take(REMEMBERED_KEYS));
    }

    fn served(&self) -> impl Iterator<Item = &KnownKey> {
        self.keys.iter().filter(|known| self.is_served && known.is_served)
    }
}

/// Whose key has signed a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signer<'a> {
    /// Of no member that is known.
    Nobody,
    /// Of this one.
    Member(&'a ClusterName),
    /// Several serve it, and none was first, or it is not known yet who was.
    Several,
}

impl MemberKeys {
    /// Takes over what members serve now. What they are known to serve already stays as old as it is. A new key is believed
    /// from the first round on in which no member whose keys are known was silent (`all_answered`): in another, its owner
    /// might be the one that was. Whether anything is otherwise than before.
    pub fn take(
        &mut self,
        served: impl IntoIterator<Item = (ClusterName, JsonWebKeySet)>,
        all_answered: bool,
        now: SystemTime,
    ) -> bool {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let before = self.clone();
        for (member, keys) in served {
            self.0.entry(member).or_default().take(keys, now);
        }
        for known in self.0.values_mut().flat_map(|member| &mut member.keys) {
            if known.since.is_none() && (all_answered || now.saturating_sub(known.seen) >= BELIEVED_AFTER) {
                known.since = Some(now);
            }
        }
        *self != before
    }

    /// Whether a member serves other keys than it is known to.
    pub fn differ(&self, member: &ClusterName, keys: &JsonWebKeySet) -> bool {
        let known = self.0.get(member).into_iter().flat_map(Member::served);
        !known.map(|known| &known.key).eq(keys.keys())
    }

    /// Whether a key is not believed yet.
    pub fn are_waiting(&self) -> bool {
        self.served().any(|(_, known)| known.since.is_none())
    }

    /// Whether any keys of a member are known.
    pub fn know(&self, member: &ClusterName) -> bool {
        self.0.get(member).is_some_and(|member| member.served().next().is_some())
    }

    /// Sets aside members that are no longer served. Whether there was one. They are remembered, as far as there is room.
    pub fn retain(&mut self, is_served: impl Fn(&ClusterName) -> bool) -> bool {
        let before = self.clone();
        for (name, member) in &mut self.0 {
            member.is_served &= is_served(name);
        }
        let mut remembered = 0;
        self.0.retain(|_, member| {
            remembered += usize::from(!member.is_served);
            member.is_served || remembered <= REMEMBERED_MEMBERS
        });
        *self != before
    }

    /// Whether a member serves a key of this id.
    pub(crate) fn has(&self, id: Option<&str>) -> bool {
        self.served().any(|(_, known)| known.key.has_id(id))
    }

    /// Whether a member's keys have signed a token.
    pub(crate) fn has_signed(&self, member: &ClusterName, token: &Token<'_>) -> bool {
        let served = self.0.get(member).into_iter().flat_map(Member::served);
        served.into_iter().any(|known| token.is_signed_by_key(&known.key))
    }

    /// Whose key has signed a token: of those who serve it, the first. Takes 0.03 to 0.3 ms for each key of its id.
    pub(crate) fn signer(&self, token: &Token<'_>) -> Signer<'_> {
        // A kube-apiserver names its key. Without that a stranger's token would be tried with every key of a fleet.
        if token.key_id().is_none() {
            return Signer::Nobody;
        }
        let signed = self.served().filter(|(_, known)| token.is_signed_by_key(&known.key));
        let mut signed: Vec<_> = signed.map(|(member, known)| (known.since.unwrap_or(u64::MAX), member)).collect();
        signed.sort_unstable();
        signed.dedup_by_key(|(_, member)| *member);
        match signed[..] {
            [] => Signer::Nobody,
            [(u64::MAX, _), ..] => Signer::Several,
            [(first, _), (second, _), ..] if first == second => Signer::Several,
            [(_, member), ..] => Signer::Member(member),
        }
    }

    fn served(&self) -> impl Iterator<Item = (&ClusterName, &KnownKey)> {
        self.0.iter().flat_map(|(name, member)| member.served().map(move |known| (name, known)))
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

    fn keys_of(signers: &[&testing::Signer]) -> JsonWebKeySet {
        let keys: Vec<_> = signers.iter().map(|signer| signer.key().to_string()).collect();
        JsonWebKeySet::parse(format!(r#"{{"keys":[{}]}}"#, keys.join(",")).as_bytes()).unwrap()
    }

    #[test]
    fn a_copy_of_a_key_takes_nothing_from_who_served_it_first() {
        let (of_v, another) = (testing::Signer::new("k"), testing::Signer::new("l"));
        let (v, copier) = (cluster("v"), cluster("a"));
        let text = token_of(&of_v);
        let token = Token::parse(&text).unwrap();
        let mut keys = MemberKeys::default();
        assert_eq!(keys.signer(&token), Signer::Nobody);
        assert!(keys.take([(v.clone(), of_v.keys())], true, at(1)));
        assert!(keys.take([(copier.clone(), of_v.keys())], true, at(2)));
        assert_eq!(keys.signer(&token), Signer::Member(&v));
        assert!(!keys.take([(v.clone(), of_v.keys()), (copier.clone(), of_v.keys())], true, at(3)), "nothing is new");
        let both = keys_of(&[&of_v, &another]);
        assert!(keys.differ(&v, &both) && keys.take([(v.clone(), both)], true, at(4)));
        assert_eq!(keys.signer(&token), Signer::Member(&v), "a key stays as old as it is beside a new one");
        let kept: MemberKeys = serde_json::from_slice(&serde_json::to_vec(&keys).unwrap()).unwrap();
        assert_eq!((&kept, kept.signer(&token)), (&keys, Signer::Member(&v)), "after a restart, too");
    }

    #[test]
    fn who_was_first_is_remembered_while_it_is_away() {
        let (of_v, another) = (testing::Signer::new("k"), testing::Signer::new("l"));
        let (v, copier) = (cluster("v"), cluster("a"));
        let text = token_of(&of_v);
        let token = Token::parse(&text).unwrap();
        let mut keys = MemberKeys::default();
        keys.take([(v.clone(), of_v.keys())], true, at(1));
        keys.take([(copier.clone(), of_v.keys())], true, at(2));
        // One of its servers has the new key alone.
        keys.take([(v.clone(), another.keys())], true, at(3));
        assert!(!keys.has_signed(&v, &token));
        keys.take([(v.clone(), keys_of(&[&of_v, &another]))], true, at(4));
        assert_eq!(keys.signer(&token), Signer::Member(&v));
        // Its configuration is taken away and put back.
        assert!(keys.retain(|member| *member != v) && !keys.know(&v));
        keys.take([(v.clone(), of_v.keys())], true, at(5));
        assert_eq!(keys.signer(&token), Signer::Member(&v));
    }

    #[test]
    fn a_new_key_is_believed_once_everybody_was_asked_or_after_an_hour() {
        let of_v = testing::Signer::new("k");
        let (v, copier) = (cluster("v"), cluster("a"));
        let text = token_of(&of_v);
        let token = Token::parse(&text).unwrap();
        let mut keys = MemberKeys::default();
        keys.take([(copier.clone(), of_v.keys())], false, at(1));
        assert_eq!(keys.signer(&token), Signer::Several, "v, which is silent, may be its owner");
        let mut waited = keys.clone();
        waited.take([], false, at(1 + BELIEVED_AFTER));
        assert_eq!(waited.signer(&token), Signer::Member(&copier));
        keys.take([(copier.clone(), of_v.keys()), (v.clone(), of_v.keys())], true, at(2));
        assert_eq!(keys.signer(&token), Signer::Several, "none was first");
    }

    #[test]
    fn who_is_first_of_those_asked_in_one_round_is_not_known() {
        let of_clones = testing::Signer::new("k");
        let mut keys = MemberKeys::default();
        keys.take([(cluster("a"), of_clones.keys()), (cluster("b"), of_clones.keys())], true, at(1));
        assert_eq!(keys.signer(&Token::parse(&token_of(&of_clones)).unwrap()), Signer::Several);
    }

    #[test]
    fn a_key_that_is_served_twice_is_no_second_member() {
        let of_v = testing::Signer::new("k");
        let mut keys = MemberKeys::default();
        keys.take([(cluster("v"), keys_of(&[&of_v, &of_v]))], true, at(1));
        assert_eq!(keys.signer(&Token::parse(&token_of(&of_v)).unwrap()), Signer::Member(&cluster("v")));
    }
}

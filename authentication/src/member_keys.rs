//! The keys by which members sign their ServiceAccounts' tokens, and since when each member is known to serve each.
//!
//! A key is public: any member can serve a copy of another's. Whoever served it while the others were seen to serve it
//! not is believed to sign with it, so that a copy takes nobody's tokens away, and is shown none. Of one who had it
//! when it was first asked, nobody knows since when it has it: it may be the owner, which others have copied before it
//! joined.

use std::collections::{BTreeMap, BTreeSet};
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
/// After this a new key is believed although a member that might be its own could not be asked: a cluster that is down
/// for long keeps no other's ServiceAccounts out for ever. In seconds.
const BELIEVED_AFTER: u64 = 3600;
/// The same where the members that could not be asked have never said which keys they have: 10 min, which is longer
/// than a control plane takes to start, and than somebody to notice that a role is missing. It is less than an hour
/// because nothing is known of who these are after each start without a data directory that lasts: what one broken
/// cluster costs the others then. In seconds.
const BELIEVED_WITHOUT_UNKNOWN_AFTER: u64 = 600;

/// Which of the members that are served have said in one round which keys they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// All.
    All,
    /// All whose keys are known, and not all others: a new key may be one of theirs.
    AllKnown,
    /// Not all whose keys are known: theirs may have changed.
    Some,
}

impl Answered {
    /// Of members of which some have answered.
    pub fn of<'a>(
        members: impl IntoIterator<Item = &'a ClusterName>,
        keys: &MemberKeys,
        has_answered: impl Fn(&ClusterName) -> bool,
    ) -> Self {
        members.into_iter().filter(|name| !has_answered(name)).fold(Self::All, |answered, silent| match answered {
            Self::All | Self::AllKnown if !keys.know(silent) => Self::AllKnown,
            _ => Self::Some,
        })
    }

    /// For how long a key has to have been seen to be believed, in seconds.
    fn believes_after(self) -> u64 {
        match self {
            Self::All => 0,
            Self::AllKnown => BELIEVED_WITHOUT_UNKNOWN_AFTER,
            Self::Some => BELIEVED_AFTER,
        }
    }
}

/// What members serve at `/openid/v1/jwks`. Serializes, so that who was first is known after a restart, and the keys of
/// a member that is down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemberKeys(BTreeMap<ClusterName, Member>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Member {
    /// Whether it is among the members that are served.
    is_served: bool,
    keys: Vec<KnownKey>,
    /// When it answered last, in seconds since 1970. Kept as of the last time that something else has changed: what was
    /// not there then was not there before.
    #[serde(default)]
    answered: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KnownKey {
    key: JsonWebKey,
    /// Whether the member serves it now.
    is_served: bool,
    /// When it was first seen there, in seconds since 1970.
    seen: u64,
    /// Since when the member is believed to have it, in seconds since 1970: those that are believed in one round are of
    /// the same second. `None` while a member that might be its own could not be asked.
    since: Option<u64>,
    /// When the member was last seen without it, in seconds since 1970. `None` where it had it when it was first asked.
    #[serde(default = "long_after")]
    absent: Option<u64>,
}

/// Of keys that were kept before it was: that they were served first was enough then.
fn long_after() -> Option<u64> {
    Some(u64::MAX)
}

impl KnownKey {
    /// Whether it becomes believed now.
    fn is_believed_by(&self, answered: Answered, now: u64) -> bool {
        self.since.is_none() && now.saturating_sub(self.seen) >= answered.believes_after()
    }

    /// Whether a member that serves this was first with it: the other was seen without it meanwhile.
    fn is_before(&self, other: &Self) -> bool {
        let is_believed_later = other.since.is_none_or(|since| self.since < Some(since));
        is_believed_later && other.absent.is_some_and(|absent| absent >= self.seen)
    }
}

impl Member {
    /// Takes over what it serves now.
    fn take(&mut self, served: JsonWebKeySet, now: u64) {
        let before = std::mem::take(&mut self.keys);
        let known = |key: &JsonWebKey| before.iter().find(|known| known.key == *key);
        let absent = self.answered;
        let first = |key| KnownKey { key, is_served: true, seen: now, since: None, absent };
        let keys = served.into_keys().map(|key| match known(&key) {
            Some(known) => KnownKey { is_served: true, ..known.clone() },
            None => first(key),
        });
        self.is_served = true;
        self.answered = Some(now);
        self.keys = keys.collect();
        let gone: Vec<_> =
            before.into_iter().filter(|known| self.keys.iter().all(|own| own.key != known.key)).collect();
        let gone = gone.into_iter().map(|known| KnownKey { is_served: false, ..known });
        self.keys.extend(gone.take(REMEMBERED_KEYS));
    }

    fn served(&self) -> impl Iterator<Item = &KnownKey> {
        self.keys.iter().filter(|known| self.is_served && known.is_served)
    }

    /// Whether both say the same of it, whenever it answered.
    fn is_as(&self, other: &Self) -> bool {
        (self.is_served, &self.keys) == (other.is_served, &other.keys)
    }
}

/// Whose key has signed a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signer<'a> {
    /// Of no member that is known.
    Nobody,
    /// Of this one.
    Member(&'a ClusterName),
    /// One serves it, and whether it is another's is not known yet.
    Unsettled,
    /// Several serve it, and none was first, or it is not known yet who was.
    Several,
}

/// Since 1970.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

impl MemberKeys {
    /// Takes over what members serve now. What they are known to serve already stays as old as it is. A new key is
    /// believed from the first round on in which no member was silent: in another, its owner might be the one that was.
    /// Who stays silent keeps it from being believed for so long only, and what is believed stays so. Whether anything
    /// is otherwise than before.
    pub fn take(
        &mut self,
        served: impl IntoIterator<Item = (ClusterName, JsonWebKeySet)>,
        answered: Answered,
        now: SystemTime,
    ) -> bool {
        let now = seconds(now);
        let before = self.clone();
        for (member, keys) in served {
            self.0.entry(member).or_default().take(keys, now);
        }
        for known in self.0.values_mut().flat_map(|member| &mut member.keys) {
            if known.is_believed_by(answered, now) {
                known.since = Some(now);
            }
        }
        self.0.len() != before.0.len() || self.0.values().zip(before.0.values()).any(|(own, old)| !own.is_as(old))
    }

    /// Whether a member serves other keys than it is known to.
    pub fn differ(&self, member: &ClusterName, keys: &JsonWebKeySet) -> bool {
        let known = self.0.get(member).into_iter().flat_map(Member::served);
        !known.map(|known| &known.key).eq(keys.keys())
    }

    /// Whether a key that is not believed yet would be after a round in which these have answered.
    pub fn would_believe(&self, answered: Answered, now: SystemTime) -> bool {
        self.served().any(|(_, known)| known.is_believed_by(answered, seconds(now)))
    }

    /// Members that serve the same key, of which it is not known who had it first: on the merged endpoint the tokens
    /// that it signs are nobody's until one of them is taken out, or exchanges its key.
    pub fn sharing(&self) -> BTreeSet<(&ClusterName, &ClusterName)> {
        let all: Vec<_> = self.served().filter(|(_, known)| known.since.is_some()).collect();
        let mut sharing = BTreeSet::new();
        for (at, (member, known)) in all.iter().enumerate() {
            let others = all[at + 1..].iter().filter(|(other, own)| other != member && own.key == known.key);
            let is_open = |own: &KnownKey| !known.is_before(own) && !own.is_before(known);
            sharing.extend(others.filter(|(_, own)| is_open(own)).map(|(other, _)| (*member, *other)));
        }
        sharing
    }

    /// Whether a member that is served has said which keys it has, if only that it has none.
    pub fn know(&self, member: &ClusterName) -> bool {
        let has_said = |member: &Member| member.answered.is_some() || member.served().next().is_some();
        self.0.get(member).is_some_and(|member| member.is_served && has_said(member))
    }

    /// Sets aside members that are no longer served. Whether there was one. They are remembered, as far as there is
    /// room.
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

    /// Forgets the keys of a member whose name means another cluster by now.
    pub fn forget(&mut self, member: &ClusterName) {
        self.0.remove(member);
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

    /// Whose key has signed a token: of those who serve it, the one that was first. Takes 0.03 to 0.3 ms for each key
    /// of its id.
    pub(crate) fn signer(&self, token: &Token<'_>) -> Signer<'_> {
        // A kube-apiserver names its key. Without that a stranger's token would be tried with every key of a fleet.
        if token.key_id().is_none() {
            return Signer::Nobody;
        }
        let signed: Vec<_> = self.served().filter(|(_, known)| token.is_signed_by_key(&known.key)).collect();
        let Some((member, first)) = signed.iter().min_by_key(|(_, known)| known.since.unwrap_or(u64::MAX)) else {
            return Signer::Nobody;
        };
        let mut others = signed.iter().filter(|(other, _)| other != member);
        if first.since.is_none() && others.clone().next().is_none() {
            return Signer::Unsettled;
        }
        let is_first = first.since.is_some() && others.all(|(_, other)| first.is_before(other));
        if is_first && !self.is_copy_of_one_set_aside(first) { Signer::Member(member) } else { Signer::Several }
    }

    /// Whether a member that does not serve a key now, or is not served itself, was first with it, and still answered
    /// when the other had it, too: it may only be away, or one of its servers may answer without the key. A member that
    /// came later, as one does that is configured under another name, has its keys.
    fn is_copy_of_one_set_aside(&self, first: &KnownKey) -> bool {
        self.0.values().any(|member| {
            let is_owner = |known: &KnownKey| known.key == first.key && known.since.is_some() && known.is_before(first);
            let aside = member.keys.iter().filter(|known| !(member.is_served && known.is_served));
            member.answered >= Some(first.seen) && aside.into_iter().any(is_owner)
        })
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
        let (mut keys, none) = (MemberKeys::default(), keys_of(&[]));
        assert_eq!(keys.signer(&token), Signer::Nobody);
        assert!(keys.take([(v.clone(), of_v.keys()), (copier.clone(), none)], Answered::All, at(1)));
        assert!(keys.take([(copier.clone(), of_v.keys())], Answered::All, at(2)));
        assert_eq!(keys.signer(&token), Signer::Member(&v));
        assert!(
            !keys.take([(v.clone(), of_v.keys()), (copier.clone(), of_v.keys())], Answered::All, at(3)),
            "nothing is new"
        );
        let both = keys_of(&[&of_v, &another]);
        assert!(keys.differ(&v, &both) && keys.take([(v.clone(), both)], Answered::All, at(4)));
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
        keys.take([(v.clone(), of_v.keys()), (copier.clone(), keys_of(&[]))], Answered::All, at(1));
        keys.take([(copier.clone(), of_v.keys())], Answered::All, at(2));
        // One of its servers has the new key alone.
        keys.take([(v.clone(), another.keys())], Answered::All, at(3));
        assert!(!keys.has_signed(&v, &token));
        assert_eq!(keys.signer(&token), Signer::Several, "the copier is shown no token of v's meanwhile");
        keys.take([(v.clone(), keys_of(&[&of_v, &another]))], Answered::All, at(4));
        assert_eq!(keys.signer(&token), Signer::Member(&v));
        // Its configuration is taken away and put back.
        assert!(keys.retain(|member| *member != v) && !keys.know(&v));
        assert_eq!(keys.signer(&token), Signer::Several, "the copier is shown none while v is away");
        // It is put back under another name.
        let renamed = cluster("w");
        let mut as_another = keys.clone();
        as_another.retain(|member| *member != v && *member != copier);
        as_another.take([(renamed.clone(), of_v.keys())], Answered::All, at(5));
        assert_eq!(as_another.signer(&token), Signer::Member(&renamed));
        keys.take([(v.clone(), of_v.keys())], Answered::All, at(5));
        assert_eq!(keys.signer(&token), Signer::Member(&v));
    }

    #[test]
    fn a_new_key_is_believed_once_everybody_was_asked_or_after_an_hour() {
        let of_v = testing::Signer::new("k");
        let (v, copier) = (cluster("v"), cluster("a"));
        let text = token_of(&of_v);
        let token = Token::parse(&text).unwrap();
        let mut keys = MemberKeys::default();
        keys.take([(copier.clone(), of_v.keys())], Answered::Some, at(1));
        assert_eq!(keys.signer(&token), Signer::Unsettled, "v, which is silent, may be its owner");
        let mut waited = keys.clone();
        waited.take([], Answered::Some, at(1 + BELIEVED_AFTER));
        assert_eq!(waited.signer(&token), Signer::Member(&copier));
        keys.take([(copier.clone(), of_v.keys()), (v.clone(), of_v.keys())], Answered::All, at(2));
        assert_eq!(keys.signer(&token), Signer::Several, "none was first");
    }

    /// Of a member that has never said which keys it has, any may be its own.
    #[test]
    fn a_copy_is_not_believed_while_a_member_has_never_said_which_keys_it_has_until_that_is_no_accident() {
        let of_v = testing::Signer::new("k");
        let (v, copier) = (cluster("v"), cluster("a"));
        let text = token_of(&of_v);
        let token = Token::parse(&text).unwrap();
        let mut keys = MemberKeys::default();
        let served = || [(copier.clone(), of_v.keys())];
        keys.take(served(), Answered::AllKnown, at(1));
        assert_eq!(keys.signer(&token), Signer::Unsettled);
        assert!(!keys.would_believe(Answered::AllKnown, at(BELIEVED_WITHOUT_UNKNOWN_AFTER)));
        let mut told = keys.clone();
        told.take([(v.clone(), of_v.keys()), (copier.clone(), of_v.keys())], Answered::All, at(300));
        assert_eq!(told.signer(&token), Signer::Several, "v has said it in time: the token is shown to neither");
        let late = at(1 + BELIEVED_WITHOUT_UNKNOWN_AFTER);
        assert!(keys.would_believe(Answered::AllKnown, late) && !keys.would_believe(Answered::Some, late));
        keys.take(served(), Answered::AllKnown, late);
        assert_eq!(keys.signer(&token), Signer::Member(&copier), "one that never says it is no denial for ever");
        // What is believed stays so when another comes of which nothing is known.
        keys.take(served(), Answered::AllKnown, at(700));
        assert_eq!(keys.signer(&token), Signer::Member(&copier));
    }

    #[test]
    fn a_round_is_as_good_as_those_that_are_silent_in_it_let_it_be() {
        let mut keys = MemberKeys::default();
        let (a, b, c) = (cluster("a"), cluster("b"), cluster("c"));
        keys.take([(a.clone(), keys_of(&[])), (b.clone(), testing::Signer::new("k").keys())], Answered::All, at(1));
        let all = [a.clone(), b.clone(), c.clone()];
        for (silent, expected) in [
            (vec![], Answered::All),
            (vec![&c], Answered::AllKnown),
            (vec![&a], Answered::Some),
            (vec![&b, &c], Answered::Some),
        ] {
            assert_eq!(Answered::of(&all, &keys, |name| !silent.contains(&name)), expected, "{silent:?}");
        }
        keys.retain(|name| *name != b);
        assert_eq!(Answered::of(&all, &keys, |name| *name == a), Answered::AllKnown, "b is to say it again");
    }

    /// A key may be read by whoever has an account in a cluster, long before that cluster joins.
    #[test]
    fn who_has_anothers_key_before_that_joins_is_shown_nothing_of_it_and_keeps_it_out_until_it_has_a_new_one() {
        let (of_v, newer) = (testing::Signer::new("k"), testing::Signer::new("l"));
        let (v, copier) = (cluster("v"), cluster("a"));
        let (old, new) = (token_of(&of_v), token_of(&newer));
        let (old, new) = (Token::parse(&old).unwrap(), Token::parse(&new).unwrap());
        let mut keys = MemberKeys::default();
        keys.take([(copier.clone(), of_v.keys())], Answered::All, at(1));
        assert_eq!(keys.signer(&old), Signer::Member(&copier), "nobody else is there");
        keys.take([(v.clone(), of_v.keys()), (copier.clone(), of_v.keys())], Answered::All, at(1_000));
        assert_eq!(keys.signer(&old), Signer::Several, "who of them has it from the other is not known");
        assert_eq!(keys.sharing(), [(&copier, &v)].into());
        assert!(keys.has_signed(&v, &old), "v itself is asked where it is addressed");
        // Its key is exchanged: a copy of the new one is younger.
        keys.take([(v.clone(), keys_of(&[&of_v, &newer])), (copier.clone(), of_v.keys())], Answered::All, at(2_000));
        keys.take([(copier.clone(), keys_of(&[&of_v, &newer]))], Answered::All, at(3_000));
        assert_eq!((keys.signer(&new), keys.signer(&old)), (Signer::Member(&v), Signer::Several));
        // The other one is taken out, for good.
        keys.retain(|member| *member == v);
        assert_eq!((keys.signer(&old), keys.sharing().len()), (Signer::Member(&v), 0));
    }

    #[test]
    fn a_key_that_is_exchanged_while_its_member_is_away_or_silent_is_nobody_elses() {
        let (of_v, newer) = (testing::Signer::new("k"), testing::Signer::new("l"));
        let (v, copier) = (cluster("v"), cluster("a"));
        let text = token_of(&newer);
        let token = Token::parse(&text).unwrap();
        for is_taken_out in [true, false] {
            let mut keys = MemberKeys::default();
            keys.take([(v.clone(), of_v.keys()), (copier.clone(), keys_of(&[]))], Answered::All, at(1));
            keys.retain(|member| !is_taken_out || *member != v);
            let answered = if is_taken_out { Answered::All } else { Answered::Some };
            keys.take([(copier.clone(), newer.keys())], answered, at(10));
            keys.take([], answered, at(10 + BELIEVED_AFTER));
            assert_eq!(keys.signer(&token), Signer::Member(&copier));
            keys.take([(v.clone(), newer.keys())], Answered::All, at(20 + BELIEVED_AFTER));
            assert_eq!(keys.signer(&token), Signer::Several);
        }
    }

    /// What a member had not when something was last kept, it had not before.
    #[test]
    fn a_restart_lends_nobody_age() {
        let of_v = testing::Signer::new("k");
        let (v, copier) = (cluster("v"), cluster("a"));
        let text = token_of(&of_v);
        let token = Token::parse(&text).unwrap();
        let mut keys = MemberKeys::default();
        keys.take([(v.clone(), of_v.keys()), (copier.clone(), keys_of(&[]))], Answered::All, at(1));
        let mut kept: MemberKeys = serde_json::from_slice(&serde_json::to_vec(&keys).unwrap()).unwrap();
        kept.take([(v.clone(), of_v.keys()), (copier.clone(), of_v.keys())], Answered::All, at(100));
        assert_eq!(kept.signer(&token), Signer::Member(&v));
        // As an earlier release kept it.
        let key = of_v.key();
        let old = format!(
            r#"{{"v":{{"is_served":true,"keys":[{{"key":{key},"is_served":true,"seen":1,"since":1}}]}},
                "a":{{"is_served":true,"keys":[{{"key":{key},"is_served":true,"seen":2,"since":2}}]}}}}"#
        );
        let old: MemberKeys = serde_json::from_str(&old).unwrap();
        assert_eq!(old.signer(&token), Signer::Member(&v));
    }

    #[test]
    fn who_is_first_of_those_asked_in_one_round_is_not_known() {
        let of_clones = testing::Signer::new("k");
        let mut keys = MemberKeys::default();
        keys.take([(cluster("a"), of_clones.keys()), (cluster("b"), of_clones.keys())], Answered::All, at(1));
        assert_eq!(keys.signer(&Token::parse(&token_of(&of_clones)).unwrap()), Signer::Several);
    }

    #[test]
    fn a_key_that_is_served_twice_is_no_second_member() {
        let of_v = testing::Signer::new("k");
        let mut keys = MemberKeys::default();
        keys.take([(cluster("v"), keys_of(&[&of_v, &of_v]))], Answered::All, at(1));
        assert_eq!(keys.signer(&Token::parse(&token_of(&of_v)).unwrap()), Signer::Member(&cluster("v")));
    }
}

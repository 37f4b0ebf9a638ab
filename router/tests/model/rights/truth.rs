//! The objects and rights of one member by revision, and the check whether a user may see an object.

use std::collections::BTreeMap;

use tokio::time::{Duration, Instant};

/// Time after the loss of a right in which a response may still show newly written objects. A watch of roles or
/// bindings may be 2 s late, or be refused for 5 s and reopen after a pause.
const LATE: Duration = Duration::from_secs(15);

/// Maximum time from a member's last fault until the router detects the loss of a right: the longest pause between two
/// attempts to reach the member, and one attempt.
const NOTICED_WITHIN: Duration = Duration::from_secs(75);

#[derive(Debug, Default)]
pub(crate) struct MemberTruth {
    /// Every state of every object, by its unique value.
    states: BTreeMap<String, State>,
    /// The rights of each user in each namespace, by user and namespace. The empty namespace means all namespaces.
    rights: BTreeMap<(String, String), Vec<Right>>,
    /// The end of the member's last fault.
    troubled: Option<Instant>,
    /// The clusters that were this member before replacements. All rights in these clusters have ended.
    earlier: Vec<MemberTruth>,
}

#[derive(Debug)]
struct State {
    namespace: String,
    name: String,
    from: u64,
    /// The revision at which the state ended; `None` for the current state.
    until: Option<u64>,
}

#[derive(Debug)]
struct Right {
    from: u64,
    until: Option<(u64, Instant)>,
}

/// The reason why a user may not see an object.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Leak {
    #[error("no object ever was so")]
    Unknown,
    #[error("it was made after the right to it had been taken away, {0:?} before")]
    Later(Duration),
    #[error("there never was a right to it")]
    Never,
    #[error("the right to it was taken away {0:?} ago, and nothing has been wrong for long")]
    Still(Duration),
}

impl MemberTruth {
    pub(crate) fn put(&mut self, namespace: &str, name: &str, value: &str, revision: u64) {
        self.deleted(namespace, name, revision);
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.states.insert(value.to_owned(), State { namespace, name, from: revision, until: None });
    }

    pub(crate) fn deleted(&mut self, namespace: &str, name: &str, revision: u64) {
        let is_it = |state: &&mut State| state.namespace == namespace && state.name == name && state.until.is_none();
        if let Some(state) = self.states.values_mut().find(is_it) {
            state.until = Some(revision);
        }
    }

    pub(crate) fn given(&mut self, user: &str, place: &str, revision: u64) {
        let rights = self.rights.entry((user.to_owned(), place.to_owned())).or_default();
        rights.push(Right { from: revision, until: None });
    }

    pub(crate) fn taken(&mut self, user: &str, place: &str, revision: u64, at: Instant) {
        if let Some(right) = self.rights_at(user, place).last().filter(|right| right.until.is_none()).map(|it| it.from)
        {
            let rights = self.rights.get_mut(&(user.to_owned(), place.to_owned()));
            let right = rights.into_iter().flatten().find(|it| it.from == right);
            right.into_iter().for_each(|right| right.until = Some((revision, at)));
        }
    }

    pub(crate) fn troubled(&mut self, at: Instant) {
        self.troubled = Some(at);
        self.earlier.iter_mut().for_each(|earlier| earlier.troubled = Some(at));
    }

    /// Replaces the cluster by another cluster without objects and rights, at the time `at`. `revision` is the last
    /// revision of the replaced cluster.
    pub(crate) fn replaced(&mut self, revision: u64, at: Instant) {
        let mut ended = std::mem::take(self);
        for right in ended.rights.values_mut().flatten() {
            right.until.get_or_insert((revision, at));
        }
        self.troubled = ended.troubled;
        self.earlier = std::mem::take(&mut ended.earlier);
        self.earlier.push(ended);
    }

    pub(crate) fn count(&self) -> usize {
        self.states.len() + self.earlier.iter().map(Self::count).sum::<usize>()
    }

    /// Returns whether a user has a right in exactly this namespace (empty: all namespaces).
    pub(crate) fn may_read_at(&self, user: &str, place: &str) -> bool {
        self.rights_at(user, place).last().is_some_and(|right| right.until.is_none())
    }

    /// Returns the current objects in a namespace (empty: all): namespace, name and value.
    pub(crate) fn objects(&self, place: &str) -> impl Iterator<Item = (&str, &str, &str)> {
        let now = self.states.iter().filter(|(_, state)| state.until.is_none());
        let there = now.filter(move |(_, state)| place.is_empty() || state.namespace == place);
        there.map(|(value, state)| (&*state.namespace, &*state.name, &**value))
    }

    /// Checks that a user may see a state in a response that began at `begun`. `is_well` is true if no fault is active.
    pub(crate) fn may_be_shown(
        &self,
        user: &str,
        namespace: &str,
        value: &str,
        begun: Instant,
        is_well: bool,
    ) -> Result<(), Leak> {
        if let Some(earlier) = self.earlier.iter().find(|earlier| earlier.states.contains_key(value)) {
            return earlier.may_be_shown(user, namespace, value, begun, is_well);
        }
        let state = self.states.get(value).filter(|state| state.namespace == namespace).ok_or(Leak::Unknown)?;
        let rights = || self.rights_at(user, namespace).iter().chain(self.rights_at(user, ""));
        if rights().any(|right| right.until.is_none()) {
            return Ok(());
        }
        let lost = rights().filter_map(|right| right.until).max_by_key(|(revision, _)| *revision);
        let Some((_, lost_at)) = lost else { return Err(Leak::Never) };
        let since = |moment: Instant| begun.saturating_duration_since(moment);
        let overlaps = |right: &Right| {
            let begins = state.until.is_none_or(|until| right.from <= until);
            begins && right.until.is_none_or(|(until, _)| until >= state.from)
        };
        if !rights().any(overlaps) && since(lost_at) > LATE {
            return Err(Leak::Later(since(lost_at)));
        }
        let calm_since = self.troubled.map_or(lost_at, |troubled| troubled.max(lost_at));
        if is_well && since(calm_since) > NOTICED_WITHIN {
            return Err(Leak::Still(since(lost_at)));
        }
        Ok(())
    }

    fn rights_at(&self, user: &str, place: &str) -> &[Right] {
        self.rights.get(&(user.to_owned(), place.to_owned())).map_or(&[], Vec::as_slice)
    }
}

pub(crate) fn rights_checker_reports_leaks() -> Result<(), libtest_mimic::Failed> {
    let begin = Instant::now();
    let at = |seconds| begin + Duration::from_secs(seconds);
    let mut truth = MemberTruth::default();
    truth.put("a", "x", "old", 1);
    truth.given("ann", "a", 2);
    truth.taken("ann", "a", 5, at(100));
    truth.put("a", "x", "new", 6);
    truth.given("ben", "", 7);
    let cases = [
        ("ann", "nothing", 100, true, Err(Leak::Unknown)),
        ("eve", "old", 100, true, Err(Leak::Never)),
        ("ben", "new", 10_000, true, Ok(())),
        ("ann", "old", 101, true, Ok(())),
        ("ann", "old", 176, true, Err(Leak::Still(Duration::from_secs(76)))),
        ("ann", "old", 176, false, Ok(())),
        ("ann", "new", 110, true, Ok(())),
        ("ann", "new", 116, false, Err(Leak::Later(Duration::from_secs(16)))),
    ];
    for (user, value, seconds, is_well, expected) in cases {
        let told = truth.may_be_shown(user, "a", value, at(seconds), is_well);
        if told != expected {
            return Err(format!("{user} {value} at {seconds}: {told:?} instead of {expected:?}").into());
        }
    }
    truth.troubled(at(150));
    truth.may_be_shown("ann", "a", "old", at(176), true).map_err(|leak| leak.to_string())?;
    // In the new cluster, ann and eve may read.
    truth.replaced(7, at(300));
    for user in ["ann", "eve"] {
        truth.given(user, "", 3);
    }
    let cases = [
        ("eve", "new", 301, Err(Leak::Never)),
        ("ann", "new", 301, Err(Leak::Later(Duration::from_secs(201)))),
        ("ben", "new", 301, Ok(())),
        ("ben", "new", 376, Err(Leak::Still(Duration::from_secs(76)))),
    ];
    for (user, value, seconds, expected) in cases {
        let told = truth.may_be_shown(user, "a", value, at(seconds), true);
        if told != expected {
            return Err(format!("{user} {value} at {seconds}, replaced: {told:?} instead of {expected:?}").into());
        }
    }
    Ok(())
}

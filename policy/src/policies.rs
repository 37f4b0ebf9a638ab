//! A list of policies; the first policy that matches a request decides.

use crate::attributes::DispatchAttributes;
use crate::explanation::Explanation;
use crate::index::RuleIndex;
use crate::outcome::Outcome;
use crate::place::{PolicyList, RulePlace};
use crate::policy::{Mode, Policy};
use crate::rule::Matcher;

/// The decision of the policies on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyDecision<'a> {
    /// The decision of the enforced policies.
    pub verdict: Verdict<'a>,
    /// The rule of a policy in [`Mode::Audit`] that would have decided if the policy were enforced. Metrics count it.
    pub audited: Option<RulePlace>,
}

/// The decision of the enforced policies on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// The request passes: no policy is enforced, or no global policy takes the request.
    Ungoverned,
    /// A rule matches, and its policy decides.
    Taken {
        /// The rule that matches the request.
        place: RulePlace,
        /// The outcome of its policy.
        outcome: &'a Outcome,
    },
    /// There are enforced policies, but no rule matches: the request is not dispatched.
    Unmatched,
}

/// Compiled policies.
///
/// A decision costs about ten hash lookups and a few words of bits per 64 rules. It allocates nothing, unless the user
/// is in more than sixteen groups that rules name.
#[derive(Clone, Debug, Default)]
pub struct DispatchPolicies {
    policies: Vec<Policy>,
    /// The list that contains the policies.
    list: PolicyList,
    /// The positions of all rules, in order.
    places: Vec<RulePlace>,
    index: RuleIndex,
    /// Whether any policy is enforced.
    is_governed: bool,
}

impl DispatchPolicies {
    /// Compiles the policies of one place. A rule that [`crate::examine`] reports as an error is compiled literally and
    /// matches nothing.
    pub fn new(policies: Vec<Policy>) -> Self {
        Self::of_list(PolicyList::Dispatch, policies)
    }

    /// Compiles global policies. A request without a matching policy is [`Verdict::Ungoverned`].
    pub fn global(policies: Vec<Policy>) -> Self {
        Self::of_list(PolicyList::Global, policies)
    }

    fn of_list(list: PolicyList, policies: Vec<Policy>) -> Self {
        let mut places = Vec::new();
        let mut rules = Vec::new();
        for (number, policy) in policies.iter().enumerate() {
            for (rule, written) in policy.rules.iter().enumerate() {
                places.push(RulePlace { list, policy: number, rule });
                rules.push((Matcher::new(written), policy.mode, policy.denies()));
            }
        }
        let is_governed = policies.iter().any(|policy| policy.mode == Mode::Enforce);
        Self { index: RuleIndex::new(&rules), policies, list, places, is_governed }
    }

    /// The policies in their original form.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Whether these are the global policies.
    pub fn is_global(&self) -> bool {
        self.list == PolicyList::Global
    }

    /// Decides on a request.
    pub fn decide(&self, asked: &DispatchAttributes<'_>) -> PolicyDecision<'_> {
        let first = self.index.first(asked);
        let audited = first.audited.map(|rule| self.places[rule]);
        let verdict = match first.enforced.map(|rule| self.places[rule]) {
            Some(place) => Verdict::Taken { place, outcome: &self.policies[place.policy].outcome },
            None if self.is_governed && self.list == PolicyList::Dispatch => Verdict::Unmatched,
            None => Verdict::Ungoverned,
        };
        PolicyDecision { verdict, audited }
    }

    /// Explains the decision on a request, rule by rule. For people: it compares the request with every entry.
    pub fn explain(&self, asked: &DispatchAttributes<'_>) -> Explanation {
        let mut rules = Vec::new();
        for place in &self.places {
            let policy = &self.policies[place.policy];
            let verdict = Matcher::new(&policy.rules[place.rule]).explain(asked, policy.denies());
            let is_last = verdict.matches() && policy.mode == Mode::Enforce;
            rules.push((*place, verdict));
            if is_last {
                break;
            }
        }
        Explanation { rules }
    }
}

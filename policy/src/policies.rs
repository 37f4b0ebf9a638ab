//! A compiled list of policies. The first policy that matches a request decides.

use crate::attributes::DispatchAttributes;
use crate::explanation::Explanation;
use crate::index::RuleIndex;
use crate::outcome::Outcome;
use crate::place::{PolicyList, RulePosition};
use crate::policy::{Mode, Policy};
use crate::rule::Matcher;

/// Decision of the policies about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyDecision<'a> {
    /// Decision of the enforced policies.
    pub verdict: Verdict<'a>,
    /// The rule of a policy in [`Mode::Audit`] that would decide about the request if the policy were enforced. Metrics
    /// count such rules.
    pub audited: Option<RulePosition>,
}

/// Decision of the enforced policies about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// The request passes, because no policy is enforced or no global policy matches.
    Ungoverned,
    /// A rule matches, and its policy decides.
    Matched {
        /// The rule that matches the request.
        place: RulePosition,
        /// Outcome of the rule's policy.
        outcome: &'a Outcome,
    },
    /// Some policies are enforced, but none matches. The request is not dispatched.
    Unmatched,
}

/// Compiled policies.
///
/// A decision costs about ten hash lookups, and a few 64-bit operations for each 64 rules. A decision allocates only if
/// entries name more than sixteen groups of the user.
#[derive(Clone, Debug, Default)]
pub struct DispatchPolicies {
    policies: Vec<Policy>,
    list: PolicyList,
    places: Vec<RulePosition>,
    index: RuleIndex,
    is_governed: bool,
}

impl DispatchPolicies {
    /// Compiles the policies of the merged view or of a cluster. If [`crate::examine`] reports a rule as an error, the
    /// rule matches nothing.
    pub fn new(policies: Vec<Policy>) -> Self {
        Self::from_list(PolicyList::Dispatch, policies)
    }

    /// Compiles global policies. If no global policy matches a request, the verdict is [`Verdict::Ungoverned`].
    pub fn global(policies: Vec<Policy>) -> Self {
        Self::from_list(PolicyList::Global, policies)
    }

    fn from_list(list: PolicyList, policies: Vec<Policy>) -> Self {
        let mut places = Vec::new();
        let mut rules = Vec::new();
        for (number, policy) in policies.iter().enumerate() {
            for (rule, written) in policy.rules.iter().enumerate() {
                places.push(RulePosition { list, policy: number, rule });
                rules.push((Matcher::new(written), policy.mode, policy.denies()));
            }
        }
        let is_governed = policies.iter().any(|policy| policy.mode == Mode::Enforce);
        Self { index: RuleIndex::new(&rules), policies, list, places, is_governed }
    }

    /// Returns the policies as written in the configuration.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Returns whether these are global policies.
    pub fn is_global(&self) -> bool {
        self.list == PolicyList::Global
    }

    /// Decides about a request.
    pub fn decide(&self, attributes: &DispatchAttributes<'_>) -> PolicyDecision<'_> {
        let first = self.index.first(attributes);
        let audited = first.audited.map(|rule| self.places[rule]);
        let verdict = match first.enforced.map(|rule| self.places[rule]) {
            Some(place) => Verdict::Matched { place, outcome: &self.policies[place.policy].outcome },
            None if self.is_governed && self.list == PolicyList::Dispatch => Verdict::Unmatched,
            None => Verdict::Ungoverned,
        };
        PolicyDecision { verdict, audited }
    }

    /// Explains the decision about a request, rule by rule, for people. Slow, because the request is compared with
    /// every entry.
    pub fn explain(&self, attributes: &DispatchAttributes<'_>) -> Explanation {
        let mut rules = Vec::new();
        for place in &self.places {
            let policy = &self.policies[place.policy];
            let verdict = Matcher::new(&policy.rules[place.rule]).explain(attributes, policy.denies());
            let is_last = verdict.matches() && policy.mode == Mode::Enforce;
            rules.push((*place, verdict));
            if is_last {
                break;
            }
        }
        Explanation { rules }
    }
}

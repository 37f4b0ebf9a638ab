//! Property tests: the index, the explanations and the findings agree with the reference implementation.

use proptest::collection::vec;
use proptest::prelude::*;
use tributary_policy::{DispatchPolicies, Mode, PolicyScope, Verdict, examine};

use crate::{generated, reference};

proptest! {
    #[test]
    fn decision_of_the_policies_equals_that_of_a_reference_implementation(
        policies in generated::policies(0..20, 0..12),
        requests in vec(generated::request(), 1..20),
    ) {
        let compiled = DispatchPolicies::new(policies.clone());
        let is_governed = policies.iter().any(|policy| policy.mode == Mode::Enforce);
        for request in &requests {
            let request = request.attributes();
            let (expected_match, audited) = reference::decide(&policies, &request);
            let decision = compiled.decide(&request);
            let matched = match decision.verdict {
                Verdict::Matched { place, .. } => Some(place),
                Verdict::Unmatched | Verdict::Ungoverned => None,
            };
            prop_assert_eq!(matched, expected_match);
            prop_assert_eq!(decision.audited, audited);
            prop_assert_eq!(decision.verdict == Verdict::Ungoverned, !is_governed);
            for (place, verdict) in compiled.explain(&request).rules {
                let policy = &policies[place.policy];
                let expected = reference::matches(&policy.rules[place.rule], reference::denies(policy), &request);
                prop_assert_eq!(verdict.matches(), expected, "{} {:?}", place, verdict);
            }
        }
    }

    /// A rule with the finding "matches no request" never matches.
    #[test]
    fn rule_reported_as_ineffective_matches_no_request(
        policies in generated::policies(1..5, 1..4),
        requests in vec(generated::request(), 1..60),
    ) {
        let compiled = DispatchPolicies::new(policies.clone());
        let findings = examine(&policies, PolicyScope::Cluster);
        let useless: Vec<&str> = findings
            .iter()
            .filter(|finding| finding.message.contains("matches no request"))
            .map(|finding| finding.path.as_str())
            .collect();
        let is_void = |message: &str| {
            message.contains("so the rule never matches") || message.contains("so it never matches; give one")
        };
        let void: Vec<&str> = findings
            .iter()
            .filter(|finding| is_void(&finding.message))
            .map(|finding| finding.path.trim_end_matches(".verbs"))
            .collect();
        for request in &requests {
            let request = request.attributes();
            let decision = compiled.decide(&request);
            let matched = match decision.verdict {
                Verdict::Matched { place, .. } => Some(place),
                _ => None,
            };
            for place in matched.into_iter().chain(decision.audited) {
                let (rule, policy) = (place.to_string(), format!("spec.dispatchPolicies[{}]", place.policy));
                prop_assert!(!useless.contains(&&*rule) && !useless.contains(&&*policy), "{} of {:?}", place, useless);
                prop_assert!(!void.contains(&&*rule), "{} of {:?}", place, void);
            }
        }
    }
}

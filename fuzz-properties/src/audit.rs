//! The fuzzed property of audit policy files.

use tributary_apimachinery::RequestInfo;
use tributary_audit::{AuditAttributes, AuditPolicy, Level, PolicyRule, Stage};

/// The input is an audit policy file. The path of a request and a NUL byte may precede the file. The decision of an
/// accepted policy about a request is deterministic, and equals the decision of one of the policy's rules. The decision
/// omits at least the stages that the top level of the file omits.
pub fn audit_policy(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (path, text) = text.split_once('\0').unwrap_or(("/api/v1/namespaces/n/pods/p/log", text));
    let Ok((policy, _)) = AuditPolicy::parse(text) else { return };
    assert!(!policy.rules.is_empty());
    for method in ["GET", "POST", "OPTIONS"] {
        let Ok(info) = RequestInfo::parse(method, path, None) else { return };
        let groups = ["system:authenticated".to_owned()];
        for user in [None, Some(("ann", groups.as_slice()))] {
            let attributes = AuditAttributes::from_request(&info, user);
            let decision = policy.decide(&attributes);
            assert_eq!(decision, policy.decide(&attributes));
            let alone =
                |rule: &PolicyRule| AuditPolicy { rules: vec![rule.clone()], ..policy.clone() }.decide(&attributes);
            assert!(
                decision.level == Level::None || policy.rules.iter().any(|rule| alone(rule) == decision),
                "one rule decides"
            );
            for stage in Stage::ALL.into_iter().filter(|stage| policy.omit_stages.contains(*stage)) {
                assert!(decision.omit_stages.contains(stage), "a rule cannot take back what the policy omits");
            }
        }
    }
}

//! Plans the step for each object in a cluster, and describes the steps. Without I/O.

use serde_json::Value;

use super::account::{Account, Impersonation, MANAGED_BY, Purpose};
use crate::cli::Profile;

/// The change that `join` makes to an object in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The object does not exist, and will be created.
    Create,
    Change,
    /// The object exists, and needs no change.
    Keep,
}

impl Step {
    fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Change => "change",
            Self::Keep => "keep",
        }
    }
}

/// The error that a role belongs to a different owner, so `join` must not change it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name:?} exists already and was not made by tributary join; choose another name by {flag}")]
pub(super) struct Foreign {
    kind: String,
    name: String,
    flag: &'static str,
}

/// Returns the step for an object by its wanted and its present state.
///
/// # Errors
/// [`Foreign`] for a role without Tributary's label. A namespace may belong to anybody.
pub(super) fn step(wanted: &Value, present: Option<&Value>) -> Result<Step, Foreign> {
    let Some(present) = present else { return Ok(Step::Create) };
    let kind = wanted["kind"].as_str().unwrap_or_default();
    let label = present["metadata"]["labels"][MANAGED_BY.0].as_str();
    if kind == "Namespace" {
        return Ok(Step::Keep);
    }
    if label != Some(MANAGED_BY.1) {
        let name = wanted["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        return Err(Foreign { kind: kind.to_owned(), name, flag: "--account" });
    }
    Ok(if is_within(wanted, present) { Step::Keep } else { Step::Change })
}

/// Returns whether the present object contains all wanted fields. Lists must be equal, so that additional rules are
/// detected and removed.
fn is_within(wanted: &Value, present: &Value) -> bool {
    match (wanted, present) {
        (Value::Object(wanted), Value::Object(present)) => {
            wanted.iter().all(|(key, own)| present.get(key).is_some_and(|other| is_within(own, other)))
        }
        (wanted, present) => wanted == present,
    }
}

/// Describes the changes of the purpose, for example `profile write to read`.
pub(super) fn differences(before: &Purpose, after: &Purpose) -> impl Iterator<Item = String> + use<> {
    let both = before.choices().into_iter().zip(after.choices());
    let shown = |choice: String| if choice.is_empty() { "none".to_owned() } else { choice };
    both.filter(|(before, after)| before != after)
        .map(move |((flag, before), (_, after))| format!("{flag} {} to {}", shown(before), shown(after)))
}

/// Returns a note about the account's rights that the profile does not limit.
pub(super) fn profile_note(purpose: &Purpose) -> Option<String> {
    if purpose.impersonation != Impersonation::Any || purpose.profile == Profile::Write {
        return None;
    }
    Some(format!(
        "  note    profile {} limits the cached objects, not the requests of users: with --impersonation any, users \
         can write and read secrets as far as their own rights allow",
        purpose.profile.as_str()
    ))
}

/// Describes the objects that remain in a cluster after a failed read of the token.
pub(super) fn remaining_objects(Account { name, namespace, .. }: &Account) -> String {
    format!(
        "Namespace {namespace}, and ServiceAccount, ClusterRole and ClusterRoleBinding {name} stay in the cluster; \
         run join again to continue from them"
    )
}

/// Returns the line that describes the step for an object.
pub(super) fn line(step: Step, object: &Value) -> String {
    let metadata = &object["metadata"];
    let kind = object["kind"].as_str().unwrap_or_default();
    let name = metadata["name"].as_str().unwrap_or_default();
    let within = metadata["namespace"].as_str().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("  {:<7} {kind} {within}{name}", step.as_str())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::cli::TokenLifetime;

    fn writing() -> Purpose {
        Purpose {
            profile: Profile::Write,
            impersonation: Impersonation::Constrained,
            uid: false,
            extra: vec!["example.com/team".to_owned()],
            tokens: false,
            token_lifetime: TokenLifetime::Ends(Duration::from_secs(3600)),
        }
    }

    #[test]
    fn read_profile_with_unrestricted_impersonation_gets_a_note() {
        use Impersonation::{Any, Constrained};
        for (profile, impersonation, is_noted) in [
            (Profile::Read, Any, true),
            (Profile::ReadWithSecrets, Any, true),
            (Profile::Write, Any, false),
            (Profile::Read, Constrained, false),
            (Profile::Write, Constrained, false),
        ] {
            let noted = profile_note(&Purpose { profile, impersonation, ..writing() });
            let begins = format!("  note    profile {} limits the cached objects, not", profile.as_str());
            assert_eq!(noted.as_ref().map(|text| text.starts_with(&begins)), is_noted.then_some(true), "{noted:?}");
        }
    }

    #[test]
    fn join_plan_lists_changes_of_the_account_purpose() {
        let before = writing();
        let after = Purpose {
            profile: Profile::Read,
            extra: Vec::new(),
            token_lifetime: TokenLifetime::Permanent,
            ..before.clone()
        };
        assert_eq!(differences(&before, &before).count(), 0);
        assert_eq!(
            differences(&before, &after).collect::<Vec<_>>(),
            ["profile write to read", "impersonate-extra example.com/team to none", "token-lifetime 3600s to never"]
        );
    }

    #[test]
    fn join_plan_has_the_right_step_for_each_existing_object() {
        let role = |rules: Value, labels: Value| json!({"kind": "ClusterRole", "metadata": {"name": "t", "labels": labels}, "rules": rules});
        let ours = || json!({MANAGED_BY.0: MANAGED_BY.1});
        let wanted = role(json!([{"verbs": ["list"]}]), ours());
        let mut served = wanted.clone();
        served["metadata"]["uid"] = "u".into();
        assert_eq!(step(&wanted, None), Ok(Step::Create));
        assert_eq!(step(&wanted, Some(&served)), Ok(Step::Keep));
        let more = role(json!([{"verbs": ["list"]}, {"verbs": ["get"]}]), ours());
        assert_eq!(step(&wanted, Some(&more)), Ok(Step::Change));
        let error = step(&wanted, Some(&role(json!([]), json!({})))).unwrap_err().to_string();
        assert!(error.contains("ClusterRole \"t\"") && error.contains("--account"), "{error}");
        let namespace = json!({"kind": "Namespace", "metadata": {"name": "t", "labels": ours()}});
        let theirs = json!({"kind": "Namespace", "metadata": {"name": "t"}});
        assert_eq!(step(&namespace, Some(&theirs)), Ok(Step::Keep));
        assert_eq!(line(Step::Create, &namespace), "  create  Namespace t");
    }
}

//! Explains policies' decisions on a request as text.

use std::fmt::Write;

use tributary_policy::{
    Action, DispatchAttributes, DispatchPolicies, DispatchTarget, FieldVerdict, LogMode, Mode, Outcome, Reason, Rule,
    RuleField, Verdict,
};

/// The verdict for the server's own paths, for example `/tributary/status`.
pub(super) const ANSWERED_HERE: &str = "Tributary answers the request itself, without policies";

/// The view to which a request was sent, for a cluster whose dispatch is `DenyAll`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DenyAllView {
    /// The request is for the cluster's own view.
    Itself,
    /// The request is for the merged view of all clusters.
    MergedView,
}

/// Explains, rule by rule, how the policies of a configuration object decide. `frozen` is `Some` for a cluster whose
/// dispatch is `DenyAll`.
pub(super) fn describe_policies(
    object: &str,
    frozen: Option<DenyAllView>,
    policies: &DispatchPolicies,
    asked: &DispatchAttributes<'_>,
) -> String {
    // `writeln!` to a `String` never fails, so its result is ignored.
    let mut out = format!("{object}:\n");
    match frozen {
        None => {}
        Some(DenyAllView::Itself) => {
            out.push_str("  dispatch is DenyAll: the request is refused (429) for every user\n");
            return out;
        }
        Some(DenyAllView::MergedView) => out.push_str(
            "  dispatch is DenyAll: requests to the cluster are refused (429), and reads from the cache follow its \
             policies\n",
        ),
    }
    for (place, verdict) in policies.explain(asked).rules {
        let policy = &policies.policies()[place.policy];
        let rule = &policy.rules[place.rule];
        let (says, shown): (_, Vec<&FieldVerdict>) = match (verdict.matches(), policy.mode) {
            (false, _) => ("does not match", verdict.rejecting_fields().collect()),
            (true, Mode::Audit) => {
                ("matches; mode Audit, so the request is counted and continues", verdict.fields.iter().collect())
            }
            (true, Mode::Enforce) => ("applies", verdict.fields.iter().collect()),
        };
        let _ = writeln!(out, "  {place} {says}:");
        for field in shown {
            let _ = writeln!(out, "    {}", explain_field(field, rule, asked));
        }
    }
    let end = match policies.decide(asked).verdict {
        Verdict::Ungoverned if policies.is_global() => "No rule matches: the policies of the merged view or the \
                                                        cluster decide"
            .to_owned(),
        Verdict::Ungoverned => "No policy is enforced: the request continues".to_owned(),
        Verdict::Unmatched => "No rule matches: the request is refused (500)".to_owned(),
        Verdict::Matched { outcome, .. } => describe_outcome(outcome),
    };
    let _ = writeln!(out, "  {end}");
    out
}

/// Describes the decision for a user that only one cluster authenticates, if the decision in the merged view differs.
/// `counted` contains the name and the groups by which policies of the merged view decide about such a user.
pub(super) fn describe_member_user(
    policies: &DispatchPolicies,
    asked: &DispatchAttributes<'_>,
    counted: &DispatchAttributes<'_>,
) -> String {
    let end = |verdict: Verdict<'_>| match verdict {
        Verdict::Ungoverned => None,
        Verdict::Unmatched => Some((None, "No rule matches: the request is refused (500)".to_owned())),
        Verdict::Matched { place, outcome } => Some((Some(place), describe_outcome(outcome))),
    };
    let own = policies.decide(asked).verdict;
    // If the request is already refused, the output omits the decision for a user that only one cluster authenticates.
    let is_refused = match own {
        Verdict::Ungoverned => false,
        Verdict::Unmatched => true,
        Verdict::Matched { outcome, .. } => matches!(outcome.action, Action::Deny { .. }),
    };
    let [own, other] = [own, policies.decide(counted).verdict].map(end);
    let (Some((_, own)), Some((place, other))) = (own, other) else { return String::new() };
    if is_refused || own == other {
        return String::new();
    }
    let by = place.map(|place| format!("{place} applies. ")).unwrap_or_default();
    format!(
        "  If only one cluster authenticates {:?} (its ServiceAccounts, tokenReview), the policies of the merged view \
         ignore names and groups that the user could choose: {by}{other}\n",
        asked.user
    )
}

pub(super) fn describe_outcome(outcome: &Outcome) -> String {
    let mut text = match &outcome.action {
        Action::Deny { message } => format!("The request is denied (403): {message}"),
        Action::Dispatch { endpoints, flow_control_schema } => {
            let mut text = "The request continues".to_owned();
            if !endpoints.is_empty() {
                let _ = write!(text, ", only to {}", endpoints.join(", "));
            }
            if let Some(schema) = flow_control_schema {
                let _ = write!(text, ", limited by flow-control schema {schema:?}");
            }
            text
        }
    };
    match outcome.log_mode {
        Some(LogMode::Enabled) => text.push_str("; logMode Enabled"),
        Some(LogMode::Disabled) => text.push_str("; logMode Disabled"),
        None => {}
    }
    if let Some(level) = outcome.audit_level {
        let _ = write!(text, "; auditLevel {}", level.as_str());
    }
    text
}

/// Explains why a field of a rule matches, or does not match, a request.
fn explain_field(verdict: &FieldVerdict, rule: &Rule, asked: &DispatchAttributes<'_>) -> String {
    let field = verdict.field.as_str();
    let entries = rule.entries(verdict.field);
    let value = value(verdict.field, asked);
    let all = || entries.iter().map(|entry| format!("{entry:?}")).collect::<Vec<_>>().join(", ");
    match verdict.reason {
        Reason::Empty => format!("{field}: empty, so all match"),
        Reason::Entry(place) => format!("{field}[{place}]: {:?} matches {value}", entries[place]),
        Reason::Excluded(place) => format!("{field}[{place}]: {:?} excludes {value}", entries[place]),
        Reason::NotExcluded => format!("{field}: none of {} excludes {value}", all()),
        Reason::NoEntry if verdict.field == RuleField::Users && !rule.service_accounts.is_empty() => {
            format!("users, serviceAccounts: no entry matches {value}")
        }
        Reason::NoEntry if entries.is_empty() => format!("{field}: empty, so none match"),
        Reason::NoEntry => format!("{field}: none of {} matches {value}", all()),
    }
}

/// Returns the request's value that a field is compared with.
fn value(field: RuleField, asked: &DispatchAttributes<'_>) -> String {
    let quoted = |text: &str| format!("{text:?}");
    let of_resource = |text: fn(&tributary_apimachinery::RequestedResource<'_>) -> String| match &asked.target {
        DispatchTarget::Resource(resource) => quoted(&text(resource)),
        DispatchTarget::NonResource(_) => quoted(""),
    };
    match field {
        RuleField::Verbs => quoted(asked.verb),
        RuleField::Users | RuleField::ServiceAccounts => quoted(asked.user),
        RuleField::UserGroups => match asked.groups {
            [] => "a user without groups".to_owned(),
            groups => groups.iter().map(|group| quoted(group)).collect::<Vec<_>>().join(", "),
        },
        RuleField::UserAgents => quoted(asked.user_agent),
        RuleField::ApiGroups => of_resource(|resource| resource.group.to_owned()),
        RuleField::Resources => of_resource(|resource| match resource.subresource {
            "" => resource.resource.to_owned(),
            subresource => format!("{}/{subresource}", resource.resource),
        }),
        RuleField::ResourceNames => of_resource(|resource| resource.name.to_owned()),
        RuleField::Namespaces => of_resource(|resource| resource.namespace.to_owned()),
        RuleField::NonResourceUrls => match &asked.target {
            DispatchTarget::NonResource(path) => quoted(path),
            DispatchTarget::Resource(_) => quoted(""),
        },
    }
}

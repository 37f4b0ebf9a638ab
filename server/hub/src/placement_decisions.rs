//! PlacementDecisions: the clusters that a scheduler has chosen for a registry. Source: kubernetes-sigs/
//! cluster-inventory-api `apis/v1alpha1/placementdecision_types.go`. Without I/O.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tributary_apimachinery::{Object, Snapshot};
use tributary_cluster_sources::SourceKind;
use tributary_crds::{PlacementDecisionReference, ResourceRegistry};

use crate::in_force::{InForce, Selections};
use crate::members::JudgedMember;
use crate::verdict::shorten;
use crate::{ConditionState, HubKind, Verdict};

/// The label of all slices of a decision.
const KEY: &str = "multicluster.x-k8s.io/decision-key";

/// The label with the position of a slice, from 0.
const INDEX: &str = "multicluster.x-k8s.io/decision-index";

/// The slices of each namespace, or the reason why they are not known.
pub(crate) type ListedDecisions = BTreeMap<String, Result<Snapshot, String>>;

#[derive(Deserialize)]
struct PlacementDecision {
    decisions: Option<Vec<ClusterDecision>>,
}

/// The part of a slice that shows its decision. An unreadable slice of a different decision has no effect.
#[derive(Deserialize)]
struct SliceHead {
    metadata: SliceMetadata,
}

#[derive(Deserialize)]
struct SliceMetadata {
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClusterDecision {
    cluster_profile_ref: ProfileReference,
}

#[derive(Deserialize)]
struct ProfileReference {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
}

fn selection_key(reference: &PlacementDecisionReference) -> String {
    format!("{}/{}", reference.namespace, reference.key)
}

/// Adds the clusters of decisions to the registries that name a decision. While a slice is missing, the last complete
/// decision counts, and `ResolvedRefs` of the registry is False.
pub(crate) fn resolve_decisions(
    in_force: &mut InForce,
    listed: &ListedDecisions,
    members: &[JudgedMember],
    registries: &mut [ResourceRegistry],
    verdicts: &mut [Verdict],
) {
    let mut selections = Selections::new();
    for registry in registries {
        let Some(reference) = &registry.spec.clusters.placement_decision else { continue };
        let key = selection_key(reference);
        let found = match listed.get(&reference.namespace) {
            Some(Ok(slices)) => find_selection(slices, reference),
            Some(Err(problem)) => Err(problem.clone()),
            None => Err("Tributary has not read the PlacementDecisions yet.".to_owned()),
        };
        report(registry.metadata.name.as_ref(), found.as_ref().err(), verdicts);
        let selection = found.unwrap_or_else(|_| in_force.selections.get(&key).cloned().unwrap_or_default());
        registry.spec.clusters.names.extend(members_of(&selection, members));
        selections.insert(key, selection);
    }
    in_force.selections = selections;
}

/// Returns the members of a list of ClusterProfiles that a selection contains.
fn members_of(selection: &BTreeSet<String>, members: &[JudgedMember]) -> Vec<String> {
    let drafts = members.iter().filter_map(|member| member.draft.as_ref());
    let items = drafts.filter_map(|draft| Some(&draft.item.as_ref()?.item));
    let chosen =
        items.filter(|item| item.list == SourceKind::ClusterProfiles && selection.contains(&item.foreign_name));
    chosen.map(|item| item.name.to_string()).collect()
}

/// Sets `ResolvedRefs` of a registry. A cluster that the registry names and that is absent has priority over a complete
/// decision.
fn report(registry: Option<&String>, problem: Option<&String>, verdicts: &mut [Verdict]) {
    let is_own = |verdict: &&mut Verdict| {
        verdict.object.kind == HubKind::ResourceRegistry && Some(&verdict.object.name) == registry
    };
    let Some(verdict) = verdicts.iter_mut().find(is_own) else { return };
    match problem {
        Some(problem) => {
            let message =
                format!("spec.clusters.placementDecision: {problem} The last complete decision stays in force.");
            verdict.resolved_refs = Some(ConditionState::failed("DecisionIncomplete", shorten(message)));
        }
        None => {
            let complete = || ConditionState::fulfilled("Resolved", "All slices of the decision exist.");
            verdict.resolved_refs.get_or_insert_with(complete);
        }
    }
}

/// Returns the profiles of all slices of a decision.
///
/// # Errors
/// A slice is missing or unreadable, as a sentence.
fn find_selection(slices: &Snapshot, reference: &PlacementDecisionReference) -> Result<BTreeSet<String>, String> {
    let PlacementDecisionReference { namespace, key } = reference;
    let (mut selection, mut indexes, mut count) = (BTreeSet::new(), BTreeSet::new(), 0);
    for object in slices.iter() {
        let SliceHead { metadata } = decode(object)?;
        let label = |name: &str| metadata.labels.as_ref().and_then(|labels| labels.get(name));
        if label(KEY).map_or(object.name(), String::as_str) != key {
            continue;
        }
        count += 1;
        let slice: PlacementDecision = decode(object)?;
        if let Some(index) = label(INDEX) {
            let place = format!("PlacementDecision {namespace}/{}: the label {INDEX}", object.name());
            let number: usize = index.parse().map_err(|_| format!("{place} is no number. Correct the label."))?;
            if !indexes.insert(number) {
                return Err(format!("{place} is {number}, as in a different slice. Remove one of the slices."));
            }
        }
        let chosen = slice.decisions.into_iter().flatten().map(|decision| decision.cluster_profile_ref);
        selection.extend(chosen.map(|profile| {
            let own = profile.namespace.filter(|namespace| !namespace.is_empty());
            format!("{}/{}", own.as_deref().unwrap_or(namespace), profile.name)
        }));
    }
    if count == 0 {
        return Err(format!("no PlacementDecision of namespace {namespace} has the label {KEY}={key}. Create one."));
    }
    // Without the label, the number of slices is unknown.
    match (0..count).find(|index| !indexes.contains(index)) {
        Some(missing) if !indexes.is_empty() => Err(format!(
            "the slice of the decision {namespace}/{key} with the label {INDEX}={missing} is missing. Restore it."
        )),
        _ => Ok(selection),
    }
}

fn decode<T: DeserializeOwned>(object: &Object) -> Result<T, String> {
    serde_json::from_slice(object.json())
        .map_err(|_| format!("PlacementDecision {} is not a valid object of its kind. Correct it.", object.name()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};
    use tributary_apimachinery::ObjectDecoder;

    use super::*;

    fn slice(name: &str, labels: Value, profiles: &[&str]) -> Value {
        let reference = |profile: &&str| match profile.split_once('/') {
            Some((namespace, name)) => json!({"clusterProfileRef": {"name": name, "namespace": namespace}}),
            None => json!({"clusterProfileRef": {"name": profile}}),
        };
        let decisions: Vec<Value> = profiles.iter().map(reference).collect();
        let metadata = json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "labels": labels});
        json!({"metadata": metadata, "decisions": decisions})
    }

    fn numbered(index: &str, profiles: &[&str]) -> Value {
        slice(&format!("slice-{index}"), json!({ KEY: "k", INDEX: index }), profiles)
    }

    fn find(slices: &[Value]) -> Result<String, String> {
        let decoder = ObjectDecoder::new("", "", Arc::default());
        let decode = |slice: &Value| Arc::new(decoder.decode(slice.to_string().as_bytes()).unwrap());
        let slices: Snapshot = slices.iter().map(decode).collect();
        let reference = PlacementDecisionReference { namespace: "ns".to_owned(), key: "k".to_owned() };
        find_selection(&slices, &reference).map(|found| found.into_iter().collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn all_slices_of_a_decision_count_together() {
        let others = [slice("x", json!({ KEY: "other" }), &["z"]), slice("y", json!(null), &["z"])];
        let slices = [numbered("1", &["b"]), numbered("0", &["a", "fleet/c"])];
        assert_eq!(find(&[&slices[..], &others].concat()).unwrap(), "fleet/c ns/a ns/b");
        let unnumbered = [slice("a", json!({ KEY: "k" }), &["a"]), slice("b", json!({ KEY: "k" }), &[])];
        assert_eq!(find(&unnumbered).unwrap(), "ns/a");
        assert_eq!(find(&[slice("k", json!(null), &["a"])]).unwrap(), "ns/a", "the name of an only slice");
    }

    #[test]
    fn incomplete_decision_is_refused_with_the_missing_slice() {
        for (slices, text) in [
            (vec![], "has the label multicluster.x-k8s.io/decision-key=k"),
            (vec![numbered("0", &["a"]), numbered("2", &["b"])], "decision-index=1 is missing"),
            (vec![numbered("1", &["a"])], "decision-index=0"),
            (vec![numbered("0", &["a"]), slice("b", json!({ KEY: "k" }), &["b"])], "decision-index=1"),
            (
                vec![numbered("0", &["a"]), slice("b", json!({ KEY: "k", INDEX: "0" }), &["b"])],
                "as in a different slice",
            ),
            (vec![numbered("x", &["a"])], "is no number"),
            (
                vec![json!({"metadata": {"name": "k", "uid": "k", "resourceVersion": "1"}, "decisions": 1})],
                "not a valid",
            ),
        ] {
            let problem = find(&slices).unwrap_err();
            assert!(problem.contains(text) && problem.ends_with('.'), "{text}: {problem}");
        }
    }
}

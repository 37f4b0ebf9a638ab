//! How each cluster stands with respect to one resource: known and fresh, known and stale, or unknown.

use std::time::Duration;

use tokio::time::Instant;
use tributary_apimachinery::{ClusterName, GroupVersionResource, Status};
use tributary_cacher::{Reason, State};

use crate::discovery::Otherwise;
use crate::topology::Cluster;

/// How one cluster stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its objects are held and follow the member.
    Fresh,
    /// Its objects are held, but changes have not arrived for so long.
    Stale {
        /// Since when.
        age: Duration,
        /// Why.
        reason: String,
    },
    /// Nothing is known of its objects yet. `reason` is `None` while the first attempt is under way.
    Unknown {
        /// For how long they have been waited for.
        age: Duration,
        /// Why not, once an attempt has failed.
        reason: Option<String>,
        /// Whether the member forbids to read the whole collection.
        forbidden: bool,
    },
    /// It has such objects, but not so that they can be shown here: as another kind, or in other versions only. Nothing is
    /// waited for, and each answer says so.
    LeftOut {
        /// How it has them.
        reason: String,
    },
}

impl Standing {
    /// Reads a cacher's state.
    pub fn of(state: &State) -> Self {
        match state {
            State::Synced => Self::Fresh,
            State::Stale { since, reason } => Self::Stale { age: since.elapsed(), reason: reason.to_string() },
            State::Syncing { since, reason } => Self::Unknown {
                age: since.elapsed(),
                reason: reason.as_ref().map(ToString::to_string),
                forbidden: matches!(reason, Some(Reason::Forbidden)),
            },
        }
    }

    /// A cluster that has not told yet what it serves, or not all: the aggregated server behind the resource's version does not
    /// answer it.
    pub fn of_undiscovered(cluster: &Cluster, resource: &GroupVersionResource) -> Self {
        let silent = || cluster.discovery().map(|_| Otherwise::Stale.reason(resource));
        Self::Unknown { age: cluster.age(), reason: cluster.problem().or_else(silent), forbidden: false }
    }

    /// A cluster whose changes arrive, but not what was written through this process since then.
    pub fn unseen_writes(since: Instant) -> Self {
        Self::Stale { age: since.elapsed(), reason: "its watch lags behind what was written here".to_owned() }
    }

    /// Whether its objects are held.
    pub fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown { .. })
    }

    /// Whether waiting a moment may help without anything being repaired first.
    pub fn is_under_way(&self) -> bool {
        matches!(self, Self::Unknown { reason: None, .. })
    }
}

/// What happens to a list or watch when a cluster is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partial {
    /// It is refused with 429 until all are known.
    #[default]
    Deny,
    /// It is answered without the cluster, and a `Warning` says so.
    Allow,
}

/// How many clusters are named in warnings before they are only counted.
const WARNINGS_MAX: usize = 10;

/// One `Warning: 299` text for each cluster that is missing or stale.
pub fn warnings(resource: &GroupVersionResource, standings: &[(ClusterName, Standing)]) -> Vec<String> {
    let resource = resource.group_resource();
    let mut texts: Vec<String> = standings
        .iter()
        .filter_map(|(cluster, standing)| match standing {
            Standing::Fresh => None,
            Standing::Stale { age, reason } => Some(format!(
                "cluster {cluster}: {resource} may be stale, last updated {} s ago: {reason}",
                age.as_secs()
            )),
            Standing::LeftOut { reason } => Some(format!("cluster {cluster}: {resource} are missing: {reason}")),
            Standing::Unknown { age, reason, .. } => Some(format!(
                "cluster {cluster}: {resource} are missing, waited for since {} s: {}",
                age.as_secs(),
                reason.as_deref().unwrap_or("not synced yet")
            )),
        })
        .collect();
    if texts.len() > WARNINGS_MAX {
        let more = texts.len() - WARNINGS_MAX;
        texts.truncate(WARNINGS_MAX);
        texts.push(format!("{more} more clusters: {resource} are missing or stale"));
    }
    texts
}

/// Texts in one, as many as clusters are named.
pub fn shortened(texts: &[String]) -> String {
    let mut text = texts.iter().take(WARNINGS_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
    if texts.len() > WARNINGS_MAX {
        text.push_str(&format!("; and {} more", texts.len() - WARNINGS_MAX));
    }
    text
}

/// The text of a `Warning: 299` that names the clusters which serve a resource and are not part of the view by configuration.
pub fn left_out_warning(resource: &GroupVersionResource, left_out: &[ClusterName]) -> Option<String> {
    let names: Vec<_> = left_out.iter().map(ToString::to_string).collect();
    (!names.is_empty()).then(|| {
        format!(
            "{resource} of these clusters are not part of this view, by spec.clusters of a ResourceRegistry; ask them under /clusters/<name>: {}",
            shortened(&names)
        )
    })
}

/// The longest text of a warning, in characters. 1,024: reasons may quote a member's own words, and a dozen warnings have to fit in
/// a client's header list (16 KiB by default in many).
const WARNING_LENGTH_MAX: usize = 1024;

/// Writes a text as the value of a `Warning` header: `299 - "text"`, quotes escaped, control characters left out, in UTF-8.
pub fn warning_header(text: &str) -> Option<http::HeaderValue> {
    let clean: String = text.chars().filter(|c| !c.is_control()).take(WARNING_LENGTH_MAX).collect();
    let quoted = format!("299 - \"{}\"", clean.replace('\\', "\\\\").replace('"', "\\\""));
    http::HeaderValue::from_bytes(quoted.as_bytes()).ok()
}

/// The refusal while clusters are unknown; `None` if all are known.
pub fn refusal(resource: &GroupVersionResource, standings: &[(ClusterName, Standing)]) -> Option<Status> {
    let unknown: Vec<_> = standings.iter().filter(|(_, standing)| !standing.is_known()).collect();
    if unknown.is_empty() {
        return None;
    }
    let names: Vec<_> = unknown.iter().map(|(cluster, _)| cluster.clone()).collect();
    let mut status = Status::clusters_unknown(resource, &names, 5);
    for (cluster, standing) in unknown.iter().take(WARNINGS_MAX) {
        if let Standing::Unknown { reason: Some(reason), .. } = standing {
            status.message.push_str(&format!("; {cluster}: {reason}"));
        }
    }
    Some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_clusters_are_named_up_to_ten() {
        let pods = GroupVersionResource::new("", "v1", "pods");
        let (age, reason) = (Duration::from_secs(7), Some("unreachable: \"x\"\n".into()));
        let unknown = Standing::Unknown { age, reason, forbidden: false };
        let mut standings = vec![(ClusterName::new("good").unwrap(), Standing::Fresh)];
        assert!(warnings(&pods, &standings).is_empty() && refusal(&pods, &standings).is_none());
        for i in 0..12 {
            standings.push((ClusterName::new(&format!("c{i}")).unwrap(), unknown.clone()));
        }
        let texts = warnings(&pods, &standings);
        assert_eq!((texts.len(), texts[10].starts_with("2 more")), (11, true));
        assert_eq!(
            warning_header(&texts[0]).unwrap(),
            "299 - \"cluster c0: pods are missing, waited for since 7 s: unreachable: \\\"x\\\"\""
        );
        // Whatever a member says, its warning is not left out.
        let words = warning_header(&format!("größer {}", "\u{1f5a7}".repeat(5000))).unwrap();
        assert!(words.as_bytes().starts_with("299 - \"größer".as_bytes()) && words.len() < 8 * 1024);
        let status = refusal(&pods, &standings).unwrap();
        assert!(status.code == 429 && status.message.contains("c0"));
    }
}

//! Changes of a cluster's kinds, from watches of its CustomResourceDefinitions and APIServices. The changes decide when
//! Tributary requests discovery, and for which kinds discovery may be outdated.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tributary_apimachinery::GroupVersionResource;

/// Delays of discovery requests after a change. A kube-apiserver shows an established CustomResourceDefinition in
/// discovery after some 100 ms. It shows an APIService after a request to the aggregated API server. Unnecessary
/// requests cost little, because an unchanged answer is a 304.
const ASKED_AFTER: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_millis(1_000),
    Duration::from_millis(2_000),
];

/// Minimum time between two discovery requests. 200 ms, because definitions are often created in groups.
const ASK_INTERVAL: Duration = Duration::from_millis(200);

/// Maximum time until discovery contains a change.
const SHOWN_WITHIN: Duration = Duration::from_secs(1);

/// Maximum number of stored names of changed objects. 1,024: more than the largest sets of CustomResourceDefinitions.
/// Above the maximum, Tributary assumes that every kind may have changed.
const CHANGES_MAX: usize = 1_024;

/// Resources whose objects define kinds. The name of such an object determines the kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum KindSource {
    /// A CustomResourceDefinition: `things.example.com` defines a resource in all of its versions.
    Definitions,
    /// An APIService: `v1.example.com` defines all resources of an API version.
    Services,
}

impl KindSource {
    pub(super) const ALL: [Self; 2] = [Self::Definitions, Self::Services];

    pub(super) fn resource(self) -> (GroupVersionResource, &'static str) {
        match self {
            Self::Definitions => (
                GroupVersionResource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
                "CustomResourceDefinition",
            ),
            Self::Services => (GroupVersionResource::new("apiregistration.k8s.io", "v1", "apiservices"), "APIService"),
        }
    }

    /// Returns whether an object with this name may define the resource.
    fn concerns(self, name: &str, resource: &GroupVersionResource) -> bool {
        let Some((first, group)) = name.split_once('.') else { return false };
        let own = match self {
            Self::Definitions => &resource.resource,
            Self::Services => &resource.version,
        };
        *resource.group == *group && **own == *first
    }
}

/// Changes of one cluster's kinds that the cluster's discovery may not show yet.
#[derive(Default)]
pub(super) struct KindChanges {
    state: Mutex<ChangesState>,
    news: Notify,
}

#[derive(Default)]
struct ChangesState {
    /// Time of the last change of each object, by name.
    changed: HashMap<(KindSource, String), Instant>,
    /// Time of the last change whose object has no entry in `changed`.
    unnamed: Option<Instant>,
    last: Option<Instant>,
    /// Number of discovery requests since the last change.
    requests: usize,
    requested_at: Option<Instant>,
}

impl KindChanges {
    /// Records a change, with the names of created or changed objects.
    pub(super) fn add_change<'a>(&self, source: KindSource, names: impl Iterator<Item = &'a str>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        for name in names {
            let key = (source, name.to_owned());
            if state.changed.len() < CHANGES_MAX || state.changed.contains_key(&key) {
                state.changed.insert(key, now);
            } else {
                state.unnamed = Some(now);
            }
        }
        (state.last, state.requests) = (Some(now), 0);
        drop(state);
        self.news.notify_one();
    }

    /// Records that any object may have changed, because a list has replaced the events of a broken watch.
    pub(super) fn record_any_change(&self) {
        self.state.lock().unnamed = Some(Instant::now());
        self.add_change(KindSource::Definitions, std::iter::empty());
    }

    /// Waits until the next discovery request is due. Cancellation loses no change.
    pub(super) async fn due(&self) {
        loop {
            let due = self.state.lock().due();
            let due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => break,
                () = self.news.notified() => {}
            }
        }
        let mut state = self.state.lock();
        (state.requests, state.requested_at) = (state.requests + 1, Some(Instant::now()));
    }

    /// Removes the changes that a discovery must contain if Tributary requested it at `asked_at`.
    pub(super) fn shown(&self, requested_at: Instant) {
        let is_open = |changed: Instant| changed + SHOWN_WITHIN > requested_at;
        let mut state = self.state.lock();
        state.changed.retain(|_, changed| is_open(*changed));
        state.unnamed = state.unnamed.filter(|changed| is_open(*changed));
    }

    /// Returns whether the cluster may serve a resource because of a change that its discovery may not show yet.
    pub(super) fn concern(&self, resource: &GroupVersionResource) -> bool {
        let state = self.state.lock();
        state.unnamed.is_some() || state.changed.keys().any(|(source, name)| source.concerns(name, resource))
    }
}

impl ChangesState {
    fn due(&self) -> Option<Instant> {
        let due = self.last? + *ASKED_AFTER.get(self.requests)?;
        Some(self.requested_at.map_or(due, |requested_at| due.max(requested_at + ASK_INTERVAL)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crd_or_apiservice_name_determines_the_affected_resources() {
        let things = GroupVersionResource::new("late.example", "v1", "things");
        for (source, name, expected) in [
            (KindSource::Definitions, "things.late.example", true),
            (KindSource::Definitions, "others.late.example", false),
            (KindSource::Definitions, "things.example", false),
            (KindSource::Services, "v1.late.example", true),
            (KindSource::Services, "v2.late.example", false),
            (KindSource::Services, "v1.", false),
            (KindSource::Services, "things", false),
        ] {
            assert_eq!(source.concerns(name, &things), expected, "{source:?} {name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn discovery_is_repeated_five_times_after_a_crd_change() {
        let (changes, begun) = (KindChanges::default(), Instant::now());
        let things = GroupVersionResource::new("late.example", "v1", "things");
        changes.add_change(KindSource::Definitions, ["things.late.example"].into_iter());
        let mut request_times = Vec::new();
        while tokio::time::timeout(Duration::from_secs(60), changes.due()).await.is_ok() {
            request_times.push(begun.elapsed().as_millis());
            changes.shown(Instant::now());
            assert_eq!(changes.concern(&things), begun.elapsed() < SHOWN_WITHIN, "{request_times:?}");
        }
        assert_eq!(request_times, [0, 200, 500, 1_000, 2_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_crd_changes_count_as_changes_of_every_resource() {
        let (changes, begun) = (KindChanges::default(), Instant::now());
        let resource = |name: &str| GroupVersionResource::new("late.example", "v1", name);
        let note = |numbers: std::ops::Range<usize>| {
            let names: Vec<_> = numbers.map(|number| format!("things{number}.late.example")).collect();
            changes.add_change(KindSource::Definitions, names.iter().map(|name| &**name));
        };
        note(0..CHANGES_MAX);
        assert!(changes.concern(&resource("things0")) && !changes.concern(&resource("others")));
        tokio::time::advance(SHOWN_WITHIN / 2).await;
        note(0..1);
        changes.shown(begun + SHOWN_WITHIN);
        assert!(changes.concern(&resource("things0")), "it has changed again");
        assert!(!changes.concern(&resource("things1")));
        note(1..CHANGES_MAX + 1);
        assert!(changes.concern(&resource("others")), "one of them may be the one without a name");
        changes.shown(Instant::now() + SHOWN_WITHIN);
        assert!(!changes.concern(&resource("others")) && !changes.concern(&resource("things0")));
        changes.record_any_change();
        assert!(changes.concern(&resource("others")));
        changes.shown(Instant::now() + SHOWN_WITHIN);
        assert!(!changes.concern(&resource("others")));
    }

    #[tokio::test(start_paused = true)]
    async fn continuous_crd_changes_cause_at_most_five_discoveries_a_second() {
        let (changes, begun) = (KindChanges::default(), Instant::now());
        let mut requests = 0;
        while begun.elapsed() < Duration::from_secs(10) {
            changes.add_change(KindSource::Services, std::iter::empty());
            requests += usize::from(tokio::time::timeout(Duration::from_millis(10), changes.due()).await.is_ok());
        }
        assert!((45..=51).contains(&requests), "{requests}");
    }
}

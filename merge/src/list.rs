//! A merged list: the snapshots of several clusters one after the other, in chunks.
//!
//! Clusters are ordered by name, and the objects of a cluster by key. The cursor owns its snapshots and a position,
//! never a vector of objects. Each chunk searches its start again. So a list of a million objects, which a slow client
//! reads, occupies no memory for each object.
//!
//! The head of a page contains the start of the next page, so the search for the end of the page precedes the first
//! byte. With a selector that matches few objects, the search walks over all objects. [`OpeningList`] therefore splits
//! the search into steps, so that other tasks can run between two steps.

use std::ops::ControlFlow;
use std::sync::Arc;

use tributary_apimachinery::{ClusterName, Object, Scope, Snapshot};

use crate::{ClusterSnapshots, ObjectFilter, Position};

/// The range of a list that a request selects.
#[derive(Clone, Debug, Default)]
pub struct ListPage {
    /// The start of the page; `None` for the beginning of the list.
    pub start: Option<Position>,
    /// The maximum number of objects in the page; 0 for no limit.
    pub limit: usize,
    /// The number of objects after `start`. `Some` only if the continue token contains the number, and the list reads
    /// the same snapshots as the previous pages.
    pub remaining: Option<u64>,
}

/// Reads a merged list in chunks.
#[derive(Clone)]
pub struct ListCursor<F> {
    snapshots: ClusterSnapshots,
    filter: F,
    position: SnapshotPosition,
    /// The number of objects that the page may still contain.
    remaining_in_page: usize,
    continue_at: Option<Position>,
    remaining: Option<u64>,
}

#[derive(Clone, Default)]
struct SnapshotPosition {
    at: usize,
    /// The last visited key of the current snapshot; `None` at its beginning.
    after: Option<Box<str>>,
}

/// Where a walk continues after it has visited an object.
enum Visited {
    Next,
    /// The walk jumps behind this key.
    Skip(Box<str>),
    Last,
}

impl Visited {
    /// Returns where the walk continues after an object that the filter does not match.
    fn unwanted(filter: &impl ObjectFilter, cluster: &ClusterName, object: &Object) -> Self {
        filter.skip_to_key(cluster, object).map_or(Self::Next, Self::Skip)
    }
}

impl SnapshotPosition {
    fn at_start(start: &Position, snapshots: &ClusterSnapshots) -> Self {
        let at = snapshots.partition_point(|(cluster, _)| *cluster < start.cluster);
        let is_there = snapshots.get(at).is_some_and(|(cluster, _)| *cluster == start.cluster);
        Self { at, after: is_there.then(|| start.after.clone()) }
    }

    /// Visits the objects from this position on. Stops after the first object for which `visit` returns
    /// [`Visited::Last`].
    fn walk<'a>(
        &mut self,
        snapshots: &'a ClusterSnapshots,
        scope: &Scope<'_>,
        mut visit: impl FnMut(&'a ClusterName, &'a Arc<Object>) -> Visited,
    ) -> ControlFlow<()> {
        while self.at < snapshots.len() {
            self.walk_cluster(snapshots, scope, &mut visit)?;
        }
        ControlFlow::Continue(())
    }

    /// Visits the objects of the current cluster like [`walk`](Self::walk), and then moves to the beginning of the next
    /// cluster.
    fn walk_cluster<'a>(
        &mut self,
        snapshots: &'a ClusterSnapshots,
        scope: &Scope<'_>,
        mut visit: impl FnMut(&'a ClusterName, &'a Arc<Object>) -> Visited,
    ) -> ControlFlow<()> {
        if let Some((cluster, snapshot)) = snapshots.get(self.at) {
            let mut walk = snapshot.range(scope, self.after.as_deref());
            while let Some(object) = walk.next() {
                match visit(cluster, object) {
                    Visited::Next => {}
                    Visited::Skip(after) if *after > *object.key().as_str() => {
                        walk = snapshot.range(scope, Some(&after));
                    }
                    Visited::Skip(_) => {}
                    Visited::Last => {
                        self.after = Some(object.key().as_str().into());
                        return ControlFlow::Break(());
                    }
                }
            }
        }
        *self = Self { at: self.at + 1, after: None };
        ControlFlow::Continue(())
    }
}

/// Decides, during a walk over a filter's scope, which objects match. If a filter matches a whole namespace, it is
/// evaluated only once per cluster, because the walk visits only matching objects. This saves about 1 % of the cost of
/// a list of 100 objects: 34,000 of 3.9 million instructions, or 45,000 for a client that may see only some clusters.
struct FilterExtent<'a, F> {
    filter: &'a F,
    is_whole: bool,
    /// The cluster of the last visited object, if the filter wants this cluster. All its objects in the namespace
    /// match.
    cluster: Option<&'a ClusterName>,
}

impl<'a, F: ObjectFilter> FilterExtent<'a, F> {
    fn new(filter: &'a F) -> Self {
        Self { filter, is_whole: filter.is_whole_namespace(), cluster: None }
    }

    fn contains(&mut self, cluster: &'a ClusterName, object: &Object) -> bool {
        if !self.is_whole {
            return self.filter.matches(cluster, object);
        }
        // Equal pointers mean the same cluster, because all cluster names of a list are in one allocation. Two pointers
        // to the same name would only cause another evaluation.
        let is_known = self.cluster.is_some_and(|last| std::ptr::eq(last, cluster));
        if !is_known {
            self.cluster = self.filter.wants_cluster(cluster).then_some(cluster);
        }
        self.cluster.is_some()
    }
}

/// A list that is being opened: the search for the end of the page precedes the first chunk.
pub struct OpeningList<F> {
    cursor: ListCursor<F>,
    limit: usize,
    /// The number of objects behind the page's start, if the continue token contains this number.
    total: Option<u64>,
    position: SnapshotPosition,
    goal: SearchGoal,
}

enum SearchGoal {
    /// Skips `left` matching objects. The next matching object is the last object of the page.
    Last { left: usize },
    /// Searches for an object behind the last object of the page.
    Next { last: Position },
    /// Counts the objects from the page's start on.
    Total { counted: u64 },
}

impl<F: ObjectFilter> OpeningList<F> {
    /// Begins to open a list over snapshots, which are in the order of their clusters' names.
    ///
    /// If the cluster of the start position has left since the continue token was issued, the list resumes in the next
    /// cluster.
    pub fn new(snapshots: ClusterSnapshots, filter: F, page: ListPage) -> Self {
        let position =
            page.start.as_ref().map(|start| SnapshotPosition::at_start(start, &snapshots)).unwrap_or_default();
        let remaining_in_page = if page.limit > 0 { page.limit } else { usize::MAX };
        let cursor = ListCursor {
            snapshots,
            filter,
            position: position.clone(),
            remaining_in_page,
            continue_at: None,
            remaining: None,
        };
        let goal = SearchGoal::Last { left: page.limit.saturating_sub(1) };
        Self { cursor, limit: page.limit, total: page.remaining, position, goal }
    }

    /// Continues the search. Returns the list when the search is complete, which is immediate without a limit. A page
    /// with a continue token is always followed by a page that is not empty.
    ///
    /// Cost: evaluating the filter, up to about `bytes_max` ([`ObjectFilter::cost`]) and one more object.
    pub fn step(mut self, bytes_max: usize) -> ControlFlow<ListCursor<F>, Self> {
        if self.limit == 0 {
            return ControlFlow::Break(self.cursor);
        }
        let mut left = bytes_max;
        if !matches!(self.goal, SearchGoal::Total { .. }) {
            match self.seek_end(&mut left) {
                // The search has found no object behind the page, so the page is the last page.
                ControlFlow::Continue(()) => return ControlFlow::Break(self.cursor),
                ControlFlow::Break(()) if self.cursor.continue_at.is_none() => return ControlFlow::Continue(self),
                ControlFlow::Break(()) => {}
            }
            if !self.cursor.filter.is_whole_namespace() {
                return ControlFlow::Break(self.cursor);
            }
            (self.position, self.goal) = (self.cursor.position.clone(), SearchGoal::Total { counted: 0 });
        }
        match self.total.or_else(|| self.count(&mut left)) {
            None => ControlFlow::Continue(self),
            Some(total) => {
                self.cursor.remaining = Some(total.saturating_sub(self.limit as u64).max(1));
                ControlFlow::Break(self.cursor)
            }
        }
    }

    /// Searches for the last object of the page and for an object behind it. Breaks when both objects are found or the
    /// budget `left` is spent.
    fn seek_end(&mut self, left: &mut usize) -> ControlFlow<()> {
        let Self { cursor: ListCursor { snapshots, filter, continue_at, .. }, position, goal, .. } = self;
        position.walk(snapshots, &filter.scope(), |cluster, object| {
            *left = left.saturating_sub(filter.cost(object));
            if filter.matches(cluster, object) {
                match goal {
                    SearchGoal::Last { left: 0 } => {
                        let last = Position { cluster: cluster.clone(), after: object.key().as_str().into() };
                        *goal = SearchGoal::Next { last };
                    }
                    SearchGoal::Last { left } => *left -= 1,
                    SearchGoal::Next { last } => {
                        *continue_at = Some(last.clone());
                        return Visited::Last;
                    }
                    SearchGoal::Total { .. } => {}
                }
            } else if *left > 0 {
                return Visited::unwanted(filter, cluster, object);
            }
            if *left == 0 { Visited::Last } else { Visited::Next }
        })
    }

    /// Counts the objects of the namespace from the page's start on. Returns `None` if the budget `left` is spent
    /// before the end of the namespace.
    fn count(&mut self, left: &mut usize) -> Option<u64> {
        let Self {
            cursor: ListCursor { snapshots, filter, .. }, position, goal: SearchGoal::Total { counted }, ..
        } = self
        else {
            return None;
        };
        let scope = filter.scope();
        while let Some((_, snapshot)) = snapshots.get(position.at) {
            if scope.namespace.is_none() && position.after.is_none() {
                *counted += snapshot.len() as u64;
                position.at += 1;
                continue;
            }
            let walked = position.walk_cluster(snapshots, &scope, |_, object| {
                *counted += 1;
                *left = left.saturating_sub(filter.cost(object));
                if *left == 0 { Visited::Last } else { Visited::Next }
            });
            if walked.is_break() {
                return None;
            }
        }
        Some(*counted)
    }
}

impl<F: ObjectFilter> ListCursor<F> {
    /// Opens a list in one step.
    ///
    /// Cost: none without a limit. With a limit, a walk to the end of the page and, with selectors, to the next
    /// matching object. [`OpeningList`] splits this walk into steps.
    pub fn new(snapshots: ClusterSnapshots, filter: F, page: ListPage) -> Self {
        let mut opening = OpeningList::new(snapshots, filter, page);
        loop {
            match opening.step(usize::MAX) {
                ControlFlow::Break(cursor) => return cursor,
                ControlFlow::Continue(more) => opening = more,
            }
        }
    }

    /// Returns the start of the next page; `None` if this page is the last.
    pub fn continue_position(&self) -> Option<&Position> {
        self.continue_at.as_ref()
    }

    /// Returns the exact number of objects behind this page. `None` with selectors, and for the last page.
    pub fn remaining_item_count(&self) -> Option<u64> {
        self.remaining
    }

    /// Returns the snapshots of the list.
    pub fn snapshots(&self) -> &[(ClusterName, Snapshot)] {
        &self.snapshots
    }

    /// Returns whether the texts of the remaining objects of the page have more than `bytes` bytes. With selectors the
    /// result is unknown: `None`.
    ///
    /// Cost: O(1) for each object until the result is known.
    pub fn exceeds(&self, bytes: usize) -> Option<bool> {
        if !self.filter.is_whole_namespace() {
            return None;
        }
        let mut left = bytes;
        Some(self.remaining_objects().take(self.remaining_in_page).any(|(_, object)| {
            let exceeds = object.json().len() > left;
            left = left.saturating_sub(object.json().len());
            exceeds
        }))
    }

    /// Visits the next objects until they have more than `bytes_max` bytes together. Returns whether more objects may
    /// follow.
    ///
    /// The cost of evaluating the filter is added to the bytes, so that a chunk with few matching objects does not take
    /// long.
    pub fn next_chunk(&mut self, bytes_max: usize, mut visit: impl FnMut(&ClusterName, &Arc<Object>)) -> bool {
        let Self { snapshots, filter, position, remaining_in_page, .. } = self;
        let (mut bytes, mut wanted) = (0, FilterExtent::new(filter));
        let walked = position.walk(snapshots, &filter.scope(), |cluster, object| {
            bytes += filter.cost(object);
            if wanted.contains(cluster, object) {
                visit(cluster, object);
                *remaining_in_page -= 1;
                bytes += object.json().len();
            } else if bytes < bytes_max {
                return Visited::unwanted(filter, cluster, object);
            }
            if bytes >= bytes_max || *remaining_in_page == 0 { Visited::Last } else { Visited::Next }
        });
        walked.is_break() && *remaining_in_page > 0
    }

    fn remaining_objects(&self) -> impl Iterator<Item = (&ClusterName, &Arc<Object>)> {
        let SnapshotPosition { at: first, after } = &self.position;
        self.snapshots.iter().enumerate().skip(*first).flat_map(move |(at, (cluster, snapshot))| {
            let after = after.as_deref().filter(|_| at == *first);
            snapshot.range(&self.filter.scope(), after).map(move |object| (cluster, object))
        })
    }
}

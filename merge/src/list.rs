//! A merged list: the snapshots of several clusters one after the other, in chunks.
//!
//! Clusters come by name, objects of each by key. The cursor owns its snapshots and a position, never a vector of
//! objects: each chunk seeks its start anew, so a slow reader of a million objects costs two words.
//!
//! A page says in its head where the next one starts, so its end is looked for before anything is written. With a
//! selector that matches little this is a walk over everything, so it is made in steps ([`OpeningList`]): whoever walks
//! lets others work in between.

use std::ops::ControlFlow;
use std::sync::Arc;

use tributary_apimachinery::{ClusterName, Object, Scope, Snapshot};

use crate::{Heads, ObjectFilter, Position};

/// Which part of a list a request asks for.
#[derive(Clone, Debug, Default)]
pub struct ListPage {
    /// Where the page starts; `None` for the beginning.
    pub start: Option<Position>,
    /// The most objects of a page; 0 for no limit.
    pub limit: usize,
    /// How many objects follow `start`, if the continue token said so and its snapshot is the one listed.
    pub remaining: Option<u64>,
}

/// A list that is being read.
#[derive(Clone)]
pub struct ListCursor<F> {
    snapshots: Heads,
    filter: F,
    place: SnapshotPosition,
    /// How many objects the page still has.
    left: usize,
    continue_at: Option<Position>,
    remaining: Option<u64>,
}

/// A place in a list.
#[derive(Clone, Default)]
struct SnapshotPosition {
    /// The snapshot that it lies in.
    at: usize,
    /// The last key done there.
    after: Option<Box<str>>,
}

/// Where a walk goes on behind an object.
enum Visited {
    /// At the next one.
    Next,
    /// Behind this key.
    Leap(Box<str>),
    /// Nowhere: it was the last for now.
    Last,
}

impl Visited {
    /// Behind one that a filter does not want.
    fn unwanted(filter: &impl ObjectFilter, cluster: &ClusterName, object: &Object) -> Self {
        filter.leap(cluster, object).map_or(Self::Next, Self::Leap)
    }
}

impl SnapshotPosition {
    fn at_start(start: &Position, snapshots: &Heads) -> Self {
        let at = snapshots.partition_point(|(cluster, _)| *cluster < start.cluster);
        let is_there = snapshots.get(at).is_some_and(|(cluster, _)| *cluster == start.cluster);
        Self { at, after: is_there.then(|| start.after.clone()) }
    }

    /// Visits the objects from here on, and stops behind the one at which `visit` says so, if it does.
    fn walk<'a>(
        &mut self,
        snapshots: &'a Heads,
        scope: &Scope<'_>,
        mut visit: impl FnMut(&'a ClusterName, &'a Arc<Object>) -> Visited,
    ) -> ControlFlow<()> {
        while self.at < snapshots.len() {
            self.walk_cluster(snapshots, scope, &mut visit)?;
        }
        ControlFlow::Continue(())
    }

    /// As [`walk`](Self::walk), to the end of this place's cluster and on to the beginning of the next.
    fn walk_cluster<'a>(
        &mut self,
        snapshots: &'a Heads,
        scope: &Scope<'_>,
        mut visit: impl FnMut(&'a ClusterName, &'a Arc<Object>) -> Visited,
    ) -> ControlFlow<()> {
        if let Some((cluster, snapshot)) = snapshots.get(self.at) {
            let mut walk = snapshot.range(scope, self.after.as_deref());
            while let Some(object) = walk.next() {
                match visit(cluster, object) {
                    Visited::Next => {}
                    Visited::Leap(after) if *after > *object.key().as_str() => {
                        walk = snapshot.range(scope, Some(&after));
                    }
                    Visited::Leap(_) => {}
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

/// Which objects a filter wants, of those that a walk over its scope finds. Where it wants all of a namespace the walk
/// finds just these, and it is asked about each cluster once: to ask about 100 objects took 34,000 instructions of the
/// 3.9 million of their list, and 45,000 where not all clusters may be told of.
struct FilterExtent<'a, F> {
    filter: &'a F,
    is_whole: bool,
    /// The last cluster of which all is wanted.
    cluster: Option<&'a ClusterName>,
}

impl<'a, F: ObjectFilter> FilterExtent<'a, F> {
    fn by(filter: &'a F) -> Self {
        Self { filter, is_whole: filter.is_whole_namespace(), cluster: None }
    }

    fn has(&mut self, cluster: &'a ClusterName, object: &Object) -> bool {
        if !self.is_whole {
            return self.filter.matches(cluster, object);
        }
        // A list has its clusters in one place: the same name is the same cluster, and another one is asked about.
        let is_known = self.cluster.is_some_and(|known| std::ptr::eq(known, cluster));
        if !is_known {
            self.cluster = self.filter.wants_cluster(cluster).then_some(cluster);
        }
        self.cluster.is_some()
    }
}

/// A list before its first chunk, while it is looked for where its page ends and what comes after it.
pub struct OpeningList<F> {
    cursor: ListCursor<F>,
    limit: usize,
    /// How many objects follow the page's start, if its token said so.
    total: Option<u64>,
    place: SnapshotPosition,
    sought: Sought,
}

/// What is looked for.
enum Sought {
    /// The page's last object, behind so many others.
    Last { left: usize },
    /// An object behind the last.
    Next { last: Position },
    /// How many objects there are from the page's start on.
    Total { counted: u64 },
}

impl<F: ObjectFilter> OpeningList<F> {
    /// Begins to open a list over snapshots in the order of their clusters' names.
    ///
    /// A cluster that left since the token was made is skipped; the list goes on in the next one.
    pub fn new(snapshots: Heads, filter: F, page: ListPage) -> Self {
        let place = page.start.as_ref().map(|start| SnapshotPosition::at_start(start, &snapshots)).unwrap_or_default();
        let left = if page.limit > 0 { page.limit } else { usize::MAX };
        let cursor = ListCursor { snapshots, filter, place: place.clone(), left, continue_at: None, remaining: None };
        let sought = Sought::Last { left: page.limit.saturating_sub(1) };
        Self { cursor, limit: page.limit, total: page.remaining, place, sought }
    }

    /// Goes on looking. Gives the list once all is known; without a limit at once. A page with a continue token is
    /// always followed by one that is not empty.
    ///
    /// Cost: that of asking the filter, up to about `bytes_max` ([`ObjectFilter::cost`]) and one object more.
    pub fn step(mut self, bytes_max: usize) -> ControlFlow<ListCursor<F>, Self> {
        if self.limit == 0 {
            return ControlFlow::Break(self.cursor);
        }
        let mut left = bytes_max;
        if !matches!(self.sought, Sought::Total { .. }) {
            match self.seek_end(&mut left) {
                // The page is the last.
                ControlFlow::Continue(()) => return ControlFlow::Break(self.cursor),
                ControlFlow::Break(()) if self.cursor.continue_at.is_none() => return ControlFlow::Continue(self),
                ControlFlow::Break(()) => {}
            }
            if !self.cursor.filter.is_whole_namespace() {
                return ControlFlow::Break(self.cursor);
            }
            (self.place, self.sought) = (self.cursor.place.clone(), Sought::Total { counted: 0 });
        }
        match self.total.or_else(|| self.count(&mut left)) {
            None => ControlFlow::Continue(self),
            Some(total) => {
                self.cursor.remaining = Some(total.saturating_sub(self.limit as u64).max(1));
                ControlFlow::Break(self.cursor)
            }
        }
    }

    /// Looks for the page's last object and for one behind it. Breaks when both are found, or nothing of `left` is.
    fn seek_end(&mut self, left: &mut usize) -> ControlFlow<()> {
        let Self { cursor: ListCursor { snapshots, filter, continue_at, .. }, place, sought, .. } = self;
        place.walk(snapshots, &filter.scope(), |cluster, object| {
            *left = left.saturating_sub(filter.cost(object));
            if filter.matches(cluster, object) {
                match sought {
                    Sought::Last { left: 0 } => {
                        let last = Position { cluster: cluster.clone(), after: object.key().as_str().into() };
                        *sought = Sought::Next { last };
                    }
                    Sought::Last { left } => *left -= 1,
                    Sought::Next { last } => {
                        *continue_at = Some(last.clone());
                        return Visited::Last;
                    }
                    Sought::Total { .. } => {}
                }
            } else if *left > 0 {
                return Visited::unwanted(filter, cluster, object);
            }
            if *left == 0 { Visited::Last } else { Visited::Next }
        })
    }

    /// How many objects of the namespace come from the page's start on;
    /// `None` if nothing of `left` is before that is known.
    fn count(&mut self, left: &mut usize) -> Option<u64> {
        let Self { cursor: ListCursor { snapshots, filter, .. }, place, sought: Sought::Total { counted }, .. } = self
        else {
            return None;
        };
        let scope = filter.scope();
        while let Some((_, snapshot)) = snapshots.get(place.at) {
            if scope.namespace.is_none() && place.after.is_none() {
                *counted += snapshot.len() as u64;
                place.at += 1;
                continue;
            }
            let walked = place.walk_cluster(snapshots, &scope, |_, object| {
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
    /// Opens a list at once.
    ///
    /// Cost: without a limit none. With one, a walk to the page's end and, with selectors, on to the next object that
    /// matches; [`OpeningList`] makes it in steps.
    pub fn new(snapshots: Heads, filter: F, page: ListPage) -> Self {
        let mut opening = OpeningList::new(snapshots, filter, page);
        loop {
            match opening.step(usize::MAX) {
                ControlFlow::Break(cursor) => return cursor,
                ControlFlow::Continue(more) => opening = more,
            }
        }
    }

    /// Where the next page starts; `None` if this one is the last.
    pub fn continue_position(&self) -> Option<&Position> {
        self.continue_at.as_ref()
    }

    /// How many objects come after this page: exact, and only known without selectors and if there is a next page.
    pub fn remaining_item_count(&self) -> Option<u64> {
        self.remaining
    }

    /// The snapshots that are listed.
    pub fn snapshots(&self) -> &[(ClusterName, Snapshot)] {
        &self.snapshots
    }

    /// Whether the objects from here on have more than so many bytes. Selectors are not asked:
    /// with them it is not known.
    ///
    /// Cost: a look at each object until it is known.
    pub fn exceeds(&self, bytes: usize) -> Option<bool> {
        if !self.filter.is_whole_namespace() {
            return None;
        }
        let mut left = bytes;
        Some(self.remaining_objects().take(self.left).any(|(_, object)| {
            let exceeds = object.json().len() > left;
            left = left.saturating_sub(object.json().len());
            exceeds
        }))
    }

    /// Visits the next objects until they have more than `bytes_max` bytes together, and says whether any may be left.
    ///
    /// What asking the filter costs counts too, so that a chunk of a sparse list is short as well.
    pub fn next_chunk(&mut self, bytes_max: usize, mut visit: impl FnMut(&ClusterName, &Arc<Object>)) -> bool {
        let Self { snapshots, filter, place, left, .. } = self;
        let (mut bytes, mut wanted) = (0, FilterExtent::by(filter));
        let walked = place.walk(snapshots, &filter.scope(), |cluster, object| {
            bytes += filter.cost(object);
            if wanted.has(cluster, object) {
                visit(cluster, object);
                *left -= 1;
                bytes += object.json().len();
            } else if bytes < bytes_max {
                return Visited::unwanted(filter, cluster, object);
            }
            if bytes >= bytes_max || *left == 0 { Visited::Last } else { Visited::Next }
        });
        walked.is_break() && *left > 0
    }

    fn remaining_objects(&self) -> impl Iterator<Item = (&ClusterName, &Arc<Object>)> {
        let SnapshotPosition { at: first, after } = &self.place;
        self.snapshots.iter().enumerate().skip(*first).flat_map(move |(at, (cluster, snapshot))| {
            let after = after.as_deref().filter(|_| at == *first);
            snapshot.range(&self.filter.scope(), after).map(move |object| (cluster, object))
        })
    }
}

//! A merged list: the snapshots of several clusters one after the other, in chunks.
//!
//! Clusters come by name, objects of each by key. The cursor owns its snapshots and a position, never a vector of
//! objects: each chunk seeks its start anew, so a slow reader of a million objects costs two words.

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
    /// The snapshot in which the next chunk starts.
    at: usize,
    /// The last key done there.
    after: Option<Box<str>>,
    /// How many objects the page still has.
    left: usize,
    continue_at: Option<Position>,
    remaining: Option<u64>,
}

impl<F: ObjectFilter> ListCursor<F> {
    /// Opens a list over snapshots in the order of their clusters' names.
    ///
    /// A cluster that left since the token was made is skipped; the list goes on in the next one.
    ///
    /// Cost: without a limit none. With one, a walk to the page's end and, with selectors, on to the next object that
    /// matches, so that a page with a continue token is always followed by one that is not empty.
    pub fn new(snapshots: Heads, filter: F, page: ListPage) -> Self {
        let start = page.start.as_ref();
        let at = start.map_or(0, |start| snapshots.partition_point(|(cluster, _)| *cluster < start.cluster));
        let after = start
            .filter(|start| snapshots.get(at).is_some_and(|(cluster, _)| *cluster == start.cluster))
            .map(|start| start.after.clone());
        let mut cursor = Self { snapshots, filter, at, after, left: usize::MAX, continue_at: None, remaining: None };
        if page.limit > 0 {
            cursor.left = page.limit;
            cursor.continue_at = cursor.page_end(page.limit);
            if cursor.continue_at.is_some() && cursor.filter.is_whole_namespace() {
                let total = page.remaining.unwrap_or_else(|| cursor.count());
                cursor.remaining = Some(total.saturating_sub(page.limit as u64).max(1));
            }
        }
        cursor
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

    /// Whether the objects from here on have more than so many bytes. Selectors are not asked: with them it is not known.
    ///
    /// Cost: a look at each object until it is known.
    pub fn exceeds(&self, bytes: usize) -> Option<bool> {
        if !self.filter.is_whole_namespace() {
            return None;
        }
        let mut left = bytes;
        Some(self.rest().take(self.left).any(|(_, object)| {
            let exceeds = object.json().len() > left;
            left = left.saturating_sub(object.json().len());
            exceeds
        }))
    }

    /// Visits the next objects until they have more than `bytes_max` bytes together, and says whether any may be left.
    ///
    /// Objects that do not match count too, a little, so that a chunk of a sparse list is short as well.
    pub fn next_chunk(&mut self, bytes_max: usize, mut visit: impl FnMut(&ClusterName, &Arc<Object>)) -> bool {
        /// What looking at an object costs, in bytes written.
        const LOOK: usize = 64;
        let snapshots = self.snapshots.clone();
        let mut bytes = 0;
        while let Some((cluster, snapshot)) = snapshots.get(self.at) {
            for object in snapshot.range(&self.filter.scope(), self.after.as_deref()) {
                if self.left == 0 {
                    return false;
                }
                let matches = self.filter.matches(cluster, object);
                if matches {
                    visit(cluster, object);
                    self.left -= 1;
                }
                bytes += if matches { object.json().len() } else { LOOK };
                if bytes >= bytes_max {
                    self.after = Some(object.key().as_str().into());
                    return self.left > 0;
                }
            }
            self.at += 1;
            self.after = None;
        }
        false
    }

    /// The position after the page's last object, if another object follows.
    fn page_end(&self, limit: usize) -> Option<Position> {
        let mut matching = self.rest().filter(|(cluster, object)| self.filter.matches(cluster, object));
        let (cluster, last) = matching.nth(limit - 1)?;
        matching.next()?;
        Some(Position { cluster: cluster.clone(), after: last.key().as_str().into() })
    }

    /// How many objects of the namespace come from here on.
    fn count(&self) -> u64 {
        let counts = self.snapshots.iter().enumerate().skip(self.at).map(|(at, (_, snapshot))| {
            let after = self.after.as_deref().filter(|_| at == self.at);
            match (self.filter.scope(), after) {
                (Scope { namespace: None, .. }, None) => snapshot.len(),
                (scope, after) => snapshot.range(&scope, after).count(),
            }
        });
        counts.sum::<usize>() as u64
    }

    fn rest(&self) -> impl Iterator<Item = (&ClusterName, &Arc<Object>)> {
        self.snapshots.iter().enumerate().skip(self.at).flat_map(move |(at, (cluster, snapshot))| {
            let after = self.after.as_deref().filter(|_| at == self.at);
            snapshot.range(&self.filter.scope(), after).map(move |object| (cluster, object))
        })
    }
}

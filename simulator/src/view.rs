//! The state of a resource at a revision: the generated objects and the overlay of written objects.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use tributary_apimachinery::{Object, ObjectDecoder};

use crate::catalog::ResourceIndex;
use crate::generate::Generator;

/// The objects that were written or deleted since the start, by key. `None` marks a deleted generated object.
pub(crate) type Overlay = OrdMap<Arc<str>, Option<Arc<Object>>>;

/// The immutable state of a resource at a revision. It costs a few pointers for any number of objects.
pub(crate) struct ResourceAtRevision {
    generator: Arc<Generator>,
    decoder: ObjectDecoder,
    resource: ResourceIndex,
    overlay: Overlay,
    revision: u64,
}

impl ResourceAtRevision {
    pub(crate) fn new(
        generator: Arc<Generator>,
        decoder: ObjectDecoder,
        resource: ResourceIndex,
        overlay: Overlay,
        revision: u64,
    ) -> Self {
        Self { generator, decoder, resource, overlay, revision }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn get(&self, key: &str) -> Option<Arc<Object>> {
        match self.overlay.get(key) {
            Some(written) => written.clone(),
            None => self.generated(self.generator.layout().find(self.resource, key)?),
        }
    }

    fn generated(&self, index: usize) -> Option<Arc<Object>> {
        // Decoding succeeds for generated text. A test decodes an object of each kind.
        self.decoder.decode(self.generator.text(self.resource, index).as_bytes()).ok().map(Arc::new)
    }

    /// Iterates in key order over the objects after the key `after` in `namespace` (`None` for all namespaces).
    pub(crate) fn range<'a>(
        &'a self,
        namespace: Option<&str>,
        after: Option<&str>,
    ) -> impl Iterator<Item = Arc<Object>> + Send + use<'a> {
        let (start, end) = bounds(namespace, after);
        let layout = self.generator.layout();
        let low = layout.lower_bound(self.resource, &start);
        let high = end.as_deref().map_or(layout.count(self.resource), |end| layout.lower_bound(self.resource, end));
        let from = Bound::Included(start.as_str());
        let to = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        // The check prevents a panic of `OrdMap::range` for a range whose start is after its end.
        let empty = end.as_deref().is_some_and(|end| end <= start.as_str());
        let written = (!empty).then(|| self.overlay.range::<_, str>((from, to))).into_iter().flatten();
        Merged { view: self, next: low, high: high.max(low), next_key: None, written: written.peekable() }
    }

    /// Returns the number of objects after the key `after` in `namespace`. The cost is proportional to the number of
    /// written objects, not of generated objects.
    pub(crate) fn count(&self, namespace: Option<&str>, after: Option<&str>) -> usize {
        let (start, end) = bounds(namespace, after);
        let layout = self.generator.layout();
        let low = layout.lower_bound(self.resource, &start);
        let high = end.as_deref().map_or(layout.count(self.resource), |end| layout.lower_bound(self.resource, end));
        let mut count = high.saturating_sub(low);
        let inside = |key: &str| key >= start.as_str() && end.as_deref().is_none_or(|end| key < end);
        for (key, written) in self.overlay.iter().filter(|(key, _)| inside(key)) {
            match (written.is_some(), layout.find(self.resource, key).is_some()) {
                (true, false) => count += 1,
                (false, true) => count -= 1,
                _ => {}
            }
        }
        count
    }
}

fn bounds(namespace: Option<&str>, after: Option<&str>) -> (String, Option<String>) {
    let first = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
    // In byte order, the character `0` follows `/`, so this key is the end of the namespace's keys.
    let end = namespace.map(|namespace| format!("{namespace}0"));
    // In byte order, a key with an appended zero byte directly follows the key.
    let start = after.map(|after| format!("{after}\0")).filter(|start| *start > first).unwrap_or(first);
    (start, end)
}

/// The iterator of [`ResourceAtRevision::range`], which merges the generated and the written objects in key order.
struct Merged<'a, I: Iterator> {
    view: &'a ResourceAtRevision,
    next: usize,
    high: usize,
    next_key: Option<String>,
    written: std::iter::Peekable<I>,
}

impl<'a, I: Iterator<Item = (&'a Arc<str>, &'a Option<Arc<Object>>)>> Iterator for Merged<'a, I> {
    type Item = Arc<Object>;

    fn next(&mut self) -> Option<Arc<Object>> {
        loop {
            if self.next_key.is_none() && self.next < self.high {
                self.next_key = Some(self.view.generator.layout().key(self.view.resource, self.next));
            }
            let take_written = match (self.written.peek(), &self.next_key) {
                (None, None) => return None,
                (None, Some(_)) => None,
                (Some(_), None) => Some(false),
                (Some((key, _)), Some(next)) => match key.as_ref().cmp(next.as_str()) {
                    std::cmp::Ordering::Less => Some(false),
                    std::cmp::Ordering::Equal => Some(true),
                    std::cmp::Ordering::Greater => None,
                },
            };
            let object = match take_written {
                Some(hides_generated) => {
                    if hides_generated {
                        self.skip_generated();
                    }
                    self.written.next().and_then(|(_, object)| object.clone())
                }
                None => {
                    let index = self.next;
                    self.skip_generated();
                    self.view.generated(index)
                }
            };
            if object.is_some() {
                return object;
            }
        }
    }
}

impl<I: Iterator> Merged<'_, I> {
    fn skip_generated(&mut self) {
        self.next += 1;
        self.next_key = None;
    }
}

//! Cache of the newest bookmark, which is encoded once for all watches.
//!
//! With a thousand clusters, the composite version in a bookmark takes 7 KB and a quarter of a millisecond to encode.
//! Each watch may send a bookmark up to five times a second. Watches that are up to date are at the same log position,
//! so they share the bookmark.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tributary_merge::{CompositeResourceVersion, Epochs, Log, LogVersion};

use tributary_answers::negotiate::AnswerForm;
use tributary_answers::negotiate::IncludeObject;

/// Cache of the newest bookmark.
#[derive(Default)]
pub struct Bookmarks {
    last: Mutex<Option<EncodedBookmark>>,
}

struct EncodedBookmark {
    at: LogVersion,
    vector: Arc<CompositeResourceVersion>,
    /// Encoded composite version, with the list of cluster incarnations that the encoding uses.
    text: Option<(Arc<Epochs>, Arc<str>)>,
    frames: Vec<(BookmarkForm, Bytes)>,
}

/// Properties by which two bookmarks with the same composite version can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BookmarkForm {
    /// Format of the stream.
    pub form: AnswerForm,
    /// Whether the bookmark marks the end of the initial events (`k8s.io/initial-events-end`).
    pub end: bool,
    /// Whether the bookmark is a Table that defines its columns.
    pub columns: bool,
    /// Part of the object that a Table row contains.
    pub include: IncludeObject,
}

impl Bookmarks {
    /// Returns the composite version at a position of the log. `None` if the log has removed this position. The newest
    /// result is cached, so later calls for the same position only clone a reference.
    pub fn vector(&self, log: &Log, at: LogVersion) -> Option<Arc<CompositeResourceVersion>> {
        let mut last = self.last.lock();
        if let Some(made) = last.as_ref().filter(|made| made.at == at) {
            return Some(Arc::clone(&made.vector));
        }
        let vector = Arc::new(log.vector(at)?);
        *last = Some(EncodedBookmark { at, vector: Arc::clone(&vector), text: None, frames: Vec::new() });
        Some(vector)
    }

    /// Returns the encoded bookmark event for a composite version. `make` builds the event from the encoded version. If
    /// the version is the newest result of [`vector`](Self::vector), the event is cached by its form, else it is built
    /// for this call alone.
    pub fn frame(
        &self,
        vector: &Arc<CompositeResourceVersion>,
        shape: BookmarkForm,
        epochs: &Arc<Epochs>,
        make: impl FnOnce(&str) -> Bytes,
    ) -> Bytes {
        let mut last = self.last.lock();
        let Some(made) = last.as_mut().filter(|made| Arc::ptr_eq(&made.vector, vector)) else {
            drop(last);
            return make(&vector.encode(epochs));
        };
        if made.text.as_ref().is_none_or(|(over, _)| !Arc::ptr_eq(over, epochs)) {
            made.frames.clear();
            made.text = Some((Arc::clone(epochs), vector.encode(epochs).into()));
        }
        if let Some((_, frame)) = made.frames.iter().find(|(own, _)| *own == shape) {
            return frame.clone();
        }
        let frame = made.text.as_ref().map(|(_, text)| make(text)).unwrap_or_default();
        made.frames.push((shape, frame.clone()));
        frame
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use tributary_apimachinery::{ClusterName, Filter, ResourceVersion, Snapshot};
    use tributary_merge::{EventVersion, LogConfig, Watcher};

    use super::*;

    fn at_head(log: &Log) -> LogVersion {
        match Watcher::now(log, Filter::default()).bookmark(log) {
            Some(EventVersion::Log(version)) => version,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn watches_at_the_same_log_position_share_an_encoded_bookmark() {
        let (bookmarks, epochs, made) = (Bookmarks::default(), Arc::new(Epochs::default()), Cell::new(0));
        let mut log = Log::new(LogConfig::default());
        let cluster = ClusterName::new("a").unwrap();
        log.join(&cluster, Snapshot::default(), Duration::ZERO);
        let form = AnswerForm::JSON;
        let framed = |log: &Log, end: bool, include: IncludeObject, epochs: &Arc<Epochs>| {
            let vector = bookmarks.vector(log, at_head(log)).unwrap();
            bookmarks.frame(&vector, BookmarkForm { form, end, columns: false, include }, epochs, |text| {
                made.set(made.get() + 1);
                Bytes::from(format!("{end} {include:?} {text}"))
            })
        };
        let frame = |log: &Log, end: bool, epochs: &Arc<Epochs>| framed(log, end, IncludeObject::default(), epochs);
        let first = frame(&log, false, &epochs);
        assert!((0..100).all(|_| frame(&log, false, &epochs).as_ptr() == first.as_ptr()), "copied");
        assert_eq!(made.get(), 1);
        assert_ne!(frame(&log, true, &epochs), first);
        assert_ne!(framed(&log, false, IncludeObject::None, &epochs), first, "its row carries no object");
        frame(&log, false, &Arc::new(Epochs::default()));
        assert_eq!(made.get(), 4, "over another list of clusters the text may be another");
        log.progress(&cluster, ResourceVersion(7), Duration::ZERO);
        assert_ne!(frame(&log, false, &epochs), first, "the log went on");
        let own = Arc::new(log.resource_version());
        bookmarks.frame(
            &own,
            BookmarkForm { form, end: false, columns: false, include: IncludeObject::default() },
            &epochs,
            |_| {
                made.set(0);
                Bytes::new()
            },
        );
        assert_eq!(made.get(), 0, "a vector that a watcher made itself is not cached");
    }
}

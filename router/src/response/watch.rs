//! Frames of a watch: JSON objects, each with a newline.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tributary_answers::negotiate::{AnswerForm, Encoding, Representation};
use tributary_answers::protobuf;
use tributary_apimachinery::{ClusterName, ItemResourceVersions, ResourceVersion, Status};
use tributary_merge::{CompositeResourceVersion, Epochs, EventVersion, Log, ObjectEvent};
use tributary_rights::{ClusterItemVersions, ItemVersions};
use tributary_views::view::{BookmarkShape, EncodingKey, RowOptions, View};

use super::{Columns, ObjectContext, ObjectWriter};

pub(crate) struct EventWriter {
    view: Arc<View>,
    writer: ObjectWriter,
    epochs: Arc<Epochs>,
    present_epochs: Arc<ArcSwap<Epochs>>,
    /// True if the versions of the batch depend on the log alone. These versions follow changes of the list of clusters
    /// (epoch).
    renews_epochs: bool,
    items: ItemVersions,
    by_cluster: HashMap<ClusterName, ClusterItemVersions>,
    /// Whether the next Table defines its columns.
    columns: Columns,
}

/// Input for the frame of an event, which is computed while the caller has locked the log.
pub(crate) enum Prepared {
    /// A cached frame that was encoded for another watch with the same form.
    Encoded(Bytes),
    Version(String),
}

impl EventWriter {
    /// Creates a writer for a watch. `epochs` are the lists of clusters at the start of the watch, and `present_epochs`
    /// follows their changes.
    pub(crate) fn new(
        view: Arc<View>,
        writer: ObjectWriter,
        (epochs, present_epochs): (Arc<Epochs>, Arc<ArcSwap<Epochs>>),
        items: ItemVersions,
    ) -> Self {
        let (by_cluster, columns) = (HashMap::new(), Columns::Defined);
        Self { view, writer, epochs, present_epochs, renews_epochs: false, items, by_cluster, columns }
    }

    /// Begins a batch after this position of the log. `position` is `None` while the versions of events depend on the
    /// client's version, or on an earlier state.
    pub(crate) fn begin_batch(&mut self, log: &Log, position: Option<u64>) {
        self.renews_epochs = position.is_some();
        if let Some(position) = position {
            self.renew_epochs(log, position);
        }
    }

    /// Uses the present epochs from now on, unless a cluster leaves later in the log: until the watch has passed this
    /// leave of a replaced cluster, its versions belong to the earlier cluster, and the mark of the new cluster would
    /// be wrong.
    fn renew_epochs(&mut self, log: &Log, position: u64) {
        let present = self.present_epochs.load();
        if !Arc::ptr_eq(&present, &self.epochs) && !log.has_leave_from(position) {
            self.epochs = Arc::clone(&present);
            self.by_cluster.clear();
        }
    }

    /// Returns an event's cached frame, or the text of its version. `log` is the log that returned the event, and
    /// converts positions into versions.
    ///
    /// The log still contains the position of an event that it has just returned.
    pub(crate) fn prepare(&mut self, log: &Log, event: &ObjectEvent) -> Prepared {
        self.writer.now = jiff::Timestamp::now();
        if let EventVersion::Log(version) = &event.version
            && self.renews_epochs
        {
            self.renew_epochs(log, version.position());
        }
        if let Some(found) = self.shared(event).and_then(|key| self.view.encodings.get(&key)) {
            return Prepared::Encoded(found);
        }
        Prepared::Version(match &event.version {
            _ if self.items.form() == ItemResourceVersions::Integer => self.item(event, event.native_version),
            EventVersion::Item(version) => self.item(event, *version),
            EventVersion::Log(version) => self.vector(&log.vector(*version).unwrap_or_default()),
            EventVersion::Vector(version) => self.vector(version),
        })
    }

    fn item(&mut self, event: &ObjectEvent, version: ResourceVersion) -> String {
        let mut text = String::new();
        self.versions_for(&event.cluster).write(version, &mut text);
        text
    }

    fn vector(&self, version: &CompositeResourceVersion) -> String {
        match self.items.audience() {
            Some(audience) => audience.encode(version, &self.epochs),
            None => version.encode(&self.epochs),
        }
    }

    /// Returns the frame of an event. A frame that other watches can use is cached for them.
    pub(crate) fn frame(&mut self, event: &ObjectEvent, prepared: Prepared) -> Bytes {
        let version = match prepared {
            Prepared::Encoded(frame) => return frame,
            Prepared::Version(version) => version,
        };
        let mut out = Vec::with_capacity(event.object.json().len() + version.len() + 160);
        let mark = Arc::clone(self.versions_for(&event.cluster).mark());
        self.writer.now = jiff::Timestamp::now();
        let shared = self.shared(event);
        let columns = std::mem::replace(&mut self.columns, Columns::Omitted);
        let change_type = event.change_type.as_str();
        if self.writer.form().encoding == Encoding::Protobuf {
            let mut object = Vec::with_capacity(event.object.metadata().len() + version.len() + 160);
            self.writer.write(&event.object, &version, &mark, ObjectContext::Alone(columns), &mut object);
            protobuf::event_frame(change_type, &object, &mut out);
        } else {
            out.extend_from_slice(b"{\"type\":\"");
            out.extend_from_slice(change_type.as_bytes());
            out.extend_from_slice(b"\",\"object\":");
            self.writer.write(&event.object, &version, &mark, ObjectContext::Alone(columns), &mut out);
            out.extend_from_slice(b"}\n");
        }
        let frame = Bytes::from(out);
        if let Some(key) = shared {
            self.view.encodings.insert(key, frame.clone());
        }
        frame
    }

    /// Returns the frame of a bookmark; `end` marks the end of the initial events.
    pub(crate) fn bookmark(&mut self, version: &Arc<CompositeResourceVersion>, end: bool) -> Bytes {
        let is_table = matches!(self.writer.form().shape, Representation::Table(_));
        let columns = std::mem::replace(&mut self.columns, Columns::Omitted);
        let defines_columns = is_table && columns == Columns::Defined;
        let shape =
            BookmarkShape { form: self.writer.form(), end, columns: defines_columns, include: self.writer.include() };
        let text = self.items.audience().map(|audience| audience.encode(version, &self.epochs));
        let Self { view, writer, epochs, .. } = self;
        let mut make = |text: &str| {
            let mut object = Vec::new();
            writer.write_bookmark(&view.kind, text, end, columns, &mut object);
            frame("BOOKMARK", &object, shape.form)
        };
        match text {
            // The text depends on the rights of the group of users that may see it, so the frame cannot be cached for
            // all users.
            Some(text) => make(&text),
            None => view.bookmarks.frame(version, shape, epochs, make),
        }
    }

    /// Returns the key under which watches share the frame of an event. A Table's ages change each second, so the key
    /// for a Table contains the second. `None` for the first event of a Table, because this event defines the columns.
    fn shared(&self, event: &ObjectEvent) -> Option<EncodingKey> {
        let form = self.writer.form();
        let is_table = matches!(form.shape, Representation::Table(_));
        let row = is_table.then(|| RowOptions { include: self.writer.include(), second: self.writer.now.as_second() });
        event
            .shared
            .filter(|_| !(is_table && self.columns == Columns::Defined))
            .map(|key| (key, form, self.items.form(), row, self.items.audience().map(|audience| audience.key())))
    }

    pub(crate) fn error(&self, status: &Status) -> Bytes {
        error(status, self.writer.form())
    }

    fn versions_for(&mut self, cluster: &ClusterName) -> &ClusterItemVersions {
        let Self { by_cluster, items, view, .. } = self;
        if !by_cluster.contains_key(cluster) {
            by_cluster.insert(cluster.clone(), items.for_cluster(&view.mark(cluster)));
        }
        &by_cluster[cluster]
    }
}

pub(crate) fn error(status: &Status, form: AnswerForm) -> Bytes {
    match form.encoding {
        Encoding::Protobuf => frame("ERROR", &protobuf::status(status), form),
        Encoding::Json | Encoding::Yaml => frame("ERROR", &status.to_json(), form),
    }
}

/// Returns the frame of an event. `object` must have the encoding of the form already.
pub(crate) fn frame(event_type: &str, object: &[u8], form: AnswerForm) -> Bytes {
    let mut out = Vec::with_capacity(object.len() + 64);
    if form.encoding == Encoding::Protobuf {
        protobuf::event_frame(event_type, object, &mut out);
    } else {
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(event_type.as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        out.extend_from_slice(object);
        out.extend_from_slice(b"}\n");
    }
    out.into()
}

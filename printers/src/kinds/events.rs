//! The printer of Events of the core group and of events.k8s.io, which are one kind with two sets of field names.

use jiff::Timestamp;

use super::decode;
use super::metadata::Metadata;
use crate::Row;
use crate::time::Time;
use crate::value::{TextValue, parts};

parts! {
    struct Event<'a> {
        metadata: Metadata<'a>,
        r#type: TextValue<'a>,
        reason: TextValue<'a>,
        #[serde(alias = "regarding")]
        involved_object: ObjectReference<'a>,
        #[serde(alias = "deprecatedSource")]
        source: EventSource<'a>,
        #[serde(alias = "note")]
        message: TextValue<'a>,
        #[serde(alias = "deprecatedFirstTimestamp")]
        first_timestamp: Time,
        #[serde(alias = "deprecatedLastTimestamp")]
        last_timestamp: Time,
        #[serde(alias = "deprecatedCount")]
        count: i64,
        event_time: Time,
        series: Option<EventSeries>,
        #[serde(alias = "reportingController")]
        reporting_component: TextValue<'a>,
        reporting_instance: TextValue<'a>,
    }

    struct ObjectReference<'a> {
        kind: TextValue<'a>,
        name: TextValue<'a>,
        field_path: TextValue<'a>,
    }

    struct EventSource<'a> {
        component: TextValue<'a>,
        host: TextValue<'a>,
    }
}

parts! {
    struct EventSeries {
        count: i64,
        last_observed_time: Time,
    }
}

pub(super) fn print(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let event: Event<'_> = decode(object)?;
    let first = if event.first_timestamp.0.is_some() { event.first_timestamp } else { event.event_time };
    let last = match &event.series {
        Some(series) => series.last_observed_time,
        None if event.last_timestamp.0.is_some() => event.last_timestamp,
        None => first,
    };
    // An Event of events.k8s.io that occurred only once has no count, so its count is 1.
    let count = event.series.as_ref().map_or(event.count.max(i64::from(event.count == 0)), |series| series.count);
    row.format(format_args!("{}", last.since(now)));
    row.text(&event.r#type);
    row.text(&event.reason);
    let kind = event.involved_object.kind.to_lowercase();
    if event.involved_object.name.is_empty() {
        row.text(&kind);
    } else {
        row.format(format_args!("{kind}/{}", event.involved_object.name));
    }
    row.text(&event.involved_object.field_path);
    let component = first_of(&event.source.component, &event.reporting_component);
    match first_of(&event.source.host, &event.reporting_instance) {
        "" => row.text(component),
        instance => row.format(format_args!("{component}, {instance}")),
    }
    row.text(event.message.trim());
    row.format(format_args!("{}", first.since(now)));
    row.number(count);
    row.text(&event.metadata.name);
    Ok(())
}

fn first_of<'a>(first: &'a str, second: &'a str) -> &'a str {
    if first.is_empty() { second } else { first }
}

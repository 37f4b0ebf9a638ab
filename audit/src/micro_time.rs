//! Points in time as events have them.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;

/// A point in time, written as `metav1.MicroTime` is: in UTC, with six digits after the seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MicroTime(Timestamp);

impl MicroTime {
    /// The time that a clock says. What no calendar can say (before the year −9999) is 1970.
    pub fn of(time: SystemTime) -> Self {
        Self(Timestamp::try_from(time).unwrap_or_default())
    }
}

/// Six digits after the seconds, whatever they are.
const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(6));

impl MicroTime {
    /// Adds it to a text as JSON writes it, in quotes.
    pub fn write_to(self, text: &mut Vec<u8>) {
        text.push(b'"');
        // Nothing fails to be written to memory.
        let _ = PRINTER.print_timestamp(&self.0, &mut *text);
        text.push(b'"');
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn six_digits_are_written_whatever_they_are() {
        for (nanoseconds, expected) in [
            (0, "\"1970-01-01T00:00:00.000000Z\""),
            (1_795_453_323_000_001_999, "\"2026-11-23T17:02:03.000001Z\""),
            (1_795_453_323_120_000_000, "\"2026-11-23T17:02:03.120000Z\""),
        ] {
            let time = MicroTime::of(UNIX_EPOCH + Duration::from_nanos(nanoseconds));
            let mut text = Vec::new();
            time.write_to(&mut text);
            assert_eq!(String::from_utf8(text).unwrap(), expected);
        }
    }
}

//! Timestamps in audit events.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use jiff::tz::Offset;

use crate::json::digit;

/// A point in time, formatted as `metav1.MicroTime`: in UTC, with six digits after the seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MicroTime(Timestamp);

impl MicroTime {
    /// Converts a time of the system clock. Times before the year −9999 become 1970.
    pub fn from_system_time(time: SystemTime) -> Self {
        Self(Timestamp::try_from(time).unwrap_or_default())
    }
}

/// A printer that always writes six digits for the fraction of a second, even zeros.
const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(6));

/// The format of a timestamp, with zeros in place of its digits.
const PATTERN: [u8; 29] = *b"\"0000-00-00T00:00:00.000000Z\"";

impl MicroTime {
    /// Appends the time as JSON, in quotes.
    ///
    /// The encoder is hand-written, because each line has two times, and jiff's printer takes five times as long.
    pub fn write_to(self, text: &mut Vec<u8>) {
        let time = Offset::UTC.to_datetime(self.0);
        let Some(year) = u16::try_from(time.year()).ok().filter(|year| *year < 10_000) else {
            text.push(b'"');
            // Writing to memory does not fail.
            let _ = PRINTER.print_timestamp(&self.0, &mut *text);
            text.push(b'"');
            return;
        };
        let mut written = PATTERN;
        let mut put = |end: usize, digits: usize, number: u32| {
            let mut rest = number;
            for place in written[end - digits..end].iter_mut().rev() {
                *place = digit((rest % 10) as u16);
                rest /= 10;
            }
        };
        // The arguments of `put` are the position after a number in the format, the number of digits, and the number.
        put(5, 4, year.into());
        let rest = [time.month(), time.day(), time.hour(), time.minute(), time.second()];
        for (number, end) in rest.into_iter().zip([8, 11, 14, 17, 20]) {
            put(end, 2, number.unsigned_abs().into());
        }
        put(27, 6, time.subsec_nanosecond().unsigned_abs() / 1000);
        text.extend_from_slice(&written);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn micro_time_has_six_fraction_digits() {
        for (nanoseconds, expected) in [
            (0, "\"1970-01-01T00:00:00.000000Z\""),
            (1_795_453_323_000_001_999, "\"2026-11-23T17:02:03.000001Z\""),
            (1_795_453_323_120_000_000, "\"2026-11-23T17:02:03.120000Z\""),
        ] {
            let time = MicroTime::from_system_time(UNIX_EPOCH + Duration::from_nanos(nanoseconds));
            let mut text = Vec::new();
            time.write_to(&mut text);
            assert_eq!(String::from_utf8(text).unwrap(), expected);
        }
    }

    proptest::proptest! {
        #[test]
        fn micro_time_is_formatted_as_by_jiff(microseconds in -300_000_000_000_000_000_i64..=253_000_000_000_000_000) {
            let time = Timestamp::from_microsecond(microseconds).unwrap();
            let (mut text, mut expected) = (Vec::new(), String::new());
            MicroTime(time).write_to(&mut text);
            PRINTER.print_timestamp(&time, &mut expected).unwrap();
            proptest::prop_assert_eq!(String::from_utf8(text).unwrap(), format!("\"{expected}\""));
        }
    }
}

//! Formats durations for people, like `k8s.io/apimachinery/pkg/util/duration`.

use std::fmt;

use jiff::Timestamp;

/// The time between two instants in two or three significant figures: `5s`, `3m20s`, `4h7m`, `2d4h`, `3y40d`.
///
/// A negative duration of less than two seconds prints as `0s`, because differing clocks can cause it. Any other
/// negative duration prints as `<invalid>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HumanDuration {
    /// Whole seconds, rounded towards zero.
    seconds: i64,
    negative: bool,
}

impl HumanDuration {
    /// Computes the time from `start` to `end`.
    pub fn between(start: Timestamp, end: Timestamp) -> Self {
        let duration = end.duration_since(start);
        Self { seconds: duration.as_secs(), negative: duration.is_negative() }
    }

    /// Creates a duration of whole seconds.
    pub fn from_seconds(seconds: i64) -> Self {
        Self { seconds, negative: seconds < 0 }
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.seconds;
        let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
        match seconds {
            ..-1 => f.write_str("<invalid>"),
            _ if self.negative => f.write_str("0s"),
            _ if seconds < 120 => write!(f, "{seconds}s"),
            _ if minutes < 10 => pair(f, (minutes, 'm'), (seconds % 60, 's')),
            _ if minutes < 180 => write!(f, "{minutes}m"),
            _ if hours < 8 => pair(f, (hours, 'h'), (minutes % 60, 'm')),
            _ if hours < 48 => write!(f, "{hours}h"),
            _ if days < 8 => pair(f, (days, 'd'), (hours % 24, 'h')),
            _ if days < 2 * 365 => write!(f, "{days}d"),
            _ if days < 8 * 365 => pair(f, (days / 365, 'y'), (days % 365, 'd')),
            _ => write!(f, "{}y", days / 365),
        }
    }
}

/// Writes two units of a duration. The smaller unit is omitted if its number is zero.
fn pair(f: &mut fmt::Formatter<'_>, larger: (i64, char), smaller: (i64, char)) -> fmt::Result {
    write!(f, "{}{}", larger.0, larger.1)?;
    if smaller.0 == 0 { Ok(()) } else { write!(f, "{}{}", smaller.0, smaller.1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_printed_as_by_kubectl() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 60 * MINUTE;
        const DAY: i64 = 24 * HOUR;
        const YEAR: i64 = 365 * DAY;
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (1, "1s"),
            (119, "119s"),
            (120, "2m"),
            (2 * MINUTE + 2, "2m2s"),
            (9 * MINUTE + 59, "9m59s"),
            (10 * MINUTE, "10m"),
            (10 * MINUTE + 1, "10m"),
            (179 * MINUTE + 59, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + MINUTE, "3h1m"),
            (7 * HOUR + 59 * MINUTE, "7h59m"),
            (8 * HOUR, "8h"),
            (8 * HOUR + 59 * MINUTE, "8h"),
            (47 * HOUR + 59 * MINUTE, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + HOUR, "2d1h"),
            (7 * DAY + 23 * HOUR, "7d23h"),
            (8 * DAY, "8d"),
            (8 * DAY + 23 * HOUR, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + DAY, "2y1d"),
            (8 * YEAR - 1, "7y364d"),
            (8 * YEAR, "8y"),
            (8 * YEAR + 364 * DAY, "8y"),
        ] {
            assert_eq!(HumanDuration::from_seconds(seconds).to_string(), expected, "{seconds} s");
        }
    }

    #[test]
    fn printed_durations_are_rounded_towards_zero() {
        let start = Timestamp::from_millisecond(10_000).unwrap();
        for (end, expected) in [(11_999, "1s"), (9_500, "0s"), (8_001, "0s"), (8_000, "<invalid>"), (10_000, "0s")] {
            let end = Timestamp::from_millisecond(end).unwrap();
            assert_eq!(HumanDuration::between(start, end).to_string(), expected);
        }
    }
}

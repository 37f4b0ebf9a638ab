//! Parses the times in objects, and computes their ages.

use std::fmt;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use crate::duration::HumanDuration;
use crate::value::TextValue;

/// A `metav1.Time` or `metav1.MicroTime`. `None` is a missing time. Objects contain it as `null`, as an empty text, or
/// as Go's zero time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(pub(crate) Option<Timestamp>);

/// Go's zero time, 0001-01-01T00:00:00Z, in seconds since 1970.
const GO_ZERO_SECONDS: i64 = -62_135_596_800;

impl Time {
    pub(crate) fn parse(text: &str) -> Result<Self, jiff::Error> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        let timestamp: Timestamp = text.parse()?;
        Ok(Self((timestamp.as_second() != GO_ZERO_SECONDS).then_some(timestamp)))
    }

    /// Returns the age of an object at `now`. For a missing time, the printed age is `<unknown>`.
    pub(crate) fn since(self, now: Timestamp) -> Since {
        Since(self.0.map(|time| HumanDuration::between(time, now)))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&TextValue::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

pub(crate) struct Since(Option<HumanDuration>);

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(duration) => fmt::Display::fmt(&duration, f),
            None => f.write_str("<unknown>"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_of_objects_are_printed_as_by_kubectl() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        for (text, expected) in [
            ("2026-01-01T23:59:30Z", "30s"),
            ("2026-01-01T23:59:30.123456Z", "29s"),
            ("2026-01-02T00:59:30+01:00", "30s"),
            ("0001-01-01T00:00:00Z", "<unknown>"),
            ("", "<unknown>"),
            ("2026-01-02T00:00:05Z", "<invalid>"),
        ] {
            assert_eq!(Time::parse(text).unwrap().since(now).to_string(), expected, "{text}");
        }
        assert!(Time::parse("yesterday").is_err());
        assert_eq!(serde_json::from_str::<Time>("null").unwrap(), Time(None));
    }
}

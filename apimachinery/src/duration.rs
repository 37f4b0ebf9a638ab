//! Durations as Go writes them: `1h15m30.5s`, `300ms`.

use std::fmt::{self, Write as _};
use std::time::Duration;

/// A text that is no duration, with Go's words for what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidDuration(String);

/// Units and their nanoseconds. Both Greek letters that look like one stand for micro.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a duration as Go's `time.ParseDuration` does, to the nanosecond. One below zero counts as zero: whoever takes
/// a duration from a client treats both alike.
///
/// # Errors
/// For what Go refuses, in its words. Durations end at 2⁶³ ns, some 292 years.
pub fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    let invalid = || InvalidDuration(format!("time: invalid duration {}", Quoted(text)));
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if unsigned == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = unsigned;
    let mut total = 0_u64;
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let whole = digits(&mut rest);
        let fraction = rest.strip_prefix('.').map(|after| {
            rest = after;
            digits(&mut rest)
        });
        if whole.is_empty() && fraction.is_none_or(str::is_empty) {
            return Err(invalid());
        }
        let unit = take_while(&mut rest, |character| character != '.' && !character.is_ascii_digit());
        if unit.is_empty() {
            return Err(InvalidDuration(format!("time: missing unit in duration {}", Quoted(text))));
        }
        let Some((_, nanoseconds)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            let (unit, text) = (Quoted(unit), Quoted(text));
            return Err(InvalidDuration(format!("time: unknown unit {unit} in duration {text}")));
        };
        let part = part(whole, fraction.unwrap_or_default(), *nanoseconds);
        total = part.and_then(|part| total.checked_add(part)).filter(|total| *total <= LONGEST).ok_or_else(invalid)?;
    }
    let is_negative = text.starts_with('-');
    if !is_negative && total == LONGEST {
        return Err(invalid());
    }
    Ok(if is_negative { Duration::ZERO } else { Duration::from_nanos(total) })
}

/// In nanoseconds. One more than the longest duration: Go lets a negative one be so long.
const LONGEST: u64 = 1 << 63;

/// How many digits after the point count: more than any unit has nanoseconds, and few enough for 128 bits.
const FRACTION_DIGITS: usize = 18;

/// A number with this unit, in nanoseconds; `None` for one that is too long.
fn part(whole: &str, fraction: &str, unit: u64) -> Option<u64> {
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction = &fraction[..fraction.len().min(FRACTION_DIGITS)];
    let (mut of_fraction, mut scale) = (0, 1);
    for digit in fraction.bytes() {
        of_fraction = of_fraction * 10 + u128::from(digit - b'0');
        scale *= 10;
    }
    let of_fraction = u64::try_from(of_fraction * u128::from(unit) / scale).ok()?;
    whole.checked_mul(unit)?.checked_add(of_fraction)
}

fn digits<'a>(rest: &mut &'a str) -> &'a str {
    take_while(rest, |character| character.is_ascii_digit())
}

/// Takes off what `is_wanted` from the front.
fn take_while<'a>(rest: &mut &'a str, is_wanted: impl Fn(char) -> bool) -> &'a str {
    let end = rest.find(|character| !is_wanted(character)).unwrap_or(rest.len());
    let (taken, after) = rest.split_at(end);
    *rest = after;
    taken
}

/// A text in quotes as Go's package `time` writes it: what is not printable ASCII byte by byte.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for byte in self.0.bytes() {
            match byte {
                b'"' | b'\\' => write!(f, "\\{}", char::from(byte))?,
                b' '..=b'~' => f.write_char(char::from(byte))?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_reads() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("+0", 0),
            ("0s", 0),
            ("5s", 5_000_000_000),
            ("1h15m30.918s", 4_530_918_000_000),
            ("5.s", 5_000_000_000),
            (".5s", 500_000_000),
            ("+3m", 180_000_000_000),
            ("1us", 1_000),
            ("1\u{b5}s", 1_000),
            ("12\u{3bc}s", 12_000),
            ("0.25h", 900_000_000_000),
            ("0.1234567890123h", 444_444_440_444),
            ("0s5s", 5_000_000_000),
            ("0.000000000001s", 0),
            ("-5s", 0),
            ("9223372036854775807ns", i64::MAX.unsigned_abs()),
            ("-9223372036854775808ns", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
    }

    #[test]
    fn what_go_refuses_and_how_it_says_so() {
        for (text, words) in [
            ("", r#"time: invalid duration """#),
            ("invalid", r#"time: invalid duration "invalid""#),
            ("-", r#"time: invalid duration "-""#),
            (".", r#"time: invalid duration ".""#),
            ("0s.", r#"time: invalid duration "0s.""#),
            (".s", r#"time: invalid duration ".s""#),
            ("5", r#"time: missing unit in duration "5""#),
            ("1m5", r#"time: missing unit in duration "1m5""#),
            ("5x", r#"time: unknown unit "x" in duration "5x""#),
            ("3 s", r#"time: unknown unit " s" in duration "3 s""#),
            ("9223372036854775808ns", r#"time: invalid duration "9223372036854775808ns""#),
            ("18446744073709551616s", r#"time: invalid duration "18446744073709551616s""#),
            ("4e3s", r#"time: unknown unit "e" in duration "4e3s""#),
            ("5\u{e9}\"", r#"time: unknown unit "\xc3\xa9\"" in duration "5\xc3\xa9\"""#),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), words, "{text}");
        }
    }
}

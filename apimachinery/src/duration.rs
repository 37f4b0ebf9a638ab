//! Parses durations in Go's syntax: `1h15m30.5s`, `300ms`.

use std::fmt::{self, Write as _};
use std::time::Duration;

/// The error for a text that is not a duration, with Go's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidDuration(String);

/// The units of durations with their lengths in nanoseconds. Two different code points look like the Greek letter for
/// micro, and a unit may have either.
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

/// Parses a duration like Go's `time.ParseDuration`, to the nanosecond. A negative duration becomes zero, because no
/// caller distinguishes a negative duration from zero.
///
/// # Errors
/// [`InvalidDuration`] for each text that Go refuses, with Go's message. The maximum is 2⁶³ ns, about 292 years.
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

/// The maximum of a duration without its sign, in nanoseconds. The longest positive duration is 1 ns shorter, but Go
/// accepts 2⁶³ ns with a minus sign.
const LONGEST: u64 = 1 << 63;

/// The number of fractional digits that the parser uses. It ignores all others. 18: an hour, the largest unit, has 13
/// digits in nanoseconds, and the numbers of a longer fraction could exceed 128 bits.
const FRACTION_DIGITS: usize = 18;

/// Converts a decimal number and its unit to nanoseconds. Returns `None` if the result exceeds the limit.
fn part(whole: &str, fraction: &str, unit: u64) -> Option<u64> {
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction = &fraction[..fraction.len().min(FRACTION_DIGITS)];
    let (mut fraction_value, mut scale) = (0, 1);
    for digit in fraction.bytes() {
        fraction_value = fraction_value * 10 + u128::from(digit - b'0');
        scale *= 10;
    }
    let fraction_value = u64::try_from(fraction_value * u128::from(unit) / scale).ok()?;
    whole.checked_mul(unit)?.checked_add(fraction_value)
}

fn digits<'a>(rest: &mut &'a str) -> &'a str {
    take_while(rest, |character| character.is_ascii_digit())
}

fn take_while<'a>(rest: &mut &'a str, matches: impl Fn(char) -> bool) -> &'a str {
    let end = rest.find(|character| !matches(character)).unwrap_or(rest.len());
    let (matching, after) = rest.split_at(end);
    *rest = after;
    matching
}

/// Displays a text in quotes like Go's package `time`: each byte that is not printable ASCII is escaped.
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
    fn duration_parser_accepts_the_same_texts_as_go() {
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
    fn malformed_duration_errors_have_the_messages_of_go() {
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

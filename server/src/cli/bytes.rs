//! Parses numbers of bytes on the command line: whole numbers, or Kubernetes quantities such as `128Mi`.

/// The suffixes of quantities, with their factors.
///
/// Source: apimachinery `pkg/api/resource/suffix.go`, without the suffixes below 1, because a number of bytes is whole.
const SUFFIXES: [(&str, u64); 12] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
];

/// Parses a number of bytes above 0. clap prints the flag and its value before the error.
///
/// # Errors
/// The text is not a quantity, not a whole number of bytes, or too large.
pub(super) fn parse_bytes<N: TryFrom<u64>>(text: &str) -> Result<N, String> {
    parse_bytes_from(1, text)
}

/// Parses a number of bytes that is at least `least`.
///
/// # Errors
/// The errors of [`parse_bytes`], and an error for a lower number.
pub(super) fn parse_bytes_from<N: TryFrom<u64>>(least: u64, text: &str) -> Result<N, String> {
    let bytes = parse_quantity(text).and_then(|bytes| N::try_from(bytes).ok().filter(|_| bytes >= least));
    bytes.ok_or_else(|| {
        let least = format_size(least);
        format!("must be a number of bytes, at least {least}, as 134217728, 128Mi or 1.5Gi")
    })
}

/// Returns the bytes of a quantity. Returns `None` for an invalid quantity, a fraction of a byte, or more than 64 bits.
fn parse_quantity(text: &str) -> Option<u64> {
    let (number, unit) =
        SUFFIXES.into_iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, unit))).unwrap_or((text, 1));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) || number.ends_with('.') {
        return None;
    }
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let parts = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let bytes = digits.checked_mul(unit.into())?;
    u64::try_from(bytes / parts).ok().filter(|_| bytes.is_multiple_of(parts))
}

/// Formats a number of bytes with a binary unit: `1.5 GiB`.
pub(crate) fn format_size(bytes: u64) -> String {
    let mut units = SUFFIXES.iter().filter(|(suffix, _)| suffix.ends_with('i')).rev();
    match units.find(|(_, unit)| bytes >= *unit) {
        None => bytes.to_string(),
        Some((suffix, unit)) => {
            let decimals = usize::from(!bytes.is_multiple_of(*unit));
            format!("{:.decimals$} {suffix}B", bytes as f64 / *unit as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_flags_parse_kubernetes_quantities() {
        for (text, bytes) in [
            ("1", 1),
            ("134217728", 128 << 20),
            ("128Mi", 128 << 20),
            ("1.5Gi", 3 << 29),
            ("0.5Ki", 512),
            ("64k", 64_000),
            ("1M", 1_000_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in
            ["", "0", "0Mi", "-1", "+1", "Mi", "1 Mi", "128MiB", "128MB", "128mi", "1.1", "1.Gi", ".5Gi", "1e3", "16Ei"]
        {
            let error = parse_bytes::<u64>(text).unwrap_err();
            assert_eq!(error, "must be a number of bytes, at least 1, as 134217728, 128Mi or 1.5Gi", "{text}");
        }
        assert!(parse_bytes_from::<usize>(1 << 20, "1Mi").is_ok());
        let less = parse_bytes_from::<usize>(1 << 20, "1023Ki").unwrap_err();
        assert!(less.contains("at least 1 MiB"), "{less}");
    }

    #[test]
    fn printed_sizes_have_binary_units() {
        for (bytes, text) in [
            (1000, "1000"),
            (1 << 20, "1 MiB"),
            (3 << 29, "1.5 GiB"),
            (12_638_251_008, "11.8 GiB"),
            (100 << 30, "100 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(format_size(bytes), text);
        }
    }
}

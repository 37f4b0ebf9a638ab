//! YAML bodies, read as kube-apiserver reads them (YAML 1.1 by sigs.k8s.io/yaml) and passed on as JSON
//! where they change.

use std::borrow::Cow;

use serde_json::Value;
use serde_saphyr::DuplicateKeyPolicy;
use serde_saphyr::options::AliasLimits;

use crate::{Status, json};

/// The body as JSON; the same bytes where it is JSON already.
pub(super) fn to_json(body: &[u8]) -> Result<Cow<'_, [u8]>, Status> {
    read(body, AliasLimits::default())
}

/// As [`to_json`], of what never has an alias: one that has is refused. Aliases of aliases make a million values of a
/// few hundred bytes, and whoever reads what a member sends does not work that out.
pub(super) fn without_aliases_to_json(body: &[u8]) -> Result<Cow<'_, [u8]>, Status> {
    read(body, serde_saphyr::alias_limits! { max_alias_expansions_per_anchor: 0 })
}

fn read(body: &[u8], aliases: AliasLimits) -> Result<Cow<'_, [u8]>, Status> {
    if body.trim_ascii_start().starts_with(b"{") && json::validate(body).is_ok() {
        return Ok(Cow::Borrowed(body));
    }
    let text = std::str::from_utf8(body).map_err(|_| Status::bad_request("the body is not UTF-8"))?;
    // YAML 1.1: `defaultMode: 0644` is 420. Whether a key may come twice is the member's to say (`fieldValidation`).
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        alias_limits: aliases,
    };
    let mut value: Value = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let place = error.location().map(|place| format!(" at line {} column {}", place.line(), place.column()));
        Status::bad_request(format!("the body is not valid YAML{}", place.unwrap_or_default()))
    })?;
    integral_floats_to_integers(&mut value);
    serde_json::to_vec(&value).map(Cow::Owned).map_err(Status::internal_error)
}

/// Whether letters of a text may stand in the body in another way than as themselves: behind an escape, in base64, or
/// in another encoding. What holds a text neither as itself nor in one of these ways does not hold it for any parser.
pub(super) fn may_hide_text(body: &[u8]) -> bool {
    /// What follows a backslash where a letter is written by its number, or a line is joined to the next.
    const ESCAPES: &[u8] = b"xuU\r\n";
    /// How the tag of base64 (`!!binary`) begins: by its handle, verbatim, or after a directive that renames the
    /// handle.
    const TAGS: [&[u8]; 3] = [b"!!", b"!<", b"%TAG"];
    let has = |part: &dyn Fn(&[u8]) -> bool, length: usize| body.windows(length).any(part);
    has(&|pair| pair[0] == b'\\' && ESCAPES.contains(&pair[1]), 2)
        || TAGS.iter().any(|tag| has(&|part| part == *tag, tag.len()))
        || std::str::from_utf8(body).is_err()
}

/// Writes `1.0` and `1e3` as Go does, `1` and `1000`: a member decodes integers from nothing else.
fn integral_floats_to_integers(value: &mut Value) {
    /// Above this, two floats lie further than 1 apart (2⁵³).
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Array(values) => values.iter_mut().for_each(integral_floats_to_integers),
        Value::Object(members) => members.values_mut().for_each(integral_floats_to_integers),
        Value::Number(number) if number.is_f64() => {
            if let Some(float) = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= EXACT_MAX) {
                // Whole and within 2⁵³: nothing is cut off.
                let integer = float as i64;
                *number = integer.into();
            }
        }
        _ => {}
    }
}

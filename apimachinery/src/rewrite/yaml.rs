//! Reads YAML bodies like kube-apiserver (YAML 1.1 by sigs.k8s.io/yaml), and converts them to JSON.

use std::borrow::Cow;

use serde_json::Value;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{DuplicateKeyPolicy, Error, Options};

use crate::{Status, json};

/// The maximum number of values (maps, lists and scalars) in a YAML body with expanded aliases. 250,000: manifests have
/// one value in 15 bytes, so a body reaches kube-apiserver's limit of 3 MiB first. A value takes up to a microsecond to
/// read.
const VALUES_MAX: usize = 250_000;

/// The maximum nesting of maps and lists in a YAML body. 64: a CustomResourceDefinition with a Pod in its schema has
/// some 30 levels, and the parser needs stack for each level.
const DEPTH_MAX: usize = 64;

/// The number of values (`ADDED_VALUES_MIN`) and bytes (`ADDED_BYTES_MIN`) that aliases and merge keys may add even to
/// a short body. Go's parser (`decoder.unmarshal` in go-yaml, a part of sigs.k8s.io/yaml) also limits added values only
/// in documents of more than 1,000 values.
const ADDED_VALUES_MIN: usize = 1_000;
const ADDED_BYTES_MIN: usize = 16 << 10;

/// The maximum length of the text that aliases and merge keys may add, as a multiple of the body's length.
const ADDED_LENGTHS: usize = 4;

pub(super) fn is_json(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"{") && json::validate(body).is_ok()
}

/// Returns the body as JSON. A body that is JSON is not copied.
pub(super) fn to_json(body: &[u8]) -> Result<Cow<'_, [u8]>, Status> {
    if is_json(body) { Ok(Cow::Borrowed(body)) } else { convert(body).map(Cow::Owned) }
}

/// Converts YAML to JSON. Cost: one to two microseconds for each byte. Aliases and merge keys may add as many values as
/// the body has bytes, and text of [`ADDED_LENGTHS`] times the body's length.
pub(super) fn convert(body: &[u8]) -> Result<Vec<u8>, Status> {
    let added = body.len().max(ADDED_VALUES_MIN);
    let bytes = body.len().saturating_mul(ADDED_LENGTHS + 1).saturating_add(ADDED_BYTES_MIN);
    convert_within(body, added, bytes)
}

/// Converts a body like [`to_json`], and refuses aliases, because a kube-apiserver writes no alias.
pub(super) fn without_aliases_to_json(body: &[u8]) -> Result<Cow<'_, [u8]>, Status> {
    if is_json(body) { Ok(Cow::Borrowed(body)) } else { convert_within(body, 0, usize::MAX).map(Cow::Owned) }
}

/// Converts YAML to JSON. Aliases and merge keys may add up to `added` values, and all texts together may have up to
/// `bytes` bytes.
fn convert_within(body: &[u8], added: usize, bytes: usize) -> Result<Vec<u8>, Status> {
    let text = std::str::from_utf8(body).map_err(|_| Status::bad_request("the body is not UTF-8"))?;
    let options = options(added, bytes);
    let mut value: Value = serde_saphyr::from_str_with_options(text, options).map_err(|error| refusal(&error))?;
    integral_floats_to_integers(&mut value);
    serde_json::to_vec(&value).map_err(Status::internal_error)
}

/// Returns the options for YAML 1.1, in which `defaultMode: 0644` is 420. Repeated keys are accepted, because the
/// member decides about them (`fieldValidation`).
fn options(added: usize, bytes: usize) -> Options {
    serde_saphyr::options! {
        legacy_octal_numbers: true,
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_nodes: VALUES_MAX,
            max_depth: DEPTH_MAX,
            max_total_scalar_bytes: bytes,
            // serde_saphyr copies each anchored value, and a nested anchored value once more for each enclosing
            // anchored value. These limits bound the memory for the copies.
            max_recorded_anchor_events: added.clamp(ADDED_VALUES_MIN, VALUES_MAX),
            max_recorded_anchor_bytes: bytes,
            // The limit of values, which includes expanded values, already limits the aliases of one anchor.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: added,
            max_alias_expansions_per_anchor: if added == 0 { 0 } else { usize::MAX },
        },
    }
}

/// Builds the 400 response for YAML that cannot be converted. The message has the position and never the content.
fn refusal(error: &Error) -> Status {
    let place = error.location().map(|place| format!(" at line {} column {}", place.line(), place.column()));
    let place = place.unwrap_or_default();
    Status::bad_request(match exceeded_limit(error) {
        Some(YamlLimit::Aliases) => format!(
            "error converting YAML to JSON: document contains excessive aliasing{place}: aliases and merge keys may \
             add at most as many values as the body has bytes, and texts of at most {ADDED_LENGTHS} times its length; \
             write out the values, or send JSON"
        ),
        Some(YamlLimit::Values) => {
            format!("error converting YAML to JSON: document has more than {VALUES_MAX} values{place}; send JSON")
        }
        Some(YamlLimit::Depth) => {
            format!("error converting YAML to JSON: document has more than {DEPTH_MAX} levels{place}; send JSON")
        }
        None => format!("the body is not valid YAML{place}"),
    })
}

/// A limit that applies to YAML bodies but not to JSON bodies.
enum YamlLimit {
    Aliases,
    Values,
    Depth,
}

/// Returns the limit that the YAML exceeds; `None` for invalid YAML.
fn exceeded_limit(error: &Error) -> Option<YamlLimit> {
    match error {
        Error::AliasError { error, .. } => exceeded_limit(error),
        Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => Some(YamlLimit::Aliases),
        Error::Budget { breach, .. } => match breach {
            BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. } => Some(YamlLimit::Values),
            BudgetBreach::Depth { .. } => Some(YamlLimit::Depth),
            BudgetBreach::Aliases { .. }
            | BudgetBreach::Anchors { .. }
            | BudgetBreach::MergeKeys { .. }
            | BudgetBreach::ScalarBytes { .. }
            | BudgetBreach::RecordedAnchorEvents { .. }
            | BudgetBreach::RecordedAnchorBytes { .. } => Some(YamlLimit::Aliases),
            _ => None,
        },
        _ => None,
    }
}

/// Returns whether the body may contain letters in a different spelling: as an escape, in base64, or in a different
/// encoding. If the result is false, no parser finds a text that does not occur literally in the body.
pub(super) fn may_hide_text(body: &[u8]) -> bool {
    /// The characters after a backslash that begin the escape of a letter by its number (`x`, `u`, `U`), or that join a
    /// line to the next line.
    const ESCAPES: &[u8] = b"xuU\r\n";
    /// The beginnings of the tag for base64: the handle of `!!binary`, a verbatim tag, and a directive that renames the
    /// handle.
    const TAGS: [&[u8]; 3] = [b"!!", b"!<", b"%TAG"];
    let has = |part: &dyn Fn(&[u8]) -> bool, length: usize| body.windows(length).any(part);
    has(&|pair| pair[0] == b'\\' && ESCAPES.contains(&pair[1]), 2)
        || TAGS.iter().any(|tag| has(&|part| part == *tag, tag.len()))
        || std::str::from_utf8(body).is_err()
}

/// Converts `1.0` and `1e3` to `1` and `1000`, like Go: a member decodes integers only in this form.
fn integral_floats_to_integers(value: &mut Value) {
    /// The largest float up to which adjacent floats differ by at most 1 (2⁵³).
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Array(values) => values.iter_mut().for_each(integral_floats_to_integers),
        Value::Object(members) => members.values_mut().for_each(integral_floats_to_integers),
        Value::Number(number) if number.is_f64() => {
            if let Some(float) = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= EXACT_MAX) {
                // The float is an integer of at most 2⁵³, so the cast is exact.
                let integer = float as i64;
                *number = integer.into();
            }
        }
        _ => {}
    }
}

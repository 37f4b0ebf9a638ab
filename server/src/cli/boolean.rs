//! Flags of kube-apiserver that are on or off, in its words: `--flag`, `--flag=true`, `--flag=false`.
//!
//! Such a flag has this beside its name. What comes after a blank is never its value:
//!
//! ```text
//! value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
//! default_value = "false", action = ArgAction::Set, value_parser = boolean()
//! ```

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// The word of the help, and the others that Go's `strconv.ParseBool` takes for it.
const TRUE: (&str, [&str; 5]) = ("true", ["1", "t", "T", "TRUE", "True"]);
const FALSE: (&str, [&str; 5]) = ("false", ["0", "f", "F", "FALSE", "False"]);

/// Reads the value of such a flag.
pub(super) fn boolean() -> impl TypedValueParser<Value = bool> {
    let words = [TRUE, FALSE].map(|(word, others)| PossibleValue::new(word).aliases(others));
    PossibleValuesParser::new(words).map(|word| word == TRUE.0 || TRUE.1.contains(&word.as_str()))
}

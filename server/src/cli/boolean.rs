//! Boolean flags in the form of kube-apiserver: `--flag`, `--flag=true`, `--flag=false`. A word after a space is never
//! parsed as the value.
//!
//! A boolean flag needs these attributes:
//!
//! ```text
//! value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
//! default_value = "false", action = ArgAction::Set, value_parser = boolean()
//! ```

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// The texts for true: first the text in the help, then the additional texts that Go's `strconv.ParseBool` accepts.
const TRUE: (&str, [&str; 5]) = ("true", ["1", "t", "T", "TRUE", "True"]);
const FALSE: (&str, [&str; 5]) = ("false", ["0", "f", "F", "FALSE", "False"]);

/// Parses the value of a boolean flag.
pub(super) fn boolean() -> impl TypedValueParser<Value = bool> {
    let words = [TRUE, FALSE].map(|(word, others)| PossibleValue::new(word).aliases(others));
    PossibleValuesParser::new(words).map(|word| word == TRUE.0 || TRUE.1.contains(&word.as_str()))
}

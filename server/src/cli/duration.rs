//! Parses durations on the command line: Go's form, `1h30m`, or a number of seconds, `5400`.

use std::time::Duration;

use tributary_apimachinery::duration;

/// Parses a duration, or a whole number of seconds. clap prints the flag and its value before the error.
///
/// # Errors
/// The text is not a duration, is negative, or exceeds Go's maximum (about 292 years).
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    if text.starts_with('-') {
        return Err("must not be below 0".to_owned());
    }
    let read = match text.parse::<u64>() {
        Ok(seconds) => duration::parse(&format!("{seconds}s")),
        Err(_) => duration::parse(text),
    };
    read.map_err(|error| format!("{error}; give a duration such as 1h30m, or whole seconds"))
}

/// Parses a duration above zero.
///
/// # Errors
/// The errors of [`parse_duration`], and an error for zero.
pub(super) fn parse_duration_above_zero(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(duration) if duration.is_zero() => Err("must be above 0".to_owned()),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn duration_flags_parse_go_durations_and_seconds() {
        for (text, milliseconds) in [
            ("3600", 3_600_000),
            ("+5", 5_000),
            ("0", 0),
            ("0s", 0),
            ("1h", 3_600_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("300ms", 300),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "soon", "1.5", "1 h", "5x", "99999999999999999999", "9999999999999999999"] {
            let error = parse_duration(text).unwrap_err();
            let advice = "; give a duration such as 1h30m, or whole seconds";
            assert!(error.starts_with("time: ") && error.ends_with(advice), "{error}");
        }
        for text in ["-1", "-5s", "-0"] {
            assert_eq!(parse_duration(text), Err("must not be below 0".to_owned()), "{text}");
        }
        for text in ["0", "0s", "0h0m"] {
            assert_eq!(parse_duration_above_zero(text), Err("must be above 0".to_owned()), "{text}");
        }
        assert_eq!(parse_duration_above_zero("2"), Ok(Duration::from_secs(2)));
    }

    #[test]
    fn each_duration_flag_accepts_durations_and_seconds() {
        let program = Cli::command();
        // Every flag with a number of seconds must be parsed as a duration.
        let is_duration = |argument: &&clap::Arg| {
            let names = argument.get_value_names().unwrap_or_default();
            names.iter().any(|name| matches!(name.as_str(), "DURATION" | "SECONDS"))
        };
        for (command, expected, values) in [
            ("tributary serve", 9, ["90", "90s", "1m30s"]),
            ("tributary join eu --config=x", 1, ["5400", "5400s", "1h30m"]),
        ] {
            let name = command.split(' ').nth(1).unwrap();
            let flags = program.find_subcommand(name).unwrap().get_arguments().filter(is_duration);
            let flags: Vec<_> = flags.filter_map(clap::Arg::get_long).collect();
            assert_eq!(flags.len(), expected, "{flags:?}");
            for flag in flags {
                let read = |value: &str| Cli::try_parse_from(format!("{command} --{flag}={value}").split(' '));
                for value in values {
                    let line = read(value).map(|line| line.command);
                    assert!(matches!(line, Ok(Command::Serve(_) | Command::Join(_))), "{command} --{flag}={value}");
                }
                let error = read("soon").unwrap_err().to_string();
                assert!(error.contains(flag) && error.contains("such as 1h30m, or whole seconds"), "{error}");
            }
        }
    }
}

//! Formats an error with its causes in one line, for logs, warnings and Status messages.

use std::error::Error;

/// Joins an error and its causes: `connection failed: timed out`. A cause whose message is already part of an outer
/// message is omitted.
pub fn explain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let own = error.to_string();
        if !text.contains(&own) {
            text.push_str(": ");
            text.push_str(&own);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Step {
        text: &'static str,
        #[source]
        cause: Option<Box<Step>>,
    }

    fn step(text: &'static str, cause: Option<Step>) -> Step {
        Step { text, cause: cause.map(Box::new) }
    }

    #[test]
    fn repeated_cause_appears_once_in_an_error_message() {
        assert_eq!(
            explain(&step("dial", Some(step("connect", Some(step("refused", None)))))),
            "dial: connect: refused"
        );
        assert_eq!(explain(&step("dial: refused", Some(step("refused", None)))), "dial: refused");
    }
}

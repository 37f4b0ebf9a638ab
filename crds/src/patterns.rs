//! Regular expressions for field values, in the syntax that Rust, Go and editors have in common. In a hub cluster,
//! kube-apiserver refuses objects by these patterns. For files, the validation refuses the same values, with a
//! description of the allowed values.

use regex::Regex;

/// A port, 1 to 65535, with any number of leading zeros.
macro_rules! port {
    () => {
        "0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
    };
}

/// The characters of a DNS label after the first one. The last character is a letter or a digit.
macro_rules! rest_of_label {
    () => {
        "[-A-Za-z0-9]*[A-Za-z0-9]"
    };
}

/// A server of a cluster: `https://`, or `http://` for a loopback host, with an optional port and path.
pub(crate) const ENDPOINT: &str = concat!(
    r"^(https://(\[[^\s/@?#\]]+\]|[^\s/@?#:\[\]]+)|http://(localhost|127\.[0-9.]+|\[[0-9a-fA-F:.]+\]))(:",
    port!(),
    r")?(/[^\s@?#]*)?$"
);

/// A proxy: scheme, optional user and password, host, optional port. A colon without a port is valid.
pub(crate) const PROXY: &str =
    concat!(r"^(https?|socks5h?)://([^/?#]*@)?(\[[^\]/?#@]+\]|[^/?#@:\[\]]+)(:(", port!(), r")?)?([/?#].*)?$");

/// A DNS name whose last label is not a number ([`HostName`](tributary_apimachinery::HostName)). Regular expressions in
/// Go have no negation, so the pattern lists the forms of a label that is not a number.
pub(crate) const SERVER_NAME: &str = concat!(
    r"^([A-Za-z0-9](",
    rest_of_label!(),
    r")?\.)*(",
    // A label that begins with a letter.
    r"[A-Za-z](",
    rest_of_label!(),
    r")?",
    // A label that begins with a decimal number, not with 0, and has a letter or hyphen after the number.
    r"|([1-9]|0[0-9])[0-9]*([A-Za-z]|[-A-Za-z]",
    rest_of_label!(),
    r")",
    // A label that begins with 0, followed by a hyphen or any letter except x.
    r"|0([A-WYZa-wyz]|[-A-WYZa-wyz]",
    rest_of_label!(),
    r")",
    // A label that begins with 0x and has a character that is not a hexadecimal digit.
    r"|0[Xx][0-9A-Fa-f]*([G-Zg-z]|[-G-Zg-z]",
    rest_of_label!(),
    r"))$"
);

/// The maximum wait of a request: a duration in Go's syntax, with the units `ms`, `s` and `m` only. A validation rule
/// of the CustomResourceDefinition also parses the value, and would not accept a number of hours.
pub(crate) const WAIT: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m))+$";

/// Returns whether a text matches a pattern.
///
/// Cost: each call compiles the pattern. During a load of the configuration, this function is called once for each
/// field.
pub(crate) fn matches_pattern(text: &str, pattern: &str) -> bool {
    Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text))
}

/// The CEL rule for objects in a hub. `hub_problems` checks the same fields. Files are not subject to the rule.
pub(crate) const NO_FILES_OR_SECRETS: &str = "!has(self.kubeconfig) && !has(self.caFile) && !has(self.credentials) && !(has(self.secureServing) && (has(self.secureServing.certificateFile) || has(self.secureServing.keyFile) || has(self.secureServing.clientCAFile) || has(self.secureServing.keyData) || has(self.secureServing.clientCAData)))";

/// The message of [`NO_FILES_OR_SECRETS`].
pub(crate) const NO_FILES_OR_SECRETS_MESSAGE: &str = "objects in a hub contain no file names and no secrets, and name no authorities for clients; remove kubeconfig, caFile, credentials and the files, the key and clientCAData of secureServing, and name a Secret in secretRef";

#[cfg(test)]
mod tests {
    use tributary_apimachinery::HostName;

    use super::*;

    #[test]
    fn endpoint_patterns_accept_ports_from_1_to_65535() {
        let [endpoint, proxy] = [ENDPOINT, PROXY].map(|pattern| Regex::new(pattern).unwrap());
        for port in 0..=70_000 {
            let is_one = (1..=65_535).contains(&port);
            assert_eq!(endpoint.is_match(&format!("https://h:{port}/x")), is_one, "{port}");
            assert_eq!(proxy.is_match(&format!("socks5://u:1@h:{port}")), is_one, "{port}");
        }
        for (port, of_endpoint, of_proxy) in
            [("", true, true), (":", false, true), (":0080", true, true), (":+80", false, false), (":x", false, false)]
        {
            assert_eq!(endpoint.is_match(&format!("http://[::1]{port}")), of_endpoint, "{port:?}");
            assert_eq!(proxy.is_match(&format!("http://[::1]{port}")), of_proxy, "{port:?}");
        }
    }

    /// The test compares the pattern with `HostName` for all names of one to five characters. The alphabet covers each
    /// alternative of the pattern.
    #[test]
    fn server_name_pattern_accepts_the_names_that_host_name_parses() {
        let pattern = Regex::new(SERVER_NAME).unwrap();
        let mut names = vec![String::new()];
        for _ in 0..5 {
            let longer = names.iter().flat_map(|name| "019axg-._".chars().map(move |last| format!("{name}{last}")));
            names = longer.collect();
            for name in &names {
                assert_eq!(pattern.is_match(name), name.parse::<HostName>().is_ok(), "{name:?}");
            }
        }
        for (name, expected) in
            [("eu.example.com", true), ("EU.4you", true), ("10.0.0.1", false), ("eu.0x7F000001", false)]
        {
            assert_eq!(
                (matches_pattern(name, SERVER_NAME), name.parse::<HostName>().is_ok()),
                (expected, expected),
                "{name}"
            );
        }
    }

    #[test]
    fn max_wait_pattern_accepts_minutes_seconds_and_milliseconds() {
        for (text, expected) in [
            ("1s", true),
            ("750ms", true),
            ("1m0.5s", true),
            ("1.25s", true),
            ("", false),
            ("1", false),
            (".5s", false),
            ("5.s", false),
            ("500us", false),
            ("1h", false),
            ("-1s", false),
            ("1s ", false),
        ] {
            assert_eq!(matches_pattern(text, WAIT), expected, "{text:?}");
        }
    }
}

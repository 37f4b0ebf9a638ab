//! Forms of texts, as regular expressions that Rust, Go and editors read alike. A kube-apiserver refuses an object of a
//! hub cluster by them; files are refused for the same by the validation, in words.

use regex::Regex;

/// A port: 1 to 65535, whatever noughts stand before it.
macro_rules! port {
    () => {
        "0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
    };
}

/// What may follow in a label of DNS: it ends with a letter or a digit.
macro_rules! rest_of_label {
    () => {
        "[-A-Za-z0-9]*[A-Za-z0-9]"
    };
}

/// A cluster's server: `https://`, or `http://` on this machine, with a host, a port or none, and a path or none.
pub(crate) const ENDPOINT: &str = concat!(
    r"^(https://(\[[^\s/@?#\]]+\]|[^\s/@?#:\[\]]+)|http://(localhost|127\.[0-9.]+|\[[0-9a-fA-F:.]+\]))(:",
    port!(),
    r")?(/[^\s@?#]*)?$"
);

/// A proxy: its scheme, perhaps a user and a password, and its host. A colon without a port is one without it.
pub(crate) const PROXY: &str =
    concat!(r"^(https?|socks5h?)://([^/?#]*@)?(\[[^\]/?#@]+\]|[^/?#@:\[\]]+)(:(", port!(), r")?)?([/?#].*)?$");

/// A name of DNS whose last label is no number ([`HostName`](tributary_apimachinery::HostName)). Go's expressions have
/// nothing that says "not", so that the forms of a last label that is none are counted up.
pub(crate) const SERVER_NAME: &str = concat!(
    r"^([A-Za-z0-9](",
    rest_of_label!(),
    r")?\.)*(",
    // It begins with a letter.
    r"[A-Za-z](",
    rest_of_label!(),
    r")?",
    // It has something behind its digits, which are not one nought alone.
    r"|([1-9]|0[0-9])[0-9]*([A-Za-z]|[-A-Za-z]",
    rest_of_label!(),
    r")",
    // It has something behind its one nought, but no x.
    r"|0([A-WYZa-wyz]|[-A-WYZa-wyz]",
    rest_of_label!(),
    r")",
    // It has something behind 0x and hexadecimal digits that is none.
    r"|0[Xx][0-9A-Fa-f]*([G-Zg-z]|[-G-Zg-z]",
    rest_of_label!(),
    r"))$"
);

/// How long a request may be let wait: durations as Go writes them, of `ms`, `s` and `m` alone. A rule of the
/// definition reads them, too, and hours would be out of its range in any case.
pub(crate) const WAIT: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m))+$";

/// Whether a text has the form that one of these patterns says.
///
/// Cost: the pattern is compiled each time. That is asked while a configuration is loaded, once for a field.
pub(crate) fn has_form(text: &str, pattern: &str) -> bool {
    Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text))
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::HostName;

    use super::*;

    #[test]
    fn ports_are_those_that_there_are() {
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

    /// Every name of one to five characters that make a difference.
    #[test]
    fn a_server_name_is_one_that_the_program_takes() {
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
            assert_eq!((has_form(name, SERVER_NAME), name.parse::<HostName>().is_ok()), (expected, expected), "{name}");
        }
    }

    #[test]
    fn waits() {
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
            assert_eq!(has_form(text, WAIT), expected, "{text:?}");
        }
    }
}

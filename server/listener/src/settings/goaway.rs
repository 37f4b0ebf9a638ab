//! Which requests are the last that a client sends over its connection.
//!
//! An HTTP/2 client keeps its connection for as long as it lasts, and so stays with one of several replicas, however
//! many there are by then. `--goaway-chance` ends connections at random, as kube-apiserver does
//! (`pkg/server/filters/goaway.go` in k8s.io/apiserver): with GOAWAY, after which what is under way goes on and new
//! requests come over a new connection, by way of the load balancer. It spares no kind of request, and nor does this: a
//! client that sends little but watches is one that would stay for ever, and none of its watches ends.

use std::str::FromStr;

use http::Version;

/// The largest chance: one of fifty requests, as kube-apiserver allows. More would have clients shake hands all the
/// time.
const CHANCE_MAX: f64 = 0.02;

/// How likely a request over HTTP/2 is the last on its connection: 0 (never) to 0.02.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GoawayChance(f64);

impl FromStr for GoawayChance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(chance) if (0.0..=CHANCE_MAX).contains(&chance) => Ok(Self(chance)),
            _ => Err(format!("must be a number from 0 to {CHANCE_MAX}; 0.001 is one of a thousand requests")),
        }
    }
}

impl GoawayChance {
    /// Whether it falls on a request over this version of HTTP.
    pub(crate) fn falls_on(self, version: Version) -> bool {
        // A chance of 0 draws no number.
        self.0 > 0.0 && version == Version::HTTP_2 && self.includes(rand::random())
    }

    /// Whether GOAWAY is sent for this random number between 0 and 1.
    fn includes(self, drawn: f64) -> bool {
        drawn < self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chance_is_as_kube_apiserver_takes_it() {
        for text in ["0", "0.001", "0.02", "1e-3"] {
            assert!(text.parse::<GoawayChance>().is_ok(), "{text}");
        }
        for text in ["-0.001", "0.021", "1", "NaN", "inf", "", "1%"] {
            assert!(text.parse::<GoawayChance>().unwrap_err().starts_with("must be a number from 0 to 0.02"), "{text}");
        }
    }

    #[test]
    fn it_falls_on_requests_over_http2_alone() {
        let always = GoawayChance(1.0);
        assert!(always.falls_on(Version::HTTP_2) && !always.falls_on(Version::HTTP_11));
        assert!(!GoawayChance::default().falls_on(Version::HTTP_2));
        let some = GoawayChance(0.02);
        assert!(
            some.includes(0.0) && some.includes(0.0199) && !some.includes(0.02) && !GoawayChance(0.0).includes(0.0)
        );
    }
}

//! Ends connections after a random number of requests (`--goaway-chance`), or at a random age.
//!
//! An HTTP/2 client keeps its connection as long as possible, and so stays with one replica even when replicas are
//! added. `--goaway-chance` ends connections at random, as kube-apiserver does (`pkg/server/filters/goaway.go` in
//! k8s.io/apiserver). After the GOAWAY, open requests continue, and new requests use a new connection through the load
//! balancer. As in kube-apiserver, a request of any kind may end the connection. Otherwise a client that mostly watches
//! would never reconnect. GOAWAY ends no open watch.

use std::str::FromStr;
use std::time::Duration;

use http::Version;

/// The maximum probability: one of fifty requests, as in kube-apiserver. With a higher probability, clients would spend
/// their time on handshakes.
const CHANCE_MAX: f64 = 0.02;

/// The probability that an HTTP/2 request is the last on its connection: 0 (never) to 0.02.
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
    /// Decides at random whether a request with this HTTP version is the last on its connection.
    pub(crate) fn is_drawn(self, version: Version) -> bool {
        // With a probability of 0, this branch draws no random number, which would cost time for each request.
        self.0 > 0.0 && version == Version::HTTP_2 && self.includes(rand::random())
    }

    /// Returns whether this random number between 0 and 1 ends the connection.
    fn includes(self, drawn: f64) -> bool {
        drawn < self.0
    }
}

/// The age at which a connection stops accepting requests. Each connection has a random age within the range, so that
/// connections of the same start do not end together.
///
/// The aggregator of a kube-apiserver has one HTTP/2 connection for all requests, and keeps it as long as possible
/// (kubernetes/kubernetes#61296). Without a maximum age, all its requests would stay with one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionAge {
    min: Duration,
    max: Duration,
}

impl ConnectionAge {
    /// The age of a connection to the aggregated entry: 10 to 20 minutes.
    pub const AGGREGATED: Self = Self { min: Duration::from_secs(10 * 60), max: Duration::from_secs(20 * 60) };

    /// Returns a random age for one connection.
    pub(crate) fn draw(self) -> Duration {
        self.at(rand::random())
    }

    /// Returns the age for a random number between 0 and 1.
    fn at(self, drawn: f64) -> Duration {
        self.min + self.max.saturating_sub(self.min).mul_f64(drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goaway_chance_has_the_range_of_kube_apiserver() {
        for text in ["0", "0.001", "0.02", "1e-3"] {
            assert!(text.parse::<GoawayChance>().is_ok(), "{text}");
        }
        for text in ["-0.001", "0.021", "1", "NaN", "inf", "", "1%"] {
            assert!(text.parse::<GoawayChance>().unwrap_err().starts_with("must be a number from 0 to 0.02"), "{text}");
        }
    }

    #[test]
    fn connection_age_is_within_its_range() {
        let minutes = |drawn| ConnectionAge::AGGREGATED.at(drawn).as_secs() / 60;
        assert_eq!([0.0, 0.5, 1.0].map(minutes), [10, 15, 20]);
        let ages: Vec<_> = (0..100).map(|_| ConnectionAge::AGGREGATED.draw()).collect();
        assert!(ages.iter().all(|age| (600..=1200).contains(&age.as_secs())) && ages[0] != ages[1], "{ages:?}");
    }

    #[test]
    fn goaway_chance_applies_to_http2_only() {
        let always = GoawayChance(1.0);
        assert!(always.is_drawn(Version::HTTP_2) && !always.is_drawn(Version::HTTP_11));
        assert!(!GoawayChance::default().is_drawn(Version::HTTP_2));
        let some = GoawayChance(0.02);
        assert!(
            some.includes(0.0) && some.includes(0.0199) && !some.includes(0.02) && !GoawayChance(0.0).includes(0.0)
        );
    }
}

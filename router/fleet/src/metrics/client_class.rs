//! Class of a client by its User-Agent.

use http::HeaderMap;
use http::header::USER_AGENT;

/// Class of a client by its User-Agent, for metrics and logs only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientClass {
    /// The kubectl command.
    Kubectl,
    /// The Helm command.
    Helm,
    /// The k9s terminal UI.
    K9s,
    /// A different program with client-go, usually a controller.
    Controller,
    /// A browser.
    Browser,
    /// A different User-Agent, or none.
    Other,
}

impl ClientClass {
    /// All classes, in the order of their declaration.
    pub const ALL: [Self; 6] = [Self::Kubectl, Self::Helm, Self::K9s, Self::Controller, Self::Browser, Self::Other];

    /// Returns the class of a client from the headers of its request.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let agent = headers.get(USER_AGENT).map(|agent| agent.as_bytes()).unwrap_or_default();
        let begins = |name: &str| {
            let (begin, after) = agent.split_at_checked(name.len()).unwrap_or_default();
            begin.eq_ignore_ascii_case(name.as_bytes())
                && after.first().is_none_or(|next| !next.is_ascii_alphanumeric())
        };
        // The default User-Agent of client-go is `NAME/VERSION (OS/ARCH) kubernetes/COMMIT` (client-go
        // `rest/config.go`).
        let is_client_go = || agent.windows(CLIENT_GO.len()).any(|part| part == CLIENT_GO);
        match () {
            () if begins("kubectl") => Self::Kubectl,
            () if begins("helm") => Self::Helm,
            () if begins("k9s") => Self::K9s,
            () if begins("mozilla") => Self::Browser,
            () if is_client_go() => Self::Controller,
            () => Self::Other,
        }
    }

    /// Returns the name of the class in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kubectl => "kubectl",
            Self::Helm => "helm",
            Self::K9s => "k9s",
            Self::Controller => "controller",
            Self::Browser => "browser",
            Self::Other => "other",
        }
    }
}

/// Part of the default User-Agent of client-go.
const CLIENT_GO: &[u8] = b" kubernetes/";

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn client_class_follows_the_user_agent() {
        for (agent, expected) in [
            ("kubectl/v1.36.3 (linux/amd64) kubernetes/dd3c2d3", "kubectl"),
            ("kubectl-tributary/v1 (linux/amd64)", "kubectl"),
            ("Helm/3.22.0", "helm"),
            ("helm", "helm"),
            ("helmet/1.0", "other"),
            ("k9s/v0.50.0 (linux/amd64) kubernetes/dd3c2d3", "k9s"),
            ("kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/dd3c2d3/leader-election", "controller"),
            ("manager/v0.0.0 (linux/amd64) kubernetes/$Format", "controller"),
            ("Mozilla/5.0 (X11; Linux x86_64)", "browser"),
            ("Go-http-client/2.0", "other"),
            ("curl/8", "other"),
            ("", "other"),
        ] {
            let headers = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(agent))]);
            assert_eq!(ClientClass::from_headers(&headers).as_str(), expected, "{agent}");
        }
        let no_text = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_bytes(b"\xff\xfe").unwrap())]);
        assert_eq!(
            [ClientClass::from_headers(&no_text), ClientClass::from_headers(&HeaderMap::new())],
            [ClientClass::Other; 2]
        );
    }
}

//! Which of a member's endpoints a request may be sent to.

use http::Extensions;
use tributary_apimachinery::EndpointSubset;

use crate::target::ServerUrl;

/// Which of a member's endpoints a request may be sent to.
#[derive(Clone, Debug, Default)]
pub(crate) enum Destination {
    /// All of them.
    #[default]
    Any,
    /// Those that a policy names, and no others.
    Chosen(EndpointSubset),
    /// The one at this place in the configuration; the last one where there are fewer.
    At(usize),
}

/// The endpoint that a request has to go to, by its place in the configuration; among its extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtEndpoint(pub(crate) usize);

impl Destination {
    /// What a request's extensions say.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        match (extensions.get::<AtEndpoint>(), extensions.get::<EndpointSubset>()) {
            (Some(AtEndpoint(place)), _) => Self::At(*place),
            (None, Some(subset)) => Self::Chosen(subset.clone()),
            (None, None) => Self::Any,
        }
    }

    /// Whether it may be sent to this server, as far as its address decides that.
    pub(crate) fn includes(&self, server: &ServerUrl) -> bool {
        match self {
            Self::Any | Self::At(_) => true,
            Self::Chosen(subset) => subset.urls().any(|url| server.is(url)),
        }
    }
}

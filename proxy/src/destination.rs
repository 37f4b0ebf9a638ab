//! Which of a member's endpoints a request may be sent to.

use http::Extensions;
use tributary_apimachinery::EndpointSubset;

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
}

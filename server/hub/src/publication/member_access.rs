//! The state and the address of a member for published objects.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use tributary_crds::SecretText;
use tributary_router::Report;
use tributary_router::cluster_status::{ClusterOrigin, ClusterStatus};

use super::settings::PublishedAddress;

/// Returns the state of each member, ordered by name.
pub(super) fn member_states(report: &Report, now: Timestamp) -> Vec<ClusterStatus> {
    let state = |name: &str| {
        let origin = ClusterOrigin { name: name.to_owned(), ..ClusterOrigin::default() };
        ClusterStatus::from_report(report, origin, None, now)
    };
    report.clusters.iter().filter_map(|cluster| state(&cluster.name)).collect()
}

/// The address and the authorities with which clients reach the members.
#[derive(Clone, Debug)]
pub(super) struct MemberAccess<'a> {
    pub(super) address: &'a PublishedAddress,
    /// The authorities of Tributary's serving certificate in PEM; `None` for the authorities of the client's system.
    pub(super) authorities: Option<&'a str>,
}

impl MemberAccess<'_> {
    /// Returns the authorities as base64 of PEM, as in kubeconfigs and in Argo CD's `caData`.
    pub(super) fn authority_data(&self) -> Option<String> {
        self.authorities.map(|text| STANDARD.encode(text))
    }
}

/// The access to a member, with a credential.
#[derive(Clone, Debug)]
pub(super) struct AuthenticatedAccess<'a> {
    pub(super) access: MemberAccess<'a>,
    pub(super) token: &'a SecretText,
}

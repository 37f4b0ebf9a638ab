//! The verification of a cluster's servers, and the decision about servers that cannot be verified.

use tributary_crds::{InsecureMembers, MissingCa};

use crate::SourceRefusal;
use crate::item::ItemWarning;

/// Whether members of a source may have unverified servers. Both the source and a flag of the process must allow them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnverifiedServers {
    RefusedBySource,
    RefusedByProcess,
    Allowed,
}

impl UnverifiedServers {
    pub(crate) fn new(missing_ca: MissingCa, insecure: InsecureMembers) -> Self {
        match (missing_ca, insecure) {
            (MissingCa::Refuse, _) => Self::RefusedBySource,
            (MissingCa::Insecure, InsecureMembers::Refused) => Self::RefusedByProcess,
            (MissingCa::Insecure, InsecureMembers::Allowed) => Self::Allowed,
        }
    }
}

/// The verification of a cluster's servers.
#[derive(Debug, Default)]
pub(crate) struct ServerTrust {
    /// The authorities, as base64 of PEM text.
    pub(crate) ca_data: Option<String>,
    /// Whether the servers are not verified.
    pub(crate) is_insecure: bool,
    pub(crate) warnings: Vec<ItemWarning>,
}

impl ServerTrust {
    /// Decides how to verify the servers of an item, whose certificate authorities are `ca_data`. `authorities` is the
    /// name of the field for the authorities, for error messages. `switch` is the name of the field with which the item
    /// turns verification off; `None` if it does not.
    ///
    /// # Errors
    /// The servers cannot be verified, and the source or the process refuses such servers.
    pub(crate) fn decide(
        ca_data: Option<String>,
        authorities: &str,
        switch: Option<&str>,
        unverified: UnverifiedServers,
    ) -> Result<Self, SourceRefusal> {
        let (reason, problem, remedy) = match (ca_data, switch) {
            (Some(ca_data), None) => return Ok(Self { ca_data: Some(ca_data), ..Self::default() }),
            (None, None) => (
                "MissingCA",
                format!("{authorities} is missing, so the servers cannot be verified"),
                "Add the certificate authorities".to_owned(),
            ),
            (_, Some(switch)) => (
                "InsecureSkipVerify",
                format!("{switch} turns off the verification of the servers"),
                format!("Remove it, and give {authorities}"),
            ),
        };
        let permit = match unverified {
            UnverifiedServers::RefusedBySource => "set spec.missingCA: Insecure in the ClusterSource",
            UnverifiedServers::RefusedByProcess => "start Tributary with --hub-allow-insecure-skip-verify",
            UnverifiedServers::Allowed => {
                let message = format!("{problem}. Anyone on the network path can read and change all data. {remedy}.");
                let warnings = vec![ItemWarning { reason, message }];
                return Ok(Self { ca_data: None, is_insecure: true, warnings });
            }
        };
        Err(SourceRefusal::new(reason, format!("{problem}. {remedy}, or {permit}.")))
    }
}

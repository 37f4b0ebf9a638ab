//! Printers of the group certificates.k8s.io.

use jiff::Timestamp;

use super::decode;
use super::metadata::{Condition, Metadata};
use crate::Row;
use crate::duration::HumanDuration;
use crate::selector::format_labels;
use crate::value::{Labels, ListValue, TextValue, parts};

parts! {
    struct CertificateSigningRequest<'a> {
        metadata: Metadata<'a>,
        spec: CertificateSigningRequestSpec<'a>,
        status: CertificateSigningRequestStatus<'a>,
    }

    struct CertificateSigningRequestSpec<'a> {
        signer_name: TextValue<'a>,
        username: TextValue<'a>,
        expiration_seconds: Option<i64>,
    }

    struct CertificateSigningRequestStatus<'a> {
        conditions: ListValue<Condition<'a>>,
        certificate: TextValue<'a>,
    }

    struct ClusterTrustBundle<'a> {
        metadata: Metadata<'a>,
        spec: ClusterTrustBundleSpec<'a>,
    }

    struct ClusterTrustBundleSpec<'a> {
        signer_name: TextValue<'a>,
    }

    struct PodCertificateRequest<'a> {
        metadata: Metadata<'a>,
        spec: PodCertificateRequestSpec<'a>,
        status: PodCertificateRequestStatus<'a>,
    }

    struct PodCertificateRequestSpec<'a> {
        pod_name: TextValue<'a>,
        service_account_name: TextValue<'a>,
        node_name: TextValue<'a>,
        signer_name: TextValue<'a>,
        unverified_user_annotations: Labels<'a>,
    }

    struct PodCertificateRequestStatus<'a> {
        conditions: ListValue<Condition<'a>>,
    }
}

pub(super) fn signing_request(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let request: CertificateSigningRequest<'_> = decode(object)?;
    row.text(&request.metadata.name);
    row.format(format_args!("{}", request.metadata.creation_timestamp.since(now)));
    row.text_or(&request.spec.signer_name, "<none>");
    row.text(&request.spec.username);
    match request.spec.expiration_seconds {
        Some(seconds) => row.format(format_args!("{}", HumanDuration::from_seconds(seconds))),
        None => row.text("<none>"),
    }
    let has = |r#type: &str| request.status.conditions.iter().any(|condition| &*condition.r#type == r#type);
    let decision = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    };
    let failed = if has("Failed") { ",Failed" } else { "" };
    let issued = if request.status.certificate.is_empty() { "" } else { ",Issued" };
    row.format(format_args!("{decision}{failed}{issued}"));
    Ok(())
}

pub(super) fn cluster_trust_bundle(object: &[u8], _now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let bundle: ClusterTrustBundle<'_> = decode(object)?;
    row.text(&bundle.metadata.name);
    row.text_or(&bundle.spec.signer_name, "<none>");
    Ok(())
}

pub(super) fn pod_certificate_request(object: &[u8], _now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let request: PodCertificateRequest<'_> = decode(object)?;
    let state = request.status.conditions.iter().rfind(|c| matches!(&*c.r#type, "Issued" | "Denied" | "Failed"));
    row.text(&request.metadata.name);
    row.text(&request.spec.pod_name);
    row.text(&request.spec.service_account_name);
    row.text(&request.spec.node_name);
    row.text(&request.spec.signer_name);
    row.text(state.map_or("Pending", |condition| &condition.r#type));
    row.text(&format_labels(&request.spec.unverified_user_annotations));
    Ok(())
}

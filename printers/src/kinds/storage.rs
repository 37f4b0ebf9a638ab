//! Printers of volumes, claims and the group storage.k8s.io.

use jiff::Timestamp;
use serde::de::IgnoredAny;

use super::decode;
use super::metadata::{FullMetadata, Metadata};
use crate::Row;
use crate::value::{JoinedTexts, Labels, ListValue, Map, Quantity, TextOrNumber, TextValue, parts};

/// The annotation for the storage class. The annotation is older than the field `storageClassName` and takes
/// precedence.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

parts! {
    struct PersistentVolume<'a> {
        metadata: FullMetadata<'a>,
        spec: PersistentVolumeSpec<'a>,
        status: PersistentVolumeStatus<'a>,
    }

    struct PersistentVolumeSpec<'a> {
        capacity: Map<'a, TextOrNumber<'a>>,
        access_modes: ListValue<TextValue<'a>>,
        claim_ref: Option<ClaimReference<'a>>,
        persistent_volume_reclaim_policy: TextValue<'a>,
        storage_class_name: TextValue<'a>,
        volume_mode: Option<TextValue<'a>>,
        volume_attributes_class_name: Option<TextValue<'a>>,
    }

    struct ClaimReference<'a> {
        namespace: TextValue<'a>,
        name: TextValue<'a>,
    }

    struct PersistentVolumeStatus<'a> {
        phase: TextValue<'a>,
        reason: TextValue<'a>,
    }

    struct PersistentVolumeClaim<'a> {
        metadata: FullMetadata<'a>,
        spec: PersistentVolumeClaimSpec<'a>,
        status: PersistentVolumeClaimStatus<'a>,
    }

    struct PersistentVolumeClaimSpec<'a> {
        volume_name: TextValue<'a>,
        storage_class_name: TextValue<'a>,
        volume_mode: Option<TextValue<'a>>,
        volume_attributes_class_name: Option<TextValue<'a>>,
    }

    struct PersistentVolumeClaimStatus<'a> {
        phase: TextValue<'a>,
        access_modes: ListValue<TextValue<'a>>,
        capacity: Map<'a, TextOrNumber<'a>>,
    }

    struct StorageClass<'a> {
        metadata: FullMetadata<'a>,
        provisioner: TextValue<'a>,
        reclaim_policy: Option<TextValue<'a>>,
        volume_binding_mode: Option<TextValue<'a>>,
        allow_volume_expansion: Option<bool>,
    }

    struct VolumeAttributesClass<'a> {
        metadata: Metadata<'a>,
        driver_name: TextValue<'a>,
    }

    struct VolumeAttachment<'a> {
        metadata: Metadata<'a>,
        spec: VolumeAttachmentSpec<'a>,
        status: VolumeAttachmentStatus,
    }

    struct VolumeAttachmentSpec<'a> {
        attacher: TextValue<'a>,
        node_name: TextValue<'a>,
        source: VolumeAttachmentSource<'a>,
    }

    struct VolumeAttachmentSource<'a> {
        persistent_volume_name: TextValue<'a>,
    }

    struct CsiDriver<'a> {
        metadata: Metadata<'a>,
        spec: CsiDriverSpec<'a>,
    }

    struct CsiDriverSpec<'a> {
        token_requests: Option<Vec<TokenRequest<'a>>>,
        attach_required: Option<bool>,
        pod_info_on_mount: Option<bool>,
        storage_capacity: Option<bool>,
        requires_republish: Option<bool>,
        volume_lifecycle_modes: ListValue<TextValue<'a>>,
    }

    struct TokenRequest<'a> {
        audience: TextValue<'a>,
    }

    struct CsiNode<'a> {
        metadata: Metadata<'a>,
        spec: CsiNodeSpec,
    }
}

parts! {
    struct VolumeAttachmentStatus {
        attached: bool,
    }

    struct CsiNodeSpec {
        drivers: ListValue<IgnoredAny>,
    }
}

pub(super) fn persistent_volume(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let volume: PersistentVolume<'_> = decode(object)?;
    let (metadata, spec) = (&volume.metadata, &volume.spec);
    row.text(&metadata.name);
    row.format(format_args!("{}", Quantity(spec.capacity.get("storage"))));
    row.text(&access_modes(&spec.access_modes));
    row.text(&spec.persistent_volume_reclaim_policy);
    row.text(phase(metadata, &volume.status.phase));
    match &spec.claim_ref {
        Some(claim) => row.format(format_args!("{}/{}", claim.namespace, claim.name)),
        None => row.text(""),
    }
    row.text(class(&metadata.annotations, &spec.storage_class_name));
    row.text(spec.volume_attributes_class_name.as_deref().unwrap_or("<unset>"));
    row.text(&volume.status.reason);
    row.format(format_args!("{}", metadata.creation_timestamp.since(now)));
    row.text(spec.volume_mode.as_deref().unwrap_or("<unset>"));
    Ok(())
}

pub(super) fn persistent_volume_claim(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let claim: PersistentVolumeClaim<'_> = decode(object)?;
    let (metadata, spec, status) = (&claim.metadata, &claim.spec, &claim.status);
    row.text(&metadata.name);
    row.text(phase(metadata, &status.phase));
    row.text(&spec.volume_name);
    if spec.volume_name.is_empty() {
        row.text("");
        row.text("");
    } else {
        row.format(format_args!("{}", Quantity(status.capacity.get("storage"))));
        row.text(&access_modes(&status.access_modes));
    }
    row.text(class(&metadata.annotations, &spec.storage_class_name));
    row.text(spec.volume_attributes_class_name.as_deref().unwrap_or("<unset>"));
    row.format(format_args!("{}", metadata.creation_timestamp.since(now)));
    row.text(spec.volume_mode.as_deref().unwrap_or("<unset>"));
    Ok(())
}

fn phase<'a>(metadata: &FullMetadata<'_>, phase: &'a str) -> &'a str {
    if metadata.deletion_timestamp.is_some() { "Terminating" } else { phase }
}

fn class<'a>(annotations: &'a Labels<'_>, field: &'a str) -> &'a str {
    annotations.get(BETA_CLASS).map_or(field, |class| class)
}

/// Formats the abbreviations of access modes in a fixed order, without duplicates.
fn access_modes(modes: &[TextValue<'_>]) -> String {
    let known =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let present = known.iter().filter(|(mode, _)| modes.iter().any(|m| &**m == *mode)).map(|(_, short)| short);
    JoinedTexts(",", present).to_string()
}

pub(super) fn storage_class(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let class: StorageClass<'_> = decode(object)?;
    let default = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
        .iter()
        .any(|key| class.metadata.annotations.get(key).is_some_and(|value| &**value == "true"));
    row.format(format_args!("{}{}", class.metadata.name, if default { " (default)" } else { "" }));
    row.text(&class.provisioner);
    row.text(class.reclaim_policy.as_deref().unwrap_or("Delete"));
    row.text(class.volume_binding_mode.as_deref().unwrap_or("Immediate"));
    row.boolean(class.allow_volume_expansion == Some(true));
    row.format(format_args!("{}", class.metadata.creation_timestamp.since(now)));
    Ok(())
}

pub(super) fn volume_attributes_class(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let class: VolumeAttributesClass<'_> = decode(object)?;
    row.text(&class.metadata.name);
    row.text(&class.driver_name);
    row.format(format_args!("{}", class.metadata.creation_timestamp.since(now)));
    Ok(())
}

pub(super) fn volume_attachment(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let attachment: VolumeAttachment<'_> = decode(object)?;
    row.text(&attachment.metadata.name);
    row.text(&attachment.spec.attacher);
    row.text(&attachment.spec.source.persistent_volume_name);
    row.text(&attachment.spec.node_name);
    row.boolean(attachment.status.attached);
    row.format(format_args!("{}", attachment.metadata.creation_timestamp.since(now)));
    Ok(())
}

pub(super) fn csi_driver(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let driver: CsiDriver<'_> = decode(object)?;
    let spec = &driver.spec;
    row.text(&driver.metadata.name);
    row.boolean(spec.attach_required.unwrap_or(true));
    row.boolean(spec.pod_info_on_mount.unwrap_or(false));
    row.boolean(spec.storage_capacity.unwrap_or(false));
    match &spec.token_requests {
        Some(requests) => {
            row.format(format_args!("{}", JoinedTexts(",", requests.iter().map(|request| &request.audience))))
        }
        None => row.text("<unset>"),
    }
    row.boolean(spec.requires_republish.unwrap_or(false));
    row.text_or(&JoinedTexts(",", spec.volume_lifecycle_modes.iter()).to_string(), "<none>");
    row.format(format_args!("{}", driver.metadata.creation_timestamp.since(now)));
    Ok(())
}

pub(super) fn csi_node(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let node: CsiNode<'_> = decode(object)?;
    row.text(&node.metadata.name);
    row.number(i64::try_from(node.spec.drivers.len()).unwrap_or(i64::MAX));
    row.format(format_args!("{}", node.metadata.creation_timestamp.since(now)));
    Ok(())
}

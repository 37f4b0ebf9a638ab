//! Translation of a member's answer for the client: resourceVersions become versions of the merged view, and objects
//! get the cluster annotation.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, Response, header};
use tributary_answers::negotiate::IncludeObject;
use tributary_answers::negotiate::{AnswerForm, Encoding, MetaVersion, Representation};
use tributary_answers::refusal::{MemberRefusal, Refusal};
use tributary_answers::warnings;
use tributary_apimachinery::rewrite::{WriteResult, deleted_by_change};
use tributary_apimachinery::{
    GroupVersionResource, NativeVersion, ObjectDecodeError, ObjectDecoder, ObjectKey, ResourceRequest, json,
    unmark_object,
};
use tributary_fleet::discovery::ResourceKind;
use tributary_fleet::topology::Cluster;
use tributary_printers::Printer;
use tributary_rights::ItemVersions;
use tributary_sharing::body::{self, Body};
use tributary_sharing::flow::fair_semaphore::FairPermit;
use tributary_sharing::flow::large_bodies::at_once;
use tributary_sharing::flow::share_key::ShareKey;
use tributary_views::view::Deletion;

use super::media_type::content_type;
use super::owner::helm::release::may_be_record;
use super::whole::{Interrupted, whole};
use crate::Router;
use crate::request::ClientRequest;
use crate::response::{self, Columns, ObjectContext, ObjectWriter};

/// Form of the client's answer, and whether the request writes.
pub(crate) struct TranslationOptions {
    pub(crate) form: AnswerForm,
    pub(crate) error_form: AnswerForm,
    /// Value of `includeObject` for the rows of a Table.
    pub(crate) include: IncludeObject,
    /// True if the request changes objects, in contrast to a read or a dry run.
    pub(crate) writes: bool,
}

impl TranslationOptions {
    /// Returns the `Accept` header for the member. Tributary prints the rows of a Table itself, so it requests the
    /// object.
    pub(crate) fn accept(&self) -> &'static str {
        match self.form.shape {
            Representation::PartialMetadata(MetaVersion::V1) => {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
            }
            Representation::PartialMetadata(MetaVersion::V1Beta1) => {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1"
            }
            Representation::Object | Representation::Table(_) => "application/json",
        }
    }
}

/// Converts a member's answer into the client's form. A body that is no object (a Status, a TokenRequest) stays
/// unchanged, or becomes YAML: members answer Tributary in JSON, but kube-apiserver writes refusals in the form that
/// the client accepts.
///
/// # Errors
/// 502 for an object that clients could read in two ways, for example because of a duplicate key, and for an encoding
/// that Tributary did not request. 502 if the answer breaks off, takes more than 30 s, is larger than 8 MiB, or needs
/// more bytes than the limit of body bytes allows. For a read or a dry run, the limit of body bytes causes 429 instead.
pub(crate) async fn translate(
    request: ClientRequest<'_>,
    cluster: &Arc<Cluster>,
    answer: Response<Body>,
    reservation: FairPermit,
    wish: &TranslationOptions,
) -> Result<Response<Body>, Refusal> {
    let (mut head, incoming) = answer.into_parts();
    warnings::name(cluster.name(), &mut head.headers);
    let is_yaml = wish.error_form.encoding == Encoding::Yaml;
    let kind = BodyKind::from_media_type(content_type(&head.headers));
    if head.status.is_success() && kind == BodyKind::OtherEncoding {
        let cause = "the answer is not JSON, the requested encoding".to_owned();
        return Err(MemberRefusal::Interrupted { cluster: cluster.name().clone(), cause }.into());
    }
    if kind != BodyKind::Json || !(head.status.is_success() || is_yaml) {
        return Ok(Response::from_parts(head, incoming));
    }
    let (text, reservation) = whole(incoming, reservation).await.map_err(|interrupted| match interrupted {
        Interrupted::NoRoom(exceeded) if !wish.writes => exceeded.into(),
        interrupted => interrupted.refusal(cluster.name()),
    })?;
    let form = if head.status.is_success() { wish.form } else { wish.error_form };
    if wish.writes && head.status.is_success() {
        // The write is recorded before the wait for a CPU slot, because the member has done the write even if the
        // client gives up waiting.
        at_once(text.len(), || {
            record_write(request.router, request.caller.writer(), cluster, request.resource, &head.headers, &text)
        });
    }
    let body_permit = request
        .router
        .large_bodies()
        .body_permit(reservation.share_key(), text.len().max(form.writing_cost(text.len())))
        .await;
    body_permit.run(|| match head.status.is_success() {
        true => translated(request, cluster, head, text, wish),
        false => Ok(in_requested_form(head, text, form)),
    })
}

/// Kind of an answer's body, by its media type.
#[derive(Debug, PartialEq, Eq)]
enum BodyKind {
    /// JSON, which Tributary requests from members. A body without `Content-Type` is JSON, too, because client-go reads
    /// it as JSON.
    Json,
    /// Another encoding of objects, which clients read although they did not request the encoding. Tributary refuses
    /// the answer: the annotation in the unread object could name another cluster, and the client's next write would go
    /// to that cluster.
    OtherEncoding,
    /// Not an object, for example a screenshot or plain text.
    Opaque,
}

impl BodyKind {
    /// Sources: the media types of kubernetes/apimachinery `pkg/runtime/types.go`; client-go's `rest/request.go` for a
    /// body without a type.
    fn from_media_type(media_type: &str) -> Self {
        match &*media_type.to_ascii_lowercase() {
            "" | "application/json" => Self::Json,
            "application/yaml"
            | "application/cbor"
            | "application/cbor-seq"
            | "application/vnd.kubernetes.protobuf" => Self::OtherEncoding,
            other if other.starts_with("application/json") => Self::Json,
            _ => Self::Opaque,
        }
    }
}

/// Returns a successful answer in the client's form.
///
/// # Errors
/// 502 if clients could read the answer in two ways.
fn translated(
    request: ClientRequest<'_>,
    cluster: &Arc<Cluster>,
    mut head: Parts,
    text: Bytes,
    wish: &TranslationOptions,
) -> Result<Response<Body>, Refusal> {
    let object = match ObjectDecoder::for_forwarding().decode(&text) {
        Ok(object) => object,
        Err(error) => {
            head.headers.remove(header::CONTENT_LENGTH);
            let is_computed = matches!(error, ObjectDecodeError::Missing("metadata.resourceVersion"))
                && request.resource.subresource.is_none();
            let marked = if is_computed { annotated(cluster, &text, wish.form) } else { None };
            let passed = marked.map_or_else(|| unmarked(cluster, text), Ok)?;
            return Ok(in_requested_form(head, passed, wish.form));
        }
    };
    let mut version = String::new();
    match object.native_version() {
        NativeVersion::Number(own) => {
            item_versions(request, cluster).for_cluster(&cluster.mark).write(own, &mut version)
        }
        NativeVersion::Opaque(own) => version = cluster.mark.opaque_version(&own),
    }
    let mut out = Vec::with_capacity(text.len() + 256);
    let mut writer = ObjectWriter::new(&kind(request.resource), written_form(wish.form), wish.include);
    writer.write(&object, &version, &cluster.mark, ObjectContext::Alone(Columns::Defined), &mut out);
    if wish.form.encoding != Encoding::Protobuf {
        out.push(b'\n');
    }
    let mut response = response::whole(head.status, wish.form, out);
    keep_headers(&head.headers, response.headers_mut());
    Ok(response)
}

/// Returns the form of the resourceVersions in an answer of this cluster to the caller. Answers from memory use the
/// same form.
fn item_versions(request: ClientRequest<'_>, cluster: &Cluster) -> ItemVersions {
    let resource = &request.resource.resource;
    let audience = request.caller.rights().map(|rights| rights.audience_of(cluster.name(), &request.read_target()));
    ItemVersions::new(request.configuration.items(resource), audience.map(Arc::new))
}

/// Removes the cluster annotation from a body that is otherwise passed on unchanged: only Tributary may set the
/// annotation.
fn unmarked(cluster: &Cluster, text: Bytes) -> Result<Bytes, Refusal> {
    match unmark_object(&text) {
        Ok(Cow::Borrowed(_)) | Err(ObjectDecodeError::Json(_)) => Ok(text),
        Ok(Cow::Owned(cut)) => Ok(cut.into()),
        Err(error) => {
            let cluster = cluster.name().clone();
            Err(MemberRefusal::Interrupted { cluster, cause: error.to_string() }.into())
        }
    }
}

/// Returns a body that is no object as JSON, or in YAML if the client requests YAML.
fn in_requested_form(head: Parts, text: Bytes, form: AnswerForm) -> Response<Body> {
    if form.encoding != Encoding::Yaml {
        return Response::from_parts(head, body::full(text));
    }
    let mut response = response::whole(head.status, form, text.into());
    keep_headers(&head.headers, response.headers_mut());
    response
}

/// Returns the form in which Tributary writes the answer. Unless the client requests protobuf, the member has already
/// reduced the object to PartialObjectMetadata, so Tributary writes the whole text.
fn written_form(form: AnswerForm) -> AnswerForm {
    if matches!(form.shape, Representation::PartialMetadata(_)) && form.encoding != Encoding::Protobuf {
        AnswerForm { shape: Representation::Object, ..form }
    } else {
        form
    }
}

fn keep_headers(from: &HeaderMap, to: &mut HeaderMap) {
    for name in [header::WARNING, header::LOCATION, header::RETRY_AFTER] {
        for value in from.get_all(&name) {
            to.append(name.clone(), value.clone());
        }
    }
    for (name, value) in from.iter().filter(|(name, _)| {
        matches!(name.as_str(), "audit-id" | "x-kubernetes-pf-flowschema-uid" | "x-kubernetes-pf-prioritylevel-uid")
    }) {
        to.append(name.clone(), value.clone());
    }
}

fn kind(request: &ResourceRequest) -> ResourceKind {
    let printer = match request.subresource.as_deref() {
        Some("scale") => Printer::scale(),
        _ => Printer::for_resource(&request.resource).unwrap_or_else(Printer::default_columns),
    };
    ResourceKind {
        resource: request.resource.clone(),
        kind: "".into(),
        namespaced: request.namespace.is_some(),
        printer,
    }
}

/// Adds the cluster annotations to an object without a resourceVersion, such as metrics, which a server computes for
/// each request.
fn annotated(cluster: &Cluster, text: &[u8], form: AnswerForm) -> Option<Bytes> {
    let mut object: serde_json::Value = serde_json::from_slice(text).ok()?;
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.entry("annotations").or_insert_with(|| serde_json::json!({}));
    let named = form.annotations.keys().iter().map(|key| ((*key).to_owned(), cluster.name().as_str().into()));
    annotations.as_object_mut()?.extend(named);
    serde_json::to_vec(&object).ok().map(Bytes::from)
}

/// Records a write that a member has answered, so that later reads wait for the write (read-your-writes). If the write
/// may change discovery, Tributary renews the discovery of the cluster.
///
/// An aggregated server may answer with an object of a different kind. The version of such an object is no version of
/// the resource, so it is not recorded.
pub(crate) fn record_write(
    router: &Router,
    writer: ShareKey,
    cluster: &Arc<Cluster>,
    request: &ResourceRequest,
    headers: &HeaderMap,
    text: &Bytes,
) {
    if let Some(namespace) = request.namespace.as_deref().filter(|_| may_be_record(request, text)) {
        router.releases().forget(namespace);
    }
    if changes_discovery(&request.resource) {
        cluster.refresh();
        router.views().definitions_changed();
    }
    let merged_discovery = router.fleet().merged_discovery();
    let is_written = |kind: &str| {
        matches!(kind, "PartialObjectMetadata" | "Table")
            || merged_discovery
                .get(&request.resource)
                .is_none_or(|served| served.description.answers_with(request, kind))
    };
    let Some(written) = WriteResult::read(content_type(headers), text, is_written) else { return };
    let deleted = deleted_by_change(text).filter(|_| !may_lack_finalizers(&request.resource, text));
    let namespaced =
        request.namespace.as_deref().map(|namespace| router.views().get(&request.resource, Some(namespace)));
    let key = |name: &str| ObjectKey::new(request.namespace.as_deref().unwrap_or_default(), name).as_str().to_owned();
    for view in [router.views().get(&request.resource, None), namespaced.flatten()].into_iter().flatten() {
        match (&written, &request.name) {
            // A create has no name in its path, but its answer contains the name of the new object.
            (WriteResult::At { version, name }, requested_name) => {
                let key = requested_name.as_deref().or(name.as_deref()).map(key);
                view.read_your_writes.record_write(writer, cluster.name(), key.as_deref(), *version);
                if let (Some(key), Some(uid)) = (key, deleted.clone()) {
                    view.read_your_writes.record_deletions(
                        writer,
                        cluster.name(),
                        [Deletion { key, uid, before: None }],
                    );
                }
            }
            (WriteResult::Gone { uid }, Some(name)) if request.subresource.is_none() => {
                let deletion = Deletion { key: key(name), uid: uid.clone(), before: None };
                view.read_your_writes.record_deletions(writer, cluster.name(), [deletion]);
            }
            (WriteResult::Gone { .. }, _) => {}
        }
    }
}

/// Returns whether the answer may lack finalizers that delay the deletion: a namespace also has finalizers in its spec,
/// and `text` may lack the spec.
fn may_lack_finalizers(resource: &GroupVersionResource, text: &[u8]) -> bool {
    let is_namespace = resource.group.is_empty() && &*resource.resource == "namespaces";
    is_namespace && json::find(text, 0, &["spec"]).is_none_or(|spec| text.get(spec.start) != Some(&b'{'))
}

fn changes_discovery(resource: &GroupVersionResource) -> bool {
    matches!(
        (&*resource.group, &*resource.resource),
        ("apiextensions.k8s.io", "customresourcedefinitions") | ("apiregistration.k8s.io", "apiservices")
    )
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tributary_apimachinery::{ClusterName, RequestInfo};

    use super::*;
    use crate::caller::Caller;
    use crate::{ClusterAddress, ClusterAuthorization, ClusterSetup, MemberRules, RouterConfig};
    use tributary_answers::negotiate::Preferences;
    use tributary_fleet::discovery::ServedResource;
    use tributary_fleet::discovery::model::Resource;

    /// Size of a large body in bytes. The translation of a large body needs a CPU slot.
    const LARGE_BYTES: usize = 1 << 20;

    #[test]
    fn media_type_tells_json_other_encodings_and_opaque_bodies_apart() {
        for (media_type, kind) in [
            ("application/json", BodyKind::Json),
            ("Application/JSON", BodyKind::Json),
            ("", BodyKind::Json),
            ("application/yaml", BodyKind::OtherEncoding),
            ("application/vnd.kubernetes.Protobuf", BodyKind::OtherEncoding),
            ("application/cbor", BodyKind::OtherEncoding),
            ("image/png", BodyKind::Opaque),
            ("text/plain", BodyKind::Opaque),
        ] {
            assert_eq!(BodyKind::from_media_type(media_type), kind, "{media_type}");
        }
    }

    #[tokio::test]
    async fn member_answer_loses_a_forged_cluster_annotation() {
        let (_router, cluster) = router_of_one();
        let passed = |text: &str| unmarked(&cluster, text.to_owned().into()).map(|text| text.to_vec());
        // An object without a version is passed on, without the annotation.
        let victim = r#"{"kind":"K","metadata":{"name":"p","annotations":{"tributary.dev\/cluster":"b"}}}"#;
        assert_eq!(passed(victim).unwrap(), br#"{"kind":"K","metadata":{"name":"p","annotations":{}}}"#);
        for (repeated, what) in [
            (r#"{"metadata":{"name":"p"},"metadata":{"annotations":{"tributary.dev/cluster":"b"}}}"#, "metadata twice"),
            (r#"{"metadata":{"annotations":{},"annotations":{"tributary.dev/cluster":"b"}}}"#, "annotations twice"),
        ] {
            let status = passed(repeated).unwrap_err().status();
            assert_eq!(status.code, 502);
            assert!(status.message.contains("cluster \"a\"") && status.message.contains(what), "{status}");
        }
        for as_it_is in [r#"{"kind":"Status","metadata":{}}"#, "{}", "[1]", "no JSON"] {
            assert_eq!(passed(as_it_is).unwrap(), as_it_is.as_bytes());
        }
    }

    /// The answer to a change that removes the last finalizer contains the object's version before the deletion.
    #[tokio::test]
    async fn reads_wait_for_a_deletion_that_a_patch_completes() {
        let (router, cluster) = router_of_one();
        for (resource, object, is_deleted) in [
            ("configmaps", r#""kind":"ConfigMap""#, true),
            ("configmaps", r#""kind":"PartialObjectMetadata""#, true),
            ("namespaces", r#""kind":"Namespace","spec":{}"#, true),
            ("namespaces", r#""kind":"Namespace","spec":{"finalizers":["kubernetes"]}"#, false),
            ("namespaces", r#""kind":"PartialObjectMetadata""#, false),
        ] {
            let served = served(&cluster, resource);
            let view = router.views().get_or_start(&served, None, None).await;
            let text = format!(
                r#"{{{object},"metadata":{{"name":"x","uid":"u","resourceVersion":"7","deletionTimestamp":"t"}}}}"#
            );
            let request = ResourceRequest {
                resource: served.resource.clone(),
                namespace: None,
                name: Some("x".to_owned()),
                subresource: None,
                rest: None,
                selected_name: None,
            };
            record_write(&router, ShareKey::Unknown, &cluster, &request, &HeaderMap::new(), &text.clone().into());
            let key = ObjectKey::new("", "x");
            let pending =
                view.read_your_writes.pending_of(tributary_views::view::WriterSelector::AnyWriter, key.as_str());
            let deletion = Deletion { key: key.as_str().to_owned(), uid: "u".to_owned(), before: None };
            let expected: Vec<_> = is_deleted.then_some(deletion).into_iter().collect();
            assert_eq!(pending[0].1.deletions, expected, "{text}");
            view.read_your_writes.forget(cluster.name());
        }
    }

    fn router_of_one() -> (Arc<Router>, Arc<Cluster>) {
        let router = Router::new(RouterConfig::default());
        let name = ClusterName::new("a").unwrap();
        let client = Err("a test".to_owned());
        router.set_clusters(vec![ClusterSetup {
            name: name.clone(),
            client,
            client_generation: 0,
            address: ClusterAddress::from_description(""),
            index: None,
            impersonation: MemberRules::default(),
            authorization: ClusterAuthorization::Auto,
        }]);
        let cluster = router.fleet().cluster(&name).unwrap();
        (router, cluster)
    }

    fn served(cluster: &Cluster, resource: &str) -> ServedResource {
        let described = format!(r#"{{"resource": "{resource}", "scope": "Namespaced"}}"#);
        let name = cluster.name();
        ServedResource {
            resource: GroupVersionResource::new("", "v1", resource),
            description: serde_json::from_str::<Resource>(&described).unwrap(),
            clusters: [name.clone()].into(),
            cacheable: [name.clone()].into(),
            not_merged: Vec::new(),
        }
    }

    #[tokio::test]
    async fn write_is_recorded_before_its_answer_gets_a_cpu_slot() {
        let (router, cluster) = router_of_one();
        let served = served(&cluster, "configmaps");
        let view = router.views().get_or_start(&served, None, None).await;

        let ask = |port: u16| {
            router.large_bodies().body_permit(ShareKey::Connection(([127, 0, 0, 1], port).into()), LARGE_BYTES)
        };
        let all_turns: Vec<_> = (1..).map_while(|port| ask(port).now_or_never()).collect();
        let padding = "x".repeat(LARGE_BYTES);
        let text = format!(
            r#"{{"kind":"ConfigMap","metadata":{{"name":"x","namespace":"n","resourceVersion":"7"}},"data":{{"v":"{padding}"}}}}"#
        );
        let answer =
            Response::builder().header(header::CONTENT_TYPE, "application/json").body(body::full(text)).unwrap();
        let resource = ResourceRequest {
            resource: served.resource.clone(),
            namespace: Some("n".to_owned()),
            name: Some("x".to_owned()),
            subresource: None,
            rest: None,
            selected_name: None,
        };
        let (form, include) = (AnswerForm::JSON, IncludeObject::default());
        let wish = TranslationOptions { form, error_form: form, include, writes: true };
        let reservation = router.held_bytes().acquire(ShareKey::Unknown, 0).unwrap();
        // The client cancels the request, as clients do at their time limit.
        let path = "/api/v1/namespaces/n/configmaps/x";
        let request = ClientRequest {
            router: &router,
            configuration: &router.configuration(),
            caller: &Caller::named("owner", None),
            candidates: &tributary_rights::Candidates::default(),
            info: &RequestInfo::parse("PUT", path, None).unwrap(),
            resource: &resource,
            query: None,
            served: &served,
            preferences: &Preferences::from_headers(&HeaderMap::new(), None),
        };
        assert!(
            translate(request, &cluster, answer, reservation, &wish).now_or_never().is_none(),
            "it waits for its turn"
        );
        let pending = view.read_your_writes.pending_of(tributary_views::view::WriterSelector::AnyWriter, "n/x");
        assert_eq!(pending.len(), 1, "later reads wait until the write is seen");
        drop(all_turns);
    }
}

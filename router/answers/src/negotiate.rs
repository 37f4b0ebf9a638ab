//! Negotiation of the form of an answer: the clauses of `Accept`, and indentation.
//!
//! Source: kubernetes/apiserver `pkg/endpoints/handlers/negotiation/negotiate.go`, which uses goautoneg. Clauses are
//! tried by q, then in their order, wildcards last; the first available one wins. Unknown parameters are ignored, as
//! KEP-5958 demands of servers.

mod clause;

pub use clause::Clause;

use http::{HeaderMap, HeaderValue, header};
use tributary_apimachinery::GroupVersionResource;
use tributary_apimachinery::query::Query;
use tributary_printers::Printer;

/// The number of bytes of JSON that a thread reads while it writes one byte of YAML: JSON is scanned at hundreds of
/// megabytes a second, YAML is written at some ten.
const YAML_COST: usize = 16;

/// Reason for which no requested form is available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAcceptable {
    /// No media type is named that is known.
    Unknown {
        /// Media types that Tributary can give.
        available: Vec<&'static str>,
    },
    /// The media type is known, but not its parameters, for example `as=`.
    Unavailable {
        /// Media types that Tributary can give.
        available: Vec<&'static str>,
    },
    /// The client requests the metadata of a list for a single object, or the other way round.
    Shape {
        /// Whether the answer would be a list.
        is_list_shape: bool,
        /// Go type of the object in kube-apiserver's message: `*core.Pod`.
        kind: String,
    },
}

/// Content of the rows of a Table besides cells (`includeObject`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IncludeObject {
    /// Rows carry cells only.
    None,
    /// Rows carry the metadata: the default.
    #[default]
    Metadata,
    /// The whole object in each row.
    Object,
}

impl IncludeObject {
    /// Reads the query parameter.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Metadata" => Some(Self::Metadata),
            "None" => Some(Self::None),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

/// Encoding of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `application/json`
    Json,
    /// `application/yaml`; never for a watch.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`; for metadata alone.
    Protobuf,
}

impl Encoding {
    /// In the order in which a wildcard finds them.
    const ALL: [Self; 3] = [Self::Json, Self::Yaml, Self::Protobuf];

    /// The `Content-Type` of an answer in this encoding.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// The `Content-Type` of a stream of events in this encoding.
    pub fn stream_content_type(self) -> &'static str {
        match self {
            Self::Json | Self::Yaml => self.content_type(),
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }
}

/// Version of `meta.k8s.io` of a transformed answer. Both have the same fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaVersion {
    /// `meta.k8s.io/v1`
    V1,
    /// `meta.k8s.io/v1beta1`
    V1Beta1,
}

impl MetaVersion {
    /// The `apiVersion`.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// Representation of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Representation {
    /// Objects as they are stored.
    Object,
    /// `as=Table`: rows and cells for people.
    Table(MetaVersion),
    /// `as=PartialObjectMetadata` or `as=PartialObjectMetadataList`: metadata alone.
    PartialMetadata(MetaVersion),
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AnswerForm {
    /// Encoding of the answer.
    pub encoding: Encoding,
    /// Representation of the objects.
    pub shape: Representation,
    /// Whether JSON is indented, for people.
    pub pretty: bool,
    /// Whether the client takes gzip. Watches are never compressed.
    pub gzip: bool,
}

impl AnswerForm {
    /// Plain JSON, which everybody reads.
    pub const JSON: Self = Self { encoding: Encoding::Json, shape: Representation::Object, pretty: false, gzip: false };

    /// Cost of writing this number of bytes of JSON in this form, measured in bytes of JSON that are parsed in the same
    /// time. 0 if the bytes are copied.
    pub fn writing_cost(self, bytes: usize) -> usize {
        match self {
            Self { encoding: Encoding::Yaml, .. } => bytes.saturating_mul(YAML_COST),
            Self { pretty: true, .. } | Self { gzip: true, .. } => bytes,
            _ => 0,
        }
    }
}

/// Kind of the answer, which limits the forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseKind {
    /// A single object of a resource.
    Object,
    /// An answer to a review: no stored object, and no rows to print.
    Review,
    /// A list of objects.
    List,
    /// A stream of events: JSON alone has a framing.
    Watch,
}

/// Preferences of a request about the form of its answer. Costs two reference counts to keep beside the request.
#[derive(Clone, Debug, Default)]
pub struct Preferences {
    accept: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    /// Parameter `pretty` of the query, if the query has it.
    pretty: Option<bool>,
    gzip: bool,
}

impl Preferences {
    /// Reads a request's headers and query (without its `?`).
    pub fn from_headers(headers: &HeaderMap, query: Option<&str>) -> Self {
        Self {
            accept: headers.get(header::ACCEPT).cloned(),
            user_agent: headers.get(header::USER_AGENT).cloned(),
            // Most queries have neither the parameter nor an escape, so they need no parsing.
            pretty: query
                .filter(|query| query.contains("pretty") || query.contains('%'))
                .and_then(|query| pretty(&Query::parse(Some(query)))),
            gzip: accepts_gzip(headers),
        }
    }

    /// Checks that the request names a known media type, as kube-apiserver's routes of built-in kinds do first.
    ///
    /// # Errors
    /// [`NotAcceptable`] with the available media types.
    pub fn fits_route(&self, answer: ResponseKind, resource: &GroupVersionResource) -> Result<(), NotAcceptable> {
        if names_a_known_type(self.accept()) || !is_routed(resource) {
            return Ok(());
        }
        Err(NotAcceptable::Unknown { available: representations(answer).to_vec() })
    }

    /// Like [`fits_route`](Self::fits_route), for a route with JSON as the only media type.
    ///
    /// # Errors
    /// [`NotAcceptable`].
    pub fn fits_json_route(&self) -> Result<(), NotAcceptable> {
        let given = [Encoding::Json.content_type()];
        if names_one_of(self.accept(), &given) {
            return Ok(());
        }
        Err(NotAcceptable::Unknown { available: given.to_vec() })
    }

    /// Form of an answer about objects.
    ///
    /// # Errors
    /// [`NotAcceptable`] with the available media types.
    pub fn form(&self, answer: ResponseKind) -> Result<AnswerForm, NotAcceptable> {
        let accept = self.accept();
        let chosen =
            if accept.is_empty() { Some(Chosen::JSON) } else { choose(accept, answer != ResponseKind::Review) };
        let chosen = chosen
            .ok_or_else(|| NotAcceptable::Unavailable { available: representations(ResponseKind::Object).to_vec() })?;
        let is_watch = answer == ResponseKind::Watch;
        Ok(AnswerForm {
            encoding: chosen.encoding,
            shape: chosen.shape,
            pretty: !is_watch && self.is_pretty(chosen),
            gzip: !is_watch && self.gzip,
        })
    }

    /// Whether the form is one of this answer: JSON for events, the metadata of one object or of a list. kube-apiserver
    /// finds out once it has the answer. `kind` is that of the resource's objects.
    ///
    /// # Errors
    /// [`NotAcceptable`].
    pub fn fits(
        &self,
        form: AnswerForm,
        answer: ResponseKind,
        resource: &GroupVersionResource,
        kind: &str,
    ) -> Result<(), NotAcceptable> {
        if answer == ResponseKind::Watch && form.encoding == Encoding::Yaml {
            return Err(NotAcceptable::Unavailable { available: vec!["application/json;stream=watch"] });
        }
        if !matches!(form.shape, Representation::PartialMetadata(_)) {
            return Ok(());
        }
        let is_list_shape = choose(self.accept(), true).is_some_and(|chosen| chosen.is_list_shape);
        if is_list_shape == (answer == ResponseKind::List) {
            return Ok(());
        }
        Err(NotAcceptable::Shape { is_list_shape, kind: go_type(resource, kind) })
    }

    /// Form of an error: the requested form if errors have it, otherwise indented JSON.
    pub fn error_form(&self) -> AnswerForm {
        let accept = self.accept();
        match if accept.is_empty() { Some(Chosen::JSON) } else { choose(accept, false) } {
            Some(chosen) => {
                AnswerForm { encoding: chosen.encoding, pretty: self.is_pretty(chosen), ..AnswerForm::JSON }
            }
            None => AnswerForm { pretty: true, ..AnswerForm::JSON },
        }
    }

    fn accept(&self) -> &str {
        // Stands for bytes above ASCII, which a header may have. The clause then matches no media type, in contrast to
        // a missing header.
        const UNKNOWN: &str = "\u{fffd}";
        self.accept.as_ref().map_or("", |value| std::str::from_utf8(value.as_bytes()).unwrap_or(UNKNOWN))
    }

    /// People's programs (curl, wget, browsers) get indented JSON.
    fn is_pretty(&self, chosen: Chosen) -> bool {
        chosen.pretty
            || self.pretty.unwrap_or_else(|| {
                let agent = self.user_agent.as_ref().and_then(|value| value.to_str().ok()).unwrap_or_default();
                ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix))
            })
    }
}

/// Reads the parameter `pretty`. Values for which Go's `ParseBool` returns true are true, an empty one is absent, all
/// other values are false.
fn pretty(query: &Query<'_>) -> Option<bool> {
    let value = query.get("pretty").filter(|value| !value.is_empty())?;
    Some(matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// Whether the client takes gzip. Only the plain coding is looked for; `q=0` refuses it.
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        name.trim() == "gzip" && !matches!(parameters.trim(), "q=0" | "q=0.0")
    })
}

/// Whether the header names a media type of built-in kinds, with any parameters. kube-apiserver's routes of built-in
/// kinds check this first (go-restful's `Route.matchesAccept`), and know no `application/*`.
pub fn names_a_known_type(accept: &str) -> bool {
    names_one_of(accept, &Encoding::ALL.map(Encoding::content_type))
}

/// Like [`names_a_known_type`], for a route with only these media types.
pub(crate) fn names_one_of(accept: &str, given: &[&str]) -> bool {
    accept.is_empty()
        || accept.split(',').any(|part| {
            let media_type = part.split(';').next().unwrap_or_default().trim_matches(' ');
            media_type == "*/*" || given.contains(&media_type)
        })
}

/// Whether kube-apiserver has routes for the resource with their own media types. Custom resources and aggregated
/// servers use one handler.
pub fn is_routed(resource: &GroupVersionResource) -> bool {
    Printer::for_resource(resource).is_some()
}

/// Go type in kube-apiserver's message about the wrong shape of an object: the type of the internal version.
fn go_type(resource: &GroupVersionResource, kind: &str) -> String {
    if !resource.is_built_in() {
        return "*unstructured.Unstructured".to_owned();
    }
    let package = match resource.group.split('.').next().unwrap_or_default() {
        "" | "events" => "core",
        "internal" => "apiserverinternal",
        package => package,
    };
    format!("*{package}.{kind}")
}

/// The media types that can be given. A collection's route serves its watches, too.
fn representations(answer: ResponseKind) -> &'static [&'static str] {
    match answer {
        ResponseKind::Object | ResponseKind::Review => &["application/json", "application/yaml"],
        ResponseKind::List | ResponseKind::Watch => {
            &["application/json", "application/yaml", "application/json;stream=watch"]
        }
    }
}

/// Answer to one clause of `Accept`.
#[derive(Clone, Copy)]
struct Chosen {
    encoding: Encoding,
    shape: Representation,
    /// Whether the shape is that of a list (`PartialObjectMetadataList`).
    is_list_shape: bool,
    pretty: bool,
}

impl Chosen {
    const JSON: Self =
        Self { encoding: Encoding::Json, shape: Representation::Object, is_list_shape: false, pretty: false };
}

/// The first clause that can be given, and how. Errors and reviews have no other shape than their own
/// (`transforms` is false).
fn choose(accept: &str, transforms: bool) -> Option<Chosen> {
    let clauses = Clause::parse_all(accept);
    clauses.iter().find_map(|clause| {
        let mut fitting = Encoding::ALL.into_iter().filter(|encoding| clause.names(encoding.content_type()));
        fitting.find_map(|encoding| answer_clause(clause, encoding, transforms))
    })
}

fn answer_clause(clause: &Clause<'_>, encoding: Encoding, transforms: bool) -> Option<Chosen> {
    let (mut kind, mut group, mut version) = (None, "", "");
    let mut pretty = false;
    for (name, value) in clause.parameters() {
        match name {
            "as" => kind = Some(value),
            "g" => group = value,
            "v" => version = value,
            "stream" if encoding == Encoding::Yaml || value != "watch" => return None,
            "sv" if !transforms || value != "v1" => return None,
            "pretty" => pretty = value == "1",
            _ => {}
        }
    }
    if kind.is_none() && group.is_empty() && version.is_empty() {
        return (encoding != Encoding::Protobuf).then_some(Chosen { encoding, pretty, ..Chosen::JSON });
    }
    let version = match (group, version) {
        ("meta.k8s.io", "v1") => MetaVersion::V1,
        ("meta.k8s.io", "v1beta1") => MetaVersion::V1Beta1,
        _ => return None,
    };
    let (shape, is_list_shape) = match kind {
        Some("Table") => (Representation::Table(version), false),
        Some("PartialObjectMetadata") => (Representation::PartialMetadata(version), false),
        Some("PartialObjectMetadataList") => (Representation::PartialMetadata(version), true),
        _ => return None,
    };
    // Metadata alone is written in protobuf.
    let can_be_written = encoding != Encoding::Protobuf || shape == Representation::PartialMetadata(MetaVersion::V1);
    (transforms && can_be_written).then_some(Chosen { encoding, shape, is_list_shape, pretty })
}

#[cfg(test)]
mod tests;
